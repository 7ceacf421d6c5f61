//! `bench` and `profile` as a user types them, on the CPU: what they print, and when they fail.

#![cfg(feature = "render")]

mod program;

use program::Program;
use serde_json::Value;

/// A step of almost no work.
const SMALL: &str = "--preset tiny --set model.layers=1 --set model.d_model=32 --set attention.head_dim=8 \
                     --set feed_forward.d_ff=40 --device cpu --threads 1 --length 16";

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_step_is_timed_and_its_loss_falls() {
    let program = Program::new();
    let found = parsed(&program.ok(&format!("bench step {SMALL} --batch 2 --steps 5 --warmup 2 --json")));
    let number =
        |path: &str| found.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {found}"));
    let (tokens, median) = (number("/tokens"), number("/milliseconds/median"));
    assert_eq!(tokens, 32.0);
    assert!((number("/tokens_per_second") * median / (1e3 * tokens) - 1.0).abs() < 1e-9);
    assert!(number("/milliseconds/least") <= median && median <= number("/milliseconds/greatest"));
    assert!(number("/loss/1") < number("/loss/0"), "{found}");
    assert!(number("/flops_per_token") > 0.0 && number("/memory/planned") > 0.0);
    assert!(found["mfu"].is_null() && found["neighbours"].is_null(), "nobody knows them on a CPU");
    assert!(found["shape"].as_array().is_some_and(|lines| lines.contains(&"model.layers = 1".into())));

    let text = program.ok(&format!("bench step {SMALL} --batch 2 --steps 2 --warmup 1"));
    for wanted in ["tokens/s", "ms/step", "FLOPs per token", "MFU", "peak memory", "n/a", "loss"] {
        assert!(text.contains(wanted), "`{wanted}` is not in\n{text}");
    }
}

#[test]
fn a_baseline_is_kept_or_missed_and_must_be_of_the_same_step() {
    let program = Program::new();
    let step = format!("bench step {SMALL} --steps 3 --warmup 1 --batch");
    let before = program.ok(&format!("{step} 2 --json"));
    let scaled = |factor: f64| {
        let mut document = parsed(&before);
        document["tokens_per_second"] =
            (document["tokens_per_second"].as_f64().unwrap_or(0.0) * factor).into();
        document.to_string().into_bytes()
    };
    let (slow, fast) = (program.file("slow.json", &scaled(1e-3)), program.file("fast.json", &scaled(1e3)));
    assert!(program.ok(&format!("{step} 2 --baseline {slow}")).contains("at least 0.97"));
    assert!(program.fails(&format!("{step} 2 --baseline {fast}"), 1).contains("below 0.97"));
    assert!(program.ok(&format!("{step} 2 --baseline {fast} --fail-below 0.0000001")).contains("at least"));
    let error = program.fails(&format!("{step} 4 --baseline {slow}"), 1);
    assert!(error.contains("must be of the same batch (`4`), found `2`"), "{error}");
    for (flags, what) in [
        ("--without residual_in_linear", "passes left out (`residual_in_linear`), found ``"),
        ("--head-chunk 16", "head chunk (`16`), found `its own`"),
        ("--batches 2", "number of batches (`2`), found `1`"),
    ] {
        let error = program.fails(&format!("{step} 2 --baseline {slow} {flags}"), 1);
        assert!(error.contains(&format!("must be of the same {what}")), "{error}");
    }
    let none = program.file("none.json", &scaled(0.0));
    let error = program.fails(&format!("{step} 2 --baseline {none}"), 1);
    assert!(error.contains("a speed above 0, found `0`"), "{error}");
    let other = program.file("other.json", b"{\"tokens_per_second\": 3}");
    assert!(program.fails(&format!("{step} 2 --baseline {other}"), 1).contains("`bench step --json`"));
    program.fails(&format!("{step} 2 --fail-below 0.9"), 2);
    program.fails(&format!("{step} 2 --baseline {slow} --fail-below -1"), 2);
}

#[test]
fn what_cannot_be_run_is_refused_before_it_is() {
    let program = Program::new();
    for (flags, code, wanted) in [
        ("--length 300 --preset tiny --device cpu", 1, "`--set model.context=300`"),
        (
            "--memory-budget 1 --batch 64 --preset tiny --device cpu",
            1,
            "`--memory-budget` allows `1.00 MiB`; not even",
        ),
        ("--precision bf16 --device cpu", 1, "`--precision` must be `fp32` on the CPU, found `bf16`"),
        ("--set model.layer=3 --device cpu", 1, "did you mean"),
        ("--set model.layers --device cpu", 1, "`layers` must be"),
        ("--set model.layers=", 2, "`FIELD=VALUE`"),
        ("--without nothing", 2, "possible values"),
    ] {
        let error = program.fails(&format!("bench step {flags}"), code);
        assert!(error.contains(wanted), "{flags}: {error}");
    }
}

#[test]
fn a_step_that_does_not_fit_is_refused_with_the_command_of_one_that_does() {
    let program = Program::new();
    let flags = format!("{SMALL} --memory-budget 12 --steps 1 --warmup 1");
    for (command, flags) in
        [("bench step", flags.as_str()), ("profile", &format!("{SMALL} --memory-budget 12"))]
    {
        let error = program.fails(&format!("{command} {flags} --batch 100000"), 1);
        for part in ["training needs `", "parameter ", "activations ", "`--memory-budget` allows `12.0 MiB`"]
        {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
        let (_, typed) = error.trim_end().rsplit_once("is `").expect("it says which batch fits");
        let (largest, typed) = typed.split_once("`: ").expect("it says with which command");
        let largest: u32 = largest.parse().expect("a number");
        let (_, arguments) = typed.split_once(' ').expect("a program and its arguments");
        assert_eq!(arguments, format!("{command} {flags} --batch {largest}"));
        program.ok(arguments);
        program.fails(&format!("{command} {flags} --batch {}", largest + 1), 1);
    }
}

#[test]
fn a_step_that_changes_nothing_is_no_measurement() {
    let program = Program::new();
    let flags = "--batch 2 --steps 3 --warmup 1 --learning-rate";
    program.ok(&format!("bench step {SMALL} {flags} 1e-3"));
    let error = program.fails(&format!("bench step {SMALL} {flags} 1e30"), 1);
    assert!(error.contains("was no number") && error.contains("`--learning-rate`"), "{error}");
}

#[test]
fn a_record_holds_weights_batches_and_every_loss() {
    let program = Program::new();
    program
        .ok(&format!("bench step {SMALL} --batch 2 --steps 4 --warmup 2 --batches 3 --record kept --json"));
    let losses = program.json("kept/losses.json");
    assert_eq!(losses.as_array().map(Vec::len), Some(6));
    assert_eq!(program.bytes("kept/batches.i32").len(), 3 * (2 * 16 + 1) * 4);
    assert!(program.bytes("kept/step-000000/weights.safetensors").len() > 1000);
    let error = program.fails(&format!("bench step {SMALL} --record kept"), 1);
    assert!(error.contains("must be a new folder"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_sweep_that_is_told_to_stop_ends_the_row_that_runs() {
    let program = Program::new();
    let mut command =
        program.command("bench sweep --preset tiny --device cpu --threads 1 --steps 100000 --json");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // Its first line is of the row that begins.
    let mut first = [0];
    let mut said = child.stderr.take().expect("it is a pipe");
    std::io::Read::read_exact(&mut said, &mut first).expect("it says what it does");
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]");
}

#[test]
fn a_sweep_goes_on_after_a_row_that_fails() {
    let program = Program::new();
    let shape = program.ok("shape --preset tiny --toml");
    program.file("mine.toml", shape.as_bytes());
    let flags = "--set model.layers=1 --device cpu --threads 1 --length 16 --steps 2";
    let output = program.run(&format!(
        "bench sweep --preset tiny --shape mine.toml --shape missing.toml --batch 1,2 {flags} --json"
    ));
    assert_eq!(output.status.code(), Some(1), "one of its shapes is not there");
    let rows = parsed(&String::from_utf8_lossy(&output.stdout));
    let rows = rows.as_array().expect("it is a list");
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            (row["shape"].as_str().unwrap_or(""), row["batch"].as_u64().unwrap_or(0), row["error"].is_null())
        })
        .collect();
    let expected = [
        ("tiny (model.layers=1)", 1, true),
        ("tiny (model.layers=1)", 2, true),
        ("mine.toml (model.layers=1)", 1, true),
        ("mine.toml (model.layers=1)", 2, true),
        ("missing.toml (model.layers=1)", 1, false),
        ("missing.toml (model.layers=1)", 2, false),
    ];
    assert_eq!(shown, expected);
    assert!(rows[4]["error"].as_str().is_some_and(|error| error.contains("cannot read `missing.toml`")));
    let text = program.ok(&format!("bench sweep --preset tiny --batch 1 {flags}"));
    assert!(text.contains("tokens/s") && text.contains("tiny"), "{text}");
}

#[test]
fn attention_is_timed_alone() {
    let program = Program::new();
    let flags =
        "--device cpu --threads 1 --batch 1 --heads 4 --kv-heads 2 --head-dim 8 --length 32 --steps 2";
    let rows = parsed(&program.ok(&format!("bench attention {flags} --json")));
    let row = &rows[0];
    assert!(row["forward"]["milliseconds"].as_f64().is_some_and(|time| time > 0.0), "{row}");
    assert!(row["ordered"]["tflops"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
    assert_eq!((row["kv_heads"].as_u64(), row["causal"].as_bool()), (Some(2), Some(true)));
    let text = program.ok(&format!("bench attention {flags} --full --window 4"));
    assert!(text.contains("1 x 4/2 x 32 x 8") && text.contains("full, window 4"), "{text}");
    // No host does so much, and a rate that is shown as 0.0 says nothing.
    assert!(text.contains("FLOP/s") && !text.contains("TFLOP/s"), "{text}");
    let help = program.ok("bench attention --help");
    for said in [&text, &help] {
        for form in ["`free` is the backward pass that adds", "`ordered` is the one that gives the same bits"]
        {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(form), "{form}: {said}");
        }
    }
    let rows = parsed(&program.ok(&format!("bench attention {flags} --key-length 50 --layout bhsd --json")));
    let row = &rows[0];
    assert!(row["ordered"]["milliseconds"].as_f64().is_some_and(|time| time > 0.0), "{row}");
    assert_eq!((row["key_length"].as_u64(), row["layout"].as_str()), (Some(50), Some("bhsd")));
}

#[test]
fn attention_without_a_gpu_is_one_small_shape_in_the_type_of_the_cpu() {
    let program = Program::new();
    let output = program.run("bench attention --steps 1 --json --window 7 --layout bhsd");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("note: one small shape stands for the table on the CPU"), "{said}");
    let rows = parsed(&String::from_utf8_lossy(&output.stdout));
    let row = &rows[0];
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    assert_eq!((row["length"].as_u64(), row["window"].as_u64()), (Some(512), Some(7)));
    assert_eq!((row["precision"].as_str(), row["layout"].as_str()), (Some("fp32"), Some("bhsd")));
    for device in ["auto", "cpu"] {
        let error = program.fails(&format!("bench attention --device {device} --precision bf16"), 2);
        assert!(error.contains("`--precision` must be `fp32` on the CPU, found `bf16`"), "{error}");
    }
}

#[test]
fn wrong_usage_of_bench_attention_exits_with_2() {
    for (flags, wanted) in [
        ("--heads 4 --kv-heads 3", "`--kv-heads` must divide `--heads` (`4`), found `3`"),
        ("--batch 65535 --length 1048576", "`--batch` times `--length` must be below 2^31"),
        ("--length 8 --key-length 9 --layout packed", "`--key-length` must be `--length` (`8`), found `9`"),
        ("--layout sbhd", "[possible values: bshd, bhsd, packed]"),
        ("--ablate mma", "`--ablate` changes a GPU's kernels: it needs a GPU"),
        ("--arch sm_80", "`--arch` chooses a GPU's kernels: it needs a GPU"),
        ("--peers", "`--peers` times kernels of a GPU: it needs one"),
        ("--accuracy", "`--accuracy` times kernels of a GPU: it needs one"),
        ("--arch sm_81", "`sm_81` is not a known GPU"),
    ] {
        let error = Program::new().fails(&format!("bench attention --device cpu {flags}"), 2);
        assert!(error.contains(wanted), "{flags}: {error}");
    }
    let error = Program::new().fails("bench attention --peers --precision fp32", 2);
    assert!(error.contains("`--peers` takes `bf16` or `fp16`, found `--precision fp32`"), "{error}");
}

#[test]
fn bench_and_tune_hold_what_attention_is_computed_of_to_the_same_bounds() {
    let program = Program::new();
    let cap = "it must be a number above 1e-6 up to 1000000.0";
    for (flags, wanted) in [
        ("--softcap 0", cap),
        ("--softcap nan", cap),
        ("--softcap 1e300", cap),
        ("--window 0", "it must be a whole number from 1 to 1048576"),
        ("--head-dim 12", "it must be a multiple of 8 up to 256"),
        ("--head-dim 264", "it must be a multiple of 8 up to 256"),
        ("--length 1048577", "1048577 is not in 1..=1048576"),
        ("--batch 65536", "65536 is not in 1..=65535"),
    ] {
        for command in ["bench attention --device cpu", "tune attention --list"] {
            let error = program.fails(&format!("{command} {flags}"), 2);
            assert!(error.contains(wanted), "{command} {flags}: {error}");
        }
    }
}

#[test]
fn what_would_be_tuned_is_listed_once_in_the_order_of_the_flags() {
    let program = Program::new();
    let list = |flags: &str| program.ok(&format!("tune attention --list {flags}"));
    let once = list(
        "--head-dim 128,64 --group 3 --length 1024 --mask full,causal --pass free,forward --precision fp16",
    );
    let again = "--head-dim 128,64,128 --group 3,3 --length 1024,1024 --mask full,causal,full --pass free,forward,free";
    assert_eq!(list(again), once);
    let places: Vec<&str> = once.lines().filter_map(|line| line.split("  ").next()).skip(1).collect();
    let expected = [128, 64].map(|head_dim| {
        let heads = 1536 / head_dim / 3 * 3;
        let of = |mask: &str, pass: &str| {
            format!("16 x {heads}/{} x 1024 x {head_dim}, {mask}, {pass}", heads / 3)
        };
        [("full", "free backward"), ("full", "forward"), ("causal", "free backward"), ("causal", "forward")]
            .map(|(mask, pass)| of(mask, pass))
    });
    assert_eq!(places[..8], expected.concat());
    let model = |length: &str| program.ok(&format!("tune --preset tiny --list --length {length}"));
    assert_eq!(model("64,32,64"), model("64,32"));
    for flag in ["--head-dim 64", "--group 2", "--heads 4", "--mask full", "--window 64", "--softcap 30"] {
        let error = program.fails(&format!("tune --preset tiny --list {flag}"), 2);
        let flag = flag.split(' ').next().unwrap_or_default();
        assert!(error.contains("--preset") && error.contains(flag), "{error}");
    }
    let error = program.fails("tune attention --list --batch 3", 1);
    assert!(error.contains("`--batch 3` goes with `--preset`"), "{error}");
    let error = program.fails("tune attention --list --precision fp32", 2);
    assert!(
        error.contains("'fp32' for '--precision") && error.contains("[possible values: bf16, fp16]"),
        "{error}"
    );
}

#[test]
fn a_profile_adds_up_and_leaves_a_page() {
    let program = Program::new();
    let found = parsed(&program.ok(&format!("profile {SMALL} --batch 2 --steps 2 --json --html here.html")));
    let rows = found["kernels"].as_array().expect("it has rows");
    let sum = |key: &str| rows.iter().filter_map(|row| row[key].as_f64()).sum::<f64>();
    assert!((sum("share") - 1.0).abs() < 1e-6, "{found}");
    assert!((sum("seconds") / found["kernel_seconds"].as_f64().unwrap_or(0.0) - 1.0).abs() < 1e-6);
    let named =
        |name: &str| rows.iter().any(|row| row["kernel"] == name && row["launches"].as_u64() > Some(0));
    assert!(named("linear") && named("attention_backward") && named("adamw"), "{found}");
    let page = program.bytes("here.html");
    let page = String::from_utf8_lossy(&page);
    assert!(page.contains("<td><code>attention_backward</code></td>") && page.ends_with("</html>\n"));
    // What was measured is shown also where the page cannot be written.
    let output = program.run(&format!("profile {SMALL} --batch 1 --steps 1 --html missing/page.html"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("GEMM: "));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write `missing/page.html`"));
    let text = program.ok(&format!("profile {SMALL} --batch 1 --steps 1"));
    assert!(text.contains("GEMM: ") && text.contains("FLOP/s") && !text.contains("TFLOP/s"), "{text}");
}

#[test]
fn bench_gemm_without_a_gpu_fails_in_words_and_wrong_usage_exits_with_2() {
    let program = Program::new();
    // On a machine that has GPUs the driver shows none.
    let mut command = program.command("bench gemm --preset tiny --batch 1");
    let output = command.env("CUDA_VISIBLE_DEVICES", "").output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: ") && !error.contains("panicked"), "{error}");
    assert!(error.contains("NVIDIA's driver") || error.contains("GPU"), "{error}");

    let error = program.fails("bench gemm --device cpu", 2);
    assert!(error.contains("`cuda` or `cuda:N`, found `cpu`"), "{error}");
    let error = program.fails("bench gemm --preset tiny --length 100000", 2);
    assert!(error.contains("`--length` must be at most"), "{error}");
    program.fails("bench gemm --candidates 17", 2);
}

/// What a command's help says of each flag that decides how a step is planned.
fn help_on_planning(command: &str) -> Vec<String> {
    let text = Program::new().ok(&format!("{command} --help"));
    let flags = ["precision", "grad-dtype", "attention", "nondeterministic", "without", "with", "head-chunk"];
    let about = |flag: &str| {
        let rest = ["[", " "].iter().find_map(|next| text.split_once(&format!("      --{flag}{next}")));
        let (_, rest) = rest.unwrap_or_else(|| panic!("`{command}` has no --{flag}: {text}"));
        rest.split("\n      --").next().unwrap_or_default().trim_end().to_owned()
    };
    flags.iter().map(|flag| about(flag)).collect()
}

#[test]
fn every_command_that_plans_a_step_has_the_same_flags_for_it_with_the_same_help() {
    let expected = help_on_planning("plan");
    assert!(expected.iter().all(|about| about.contains("[default: ")), "{expected:#?}");
    for command in ["train", "check", "profile", "bench step", "bench sweep", "bench gemm"] {
        assert_eq!(help_on_planning(command), expected, "{command}");
    }
}
