//! The commands that need no GPU and no training, as a user types them: `plan`, `doctor`, `cuda`.

#![cfg(feature = "render")]

mod cuda;

use kernwright_plan::arch;
use kernwright_plan::shape::presets;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The program with no environment: nothing of this machine can be found through it.
fn kernwright(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernwright"));
    command.env_clear().env("PATH", "").args(arguments);
    command
}

/// Exit code, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = kernwright(arguments).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("it writes text");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn done(arguments: &[&str]) -> String {
    let (code, out, error) = run(arguments);
    assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
    out
}

fn json(arguments: &[&str]) -> Value {
    let out = done(arguments);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{out}"))
}

#[test]
fn plan_shows_every_preset_with_its_layers_folded() {
    for preset in presets::ALL {
        let shape = preset.shape();
        let text = done(&["plan", "--preset", preset.name]);
        let folded = format!("a row with x {} stands for {0} equal layers", shape.layers);
        let place = format!("{}:\n{text}", preset.name);
        assert!(text.contains(&folded) && !text.contains("layers."), "{place}");
        let wide = done(&["plan", "--preset", preset.name, "--wide"]);
        // The first of each kind may stand alone, since nothing reads a narrow copy of its gradient.
        let second = format!("layers.{}.", shape.pattern.len().max(1));
        assert!(wide.contains("layers.*.attention.qkv") && !wide.contains(&second), "{wide}");
        for wanted in
            ["forward\n", "backward\n", "update\n", "per token", "tokens/s", "planned peak", "transient"]
        {
            assert!(text.contains(wanted), "`{wanted}` is not in {place}");
        }
        let all = done(&["plan", "--preset", preset.name, "--all", "--wide"]);
        let last = format!("layers.{}.feed_forward.up", shape.layers - 1);
        assert!(all.contains(&last) && !all.contains("layers.*"), "{place}");
        assert!(all.lines().count() > text.lines().count(), "{place}");
    }
}

#[test]
fn lines_of_plan_and_doctor_fit_100_columns() {
    for preset in presets::ALL {
        for arguments in [
            &[][..],
            &["--all"],
            &["--batch", "64"],
            &["--precision", "fp32"],
            &["--attention", "split", "--all"],
            &["--nondeterministic"],
        ] {
            let arguments = [&["plan", "--preset", preset.name], arguments].concat();
            for line in done(&arguments).lines() {
                assert!(line.chars().count() <= 100, "{arguments:?}: {line}");
            }
        }
    }
    for line in done(&["doctor"]).lines().filter(|line| !line.contains('/')) {
        assert!(line.chars().count() <= 100, "doctor: {line}");
    }
}

#[test]
fn folded_rows_are_numbered_by_the_first_layer() {
    for preset in presets::ALL {
        let folded = done(&["plan", "--preset", preset.name]);
        let all = done(&["plan", "--preset", preset.name, "--all"]);
        // Number and op of a row; those of other lines are words.
        let rows = |text: &str, has_times: bool| -> Vec<(usize, String)> {
            let row = |line: &str| {
                let mut words = line.split_whitespace();
                let index = words.next()?.parse().ok()?;
                let times_or_op = words.next()?;
                let is_folded = times_or_op.parse::<usize>().is_ok();
                assert!(!is_folded || has_times, "{line}");
                Some((index, if is_folded { words.next()?.to_owned() } else { times_or_op.to_owned() }))
            };
            text.lines().filter_map(row).collect()
        };
        let (folded, all) = (rows(&folded, true), rows(&all, false));
        assert_eq!(folded[0].0, 0, "{}", preset.name);
        assert!(folded.windows(2).all(|pair| pair[0].0 < pair[1].0), "{}: {folded:?}", preset.name);
        assert!(folded.iter().all(|row| all.contains(row)), "{}: {folded:?}", preset.name);
    }
}

#[test]
fn memory_beside_the_plan_is_that_of_the_gpu() {
    for (gpu, bytes) in [("sm_86", "8.00 MiB"), ("sm_90a", "32.0 MiB"), ("sm_100a", "32.0 MiB")] {
        let text = done(&["plan", "--gpu", gpu]);
        let row = |line: &&str| line.trim_start().starts_with("workspace of matrix products ");
        assert!(text.lines().find(row).is_some_and(|line| line.ends_with(bytes)), "{gpu}: {text}");
    }
}

#[test]
fn totals_of_the_json_are_sums_of_its_steps() {
    for preset in presets::ALL {
        let plan = json(&["plan", "--preset", preset.name, "--json", "--batch", "3", "--length", "101"]);
        assert_eq!(plan["parameters"], preset.shape().n_parameters(), "{}", preset.name);
        assert_eq!(plan["tokens"], 303);
        let steps = plan["steps"].as_array().expect("steps is a list");
        let counted: Vec<&Value> = steps.iter().filter(|step| step["counted"] == true).collect();
        assert!(counted.len() > preset.shape().layers * 13);
        assert_eq!(plan["totals"]["n_steps"], counted.len());
        for name in ["flops", "tensor_flops", "vector_flops", "bytes", "roofline_seconds"] {
            let sum: f64 = counted.iter().filter_map(|step| step[name].as_f64()).sum();
            let total = plan["totals"][name].as_f64().unwrap_or(f64::NAN);
            assert!((sum - total).abs() <= 1e-12 * sum, "{} {name}: {sum} and {total}", preset.name);
        }
        let number = |path: &str| plan.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let per_token = number("/totals/flops") / 303.0;
        assert!((number("/totals/flops_per_token") - per_token).abs() <= 1e-9 * per_token);
        assert_eq!(number("/memory/persistent") + number("/memory/transient"), number("/memory/arena"));
        let beside = ["workspace of matrix products", "uploads under way"];
        let beside: f64 = beside.iter().map(|what| number(&format!("/memory/beside/{what}"))).sum();
        assert_eq!(number("/memory/arena") + beside, number("/memory/peak"));
        // Every step says what it is on a GPU.
        for step in steps {
            let launches = step["launches"].as_array().map_or(0, Vec::len);
            assert_eq!(launches == 0, step["no_kernel"].is_string(), "{step}");
        }
    }
}

#[test]
fn plan_follows_its_flags() {
    let seconds = |arguments: &[&str]| {
        let plan = json(&[&["plan", "--json"], arguments].concat());
        plan["totals"]["roofline_seconds"].as_f64().unwrap_or(f64::NAN)
    };
    assert!(seconds(&["--gpu", "sm_86"]) > seconds(&["--gpu", "sm_90a"]), "a slower card");
    assert!(seconds(&["--batch", "2"]) < seconds(&["--batch", "9"]), "fewer sequences");
    assert!(seconds(&["--precision", "fp32"]) > seconds(&[]), "wider operands, no tensor cores");
    assert!(seconds(&["--without", "residual_in_linear"]) > seconds(&[]), "a pass left out");
    assert!(seconds(&["--grad-dtype", "bf16"]) < seconds(&[]), "gradients of half the size");
    assert!(seconds(&["--attention", "split"]) > seconds(&["--attention", "fused"]), "scores in memory");
    let bytes = |arguments: &[&str]| {
        let plan = json(&[&["plan", "--json", "--preset", "seed-102m"], arguments].concat());
        plan["totals"]["bytes"].as_f64().unwrap_or(f64::NAN)
    };
    let plain = bytes(&[]);
    for (flag, name) in [
        ("--without", "residual_in_linear"),
        ("--without", "narrow_gradient"),
        ("--without", "first_write_overwrites"),
        ("--without", "narrow_producers"),
        ("--without", "single_pass_softmax"),
        ("--with", "residual_copy"),
        ("--head-chunk", "512"),
    ] {
        assert!(bytes(&[flag, name]) > plain, "{flag} {name} moves more");
    }
    for pass in ["gelu_in_linear", "gelu_gradient_in_linear"] {
        let steps = |without: &[&str]| {
            let plan = json(&[&["plan", "--json", "--preset", "gpt2-124m"], without].concat());
            plan["totals"]["n_steps"].as_u64().unwrap_or(0)
        };
        assert_eq!(steps(&["--without", pass]), steps(&[]) + 12, "{pass} saves a step in each layer");
    }
    let dump = done(&["plan", "--dump"]);
    assert!(dump.contains("x=layers.0.attention_norm:bf16[2048x128]"), "{dump}");
}

#[test]
fn plan_shows_how_attention_is_computed() {
    let of = |arguments: &[&str]| {
        let arguments = [&["plan", "--preset", "seed-102m"], arguments].concat();
        let plan = json(&[&arguments[..], &["--json"]].concat());
        let scratch = |slot: &str| {
            let steps = plan["steps"].as_array().expect("steps is a list");
            let slots = steps.iter().filter_map(|step| step["writes"].as_array()).flatten();
            slots.filter(|write| write["slot"] == slot).count()
        };
        let heading = done(&arguments).lines().next().unwrap_or_default().to_owned();
        let path = plan["attention"].as_str().unwrap_or_default().to_owned();
        assert!(heading.contains(&format!("{path} attention")), "{heading}");
        let slots = ["scores", "probabilities", "delta", "d_q_sum"].map(scratch);
        (path, plan["deterministic"] == true, slots)
    };
    let layers = presets::find("seed-102m").expect("a preset").shape().layers;
    let (all, both) = (layers, 2 * layers);
    // Hopper adds up the gradient of queries in turns.
    assert_eq!(of(&["--gpu", "sm_90a"]), ("fused".to_owned(), true, [0, 0, all, all]));
    assert_eq!(of(&["--gpu", "sm_80"]), ("fused".to_owned(), true, [0, 0, all, 0]));
    assert_eq!(of(&["--nondeterministic"]), ("fused".to_owned(), false, [0, 0, all, all]));
    assert_eq!(of(&["--attention", "split"]), ("split".to_owned(), true, [both, both, 0, 0]));
    assert_eq!(of(&["--precision", "fp32"]), ("split".to_owned(), true, [both, 0, 0, 0]));
    let (code, _, error) = run(&["plan", "--attention", "lost"]);
    assert_eq!(code, 2);
    assert!(error.contains("fused, split"), "{error}");
}

#[test]
fn wrong_usage_is_told_with_what_is_allowed_and_exit_code_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["plan", "--batch", "0"], "--batch"),
        (&["plan", "--length", "0"], "--length"),
        (&["plan", "--preset", "tiny", "--length", "257"], "`--length` must be at most 256"),
        (&["plan", "--preset", "qwen2.5-0.5b", "--batch", "4000000000", "--length", "32768"], "below 2^31"),
        (&["plan", "--preset", "huge"], "seed-102m"),
        (&["plan", "--dump", "--json"], "cannot be used with"),
        (&["plan", "--dump", "--wide"], "cannot be used with"),
        (&["plan", "--without", "thought"], "residual_in_linear"),
        (&["plan", "--grad-dtype", "fp16"], "must be `fp32` or the precision, `bf16`, found `fp16`"),
        (&["plan", "--with", "thought"], "residual_copy"),
        (&["plan", "--head-chunk", "0"], "--head-chunk"),
        (&["cuda", "--show", "x", "--report"], "cannot be used with"),
        (&["cuda", "--threads", "2"], "--report"),
    ];
    for (arguments, wanted) in cases {
        let (code, out, error) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {error}");
        assert!(error.contains(wanted), "{arguments:?}: `{wanted}` is not in {error}");
    }
    for command in ["plan", "cuda"] {
        let (code, _, error) = run(&[command, "--gpu", "sm_91"]);
        assert_eq!(code, 2, "{error}");
        assert!(arch::ALL.iter().all(|arch| error.contains(&*arch.name)), "{error}");
    }
}

#[test]
fn doctor_without_any_environment_says_what_to_install_and_exits_0() {
    let text = done(&["doctor"]);
    // Advice may be broken into lines.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in ["NVIDIA driver", "GPU", "NVRTC", "cuBLASLt", "NCCL", "host C++ compiler", "searched for"] {
        assert!(text.contains(wanted), "`{wanted}` is not in:\n{text}");
    }
    assert!(text.contains("yes  plan a model"), "{text}");
    let doctor = json(&["doctor", "--json"]);
    let facts = doctor["facts"].as_array().expect("facts is a list");
    assert_eq!(facts.len(), 5);
    for fact in facts {
        // The system's own folders are searched whatever the environment says.
        let (present, name) = (fact["present"] == true, fact["name"].as_str().unwrap_or_default());
        assert!(present || fact["problem"].is_string() && fact["advice"].is_string(), "{fact}");
        assert!(present || words.contains(fact["advice"].as_str().unwrap_or("?")), "{name}:\n{text}");
    }
    let compiler = facts.iter().find(|fact| fact["name"] == "host C++ compiler");
    assert!(compiler.is_some_and(|fact| fact["present"] == false), "PATH is empty: {doctor}");
    assert!(doctor["kernel_cache"].is_null());
    let works = doctor["works"].as_array().expect("works is a list");
    for one in works {
        assert_eq!(one["works"] == true, one["needs"].as_array().is_some_and(Vec::is_empty), "{one}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for arguments in [&["plan", "--preset", "llama-1b", "--all"][..], &["plan", "--json"], &["doctor"]] {
        let mut child = kernwright(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        let output = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty() && !line.is_empty(), "{arguments:?}: {error}");
    }
}
