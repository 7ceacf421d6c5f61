//! `train` and `generate` as a user meets them: the same bits again, nothing lost, every error one line.

mod program;

use program::Program;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A run small enough for a test.
const SMALL: &str = "--batch 2 --length 24 --eval-batches 2 --warmup 2";

fn weights(program: &Program, run: &str, step: u64) -> (Vec<u8>, Vec<u8>) {
    let folder = format!("{run}/step-{step:06}");
    (
        program.bytes(&format!("{folder}/weights.safetensors")),
        program.bytes(&format!("{folder}/moments.safetensors")),
    )
}

fn losses(program: &Program, run: &str) -> Vec<f64> {
    let text = String::from_utf8(program.bytes(&format!("{run}/metrics.jsonl"))).expect("JSON is text");
    let loss = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        record["loss"].as_f64().expect("a loss")
    };
    text.lines().map(loss).collect()
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_number_of_threads() {
    let program = Program::new();
    for threads in [1, 2, 5] {
        program.ok(&format!("train {SMALL} --steps 4 --seed 7 --threads {threads} --out t{threads}"));
    }
    program.ok(&format!("train {SMALL} --steps 4 --seed 8 --threads 1 --out other"));
    let first = weights(&program, "t1", 4);
    assert!(first == weights(&program, "t2", 4) && first == weights(&program, "t5", 4));
    assert!(first != weights(&program, "other", 4), "the seed must matter");
}

#[test]
fn twenty_steps_equal_ten_and_ten_after_a_resume() {
    let program = Program::new();
    let flags = format!("train {SMALL} --steps 20 --accumulate 2 --eval-every 5");
    program.ok(&format!("{flags} --out whole"));
    program.ok(&format!("{flags} --out parts --stop-after 10"));
    assert_eq!(losses(&program, "parts").len(), 10);
    program.ok("train --resume parts");
    assert!(weights(&program, "whole", 20) == weights(&program, "parts", 20));
    let manifests = ["whole", "parts"].map(|run| program.json(&format!("{run}/step-000020/checkpoint.json")));
    assert_eq!(manifests[0], manifests[1], "step, position, random numbers, options");
    assert_eq!(losses(&program, "whole"), losses(&program, "parts"));
}

#[test]
fn micro_batches_are_one_large_batch() {
    let program = Program::new();
    program.ok("train --length 24 --steps 4 --warmup 1 --batch 4 --out large");
    program.ok("train --length 24 --steps 4 --warmup 1 --batch 1 --accumulate 4 --out small");
    for (large, small) in losses(&program, "large").iter().zip(losses(&program, "small")) {
        assert!((large - small).abs() < 1e-4 * large, "{large} and {small}");
    }
}

#[test]
fn training_learns_and_says_so() {
    let program = Program::new();
    let said = program.ok("train --batch 8 --length 128 --steps 150 --eval-every 0 --eval-batches 16");
    let losses = losses(&program, "runs/tiny");
    assert!(losses[0] > 5.0 && losses[149] < 2.5, "from {} to {}", losses[0], losses[149]);
    let after = |text: &str| {
        let rest = said.rsplit_once(text).unwrap_or_else(|| panic!("{text:?} in {said}")).1.trim_start();
        let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        number.parse::<f64>().expect("a number")
    };
    let (validation, bigram) = (after("validation "), after("(bigram "));
    assert!(validation < bigram, "validation {validation}, bigram {bigram}");
    for part in
        ["bigram baseline", ">>>", "checkpoint: runs/tiny/step-000150", "in fp32 (the shape says bf16)"]
    {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    let picture = String::from_utf8(program.bytes("runs/tiny/loss.svg")).expect("SVG is text");
    assert!(picture.contains("<svg") && picture.contains("loss (nats per token)"));
}

#[test]
fn an_old_run_is_never_written_over() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 3"));
    program.ok(&format!("train {SMALL} --steps 3"));
    assert_eq!(program.names("runs"), ["tiny", "tiny-2"]);
    let before = weights(&program, "runs/tiny", 3);
    let error = program.fails(&format!("train {SMALL} --steps 3 --seed 5 --out runs/tiny"), 1);
    assert!(error.contains("`runs/tiny` exists: give another --out, or go on with --resume"), "{error}");
    assert!(before == weights(&program, "runs/tiny", 3));
    // Without a name, --resume takes the newest run.
    let said = program.ok("train --resume --steps 5");
    assert!(said.contains("resuming after step 3 from runs/tiny-2"), "{said}");
}

/// Starts a long run and waits until it has saved once.
fn start(program: &Program) -> std::process::Child {
    let mut command = program.command(&format!("train {SMALL} --steps 100000 --save-every 1 --out run"));
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut patience = 600;
    while !program.names("run").iter().any(|name| name.starts_with("step-")) {
        patience -= 1;
        if patience == 0 {
            child.kill().and_then(|()| child.wait()).expect("its end");
            panic!("no checkpoint within 30 s");
        }
        sleep(Duration::from_millis(50));
    }
    child
}

#[test]
fn a_kill_at_any_moment_leaves_a_checkpoint_to_go_on_from() {
    for wait in [0, 7, 23, 61, 140] {
        let program = Program::new();
        let mut child = start(&program);
        sleep(Duration::from_millis(wait));
        child.kill().expect("a kill");
        child.wait().expect("its end");
        let said = program.ok("train --resume run --stop-after 1");
        assert!(said.contains("resuming after step"), "{said}");
        program.ok("generate --checkpoint run --prompt a --tokens 3");
    }
}

#[test]
fn signals_finish_the_step_save_and_say_where() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let program = Program::new();
        let mut child = start(&program);
        let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let status = child.wait().expect("its end");
        let mut said = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(said.contains("stopped after step") && said.contains("train --resume run"), "{said}");
        let said = program.ok("train --resume run --stop-after 1");
        assert!(said.contains("resuming after step"), "{said}");
    }
}

#[test]
fn the_learning_rate_rises_then_falls_to_a_tenth() {
    let program = Program::new();
    program.ok(
        "train --batch 1 --length 16 --steps 6 --warmup 2 --learning-rate 1e-3 --eval-batches 1 --out run",
    );
    let text = String::from_utf8(program.bytes("run/metrics.jsonl")).expect("JSON is text");
    let rates: Vec<f64> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["learning_rate"].as_f64())
        .map(|rate| rate.expect("a rate"))
        .collect();
    assert!((rates[0] - 5e-4).abs() < 1e-9 && (rates[1] - 1e-3).abs() < 1e-9, "{rates:?}");
    assert!(rates[2..].windows(2).all(|two| two[0] > two[1]), "{rates:?}");
    assert!((rates[5] - 1e-4).abs() < 1e-9, "{rates:?}");
}

#[test]
fn a_run_that_diverges_keeps_its_last_sound_checkpoint() {
    for (rate, flags) in
        [("1e29", "--save-every 1"), ("1e38", "--save-every 1"), ("1e29", "--steps 2 --warmup 0")]
    {
        let program = Program::new();
        let arguments = format!(
            "train --batch 2 --length 16 --eval-batches 1 --learning-rate {rate} --warmup 0 --out run {flags}"
        );
        let arguments = arguments.replacen("--warmup 0", "", flags.matches("--warmup").count());
        let error = program.fails(&arguments, 1);
        assert!(error.contains("the learning rate may be too high"), "{error}");
        let whole = error.contains("is whole:");
        assert_eq!(whole, program.names("run").iter().any(|name| name.starts_with("step-")), "{error}");
        if whole {
            assert!(error.contains("--learning-rate LOWER"), "{error}");
            let weights = program.names("run").into_iter().rev().find(|name| name.starts_with("step-"));
            let weights =
                program.bytes(&format!("run/{}/weights.safetensors", weights.expect("a checkpoint")));
            let tensors = safetensors::SafeTensors::deserialize(&weights).expect("a whole file");
            let values = tensors.tensors().into_iter().flat_map(|(_, tensor)| {
                let values =
                    tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                values.collect::<Vec<_>>()
            });
            assert!(values.into_iter().all(f32::is_finite));
        }
    }
}

#[test]
fn two_programs_never_train_in_one_folder() {
    let program = Program::new();
    let mut child = start(&program);
    let error = program.fails("train --resume run", 1);
    assert!(error.contains("another program is training in `run`"), "{error}");
    child.kill().and_then(|()| child.wait()).expect("its end");
    program.ok("train --resume run --stop-after 1");
}

#[test]
fn any_text_and_both_bin_layouts_train() {
    let program = Program::new();
    let noise: Vec<u8> = (0..6000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    program.file("noise.txt", &noise);
    program.file("texts/b.txt", &b"second ".repeat(300));
    program.file("texts/a.txt", &b"first ".repeat(300));
    let tokens: Vec<u8> = (0..3000_u16).flat_map(|i| (i * 7 % 200).to_le_bytes()).collect();
    program.file("nano.bin", &tokens);
    let mut header = vec![0_u8; 1024];
    for (at, value) in [(0, 20_240_520_u32), (4, 1), (8, 3000)] {
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    program.file("llmc.bin", &[header, tokens].concat());
    for data in ["noise.txt", "texts", "nano.bin", "llmc.bin"] {
        program.ok(&format!("train {SMALL} --steps 3 --data {data} --out run-{data}"));
    }
    let losses = ["nano", "llmc"].map(|name| losses(&program, &format!("run-{name}.bin")));
    assert_eq!(losses[0], losses[1], "the same tokens in two layouts");
    let numbers = program.ok("generate --checkpoint run-nano.bin --prompt 7 --tokens 4");
    assert_eq!(numbers.split_whitespace().filter(|word| word.parse::<u16>().is_ok()).count(), 4, "{numbers}");
}

#[test]
fn generation_is_repeatable_and_takes_its_options() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 6 --out run"));
    let say = |more: &str| program.ok(&format!("generate --checkpoint run --prompt fn --tokens 40 {more}"));
    assert_eq!(say("--seed 3"), say("--seed 3 --threads 1"));
    assert_ne!(say("--seed 3"), say("--seed 4"));
    assert_eq!(say("--temperature 0 --seed 1"), say("--top-k 1 --seed 2"));
    assert!(say("--temperature 0").starts_with("fn"));
    assert_eq!(
        say("--temperature 0"),
        program.ok("generate --checkpoint run/step-000006 --prompt fn --tokens 40 --temperature 0")
    );
    // A prompt may begin as flags do.
    for prompt in ["-- comment", "-1", "--tokens"] {
        let mut command = program.command("generate --checkpoint run --tokens 3");
        let output = command.args(["--prompt", prompt]).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.starts_with(prompt), "{prompt}: {said}");
    }
    // A prompt longer than the context is cut from the left.
    let long = "x".repeat(400);
    program.ok(&format!("generate --checkpoint run --prompt {long} --tokens 2"));
}

#[test]
fn bad_input_is_one_line_and_writes_nothing() {
    let program = Program::new();
    program.file("empty.txt", b"");
    program.file("short.txt", b"too short");
    program.file("odd.bin", &[1, 2, 3]);
    program.file("high.bin", &[0xff_u8; 4000]);
    program.ok(&format!("train {SMALL} --steps 3 --out done"));
    program.file("cut/step-000002/checkpoint.json", b"{");
    let cases = [
        ("train --data empty.txt --out x", 1, "empty"),
        ("train --data short.txt --out x", 1, "9"),
        ("train --data odd.bin --out x", 1, "odd.bin"),
        ("train --data high.bin --out x", 1, "65535"),
        ("train --data nowhere --out x", 1, "nowhere"),
        ("train --batch 0 --out x", 1, "`batch` must be at least 1, found `0`"),
        ("train --length 0 --out x", 1, "`length` must be from 1 to the model's context, 256"),
        ("train --length 257 --out x", 1, "found `257`"),
        ("train --steps 0 --out x", 1, "`steps` must be at least 1"),
        ("train --accumulate 0 --out x", 1, "`accumulate` must be at least 1"),
        ("train --learning-rate nan --out x", 1, "`learning-rate` must be a number from 0 up"),
        (
            "train --learning-rate -1 --out x",
            1,
            "`learning-rate` must be a number from 0 up that fp32 can hold, found `-1`",
        ),
        ("train --weight-decay inf --out x", 1, "`weight-decay` must be a number from 0 up"),
        ("train --clip 1e-300 --out x", 1, "`clip` must be a number from 0 up that fp32 can hold"),
        (
            "train --batch 100000000 --length 8 --out x",
            1,
            "`batch` must be such that batch x length is at most 268435456, found `100000000`",
        ),
        (
            "train --batch 1000000 --length 8 --accumulate 99 --out x",
            1,
            "`accumulate` must be such that batch x length x accumulate is at most 268435456, found `99`",
        ),
        ("train --accumulate 18446744073709551615 --out x", 1, "`accumulate` must be such that"),
        ("train --resume done --out x --steps 5", 1, "give --resume done or --out x, not both"),
        ("train --data /dev/zero --out x", 1, "/dev/zero"),
        ("train --threads 100000 --out x", 2, "100000"),
        ("train --clip -1 --out x", 1, "`clip` must be a number from 0 up that fp32 can hold, found `-1`"),
        ("train --warmup 500 --out x", 1, "`warmup` must be below `steps`, 500, found `500`"),
        ("train --resume x", 1, "no checkpoint in `x`"),
        ("train --resume --out x", 1, "no checkpoint in `x`"),
        ("train --resume", 1, "there is no run to resume"),
        ("train --resume cut", 1, "checkpoint.json"),
        ("train --resume done", 1, "the run has done its `3` steps"),
        ("train --resume done --steps 4 --preset gpt2-124m", 1, "another model"),
        ("train --resume done --steps 4 --length 8", 1, "keeps its `--length`"),
        ("train --resume done --steps 4 --data short.txt", 1, "the data has changed"),
        ("generate --checkpoint x --prompt a", 1, "`x`"),
        ("generate --checkpoint done --prompt a --temperature -1", 1, "`temperature` must be"),
        ("generate --checkpoint done --prompt a --top-k 0", 1, "`top-k` must be"),
        ("train --batch many", 2, "invalid value 'many'"),
        ("train --preset nobody", 2, "tiny"),
        ("train --no-such-flag", 2, "--no-such-flag"),
        ("fly", 2, "unrecognized subcommand"),
    ];
    let before = weights(&program, "done", 3);
    for (arguments, code, message) in cases {
        let error = program.fails(arguments, code);
        assert!(error.contains(message), "`{arguments}` said: {error}");
        assert!(code == 2 || error.trim_end().lines().count() == 1, "`{arguments}` said: {error}");
        assert!(!program.path("x").exists(), "`{arguments}` wrote something");
    }
    assert!(before == weights(&program, "done", 3));
    let output = program.command("generate --checkpoint done --tokens 1").args(["--prompt", ""]).output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("`--prompt` is empty: generation needs a token to continue"), "{error}");
}

#[test]
fn a_model_of_text_draws_bytes_only() {
    let program = Program::new();
    // A new model of many tokens: each is about as likely.
    let shape = program.ok("shape --preset tiny --toml").replace("layers = ", "layers = 1 # ");
    program.file("wide.toml", shape.replace("vocab = 256", "vocab = 2048").as_bytes());
    program.ok(&format!("train {SMALL} --steps 3 --learning-rate 1e-9 --shape wide.toml --out run"));
    let mut command = program.command("generate --checkpoint run --prompt a --tokens 40 --temperature 2");
    let output = command.output().expect("the program starts");
    assert_eq!(output.stdout.len(), 1 + 40 + 1, "the prompt, a byte per token, a line end");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 3 --out run"));
    for arguments in ["generate --checkpoint run --prompt a --tokens 200", "train --help", "doctor"] {
        let mut command = program.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("its end");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_quiet = error.lines().all(|line| line.starts_with("device: "));
        assert!(output.status.success() && is_quiet, "{arguments}: {:?} {error}", output.status);
    }
}
