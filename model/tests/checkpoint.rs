//! Checkpoints as a run uses them: saved, read back, damaged in every way, and killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kernwright_model::batches::Position;
use kernwright_model::checkpoint::{
    Checkpoint, CheckpointError, Kind, Progress, TensorShape, discard_after, latest, prune, save,
};
use kernwright_model::random::Random;

const KINDS: [Kind; 3] = [Kind::Weight, Kind::FirstMoment, Kind::SecondMoment];

fn progress(step: u64) -> Progress {
    Progress {
        program: "kernwright 0.1.0".to_owned(),
        shape: "model.layers = 4\nmodel.tied = true\n".to_owned(),
        step,
        tokens: step * 4096,
        seed: u64::MAX,
        random: Random { key: u64::MAX - 1, counter: step },
        position: Position { epoch: 2, index: step },
        options: serde_json::json!({"batch": 8, "peak": 0.946_153_846_153_846_1, "without": ["fuse"]}),
        executor: serde_json::json!({"loss_scale": 65536.0}),
    }
}

fn tensors() -> Vec<TensorShape> {
    let shapes: [(&str, &[usize]); 5] = [
        ("embedding", &[31, 7]),
        ("layers.0.norm", &[7]),
        ("layers.0.linear", &[5, 3, 2]),
        ("scale", &[]),
        ("empty", &[0, 4]),
    ];
    shapes.map(|(name, shape)| TensorShape { name: name.to_owned(), shape: shape.to_vec() }).into()
}

/// Numbers that differ by step, kind and name; some of them not finite.
fn values(step: u64, kind: Kind, name: &str, out: &mut [f32]) {
    let random = Random::stream(step, &format!("{kind:?} {name}"));
    random.normals_at(0, 1.0, out);
    if let [first, second, ..] = out {
        (*first, *second) = (f32::NAN, f32::NEG_INFINITY);
    }
}

fn write(run: &Path, step: u64) -> PathBuf {
    save(run, &progress(step), &tensors(), &mut |kind, name, out| {
        values(step, kind, name, out);
        Ok(())
    })
    .unwrap()
}

fn check(checkpoint: &Checkpoint, step: u64) {
    assert_eq!(checkpoint.manifest.progress, progress(step));
    assert_eq!(checkpoint.weights(), tensors());
    for tensor in tensors() {
        for kind in KINDS {
            let (mut found, mut expected) = (vec![0.5; tensor.len()], vec![0.0; tensor.len()]);
            checkpoint.read(kind, &tensor, &mut found).unwrap();
            values(step, kind, &tensor.name, &mut expected);
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&expected), "{kind:?} of `{}`", tensor.name);
        }
    }
}

fn names(run: &Path) -> Vec<String> {
    let entries = fs::read_dir(run).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn latest_step(run: &Path) -> u64 {
    latest(run).unwrap().unwrap().checkpoint.manifest.progress.step
}

#[test]
fn a_checkpoint_is_read_back_bit_for_bit() {
    let run = tempfile::tempdir().unwrap();
    let folder = write(run.path(), 100);
    assert_eq!(folder, run.path().join("step-000100"));
    assert_eq!(names(&folder), ["checkpoint.json", "moments.safetensors", "weights.safetensors"]);
    let found = latest(run.path()).unwrap().unwrap();
    assert!(found.damaged.is_empty());
    check(&found.checkpoint, 100);
}

#[test]
fn other_tools_can_read_the_weights() {
    let run = tempfile::tempdir().unwrap();
    let bytes = fs::read(write(run.path(), 3).join("weights.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor("layers.0.linear").unwrap();
    assert_eq!((view.dtype(), view.shape()), (safetensors::Dtype::F32, &[5, 3, 2][..]));
    let mut expected = vec![0.0; 30];
    values(3, Kind::Weight, "layers.0.linear", &mut expected);
    let expected: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(view.data(), expected);
    let n_header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(n_header % 8, 0);
}

#[test]
fn no_checkpoint_is_no_error() {
    let run = tempfile::tempdir().unwrap();
    assert!(latest(run.path()).unwrap().is_none());
    assert!(latest(&run.path().join("missing")).unwrap().is_none());
}

#[test]
fn the_newest_are_kept_and_a_step_saved_again_replaces_itself() {
    let run = tempfile::tempdir().unwrap();
    for step in [5, 10, 999_999, 1_000_000] {
        write(run.path(), step);
        prune(run.path(), 2, None).unwrap();
    }
    assert_eq!(names(run.path()), ["step-1000000", "step-999999"]);
    write(run.path(), 1_000_000);
    assert_eq!(names(run.path()), ["step-1000000", "step-1000000.1", "step-999999"]);
    prune(run.path(), 2, None).unwrap();
    assert_eq!(names(run.path()), ["step-1000000.1", "step-999999"]);
    write(run.path(), 1_000_000);
    assert!(run.path().join("step-1000000.2").exists());
    check(&latest(run.path()).unwrap().unwrap().checkpoint, 1_000_000);
}

#[test]
fn a_run_resumed_earlier_discards_what_came_after() {
    let run = tempfile::tempdir().unwrap();
    for step in [1, 2, 3] {
        write(run.path(), step);
    }
    discard_after(run.path(), 2).unwrap();
    assert_eq!(latest_step(run.path()), 2);
}

#[test]
fn the_step_must_be_that_of_the_folder() {
    let run = tempfile::tempdir().unwrap();
    write(run.path(), 1);
    let renamed = run.path().join("step-000007");
    fs::rename(write(run.path(), 2), &renamed).unwrap();
    let error = Checkpoint::open(&renamed).unwrap_err().to_string();
    let expected = "must be `7` as the folder's name says, found `2`";
    assert_eq!(error, format!("the step in `{}` {expected}", renamed.display()));
    assert_eq!(latest_step(run.path()), 1);
    let best = run.path().join("best");
    fs::rename(renamed, &best).unwrap();
    check(&Checkpoint::open(&best).unwrap(), 2);
}

#[test]
fn other_names_and_shapes_than_expected_are_noticed() {
    let run = tempfile::tempdir().unwrap();
    let folder = write(run.path(), 1);
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let path = format!(" in `{}`", folder.join("weights.safetensors").display());
    let check = |expected: &[TensorShape]| {
        checkpoint.check_tensors(expected).map_err(|error| error.to_string().replace(&path, ""))
    };
    let mut expected = tensors();
    expected.reverse();
    assert_eq!(check(&expected), Ok(()));
    let last = expected.pop().unwrap();
    let extra = "the checkpoint must have no tensor that the model lacks, found `embedding`";
    assert_eq!(check(&expected), Err(extra.to_owned()));
    expected.push(TensorShape { shape: vec![7, 31], ..last });
    assert_eq!(check(&expected), Err("`embedding` must be `[7, 31]`, found `[31, 7]`".to_owned()));
    expected[0].name = "head".to_owned();
    assert_eq!(check(&expected), Err("the checkpoint must have the tensor `head`, not found".to_owned()));
}

#[test]
fn only_damage_is_passed_over() {
    let run = tempfile::tempdir().unwrap();
    write(run.path(), 1);
    let newer = write(run.path(), 2);
    let manifest = newer.join("checkpoint.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replacen("\"format\": 1", "\"format\": 2", 1)).unwrap();
    let error = latest(run.path()).unwrap_err();
    assert!(matches!(error, CheckpointError::Format { found: 2, .. }), "{error}");

    fs::write(&manifest, text).unwrap();
    let weights = newer.join("weights.safetensors");
    fs::remove_file(&weights).unwrap();
    assert_eq!(latest_step(run.path()), 1);
    // What is not there is damage, what cannot be read is not.
    fs::create_dir(&weights).unwrap();
    let error = latest(run.path()).unwrap_err();
    assert!(matches!(error, CheckpointError::Read { .. }), "{error}");
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_kept_under_another_name() {
    let run = tempfile::tempdir().unwrap();
    for round in 0..2 {
        for step in [1, 2, 3, 4] {
            write(run.path(), step);
        }
        fs::write(run.path().join("step-000003/weights.safetensors"), [round; 10]).unwrap();
        discard_after(run.path(), 1).unwrap();
        discard_after(run.path(), 0).unwrap();
    }
    assert_eq!(names(run.path()), ["step-000003.damaged", "step-000003.damaged.1"]);
    assert_eq!(fs::read(run.path().join("step-000003.damaged/weights.safetensors")).unwrap(), [0; 10]);
}

#[test]
fn stray_files_are_in_nobodys_way() {
    let run = tempfile::tempdir().unwrap();
    write(run.path(), 1);
    let strays = ["step-000001.1", "step-000002", ".step-000002.77.tmp"];
    strays.iter().for_each(|name| fs::write(run.path().join(name), "stray").unwrap());
    assert_eq!(latest_step(run.path()), 1);
    assert_eq!(write(run.path(), 1), run.path().join("step-000001.2"));
    assert_eq!(write(run.path(), 2), run.path().join("step-000002.1"));
    prune(run.path(), 1, None).unwrap();
    assert_eq!(names(run.path()), ["step-000001.1", "step-000002", "step-000002.1"]);
    discard_after(run.path(), 0).unwrap();
    assert_eq!(names(run.path()), ["step-000001.1", "step-000002"]);
}

#[test]
fn what_a_killed_process_left_is_ignored_then_removed() {
    let run = tempfile::tempdir().unwrap();
    let whole = write(run.path(), 1);
    for (i, n_files) in [0, 1, 2, 3].into_iter().enumerate() {
        let left = run.path().join(format!(".step-00000{}.77.tmp", i + 2));
        fs::create_dir(&left).unwrap();
        for name in names(&whole).iter().take(n_files) {
            fs::copy(whole.join(name), left.join(name)).unwrap();
        }
    }
    assert_eq!(latest_step(run.path()), 1);
    write(run.path(), 2);
    assert_eq!(names(run.path()), ["step-000001", "step-000002"]);
}

#[test]
fn a_device_that_fails_leaves_nothing_and_is_the_source() {
    let run = tempfile::tempdir().unwrap();
    let error = save(run.path(), &progress(1), &tensors(), &mut |kind, name, _| {
        if kind == Kind::SecondMoment && name == "scale" { Err("out of order".into()) } else { Ok(()) }
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "cannot take `v.scale` from the device to save it");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "out of order");
    assert_eq!(names(run.path()), Vec::<String>::new());
    let twice = [tensors(), tensors()].concat();
    let error = save(run.path(), &progress(1), &twice, &mut |_, _, _| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "each tensor of a checkpoint must have its own name, found `embedding` twice"
    );
}

#[test]
fn any_damage_falls_back_to_the_checkpoint_before() {
    let run = tempfile::tempdir().unwrap();
    write(run.path(), 1);
    let newer = write(run.path(), 2);
    for name in names(&newer) {
        let path = newer.join(&name);
        let bytes = fs::read(&path).unwrap();
        let mut damaged = Vec::new();
        for n in [0, 1, 7, 8, 9, 100, bytes.len() - 1] {
            damaged.push(bytes[..n].to_vec());
        }
        damaged.push([&bytes[..], b"x"].concat());
        for at in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            damaged.push(flipped);
        }
        // Headers that lie about their own length.
        for n in [u64::MAX, 1 << 63, 99_999_999, 0] {
            let mut lying = bytes.clone();
            lying[..8].copy_from_slice(&n.to_le_bytes());
            damaged.push(lying);
        }
        for (i, damaged) in damaged.iter().enumerate() {
            fs::write(&path, damaged).unwrap();
            let found = latest(run.path()).unwrap().unwrap();
            assert_eq!(found.checkpoint.manifest.progress.step, 1, "damage {i} of {name}");
            assert_eq!(found.damaged.len(), 1);
            assert!(!found.damaged[0].to_string().contains('\n'));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(latest_step(run.path()), 1);
        fs::write(&path, bytes).unwrap();
        assert_eq!(latest_step(run.path()), 2);
    }
}

#[test]
fn a_run_without_a_whole_checkpoint_says_why() {
    let run = tempfile::tempdir().unwrap();
    for step in [1, 2] {
        let path = write(run.path(), step).join("weights.safetensors");
        fs::write(path, vec![0; 10 * step as usize]).unwrap();
    }
    let CheckpointError::AllDamaged { n: 2, newest, .. } = latest(run.path()).unwrap_err() else {
        panic!("both are damaged");
    };
    assert!(matches!(*newest, CheckpointError::Size { found: 20, .. }), "{newest}");
}

#[test]
fn another_format_tensor_or_shape_is_named() {
    let run = tempfile::tempdir().unwrap();
    let folder = write(run.path(), 1);
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let read = |name: &str, shape: &[usize]| {
        let tensor = TensorShape { name: name.to_owned(), shape: shape.to_vec() };
        let path = format!(" in `{}`", folder.join("weights.safetensors").display());
        checkpoint.read(Kind::Weight, &tensor, &mut []).unwrap_err().to_string().replace(&path, "")
    };
    assert_eq!(read("head", &[1]), "the checkpoint must have the tensor `head`, not found");
    assert_eq!(
        read("embedding", &[7, 31]),
        "`embedding` must be `F32` of `[7, 31]`, found `F32` of `[31, 7]`"
    );

    let path = folder.join("checkpoint.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"format\": 1", "\"format\": 2, \"new\": 0", 1)).unwrap();
    let error = Checkpoint::open(&folder).unwrap_err().to_string();
    assert_eq!(error, format!("`{}` must be of format `1`, found `2`", path.display()));
}

/// Set for the process that is to be killed: the run it saves in.
const RUN: &str = "KERNWRIGHT_TEST_RUN";

#[test]
fn a_run_killed_at_any_moment_leaves_a_whole_checkpoint() {
    if let Ok(run) = std::env::var(RUN) {
        for step in 2.. {
            write(Path::new(&run), step);
            prune(Path::new(&run), 2, None).unwrap();
        }
    }
    let run = tempfile::tempdir().unwrap();
    let mut newest = 1;
    write(run.path(), newest);
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_run_killed_at_any_moment_leaves_a_whole_checkpoint"])
            .env(RUN, run.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(30_000 + 3_700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = latest(run.path()).unwrap().unwrap();
        assert!(found.damaged.is_empty(), "round {round}: {:?}", found.damaged);
        newest = newest.max(found.checkpoint.manifest.progress.step);
        check(&found.checkpoint, found.checkpoint.manifest.progress.step);
    }
    assert!(newest > 1, "no process lived long enough to save");
}
