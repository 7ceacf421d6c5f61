//! `--gpu`: targets, cards and files that declare a GPU.

mod program;

use program::Program;
use serde_json::Value;

fn plan(program: &Program, gpu: &str) -> Value {
    let mut command = program.command("plan --preset tiny --json --gpu");
    let output = command.arg(gpu).output().expect("the program starts");
    assert!(output.status.success(), "{gpu}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn a_plan_has_the_speeds_of_the_named_card() {
    let program = Program::new();
    let seconds = |gpu: &str| {
        let plan = plan(&program, gpu);
        (plan["card"].clone(), plan["totals"]["roofline_seconds"].as_f64().unwrap_or(f64::NAN))
    };
    let (card, slow) = seconds("GeForce RTX 4060");
    assert_eq!(card, "RTX 4060");
    let (card, fast) = seconds("rtx-4090");
    assert_eq!(card, "RTX 4090");
    assert!(slow > fast, "{slow} {fast}");
    assert_eq!(seconds("sm_89"), seconds("RTX 4090"), "the card that stands for the target");
    assert_eq!(plan(&program, "h100-pcie")["arch"], "sm_90a");
}

#[test]
fn a_card_nobody_knows_is_answered_with_one_that_is_like_it() {
    let program = Program::new();
    for (gpu, wanted) in [("rtx-4091", "did you mean `rtx-4090`?"), ("a100", "may be one of `a100-sxm-80gb`")]
    {
        for command in ["plan", "cuda"] {
            let error = program.fails(&format!("{command} --gpu {gpu}"), 2);
            assert!(error.contains(wanted), "{error}");
        }
    }
}

#[cfg(feature = "render")]
mod files {
    use super::*;

    const FILE: &str = "# A GPU of next year.\nname = \"sm_130\"\nlike = \"sm_120a\"\nshared_memory = 232_448\n\n\
        [card]\nname = \"RTX 6090\"\ntensor_flops = 400e12\nfp32_flops = 200e12\nbandwidth = 3e12\n\
        memory = 51_539_607_552\n";

    #[test]
    fn a_file_declares_a_gpu_to_plan_and_generate_for() {
        let program = Program::new();
        let file = program.file("next year.toml", FILE.as_bytes());
        let plan = plan(&program, &file);
        assert_eq!((&plan["arch"], &plan["card"]), (&"sm_130".into(), &"RTX 6090".into()));
        let file = program.file("gpu.toml", FILE.as_bytes());
        program.ok(&format!("cuda --preset tiny --gpu {file},sm_120a --out out"));
        assert_eq!(program.names("out"), ["sm_120a", "sm_130"]);
        assert_eq!(program.json("out/sm_130/manifest.json")["arch"], "sm_130");
        assert_eq!(program.names("out/sm_130"), program.names("out/sm_120a"));
    }

    #[test]
    fn a_bad_file_is_told_with_its_lines() {
        let program = Program::new();
        let bad = FILE.replace("sm_120a", "sm_12").replace("232_448", "7").replace("bandwidth = 3e12\n", "");
        program.file("bad.toml", bad.as_bytes());
        let error = program.fails("plan --gpu bad.toml", 2);
        for wanted in [
            "bad.toml:3:8: `like` must be one of `sm_80`",
            "bad.toml:4:17: `shared_memory` must be a multiple of 1024",
            "bad.toml:6:2: `bandwidth` of `card` is missing",
        ] {
            assert!(error.contains(wanted), "{wanted}: {error}");
        }
        program.file("broken.toml", b"name = \n");
        assert!(program.fails("plan --gpu broken.toml", 2).contains("broken.toml:1:8: "));
        assert!(program.fails("cuda --gpu none.toml", 2).contains("cannot read `none.toml`"));
        program.file("binary.toml", &[0xff, 0xfe]);
        assert!(program.fails("plan --gpu binary.toml", 2).contains("cannot read `binary.toml`"));
    }

    #[test]
    fn an_nvrtc_that_does_not_know_the_gpu_says_which_is_needed() {
        use kernwright_compile::testing;
        let Some(_) = testing::compiler_or_skip(std::env::vars_os(), "a GPU that NVRTC does not know") else {
            return;
        };
        let program = Program::new();
        program.file("gpu.toml", FILE.replace("sm_130", "sm_999").as_bytes());
        let output = program.run("cuda --preset tiny --report --gpu gpu.toml");
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("found `sm_999`: a newer NVRTC is needed"), "{text}");
    }
}
