//! Files of tensors that lie about themselves, while the checkpoint's manifest agrees with them: what the reader of
//! tensors itself must notice.

use std::fs;
use std::path::{Path, PathBuf};

use kernwright_model::checkpoint::{Checkpoint, CheckpointError, Kind, Progress, TensorShape, latest, save};
use kernwright_model::random::Random;

fn tensors() -> Vec<TensorShape> {
    let shapes: [(&str, &[usize]); 3] = [("embedding", &[5, 7]), ("norm", &[7]), ("scale", &[])];
    shapes.map(|(name, shape)| TensorShape { name: name.to_owned(), shape: shape.to_vec() }).into()
}

fn write(run: &Path, step: u64) -> PathBuf {
    let progress = Progress {
        program: "kernwright 0.1.0".to_owned(),
        shape: "model.layers = 4\n".to_owned(),
        step,
        tokens: 64 * step,
        seed: 3,
        random: Random::new(4),
        position: Default::default(),
        options: serde_json::Value::Null,
        executor: serde_json::Value::Null,
    };
    let mut fill = |_: Kind, name: &str, out: &mut [f32]| {
        Random::stream(step, name).normals_at(0, 1.0, out);
        Ok(())
    };
    save(run, &progress, &tensors(), &mut fill).unwrap()
}

/// Replaces the weights in `folder`, and their size in the manifest.
fn replace(folder: &Path, bytes: &[u8]) {
    let (weights, manifest) = (folder.join("weights.safetensors"), folder.join("checkpoint.json"));
    let size = |n: u64| format!("\"bytes\": {n},");
    let before = size(fs::metadata(&weights).unwrap().len());
    let text = fs::read_to_string(&manifest).unwrap();
    // The last is that of the weights: names are sorted.
    let (start, end) = text.rsplit_once(&before).unwrap();
    fs::write(&manifest, format!("{start}{}{end}", size(bytes.len() as u64))).unwrap();
    fs::write(&weights, bytes).unwrap();
}

/// `bytes` with `from` as `to` in the header, whose length is said anew.
fn with_header(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + n]).unwrap();
    assert!(header.contains(from), "{from} in {header}");
    let header = header.replacen(from, to, 1);
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + n..]].concat()
}

#[test]
fn lies_of_every_kind_are_told_apart_and_passed_over() {
    let run = tempfile::tempdir().unwrap();
    write(run.path(), 1);
    let folder = write(run.path(), 2);
    let path = folder.join("weights.safetensors").display().to_string();
    let sound = fs::read(&path).unwrap();
    let n_header = u64::from_le_bytes(sound[..8].try_into().unwrap()) as usize;
    let n_left = sound.len() - 8;
    let with_length = |n: u64| [&n.to_le_bytes(), &sound[8..]].concat();
    let length = |found: u64, allowed: usize| {
        format!(
            "`F` must begin with the length of its header, at most `{allowed}`, found `{found}`: it is no safetensors \
             file, or damaged"
        )
    };
    let header = |reason: &str| format!("the header of `F` must be that of a safetensors file: {reason}");
    let bytes = |found: usize| {
        format!("the tensors of `F` must have the `172` bytes that its header says, found `{found}`")
    };
    let zip = "`F` must be a safetensors file, found a zip archive, as `torch.save` writes: write it with \
               `safetensors.torch.save_file`";
    let cases = [
        (with_length(1 << 40), length(1 << 40, n_left)),
        (with_length(u64::MAX), length(u64::MAX, n_left)),
        (with_length(n_left as u64 + 1), length(n_left as u64 + 1, n_left)),
        (sound[..7].to_vec(), length(u64::from(n_header as u16), 0)),
        (sound[..8 + n_header].to_vec(), bytes(0)),
        (sound[..sound.len() - 4].to_vec(), bytes(168)),
        ([&sound[..], &[0]].concat(), bytes(173)),
        (with_header(&sound, "[140,168]", "[136,168]"), header("invalid offset for tensor `norm`")),
        (with_header(&sound, "[140,168]", "[144,168]"), header("invalid offset for tensor `norm`")),
        (with_header(&sound, "[140,168]", "[168,140]"), header("invalid offset for tensor `norm`")),
        (with_header(&sound, "F32", "F16"), header("")),
        (with_header(&sound, "F32", "F33"), header("unknown variant `F33`")),
        (with_header(&sound, "[5,7]", "[4294967296,4294967296,7]"), header("")),
        (with_header(&sound, "[5,7]", "[-5,7]"), header("")),
        (with_header(&sound, "\"norm\"", "\"a\\nb\""), String::new()),
        ([&b"PK\x03\x04\0\0\x08\x08"[..], &[7; 300]].concat(), zip.to_owned()),
        ([&b"\x80\x02ctorch\n"[..], &[7; 300]].concat(), length(u64::from_le_bytes(*b"\x80\x02ctorch"), 301)),
    ];
    for (bytes, expected) in cases {
        replace(&folder, &bytes);
        let error = Checkpoint::open(&folder).and_then(|checkpoint| checkpoint.check_tensors(&tensors()));
        let error = error.unwrap_err().to_string();
        let shown = error.replace(&path, "F");
        assert!(shown.starts_with(&expected), "{shown}\nbegins otherwise than\n{expected}");
        assert!(!error.contains(char::is_control), "{error:?}");
        let found = latest(run.path()).unwrap().unwrap();
        assert_eq!(found.checkpoint.manifest.progress.step, 1, "{error}");
        replace(&folder, &sound);
        assert_eq!(latest(run.path()).unwrap().unwrap().checkpoint.manifest.progress.step, 2, "{error}");
    }
}

#[test]
fn another_type_of_the_same_width_is_named() {
    let run = tempfile::tempdir().unwrap();
    let folder = write(run.path(), 1);
    let path = folder.join("weights.safetensors");
    replace(&folder, &with_header(&fs::read(&path).unwrap(), "F32", "I32"));
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let error = checkpoint.read(Kind::Weight, &tensors()[0], &mut [0.0; 35]).unwrap_err();
    let expected = "`embedding` must be `F32` of `[5, 7]`, found `I32` of `[5, 7]` in";
    assert_eq!(error.to_string(), format!("{expected} `{}`", path.display()));
}

#[test]
fn tensors_that_are_cut_while_they_are_read_are_an_error() {
    let run = tempfile::tempdir().unwrap();
    let folder = write(run.path(), 1);
    let path = folder.join("weights.safetensors");
    let checkpoint = Checkpoint::open(&folder).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(200).unwrap();
    let expected = format!("`{}` must not change while it is read, but has become shorter", path.display());
    let error = checkpoint.read(Kind::Weight, &tensors()[1], &mut [0.0; 7]).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let error = checkpoint.verify().unwrap_err();
    assert!(matches!(error, CheckpointError::Shrunk { .. }) && error.is_damage(), "{error}");
}
