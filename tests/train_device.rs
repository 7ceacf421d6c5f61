//! Where `train` runs, how far ahead of itself, and in how much memory: as a user asks for it.

mod program;

use program::Program;

/// A run small enough for a test.
const SMALL: &str = "--length 24 --eval-batches 2 --warmup 1";

fn weights(program: &Program, run: &str, step: u64) -> Vec<u8> {
    program.bytes(&format!("{run}/step-{step:06}/weights.safetensors"))
}

fn batch(program: &Program, run: &str, step: u64) -> u64 {
    let manifest = program.json(&format!("{run}/step-{step:06}/checkpoint.json"));
    manifest.pointer("/progress/options/train/batch").and_then(|batch| batch.as_u64()).expect("its batch")
}

#[test]
fn steps_per_launch_change_nothing_but_when_the_host_waits() {
    let program = Program::new();
    let flags = format!("train {SMALL} --batch 2 --steps 9 --eval-every 4 --save-every 5");
    program.ok(&format!("{flags} --out single"));
    program.ok(&format!("{flags} --steps-per-launch 4 --out four"));
    program.ok(&format!("{flags} --steps-per-launch 100 --stop-after 3 --out parts"));
    program.ok("train --resume parts --steps-per-launch 2");
    for run in ["four", "parts"] {
        assert!(weights(&program, "single", 9) == weights(&program, run, 9), "{run}");
    }
    let lines =
        |run: &str| program.bytes(&format!("{run}/metrics.jsonl")).split(|byte| *byte == b'\n').count();
    assert_eq!([lines("four"), lines("parts")], [lines("single"); 2]);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_with_the_command_of_one_that_does() {
    let program = Program::new();
    let arguments = format!("train {SMALL} --steps 2 --memory-budget 40 --batch 512 --out x");
    let error = program.fails(&arguments, 1);
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    for part in ["training needs `", "parameter ", "activations ", "`--memory-budget` allows `40.0 MiB`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!program.path("x").exists());
    let (_, command) = error.trim_end().rsplit_once(" train ").expect("a command to type");
    assert!(command.starts_with("--length 24") && !command.contains("512"), "{command}");
    program.ok(&format!("train {command}"));
    let found = batch(&program, "x", 2);
    let more = format!("train {SMALL} --steps 2 --memory-budget 40 --batch {} --out y", found + 1);
    program.fails(&more, 1);
    let error = program.fails(&format!("train {SMALL} --steps 2 --memory-budget 1 --out z"), 1);
    assert!(error.contains("not even `--batch 1` fits: give a smaller `--length`"), "{error}");
}

#[test]
fn a_batch_is_found_by_memory_or_by_speed() {
    let program = Program::new();
    let said = program.ok(&format!("train {SMALL} --steps 2 --memory-budget 40 --batch auto --out auto"));
    assert!(said.contains("the largest multiple of 8 that fits: it needs "), "{said}");
    let largest = batch(&program, "auto", 2);
    assert!(
        largest >= 16 && largest.is_multiple_of(8) && said.contains(&format!("batch: {largest}, ")),
        "{said}"
    );
    let kept = String::from_utf8(program.bytes("auto/config.toml")).expect("TOML is text");
    assert!(kept.lines().any(|line| line == format!("batch = {largest}")), "{kept}");

    program.file("run.toml", b"batch = \"fastest\"");
    let said =
        program.ok(&format!("train {SMALL} --steps 2 --memory-budget 32 --config run.toml --out fastest"));
    let tried: Vec<u64> = said
        .lines()
        .filter_map(|line| line.strip_prefix("batch ")?.split_once(": ")?.0.parse().ok())
        .collect();
    let powers: Vec<u64> = (0..tried.len()).map(|power| 1 << power).collect();
    assert!(tried.len() >= 2 && tried == powers, "{said}");
    let best = batch(&program, "fastest", 2);
    assert!(
        tried.contains(&best) && said.contains(&format!("batch: {best}, the fastest of these")),
        "{said}"
    );
    // What was tried leaves nothing in the run.
    program.ok(&format!("train {SMALL} --steps 2 --batch {best} --out plain"));
    assert!(weights(&program, "plain", 2) == weights(&program, "fastest", 2));
}

#[test]
fn how_steps_are_planned_is_kept_with_the_run() {
    let program = Program::new();
    let flags =
        "--without residual_in_linear --attention split --grad-dtype fp32 --nondeterministic --head-chunk 24";
    program.ok(&format!("train {SMALL} --batch 2 --steps 4 --stop-after 2 {flags} --out run"));
    let options = |step: u64| {
        let manifest = program.json(&format!("run/step-{step:06}/checkpoint.json"));
        manifest.pointer("/progress/options/plan").cloned().unwrap_or_default()
    };
    let expected = serde_json::json!({
        "attention": "split", "grad_dtype": "fp32", "head_chunk": 24, "nondeterministic": true,
        "without": ["residual_in_linear"]
    });
    assert_eq!(options(2), expected);
    let kept = String::from_utf8(program.bytes("run/config.toml")).expect("TOML is text");
    for line in [
        "attention = \"split\"",
        "grad_dtype = \"fp32\"",
        "head_chunk = 24",
        "nondeterministic = true",
        "without = [\"residual_in_linear\"]",
    ] {
        assert!(kept.lines().any(|found| found == line), "{line}: {kept}");
    }
    program.ok("train --resume run --nondeterministic=false");
    assert_eq!(options(4)["nondeterministic"], false);
    assert_eq!(options(4)["without"], expected["without"]);
    program.ok("train --config run/config.toml --out again");
    let error = program.fails("train --config run/config.toml --grad-dtype bf16 --device cpu --out x", 1);
    assert!(error.contains("`--grad-dtype` must be `fp32` on the CPU, found `bf16`"), "{error}");
    assert!(!program.path("x").exists(), "nothing was begun");
}

#[test]
fn what_cannot_be_asked_for_is_one_line() {
    let program = Program::new();
    let cases = [
        ("train --batch most", 2, "allowed are a whole number, `auto` and `fastest`"),
        ("train --device gpu", 2, "allowed are `auto`, `cpu`, `cuda`, and `cuda:N`"),
        ("train --steps-per-launch 0", 2, "steps-per-launch"),
        ("train --memory-budget 0", 2, "memory-budget"),
        ("train --without everything", 2, "residual_in_linear"),
        ("train --attention flash", 2, "split"),
        ("train --nondeterministic=perhaps", 2, "true"),
    ];
    // There is no driver, or there are fewer GPUs.
    let error = program.fails("train --device cuda:4000 --out x", 1);
    assert!(error.contains("libcuda") || error.contains("GPU"), "{error}");
    for (arguments, code, message) in cases {
        let error = program.fails(arguments, code);
        assert!(error.contains(message), "`{arguments}` said: {error}");
        assert!(code == 2 || error.trim_end().lines().count() == 1, "`{arguments}` said: {error}");
        assert!(!program.path("x").exists(), "`{arguments}` wrote something");
    }
}
