//! What the program prints where there is no terminal, no colour, or no reader.

mod program;

use program::Program;
use std::process::Stdio;

/// A run small enough for a test.
const SMALL: &str = "--batch 2 --length 24 --eval-batches 2 --warmup 2";

/// The program under a terminal of its own, by `script` of util-linux; none where there is none.
fn on_a_terminal(program: &Program, arguments: &str, variables: &[(&str, &str)]) -> Option<String> {
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_kernwright"));
    let mut script = std::process::Command::new("script");
    script.args(["-qefc", &command, "/dev/null"]).current_dir(program.path("")).stdin(Stdio::null());
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        script.env_remove(variable);
    }
    script.env("TERM", "xterm").envs(variables.iter().copied());
    let output = script.output().ok()?;
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Text without carriage returns, cursor movements and colours?
fn is_plain(text: &str) -> bool {
    !text.contains('\u{1b}') && !text.trim_end().replace("\r\n", "\n").contains('\r')
}

#[test]
fn without_a_terminal_there_is_a_line_per_validation_and_no_bar() {
    let program = Program::new();
    let output = program.run(&format!("train {SMALL} --steps 9 --eval-every 3 --out run"));
    let (said, noted) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && is_plain(&said) && is_plain(&noted), "{said}{noted}");
    let lines: Vec<_> =
        noted.lines().filter(|line| !line.starts_with("note: this is a debug build")).collect();
    assert_eq!(lines.len(), 4, "{noted}");
    assert!(lines[0].starts_with("step 1/9: loss ") && lines[0].ends_with(" s after the start"), "{noted}");
    for (line, step) in lines[1..].iter().zip([3, 6, 9]) {
        assert!(
            line.starts_with(&format!("step {step}/9: loss ")) && line.contains(" validation "),
            "{line}"
        );
    }
}

#[test]
fn a_terminal_shows_a_bar_in_colour_unless_told_otherwise() {
    let program = Program::new();
    let train = |out: &str| format!("train {SMALL} --steps 9 --eval-every 3 --out {out}");
    let Some(coloured) = on_a_terminal(&program, &train("a"), &[]) else {
        eprintln!("skipped: no program `script` to make a terminal");
        return;
    };
    assert!(coloured.contains("\u{1b}[36m") && coloured.contains("9/9"), "{coloured:?}");
    let grey = on_a_terminal(&program, &train("b"), &[("NO_COLOR", "1")]).expect("it was there");
    assert!(!grey.contains("\u{1b}[36m") && grey.contains("9/9"), "{grey:?}");
    let empty = on_a_terminal(&program, &train("c"), &[("NO_COLOR", "")]).expect("it was there");
    assert!(empty.contains("\u{1b}[36m"), "an empty NO_COLOR is none: {empty:?}");
    let dumb = on_a_terminal(&program, &train("d"), &[("TERM", "dumb")]).expect("it was there");
    assert!(is_plain(&dumb) && dumb.contains("step 9/9: loss "), "{dumb:?}");
    let helps = [
        (&[("NO_COLOR", "1")][..], false),
        (&[("NO_COLOR", "1"), ("CI", "true")], false),
        (&[("TERM", "dumb")], false),
        (&[("TERM", "dumb"), ("CI", "true")], false),
        (&[], true),
        (&[("CI", "true")], true),
    ];
    for (variables, is_coloured) in helps {
        let help = on_a_terminal(&program, "train --help", variables).expect("it was there");
        assert_eq!(help.contains('\u{1b}'), is_coloured, "{variables:?}: {help:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error_for_any_command() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 3 --out run"));
    let commands = [
        "generate --checkpoint run --prompt a --tokens 200",
        "train --batch 2 --length 24 --eval-batches 2 --warmup 2 --steps 3 --out gone",
        "plan --preset gpt2-124m --all --wide",
        "plan --preset tiny --json",
        "cuda --preset tiny --arch sm_86 --list",
        "cuda --preset tiny --arch sm_86 --out kernels",
        "doctor",
        "--help",
        "train --help",
        "--version",
    ];
    for arguments in commands {
        let mut command = program.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("its end");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments}: {:?} {error}", output.status);
        assert!(!error.contains("panicked") && !error.contains("error"), "{arguments}: {error}");
    }
    assert!(program.names("gone").contains(&"step-000003".to_owned()), "a run does not end with its reader");
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error() {
    let program = Program::new();
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { return };
    let output = program.command("plan --preset tiny").stdout(full).stderr(Stdio::piped()).output();
    let output = output.expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write standard output"), "{error}");
}
