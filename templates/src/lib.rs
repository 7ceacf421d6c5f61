//! The CUDA C++ of Kernwright, embedded: one template per kernel and the device vocabulary.
//!
//! In: a template's path and a GPU's families. Out: the text of the file that fits best. Must not know dtypes, GPUs
//! or what a template means.

/// One embedded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below `templates/`: `ops/norm/forward.cu.tera`, `device/warp.cuh`.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($path:literal,)*) => {
        &[$(File { path: $path, text: include_str!(concat!("../", $path)) },)*]
    };
}

/// Every file, sorted by path. A new file needs a line here; a test says so.
pub const FILES: &[File] = files![
    "device/activation.cuh",
    "device/async.cuh",
    "device/atomics.cuh",
    "device/attention.cuh",
    "device/attention_backward.cuh",
    "device/block.cuh",
    "device/cluster.cuh",
    "device/head_place.cuh",
    "device/key_scores.cuh",
    "device/key_walk.cuh",
    "device/mask.cuh",
    "device/math.cuh",
    "device/mbarrier.cuh",
    "device/mma.cuh",
    "device/norm.cuh",
    "device/pieces.cuh",
    "device/ring.cuh",
    "device/scores.cuh",
    "device/softmax.cuh",
    "device/tensors.cuh",
    "device/tiles.cuh",
    "device/tma.cuh",
    "device/types.cuh",
    "device/vector.cuh",
    "device/warp.cuh",
    "device/warpgroup.cuh",
    "device/wgmma.cuh",
    "device/wgmma_products.cuh.tera",
    "device/wgmma_tiles.cuh",
    "ops/activation/gated_backward.cu.tera",
    "ops/activation/gated_forward.cu.tera",
    "ops/activation/plain_backward.cu.tera",
    "ops/activation/plain_forward.cu.tera",
    "ops/adamw/step.cu.tera",
    "ops/add/sum.cu.tera",
    "ops/attention/backward.hopper.cu.tera",
    "ops/attention/backward_delta.cu.tera",
    "ops/attention/backward_keys.cu.tera",
    "ops/attention/backward_queries.cu.tera",
    "ops/attention/backward_round.cu.tera",
    "ops/attention/backward_wide_keys.hopper.cu.tera",
    "ops/attention/backward_wide_queries.hopper.cu.tera",
    "ops/attention/forward.cu.tera",
    "ops/attention/forward.hopper.cu.tera",
    "ops/attention/softmax_backward.cu.tera",
    "ops/attention/softmax_forward.cu.tera",
    "ops/cast/copy.cu.tera",
    "ops/column_sums/rows.cu.tera",
    "ops/column_sums/total.cu.tera",
    "ops/embedding/backward.cu.tera",
    "ops/embedding/forward.cu.tera",
    "ops/gradient_norm/root.cu.tera",
    "ops/gradient_norm/squares.cu.tera",
    "ops/head/logits.cu.tera",
    "ops/head_loss/softmax.cu.tera",
    "ops/head_loss/total.cu.tera",
    "ops/norm/backward.cu.tera",
    "ops/norm/backward_wide.cu.tera",
    "ops/norm/backward_wide_sums.cu.tera",
    "ops/norm/forward.cu.tera",
    "ops/norm/forward_wide.cu.tera",
    "ops/positions/backward.cu.tera",
    "ops/positions/forward.cu.tera",
    "ops/rope/rotate.cu.tera",
    "ops/scale/multiply.cu.tera",
];

/// The file of that path.
#[must_use]
pub fn file(path: &str) -> Option<&'static File> {
    FILES.binary_search_by(|file| file.path.cmp(path)).ok().map(|at| &FILES[at])
}

/// The file of a template (`norm/forward`) for a GPU of these families, best first: a family's own file wins over the
/// plain one.
#[must_use]
pub fn find(template: &str, families: &[&str]) -> Option<&'static File> {
    find_in(FILES, template, families)
}

fn find_in<'a>(files: &'a [File], template: &str, families: &[&str]) -> Option<&'a File> {
    let own = families.iter().map(|family| format!("ops/{template}.{family}.cu.tera"));
    own.chain([format!("ops/{template}.cu.tera")])
        .find_map(|path| files.iter().find(|file| file.path == path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn walk(folder: &Path, below: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{below}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                walk(&entry.path(), &path, found);
            } else if [".cu.tera", ".cuh", ".cuh.tera"].iter().any(|ending| path.ends_with(ending)) {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_file_of_the_folders_is_listed_once_and_in_order() {
        let mut found = Vec::new();
        for folder in ["device", "ops"] {
            walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), folder, &mut found);
        }
        found.sort();
        assert_eq!(FILES.iter().map(|file| file.path).collect::<Vec<_>>(), found);
        assert!(found.iter().all(|path| file(path).is_some()));
    }

    #[test]
    fn the_most_specific_file_wins() {
        let files = [
            File { path: "ops/attention/forward.cu.tera", text: "plain" },
            File { path: "ops/attention/forward.hopper.cu.tera", text: "hopper" },
        ];
        let text = |families: &[&str]| find_in(&files, "attention/forward", families).map(|file| file.text);
        assert_eq!(text(&[]), Some("plain"));
        assert_eq!(text(&["hopper"]), Some("hopper"));
        assert_eq!(text(&["later", "hopper"]), Some("hopper"));
        assert_eq!(text(&["later"]), Some("plain"));
        assert_eq!(find_in(&files, "attention/none", &[]), None);
    }

    #[test]
    fn kernels_hold_no_assembly_and_no_preprocessor_but_unrolling() {
        for file in FILES.iter().filter(|file| file.path.starts_with("ops/")) {
            for line in file.text.lines() {
                let bare = line.trim_start();
                assert!(
                    !bare.starts_with('#') || bare.starts_with("#pragma unroll"),
                    "{}: {line}",
                    file.path
                );
                assert!(!line.contains("asm(") && !line.contains("asm volatile"), "{}: {line}", file.path);
                assert!(!line.contains("__shared__"), "{}: {line}", file.path);
            }
        }
    }
}
