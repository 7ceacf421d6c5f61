//! Options of a run as a user gives them: a file, flags, a checkpoint, and which of them wins.

mod program;

use program::Program;

/// A run small enough for a test.
const SMALL: &str = "--batch 2 --length 24 --eval-batches 2 --warmup 2";

fn weights(program: &Program, run: &str, step: u64) -> Vec<u8> {
    program.bytes(&format!("{run}/step-{step:06}/weights.safetensors"))
}

fn numbers(program: &Program, run: &str, key: &str) -> Vec<f64> {
    let text = String::from_utf8(program.bytes(&format!("{run}/metrics.jsonl"))).expect("JSON is text");
    let number = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        record[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"))
    };
    text.lines().map(number).collect()
}

fn option(program: &Program, run: &str, step: u64, pointer: &str) -> serde_json::Value {
    let manifest = program.json(&format!("{run}/step-{step:06}/checkpoint.json"));
    manifest.pointer(&format!("/progress/options{pointer}")).cloned().unwrap_or_default()
}

#[test]
fn the_resolved_file_repeats_the_run_to_the_bit() {
    let program = Program::new();
    program.file("texts/it.txt", &b"some words to learn, again and again. ".repeat(99));
    program.ok(&format!(
        "train {SMALL} --steps 9 --seed 18446744073709551615 --schedule wsd --learning-rate 1.7e-3 \
         --final-rate 0.05 --decay-fraction 0.4 --accumulate 3 --clip 0.7 --weight-decay 0.03 --eval-every 4 \
         --data texts/it.txt --out first"
    ));
    let second = program.ok("train --config first/config.toml --out second");
    assert!(second.contains("steps: 9 of 144 tokens (2 x 24 x 3)"), "{second}");
    assert!(weights(&program, "first", 9) == weights(&program, "second", 9));
    for key in ["loss", "learning_rate", "grad_norm", "tokens"] {
        assert_eq!(numbers(&program, "first", key), numbers(&program, "second", key), "{key}");
    }
    for pointer in ["/train", "/model", "/eval_every", "/save_every", "/data/fingerprint"] {
        let [first, second] = ["first", "second"].map(|run| option(&program, run, 9, pointer));
        assert!(first == second && !first.is_null(), "{pointer}: {first} {second}");
    }
    assert_eq!(program.bytes("first/config.toml"), program.bytes("second/config.toml"));
    // A resumed run goes on as it would have without the file, and the file says what the run does now.
    for (more, run) in [("--config first/config.toml", "third"), ("--clip 0.6", "fourth")] {
        program.ok(&format!("train --config first/config.toml --stop-after 3 --out {run}"));
        program.ok(&format!("train --resume {run} {more}"));
        let text = String::from_utf8(program.bytes(&format!("{run}/config.toml"))).expect("TOML is text");
        let clip = if run == "third" { "clip = 0.7" } else { "clip = 0.6" };
        assert!(text.lines().any(|line| line == clip), "{text}");
        let same = weights(&program, "first", 9) == weights(&program, run, 9);
        assert_eq!(same, run == "third", "{run}");
    }
}

#[test]
fn a_shape_out_of_a_file_is_kept_with_the_run() {
    let program = Program::new();
    let shape = program.ok("shape --preset tiny --toml").replace("layers = ", "layers = 1 # ");
    program.file("shapes/one.toml", shape.as_bytes());
    program.ok(&format!("train {SMALL} --steps 3 --shape shapes/one.toml --out first"));
    program.ok("train --config first/config.toml --out second");
    assert!(weights(&program, "first", 3) == weights(&program, "second", 3));
    program.ok("train --resume first --steps 4");
    program.ok("train --resume second --steps 4 --config first/config.toml");
    assert!(weights(&program, "first", 4) == weights(&program, "second", 4));
    // The run needs the file no more: its own copy says the same, whatever becomes of the file or the run's folder.
    let copy = String::from_utf8(program.bytes("first/shape.toml")).expect("TOML is text");
    assert_eq!(program.ok("shape --shape first/shape.toml --toml"), copy);
    assert_eq!(program.bytes("first/shape.toml"), program.bytes("second/shape.toml"));
    for (change, run) in [(true, "third"), (false, "fourth")] {
        match change {
            true => {
                drop(program.file("shapes/one.toml", shape.replace("layers = 1", "layers = 2").as_bytes()))
            }
            false => std::fs::remove_file(program.path("shapes/one.toml")).expect("the file"),
        }
        let said = program.ok(&format!("train --config first/config.toml --steps 3 --out {run}"));
        assert!(said.contains("model: first ("), "the copy is called as its run: {said}");
        assert!(weights(&program, "second", 3) == weights(&program, run, 3), "{run}");
    }
    std::fs::rename(program.path("first"), program.path("moved")).expect("another name");
    program.ok("train --config moved/config.toml --steps 3 --out fifth");
    assert!(weights(&program, "second", 3) == weights(&program, "fifth", 3));
    program.ok("train --resume moved/step-000003 --steps 4 --out branch");
    assert!(weights(&program, "second", 4) == weights(&program, "branch", 4));
    assert!(program.path("branch/shape.toml").exists(), "a branch is repeated on its own");
    program.ok("train --config branch/config.toml --out sixth");
    // A preset needs no copy.
    program.ok(&format!("train {SMALL} --steps 3 --preset tiny --out preset"));
    assert!(!program.path("preset/shape.toml").exists());
    program.file("shapes/one.toml", shape.as_bytes());
    program.file("both.toml", b"preset = \"tiny\"\nshape = \"shapes/one.toml\"\n");
    let error = program.fails("train --config both.toml --out x", 1);
    assert!(error.contains("both.toml: `preset` and `shape` exclude each other"), "{error}");
}

#[test]
#[cfg(feature = "render")]
fn fields_of_the_shape_may_be_changed_and_the_run_keeps_what_comes_of_it() {
    let program = Program::new();
    let small = format!("--device cpu --set model.layers=1 --set feed_forward.d_ff=40 {SMALL} --steps 4");
    program.ok(&format!("train {small} --stop-after 2"));
    let run = "runs/tiny-with-model.layers-1-feed_forward.d_ff-40";
    let text = String::from_utf8(program.bytes(&format!("{run}/shape.toml"))).expect("TOML is text");
    assert!(text.contains("layers = 1") && text.contains("d_ff = 40"), "{text}");
    program.ok(&format!("train {small} --out whole"));
    // The file of the run stands for its flags, and a key of a file does what the flag does.
    program.ok(&format!("train --config {run}/config.toml --out again"));
    program.file("run.toml", b"set = [\"model.layers = 1\", \"feed_forward.d_ff = 40\"]\nsteps = 4");
    program.ok(&format!("train --config run.toml --device cpu {SMALL} --out by_file"));
    for other in ["again", "by_file"] {
        assert!(weights(&program, "whole", 4) == weights(&program, other, 4), "{other}");
    }
    // What the shape is may be said again; what it is not is refused, and the run stays as it was.
    for wrong in ["--set model.layers=3", "--preset tiny", "--preset tiny --set model.layers=1"] {
        let error = program.fails(&format!("train --resume {run} {wrong}"), 1);
        let field = if wrong == "--set model.layers=3" { "model.layers" } else { "feed_forward.d_ff" };
        assert!(
            error.contains(&format!("`{field}` is `")) && error.contains("in the checkpoint, `"),
            "{error}"
        );
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    assert!(!program.path(&format!("{run}/step-000004")).exists());
    program.ok(&format!("train --resume {run} --set model.layers=1"));
    assert!(weights(&program, "whole", 4) == weights(&program, run, 4));
    let error = program.fails("train --set model.layer=3 --out x", 1);
    assert!(error.contains("--set: ") && error.contains("did you mean"), "{error}");
    assert!(!program.path("x").exists());
}

#[test]
fn flags_win_over_the_file_and_the_file_over_the_checkpoint() {
    let program = Program::new();
    program
        .file("run.toml", b"steps = 4\nbatch = 2\nlength = 24\neval_batches = 1\nwarmup = 1\nclip = 0.5\n");
    program.ok("train --config run.toml --clip 0.25 --out run");
    assert_eq!(option(&program, "run", 4, "/train/clip"), 0.25);
    assert_eq!(option(&program, "run", 4, "/train/batch"), 2);
    assert_eq!(option(&program, "run", 4, "/train/weight_decay"), 0.1, "the default");
    program.ok("train --resume run --steps 5");
    assert_eq!(option(&program, "run", 5, "/train/clip"), 0.25, "the checkpoint's");
    program.ok("train --resume run --config run.toml --steps 6");
    assert_eq!(option(&program, "run", 6, "/train/clip"), 0.5, "the file's");
    program.ok("train --resume run --config run.toml --steps 7 --clip 2");
    assert_eq!(option(&program, "run", 7, "/train/clip"), 2.0, "the flag's");
}

#[test]
fn data_in_a_file_counts_from_the_folder_of_the_file() {
    let program = Program::new();
    program.file("configs/texts/a.txt", &b"some words to learn, again and again. ".repeat(99));
    program.file("configs/run.toml", b"data = \"texts/a.txt\"\nsteps = 2\nbatch = 2\nlength = 24\n");
    let said = program.ok("train --config configs/run.toml --eval-batches 1 --out run");
    assert!(said.contains("data: configs/texts/a.txt"), "{said}");
    let text = String::from_utf8(program.bytes("run/config.toml")).expect("TOML is text");
    let line = text.lines().find(|line| line.starts_with("data = ")).expect("the data");
    assert!(line.starts_with("data = \"/") && line.ends_with("configs/texts/a.txt\""), "{line}");
}

#[test]
fn a_run_goes_on_and_is_repeated_from_any_folder() {
    let program = Program::new();
    program.file("texts/a.txt", &b"some words to learn, again and again. ".repeat(99));
    let said = program.ok(&format!("train {SMALL} --steps 4 --stop-after 2 --data texts/a.txt --out run"));
    assert!(said.contains("data: texts/a.txt ("), "what is said stays short: {said}");
    std::fs::create_dir(program.path("elsewhere")).expect("a folder");
    let mut command = program.command("train --resume ../run");
    let output = command.current_dir(program.path("elsewhere")).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.ok(&format!("train {SMALL} --steps 4 --data texts/a.txt --out whole"));
    assert!(weights(&program, "run", 4) == weights(&program, "whole", 4));
}

#[test]
fn a_bad_file_is_one_line_with_its_place_and_writes_nothing() {
    let program = Program::new();
    program.file("folder/a.toml", b"");
    let cases: [(&str, &str); 14] = [
        ("steps = 3\nbatsh = 4", "bad.toml:2: `batsh` is not a key: did you mean `batch`?"),
        ("resume = true", "bad.toml:1: `resume` is not a key, since it is about one call"),
        (
            "batch = \"four\"",
            "bad.toml:1: `batch` must be a whole number from 0 to 2^64 - 1, `\"auto\"`, `\"fastest\"`, found `\"four\"`",
        ),
        ("\n\nbatch = 0", "bad.toml:3: `batch` must be at least 1, found `0`"),
        ("learning_rate = nan", "bad.toml:1: `learning_rate` must be a number from 0 up that fp32 can hold"),
        ("steps = 5\nwarmup = 5", "bad.toml:2: `warmup` must be below `steps`, 5, found `5`"),
        ("final_rate = 1.5", "bad.toml:1: `final_rate` must be from 0 to 1"),
        ("decay_fraction = 0", "bad.toml:1: `decay_fraction` must be above 0 and at most 1"),
        (
            "schedule = \"wsd\"\nsteps = 9\nwarmup = 3\ndecay_fraction = 0.8",
            "bad.toml:4: `decay_fraction` must be at",
        ),
        (
            "schedule = \"linear\"\ndecay_fraction = 0.5",
            "bad.toml:2: `decay_fraction` must be left out with schedule `linear`: it is for `wsd`, found `0.5`",
        ),
        ("final_rate = 0.5\nschedule = \"constant\"", "bad.toml:1: `final_rate` must be left out with"),
        ("steps = 9007199254740992", "bad.toml:1: `steps` must be such that"),
        ("preset = \"huge\"", "bad.toml:1: `preset` must be `\"tiny\"`"),
        ("steps = ", "bad.toml:1: "),
    ];
    for (text, message) in cases {
        program.file("bad.toml", text.as_bytes());
        let error = program.fails("train --config bad.toml --out x", 1);
        assert!(error.contains(message), "{text:?} said: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(!program.path("x").exists(), "{text:?} wrote something");
    }
    // What a flag says is not the file's fault.
    program.file("bad.toml", b"batch = 4\n");
    let error = program.fails("train --config bad.toml --batch 0 --out x", 1);
    assert!(error.contains("error: `batch` must be at least 1"), "{error}");
    for (path, message) in
        [("nowhere.toml", "cannot read `nowhere.toml`: "), ("folder", "cannot read `folder`: ")]
    {
        let error = program.fails(&format!("train --config {path} --out x"), 1);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn z_loss_pulls_the_logits_towards_a_sum_of_one_and_validation_leaves_it_out() {
    let program = Program::new();
    let flags = format!("train {SMALL} --steps 4 --learning-rate 1e-9");
    program.ok(&format!("{flags} --out without"));
    program.ok(&format!("{flags} --z-loss 0.5 --out with"));
    let [without, with] = ["without", "with"].map(|run| numbers(&program, run, "loss")[0]);
    // New weights give logits near zero, whose log-sum-exp is ln 256.
    let square = 0.5 * 256_f64.ln().powi(2);
    assert!((with - without - square).abs() < 0.05 * square, "{without} and {with}, expected {square} more");
    let validation = |run: &str| {
        let text = String::from_utf8(program.bytes(&format!("{run}/metrics.jsonl"))).expect("JSON is text");
        let last = text.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        last.expect("a record")["validation_loss"].as_f64().expect("a validation")
    };
    assert!((validation("with") - validation("without")).abs() < 1e-3);
    let error = program.fails("train --z-loss -1 --out x", 1);
    assert!(error.contains("`z-loss` must be a number from 0 up that fp32 can hold, found `-1`"), "{error}");
}

#[test]
fn a_wsd_run_is_prolonged_from_its_stable_part_and_no_other() {
    let program = Program::new();
    let flags = format!("train {SMALL} --schedule wsd --decay-fraction 0.25 --save-every 1");
    program.ok(&format!("{flags} --steps 24 --out long"));
    program.ok(&format!("{flags} --steps 12 --out short"));
    // The stable part ends with step 9: its checkpoint stays beside the last two.
    let kept = program.names("short").into_iter().filter(|name| name.starts_with("step-"));
    assert!(kept.eq(["step-000009", "step-000011", "step-000012"]));
    let error = program.fails("train --resume short --steps 24", 1);
    for part in ["ended with step `9`, found step `12`", "--resume RUN/step-000009 --out NEW"] {
        assert!(error.contains(part), "{error}");
    }
    let error = program.fails("train --resume short/step-000009 --steps 24", 1);
    assert!(error.contains("is a checkpoint: give its run, --resume short, or --out DIR"), "{error}");
    let said = program.ok("train --resume short/step-000009 --out branch --steps 24");
    assert!(said.contains("resuming after step 9 from short/step-000009"), "{said}");
    assert!(
        weights(&program, "long", 24) == weights(&program, "branch", 24),
        "as if it had been long at once"
    );
    assert_eq!(numbers(&program, "long", "loss"), numbers(&program, "branch", "loss"), "the record is whole");
    assert_eq!(numbers(&program, "short", "loss").len(), 12, "the run it left is as it was");
    // A run stopped in its stable part is simply prolonged.
    program.ok(&format!("{flags} --steps 12 --stop-after 7 --out early"));
    program.ok("train --resume early --steps 24");
    assert!(weights(&program, "long", 24) == weights(&program, "early", 24));
}

#[test]
fn another_batch_goes_on_at_the_same_token() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 20 --stop-after 10 --out run"));
    let said = program.ok("train --resume run --batch 4");
    assert!(said.contains("steps: 15 of 96 tokens (4 x 24 x 1)"), "{said}");
    let expected: Vec<f64> =
        (1..=15).map(|step| f64::from(48 * step.min(10) + 96 * (step - 10).max(0))).collect();
    assert_eq!(numbers(&program, "run", "tokens"), expected);
    let index = |step: u64| program.json(&format!("run/step-{step:06}/checkpoint.json"));
    assert_eq!(index(15)["progress"]["position"]["index"], 40, "10 steps of 2 sequences, 5 of 4");
    assert_eq!(option(&program, "run", 15, "/train/eval_batches"), 1, "the same sequences are validated");
    let text = String::from_utf8(program.bytes("run/config.toml")).expect("TOML is text");
    assert!(text.contains("has changed its batch on the way") && text.contains("\nsteps = 15\n"), "{text}");
    let error = program.fails("train --resume run --steps 30 --length 12", 1);
    assert!(error.contains("keeps its `--length`, by which the data is cut and ordered"), "{error}");
}

#[test]
fn a_folder_whose_run_left_no_checkpoint_is_taken_again() {
    let program = Program::new();
    let flags = format!("train {SMALL} --steps 5 --save-every 1 --out run");
    let error = program.fails(&format!("{flags} --learning-rate 1e38"), 1);
    assert!(error.contains("the learning rate may be too high"), "{error}");
    assert!(program.names("run").contains(&"config.toml".to_owned()));
    program.ok(&flags);
    program.ok(&format!("train {SMALL} --steps 5 --out other"));
    assert!(weights(&program, "run", 5) == weights(&program, "other", 5));
}

#[test]
fn what_an_unfinished_beginning_leaves_is_begun_again() {
    let program = Program::new();
    let left = [
        "lock",
        "config.toml",
        "shape.toml",
        "metrics.jsonl",
        "loss.svg",
        ".config.toml.29520-0.tmp",
        ".shape.toml.29520-1.tmp",
        ".loss.svg.29520-2.tmp",
        ".step-000002.29520.tmp/weights.safetensors",
    ];
    left.iter().for_each(|name| drop(program.file(&format!("run/{name}"), b"x")));
    let error = program.fails("train --resume run", 1);
    let expected = "there is no checkpoint in `run` to resume from: its run ended before the first, begin it again with \
                    --out run";
    assert!(error.contains(expected), "{error}");
    let shape = program.ok("shape --preset tiny --toml").replace("layers = ", "layers = 1 # ");
    program.file("one.toml", shape.as_bytes());
    let flags = format!("train {SMALL} --steps 3 --shape one.toml");
    program.ok(&format!("{flags} --out run"));
    program.ok(&format!("{flags} --out other"));
    assert_eq!(program.names("run"), program.names("other"), "nothing is left over");
    for name in ["shape.toml", "config.toml"] {
        assert_eq!(program.bytes(&format!("run/{name}")), program.bytes(&format!("other/{name}")), "{name}");
    }
    // One more file is somebody's.
    program.file("mine/config.toml", b"x");
    program.file("mine/.notes.tmp", b"x");
    assert!(program.fails(&format!("{flags} --out mine"), 1).contains("`mine` exists: give another --out"));
    assert_eq!(program.bytes("mine/config.toml"), b"x");
}

#[test]
fn a_run_that_diverges_after_a_resume_names_tensor_and_checkpoint() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 3 --out run"));
    let before = weights(&program, "run", 3);
    for rate in ["1e38", "1e29", "1e15", "1e8"] {
        let arguments =
            format!("train --resume run --steps 60 --learning-rate {rate} --save-every 1 --warmup 0");
        let error = program.fails(&arguments, 1);
        assert!(
            error.contains("the first tensor that is not finite is `") || error.contains("element "),
            "{error}"
        );
        assert!(error.contains("is whole:") && error.contains("--learning-rate LOWER"), "{error}");
        program.ok("generate --checkpoint run --prompt a --tokens 3");
    }
    assert!(before == weights(&program, "run", 3), "the last sound checkpoint stays");
}
