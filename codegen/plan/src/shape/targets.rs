//! The section `target`: which GPUs to generate for.
//!
//! In: fields. Out: an [`Arch`] per GPU, each once, in the order they were named; and what is wrong with them.

use crate::arch::{Arch, custom};
use crate::field::{Field, Problem, Value};

/// The section and a dot.
const SECTION: &str = "target.";

/// Does it lie in this section? Then nobody else need know it.
pub(super) fn is_below(path: &str) -> bool {
    path.starts_with(SECTION)
}

pub(super) fn read(fields: &[Field]) -> (Vec<Arch>, Vec<Problem>) {
    let mut targets = Vec::new();
    let mut problems = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for field in fields {
        let Some(below) = field.path.strip_prefix(SECTION) else { continue };
        let name = below.split('.').next().unwrap_or(below);
        if names.contains(&name) {
            continue;
        }
        names.push(name);
        let prefix = format!("{SECTION}{name}.");
        let settings: Vec<(&str, &Field)> =
            fields.iter().filter_map(|field| Some((field.path.strip_prefix(&prefix)?, field))).collect();
        let itself = fields.iter().find(|field| field.path == prefix[..prefix.len() - 1]);
        let is_on = match itself.map(|field| &field.value) {
            None | Some(Value::Flag) => true,
            Some(Value::Word(word)) if word == "true" => true,
            Some(Value::Word(word)) if word == "false" => false,
            Some(value) => {
                let message = format!(
                    "`{name}` must be a flag: named alone, or `= true` or `= false`, found `{value}`"
                );
                problems.push(Problem { at: itself.map(|field| field.value_at), message });
                continue;
            }
        };
        let arch = custom::read(name, itself.unwrap_or(field).at, &settings, &mut problems);
        targets.extend(arch.filter(|_| is_on));
    }
    (targets, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{self, find};
    use crate::field::read_text;
    use crate::shape::{parse_text, presets};

    fn messages(text: &str) -> Vec<String> {
        read(&read_text(text)).1.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn named_gpus_are_targets_each_once_in_order() {
        let (targets, problems) = read(&read_text(
            "target\ntarget.sm_90a\ntarget.sm_86 = true\ntarget.sm_80 = false\ntarget.sm_90a\n",
        ));
        assert_eq!(problems, []);
        assert_eq!(targets.iter().map(|arch| &*arch.name).collect::<Vec<_>>(), ["sm_90a", "sm_86"]);
    }

    #[test]
    fn a_gpu_without_a_row_is_like_another_but_for_what_it_says() {
        let text = "target.sm_130\ntarget.sm_130.like = sm_120a\ntarget.sm_130.shared_memory = 232448\n";
        let (targets, problems) = read(&read_text(text));
        assert_eq!(problems, []);
        let (row, arch) = (find("sm_120a").expect("it is a row"), &targets[0]);
        assert_eq!((&*arch.name, arch.like.as_deref(), arch.nvrtc), ("sm_130", Some("sm_120a"), None));
        assert_eq!(arch.shared_memory, 232_448);
        assert_eq!(arch.shared_memory_multiprocessor, 233_472, "room for one block at least");
        assert_eq!(arch.threads_multiprocessor, row.threads_multiprocessor);
        assert_eq!((arch.card, arch.families), (row.card, row.families));
        assert_eq!(read(&read_text(&arch.text())).0, targets);
    }

    #[test]
    fn the_greatest_limits_are_read_as_they_are_printed() {
        let text = "target.sm_130.like = sm_120a\ntarget.sm_130.shared_memory = 4194304";
        let (archs, problems) = read(&read_text(text));
        assert_eq!(problems, []);
        assert_eq!(read(&read_text(&archs[0].text())), (archs, Vec::new()));
    }

    #[test]
    fn every_limit_can_be_given_and_survives_its_text() {
        let mut text = "target.sm_131a\ntarget.sm_131a.like = sm_90a\n".to_owned();
        let values = [65_536, 81_920, 1024, 7, 131_072];
        for (limit, value) in custom::LIMITS.iter().zip(values) {
            text.push_str(&format!("target.sm_131a.{} = {value}\n", limit.name));
        }
        let (targets, problems) = read(&read_text(&text));
        assert_eq!(problems, []);
        let found: Vec<u32> = custom::LIMITS.iter().map(|limit| (limit.of)(&targets[0])).collect();
        assert_eq!(found, values);
        let shape = presets::find("tiny").expect("a preset").shape();
        let both = format!("{}{}", shape.text(), targets[0].text());
        assert_eq!(parse_text(&both).map(|shape| shape.targets), Ok(targets));
    }

    #[test]
    fn what_is_wrong_with_a_gpu_is_said_at_once() {
        for (text, wanted) in [
            ("target.sm_90", "`sm_90` is not a known GPU: did you mean `sm_90a`?"),
            (
                "target.sm_130",
                &format!(
                    "`sm_130` is not a known GPU: allowed are {}; declare another as `sm_130(like = ...)`",
                    arch::names()
                ),
            ),
            ("target.rtx", &format!("`rtx` is not a known GPU: allowed are {}", arch::names())),
            ("target.sm_75", "`sm_75` is older than Ampere: GPUs from `sm_80` on are supported"),
            ("target.sm_70.like = sm_80", "`sm_70` is older than Ampere: GPUs from `sm_80` on are supported"),
            ("target.sm_86 = 3", "`sm_86` must be a flag: named alone, or `= true` or `= false`, found `3`"),
            ("target.sm_86.like = sm_80", "`sm_86` is in the table and takes no `like`: name another GPU"),
            (
                "target.sm_130.shared_memory = 65536",
                &format!("`like` is missing: a GPU that `sm_130` resembles, one of {}", arch::names()),
            ),
            ("target.sm_130.like = sm_1", &format!("`like` must be one of {}, found `sm_1`", arch::names())),
            (
                "target.fast.like = sm_80",
                "a GPU's name must be `sm_` and a number, perhaps `a` or `f`, found `fast`",
            ),
            (
                "target.sm_130.like = sm_80\ntarget.sm_130.shared_memory = 1000",
                "`shared_memory` must be a multiple of 1024 from 16384 to 4194304, found `1000`",
            ),
            (
                "target.sm_130.like = sm_80\ntarget.sm_130.threads = 1024",
                "`threads` is not a limit of a GPU: allowed are `like`, `shared_memory`, \
                 `shared_memory_multiprocessor`, `threads_multiprocessor`, `blocks_multiprocessor`, \
                 `registers_multiprocessor`",
            ),
            (
                "target.sm_130.like = sm_80\ntarget.sm_130.shared_memory_multiprocessor = 65536",
                "`shared_memory_multiprocessor` must hold a block and the 1024 bytes that CUDA keeps: at least \
                 167936, found `65536`",
            ),
        ] {
            assert_eq!(messages(text), [wanted], "{text}");
        }
    }
}
