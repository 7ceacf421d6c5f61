//! What goes wrong outside the program: disks that fill up, folders that cannot be written, files that change or are
//! not what their names say. Each is one line that says what is wrong; what was learned is not lost.

mod program;

use program::Program;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A run small enough for a test.
const SMALL: &str = "--batch 2 --length 24 --eval-batches 2 --warmup 1";

/// The error's only line, and no panic.
fn line(arguments: &str, output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "`{arguments}`: {:?} {error}", output.status);
    let lines: Vec<&str> =
        error.lines().filter(|line| !line.starts_with("note: this is a debug build")).collect();
    assert!(lines.last().is_some_and(|line| line.starts_with("error: ")), "`{arguments}`: {error}");
    assert!(lines.iter().filter(|line| line.starts_with("error: ")).count() == 1, "`{arguments}`: {error}");
    assert!(!error.contains("panicked"), "`{arguments}`: {error}");
    lines.join("\n")
}

/// Runs the program such that no file may grow past `blocks` of 512 bytes: a full disk without a disk.
fn with_small_files(program: &Program, blocks: u32, arguments: &str) -> Output {
    let limit = format!("trap '' XFSZ; ulimit -f {blocks} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limit, env!("CARGO_BIN_EXE_kernwright")]).args(arguments.split_whitespace());
    command.current_dir(program.path(".")).stdin(Stdio::null()).output().expect("a shell")
}

fn checkpoints(program: &Program, run: &str) -> Vec<String> {
    program.names(run).into_iter().filter(|name| name.contains("step-")).collect()
}

#[test]
fn a_full_disk_keeps_the_checkpoint_before_and_says_how_to_go_on() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 4 --out run --stop-after 2"));
    let before = program.bytes("run/step-000002/weights.safetensors");
    let arguments = "train --resume run";
    // 1 MiB: the record fits, the weights do not.
    let error = line(arguments, &with_small_files(&program, 2048, arguments));
    assert!(error.contains("cannot write the checkpoint `run/step-000004`: "), "{error}");
    assert!(error.contains("too large"), "the system's own reason: {error}");
    assert!(
        error.contains("the checkpoint of step 2 is whole: ") && error.contains("train --resume run"),
        "{error}"
    );
    assert_eq!(checkpoints(&program, "run"), ["step-000002"], "and no temporary files");
    assert!(before == program.bytes("run/step-000002/weights.safetensors"));
    program.ok("train --resume run");
    assert!(checkpoints(&program, "run").contains(&"step-000004".to_owned()));
}

#[test]
fn a_disk_too_full_for_the_first_checkpoint_leaves_a_folder_to_begin_in() {
    let program = Program::new();
    let arguments = format!("train {SMALL} --steps 2 --out run");
    let error = line(&arguments, &with_small_files(&program, 2048, &arguments));
    assert!(error.contains("cannot write the checkpoint `run/"), "{error}");
    assert_eq!(checkpoints(&program, "run"), Vec::<String>::new());
    program.ok(&arguments);
}

/// A real file system, where the system lets a user make one.
#[test]
fn a_file_system_that_is_full_is_told_as_such() {
    let program = Program::new();
    fs::create_dir(program.path("disk")).expect("a folder");
    program.ok(&format!("train {SMALL} --steps 4 --out run --stop-after 2"));
    let files = ["weights", "moments"].map(|name| format!("run/step-000002/{name}.safetensors"));
    let n_bytes: usize = files.iter().map(|name| program.bytes(name).len()).sum();
    // Room for one checkpoint and half a MiB, which does not hold the weights of a second.
    let n_kib = n_bytes / 1024 + 512;
    let script = format!(
        "mount -t tmpfs -o size={n_kib}k disk disk && cp -r run disk && \
         {{ \"$0\" train --resume disk/run; ls -A disk/run >&2; }}"
    );
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
        env!("CARGO_BIN_EXE_kernwright"),
    ]);
    let output = command.current_dir(program.path(".")).stdin(Stdio::null()).output();
    let error = output.map_or_else(
        |error| format!("unshare: {error}"),
        |output| String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    if error.contains("unshare: ") || error.contains("mount: ") {
        return eprintln!("skipped: a file system of the test's own is not allowed here: {}", error.trim());
    }
    assert!(error.contains("No space left on device"), "{error}");
    assert!(error.contains("the checkpoint of step 2 is whole: "), "{error}");
    assert!(error.contains("\nstep-000002\n") && !error.contains(".tmp\n"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named_before_anything_is_learned() {
    let program = Program::new();
    program.file("file", b"not a folder");
    program.ok(&format!("train {SMALL} --steps 3 --out run --stop-after 1"));
    for folder in ["file/run", "file", "/proc/run", "/dev/null/run"] {
        let arguments = format!("train {SMALL} --steps 2 --out {folder}");
        let error = line(&arguments, &program.run(&arguments));
        assert!(error.contains(&format!("`{folder}`")), "{error}");
    }
    assert_eq!(program.bytes("file"), b"not a folder");
    // A run's own folder; permissions stop everybody but root.
    let mut permissions = fs::metadata(program.path("run")).expect("the run").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o555);
    fs::set_permissions(program.path("run"), permissions.clone()).expect("permissions");
    if fs::write(program.path("run/probe"), b"").is_ok() {
        eprintln!("skipped: this user may write where permissions forbid it");
    } else {
        fs::remove_file(program.path("run/lock")).unwrap_or_default();
        let error = line("train --resume run", &program.run("train --resume run"));
        assert!(error.contains("`run") && error.contains("ermission denied"), "{error}");
    }
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(program.path("run"), permissions).expect("permissions");
    fs::remove_file(program.path("run/probe")).unwrap_or_default();
    program.ok("train --resume run");
}

#[test]
fn what_is_in_the_way_of_a_folder_is_named() {
    let program = Program::new();
    program.file("runs", b"not a folder");
    let arguments = format!("train {SMALL} --steps 2");
    let error = line(&arguments, &program.run(&arguments));
    assert!(error.contains("cannot create `runs/tiny`: `runs` is not a folder"), "{error}");
    fs::remove_file(program.path("runs")).expect("the file");
    symlink("nowhere", program.path("runs")).expect("a link");
    for (arguments, expected) in [
        (&*arguments, "cannot create `runs/tiny`: `runs` is a link to nothing"),
        (&format!("{arguments} --out runs"), "cannot create `runs`: `runs` is a link to nothing"),
        ("new fresh --path runs", "cannot create `runs`: `runs` is a link to nothing"),
        ("new fresh --path runs/a", "cannot create `runs/a`: `runs` is a link to nothing"),
    ] {
        let error = line(arguments, &program.run(arguments));
        assert!(error.contains(expected), "`{arguments}`: {error}");
    }
    assert!(!program.path("nowhere").exists());
}

#[test]
fn printed_commands_can_be_pasted_into_a_shell() {
    let program = Program::new();
    for (folder, typed) in [("sp ace 'q", r"'sp ace '\''q'"), ("$x", "'$x'"), ("-x", "./-x")] {
        let mut command = program.command(&format!("train {SMALL} --steps 4 --stop-after 1"));
        let output = command.arg(format!("--out={folder}")).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = said.lines().find_map(|line| line.strip_prefix("go on with: ")).unwrap_or_default();
        assert!(told.ends_with(&format!(" train --resume {typed}")), "{said}");
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", told]).current_dir(program.path(".")).output().expect("a shell");
        assert!(output.status.success(), "{told}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = format!(" generate --checkpoint {typed} --prompt ");
        assert!(said.contains(&expected), "{said}");
        let mut again = program.command("train --steps 2");
        let output = again.arg(format!("--out={folder}")).output().expect("the program starts");
        assert!(line(folder, &output).ends_with(&format!("go on with --resume {typed}")));
    }
}

#[test]
fn a_run_whose_folder_is_taken_away_says_so_and_keeps_what_it_learned() {
    let program = Program::new();
    let arguments = format!("train {SMALL} --steps 100000 --save-every 60 --eval-every 0 --out run");
    let mut command = program.command(&arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut patience = 6000;
    while checkpoints(&program, "run").iter().all(|name| name.starts_with('.')) && patience > 0 {
        patience -= 1;
        sleep(Duration::from_millis(10));
    }
    fs::rename(program.path("run"), program.path("moved")).expect("another name");
    let error = line(&arguments, &child.wait_with_output().expect("its end"));
    let gone = "`run/metrics.jsonl` is gone: the run's folder was removed or renamed while it trained";
    assert!(error.contains(gone), "{error}");
    assert_eq!(checkpoints(&program, "run"), ["step-000120"], "what was learned is kept");
}

#[test]
fn a_full_device_behind_standard_output_is_named() {
    let program = Program::new();
    program.ok(&format!("train {SMALL} --steps 3 --out run"));
    let arguments = "generate --checkpoint run --prompt a --tokens 3";
    let full = fs::File::options().write(true).open("/dev/full").expect("the device");
    let output = program.command(arguments).stdout(full).output().expect("the program starts");
    let error = line(arguments, &output);
    assert!(error.contains("cannot write standard output: "), "{error}");
}

#[test]
fn a_file_cut_short_while_training_ends_the_run_after_saving() {
    let program = Program::new();
    let tokens: Vec<u8> = (0..400_000_u32).flat_map(|i| (i * 7 % 200).to_le_bytes()[..2].to_vec()).collect();
    program.file("a.bin", &tokens);
    let arguments = format!(
        "train {SMALL} --accumulate 3 --steps 100000 --save-every 0 --eval-every 0 --data a.bin --out run"
    );
    let mut command = program.command(&arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let metrics = program.path("run/metrics.jsonl");
    let mut patience = 1200;
    while fs::metadata(&metrics).map_or(0, |metadata| metadata.len()) == 0 && patience > 0 {
        patience -= 1;
        sleep(Duration::from_millis(50));
    }
    fs::File::options()
        .write(true)
        .open(program.path("a.bin"))
        .expect("it is there")
        .set_len(2000)
        .expect("cut");
    let error = line(&arguments, &child.wait_with_output().expect("its end"));
    assert!(error.contains("`a.bin` must not change while it is read, but has become shorter"), "{error}");
    assert!(error.contains("train --resume run"), "{error}");
    let n_steps = String::from_utf8(program.bytes("run/metrics.jsonl")).expect("text").lines().count();
    assert!(n_steps > 0, "it was cut only after a step");
    assert_eq!(checkpoints(&program, "run"), [format!("step-{n_steps:06}")], "every step is kept");

    let error = line("train --resume run", &program.run("train --resume run"));
    assert!(error.contains("the data has changed since the run began"), "{error}");
    // With the file as it was the run goes on, and as if nothing had happened.
    program.file("a.bin", &tokens);
    program.ok("train --resume run --stop-after 2");
    program.ok(&arguments.replace("--out run", &format!("--out whole --stop-after {}", n_steps + 2)));
    let weights = |run: &str| program.bytes(&format!("{run}/step-{:06}/weights.safetensors", n_steps + 2));
    assert!(weights("run") == weights("whole"));
}

#[test]
fn links_in_a_data_folder_that_lead_nowhere_are_named() {
    let program = Program::new();
    program.file("data/a.txt", &b"some text to learn\n".repeat(200));
    symlink("b", program.path("data/a")).expect("a link");
    symlink("a", program.path("data/b")).expect("a link");
    let arguments = format!("train {SMALL} --steps 2 --out run --data data");
    let error = line(&arguments, &program.run(&arguments));
    assert!(error.contains("cannot read `data/") && error.contains("symbolic links"), "{error}");
    let looped = "train --data data/a --out run";
    assert!(line(looped, &program.run(looped)).contains("symbolic links"));
    fs::remove_file(program.path("data/b")).expect("the link");
    let error = line(&arguments, &program.run(&arguments));
    let expected =
        "`data/a` must lead to a file, found a link to `b`, which is not there: mend the link or remove it";
    assert!(error.contains(expected), "{error}");
    let dangling = "train --data data/a --out run";
    assert!(line(dangling, &program.run(dangling)).contains(expected));
    assert!(!program.path("run").exists());
    // A link to a folder above is not entered, so that it is no loop.
    fs::remove_file(program.path("data/a")).expect("the link");
    symlink("..", program.path("data/up")).expect("a link");
    symlink("a.txt", program.path("data/again.txt")).expect("a link");
    let said = program.ok(&arguments);
    assert!(said.contains("data (7600 bytes)"), "{said}");
}

#[test]
fn length_one_trains_and_generates() {
    let program = Program::new();
    program.ok("train --batch 1 --length 1 --eval-batches 1 --warmup 1 --steps 3 --out run");
    program.ok("train --batch 3 --length 1 --accumulate 2 --eval-batches 1 --warmup 1 --steps 3 --out wide");
    program.ok("train --resume run --steps 5");
    program.ok("generate --checkpoint run --prompt a --tokens 3");
    program.file("four.txt", b"abcd");
    let arguments = "train --length 1 --steps 2 --data four.txt --out x";
    assert!(
        line(arguments, &program.run(arguments))
            .contains("the validation part must have at least `2` tokens")
    );
}

#[test]
fn a_corpus_smaller_than_its_validation_part_is_refused() {
    let program = Program::new();
    for n in [1, 2, 24, 25, 240] {
        program.file("small.txt", &b"x".repeat(n));
        let arguments = format!("train {SMALL} --steps 2 --data small.txt --out run");
        let error = line(&arguments, &program.run(&arguments));
        assert!(
            error.contains("part must have at least `25` tokens, one sequence and its last target"),
            "{error}"
        );
        assert!(error.contains(&format!("of a corpus of `{n}`")), "{error}");
        assert!(!program.path("run").exists());
    }
    program.file("small.txt", &b"x".repeat(250));
    program.ok(&format!("train {SMALL} --steps 2 --data small.txt --out run"));
}

#[test]
fn files_that_are_not_what_their_names_say_are_told_apart() {
    let program = Program::new();
    // What `torch.save` writes begins and ends so.
    let zip = [&b"PK\x03\x04\0\0\x08\x08"[..], &[7; 4000], b"PK\x05\x06", &[0; 18]].concat();
    program.file("pytorch_model.bin", &zip);
    let arguments = format!("train {SMALL} --steps 2 --data pytorch_model.bin --out x --preset gpt2-124m");
    let error = line(&arguments, &program.run(&arguments));
    assert!(error.contains("must hold tokens, found a zip archive, as PyTorch saves weights"), "{error}");
    assert!(!program.path("x").exists());

    program.ok(&format!("train {SMALL} --steps 3 --out run --save-every 1"));
    let weights = "run/step-000003/weights.safetensors";
    let sound = program.bytes(weights);
    let lying = [&(1_u64 << 40).to_le_bytes(), &sound[8..]].concat();
    for (bytes, expected) in [(&zip, "found a zip archive"), (&lying, "found `1099511627776`")] {
        program.file(weights, bytes);
        let generate = "generate --checkpoint run/step-000003 --prompt a --tokens 2";
        let error = line(generate, &program.run(generate));
        assert!(error.contains(expected), "{error}");
        // The one before is taken, by both.
        program.ok("generate --checkpoint run --prompt a --tokens 2");
        let output = program.run("train --resume run --stop-after 1 --save-every 1");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(expected), "{said}");
        assert!(
            program.names("run").contains(&"step-000003.damaged".to_owned()),
            "{:?}",
            program.names("run")
        );
        fs::remove_dir_all(program.path("run/step-000003.damaged")).expect("the damaged one");
        program.file(weights, &sound);
    }
    let mut out = fs::File::create(program.path("pipe.txt")).expect("a file");
    out.write_all(&zip).expect("bytes");
    // As text any bytes are a corpus.
    program.ok(&format!("train {SMALL} --steps 2 --data pipe.txt --out text"));
}
