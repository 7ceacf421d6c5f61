//! safetensors: the weights of a checkpoint.

use crate::damage;
use crate::{Outcome, check_message, hammer, within_memory};
use kernwright_model::checkpoint::{self, Checkpoint, Kind, Progress, TensorShape};
use kernwright_model::random::Random;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A checkpoint in `run`: its folder.
fn write(run: &Path) -> std::path::PathBuf {
    let shapes: [(&str, &[usize]); 4] =
        [("embedding", &[5, 7]), ("norm", &[7]), ("scale", &[]), ("empty", &[0, 4])];
    let tensors = shapes.map(|(name, shape)| TensorShape { name: name.to_owned(), shape: shape.to_vec() });
    let progress = Progress {
        program: "kernwright".to_owned(),
        shape: "model.layers = 4\n".to_owned(),
        step: 1,
        tokens: 64,
        seed: 3,
        random: Random::new(4),
        position: Default::default(),
        options: serde_json::Value::Null,
        executor: serde_json::Value::Null,
    };
    let mut fill = |_: Kind, name: &str, out: &mut [f32]| {
        Random::stream(1, name).normals_at(0, 1.0, out);
        Ok(())
    };
    checkpoint::save(run, &progress, &tensors, &mut fill).expect("a checkpoint")
}

/// A number in the header's text becomes another, or a word does.
fn damage_header(random: &mut Random, bytes: &mut Vec<u8>) {
    let words = [
        "dtype",
        "shape",
        "data_offsets",
        "F32",
        "F16",
        "I64",
        "F4",
        "U8",
        "__metadata__",
        "norm",
        "x\\ny",
        "\\u001b",
    ];
    let words = words.map(str::to_owned);
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header = String::from_utf8_lossy(&bytes[8..8 + n]).into_owned();
    let mut header = damage::text(random, &header, &[&header], &words);
    // Some keep the length that is said, so that what comes after is where it was.
    if random.below(2) == 0 && header.len() <= n {
        header += &" ".repeat(n - header.len());
    }
    let said = if random.below(4) == 0 { damage::extreme(random, n as u64) } else { header.len() as u64 };
    bytes.splice(..8 + n, [&said.to_le_bytes(), header.as_bytes()].concat());
}

fn check_error(error: &dyn Error, input: &dyn std::fmt::Debug) -> Outcome {
    let mut error = Some(error);
    while let Some(cause) = error {
        check_message(&cause.to_string(), input);
        error = cause.source();
    }
    Outcome::Refused
}

#[test]
fn damaged_tensors_are_told_and_sound_ones_are_those_of_the_file() {
    let run = tempfile::tempdir().expect("a folder");
    let folder = write(run.path());
    let (weights, manifest) = (folder.join("weights.safetensors"), folder.join("checkpoint.json"));
    let sound = fs::read(&weights).expect("the weights");
    let sound_manifest = fs::read_to_string(&manifest).expect("the manifest");
    let n_sound = format!("\"bytes\": {},", sound.len());
    assert!(sound_manifest.contains(&n_sound), "{sound_manifest}");
    hammer("safetensors", |random| {
        let mut bytes = sound.clone();
        match random.below(4) {
            0 => damage::bytes(random, &mut bytes),
            1 => bytes[..8].copy_from_slice(&damage::extreme(random, sound.len() as u64).to_le_bytes()),
            _ => damage_header(random, &mut bytes),
        }
        // The manifest agrees, so that it is the tensors' own reader which judges; or is damaged too.
        let mut listed =
            sound_manifest.replace(&n_sound, &format!("\"bytes\": {},", bytes.len())).into_bytes();
        if random.below(8) == 0 {
            damage::bytes(random, &mut listed);
        }
        fs::write(&weights, &bytes).expect("a file");
        fs::write(&manifest, &listed).expect("a file");
        let input = (String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&listed));
        match within_memory(bytes.len() + listed.len(), || Checkpoint::open(&folder)) {
            Ok(checkpoint) => check_tensors(&checkpoint, &bytes),
            Err(error) => check_error(&error, &input),
        }
    });
}

/// Every tensor is what another reader, which has the whole file in memory, finds.
fn check_tensors(checkpoint: &Checkpoint, bytes: &[u8]) -> Outcome {
    let expected =
        safetensors::SafeTensors::deserialize(bytes).expect("what one reader takes, the other does");
    let found = checkpoint.weights();
    assert_eq!(found.len(), expected.len());
    for tensor in found {
        assert!(tensor.len() <= 2 * bytes.len(), "{} numbers of {}", tensor.len(), tensor.name);
        let view = expected.tensor(&tensor.name).expect("both have it");
        assert_eq!(view.shape(), tensor.shape);
        let mut values = vec![0.5; tensor.len()];
        match within_memory(bytes.len(), || checkpoint.read(Kind::Weight, &tensor, &mut values)) {
            Ok(()) => {
                let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                assert_eq!((view.dtype(), view.data()), (safetensors::Dtype::F32, &values[..]));
            }
            Err(error) => {
                assert_ne!(view.dtype(), safetensors::Dtype::F32, "{error}");
                check_error(&error, &String::from_utf8_lossy(bytes));
            }
        }
    }
    if let Err(error) = checkpoint.verify() {
        check_error(&error, &String::from_utf8_lossy(bytes));
    }
    Outcome::Accepted
}
