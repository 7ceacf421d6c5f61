//! GPUs without a row: named, like one that has a row, and with limits of their own.
//!
//! In: the settings of `#[target(sm_130(like = sm_120a, shared_memory = ...))]`, or of a file. Out: an [`Arch`], or
//! what is wrong with them. Must not know which of the two they come from.

use super::{Arch, RESERVED_SHARED_MEMORY, find, meant, names, unknown};
use crate::field::{Field, Place, Problem, Value};
use crate::tuning::{self, TILES};
use std::borrow::Cow;
use std::sync::Arc;

/// A limit that may be given.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its name in a declaration.
    pub name: &'static str,
    /// What it means.
    pub about: &'static str,
    /// Least and greatest value, and what it is a multiple of.
    bounds: (u32, u32, u32),
    /// Its column.
    pub of: fn(&Arch) -> u32,
    set: fn(&mut Arch, u32),
}

/// Every limit, in the order of the columns.
pub const LIMITS: &[Limit] = &[
    Limit {
        name: "shared_memory",
        about: "most shared memory of a block, bytes",
        bounds: (16 << 10, 4 << 20, 1024),
        of: |arch| arch.shared_memory,
        set: |arch, value| arch.shared_memory = value,
    },
    Limit {
        name: "shared_memory_multiprocessor",
        about: "shared memory of a multiprocessor, bytes",
        // As wide as a block's, and what CUDA keeps for itself.
        bounds: (17 << 10, (4 << 20) + 1024, 1024),
        of: |arch| arch.shared_memory_multiprocessor,
        set: |arch, value| arch.shared_memory_multiprocessor = value,
    },
    Limit {
        name: "threads_multiprocessor",
        about: "most resident threads of a multiprocessor",
        bounds: (1024, 8192, 32),
        of: |arch| arch.threads_multiprocessor,
        set: |arch, value| arch.threads_multiprocessor = value,
    },
    Limit {
        name: "blocks_multiprocessor",
        about: "most resident blocks of a multiprocessor",
        bounds: (1, 256, 1),
        of: |arch| arch.blocks_multiprocessor,
        set: |arch, value| arch.blocks_multiprocessor = value,
    },
    Limit {
        name: "registers_multiprocessor",
        about: "32-bit registers of a multiprocessor",
        bounds: (32 << 10, 1 << 20, 256),
        of: |arch| arch.registers_multiprocessor,
        set: |arch, value| arch.registers_multiprocessor = value,
    },
];

impl Limit {
    /// What it allows, for messages and documentation.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.bounds {
            (least, greatest, 1) => format!("a whole number from {least} to {greatest}"),
            (least, greatest, multiple) => format!("a multiple of {multiple} from {least} to {greatest}"),
        }
    }

    fn read(&self, value: &Value) -> Option<u32> {
        let (least, greatest, multiple) = self.bounds;
        let Value::Int(value) = value else { return None };
        let value = u32::try_from(*value).ok()?;
        ((least..=greatest).contains(&value) && value.is_multiple_of(multiple)).then_some(value)
    }
}

/// Does it look like a name of NVIDIA's: `sm_`, a number, perhaps `a` or `f`?
#[must_use]
pub fn is_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("sm_") else { return false };
    let digits = rest.strip_suffix(['a', 'f']).unwrap_or(rest);
    (2..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Kernels use what came with `sm_80`.
fn is_before_ampere(name: &str) -> bool {
    let number = name
        .strip_prefix("sm_")
        .and_then(|rest| rest.trim_end_matches(char::is_alphabetic).parse::<u32>().ok());
    is_name(name) && number.is_some_and(|number| number < 80)
}

/// Reads the GPU `name`, written at `at`, with its settings, each with its key. Without any it is a row of the table.
pub(crate) fn read(
    name: &str,
    at: Place,
    settings: &[(&str, &Field)],
    problems: &mut Vec<Problem>,
) -> Option<Arch> {
    let n_before = problems.len();
    let mut problem = |at: Place, message: String| problems.push(Problem { at: Some(at), message });
    let mut tuned = None;
    if let Some((_, field)) = settings.iter().find(|(key, _)| *key == TILES) {
        let table = match &field.value {
            Value::Text(text) => tuning::of_one_line(text).map_err(|faults| faults.join("; ")),
            value => Err(format!("found `{value}`")),
        };
        match table {
            Ok(table) => tuned = Some(Arc::new(table)),
            Err(why) => {
                problem(field.value_at, format!("`{TILES}` must be a table that `tune` wrote: {why}"))
            }
        }
    }
    let settings: Vec<_> = settings.iter().filter(|(key, _)| *key != TILES).copied().collect();
    if let Some(row) = find(name) {
        for (key, field) in &settings {
            problem(field.at, format!("`{name}` is in the table and takes no `{key}`: name another GPU"));
        }
        return (problems.len() == n_before).then(|| Arch { tuned, ..row.clone() });
    }
    if is_before_ampere(name) {
        problem(at, format!("`{name}` is older than Ampere: GPUs from `sm_80` on are supported"));
        return None;
    }
    if settings.is_empty() {
        let is_new = is_name(name) && meant(name).is_none();
        let hint = if is_new { format!("; declare another as `{name}(like = ...)`") } else { String::new() };
        problem(at, unknown(name) + &hint);
        return None;
    }
    if !is_name(name) {
        problem(at, format!("a GPU's name must be `sm_` and a number, perhaps `a` or `f`, found `{name}`"));
    }
    let like = settings.iter().find(|(key, _)| *key == "like");
    let row = match like.map(|(_, field)| &field.value) {
        Some(Value::Word(word)) => find(word),
        _ => None,
    };
    match (like, row) {
        (None, _) => {
            problem(at, format!("`like` is missing: a GPU that `{name}` resembles, one of {}", names()))
        }
        (Some((_, field)), None) => {
            problem(field.value_at, format!("`like` must be one of {}, found `{}`", names(), field.value));
        }
        _ => {}
    }

    let mut arch = row.cloned().unwrap_or_else(|| super::ALL[0].clone());
    arch.like = row.map(|row| row.name.clone());
    arch.name = Cow::Owned(name.to_owned());
    arch.nvrtc = None;
    arch.tuned = tuned;
    for (key, field) in settings.iter().filter(|(key, _)| *key != "like") {
        match LIMITS.iter().find(|limit| limit.name == *key) {
            Some(limit) => match limit.read(&field.value) {
                Some(value) => (limit.set)(&mut arch, value),
                None => {
                    let allowed = limit.allowed();
                    problem(field.value_at, format!("`{key}` must be {allowed}, found `{}`", field.value));
                }
            },
            None => {
                let limits: Vec<_> = LIMITS.iter().map(|limit| format!("`{}`", limit.name)).collect();
                let limits = limits.join(", ");
                problem(field.at, format!("`{key}` is not a limit of a GPU: allowed are `like`, {limits}"));
            }
        }
    }
    let least = arch.shared_memory + RESERVED_SHARED_MEMORY;
    match settings.iter().find(|(key, _)| *key == "shared_memory_multiprocessor") {
        Some((key, field)) if arch.shared_memory_multiprocessor < least => {
            let found = arch.shared_memory_multiprocessor;
            let what =
                format!("`{key}` must hold a block and the {RESERVED_SHARED_MEMORY} bytes that CUDA keeps");
            problem(field.value_at, format!("{what}: at least {least}, found `{found}`"));
        }
        // A multiprocessor holds at least one block.
        _ => arch.shared_memory_multiprocessor = arch.shared_memory_multiprocessor.max(least),
    }
    (problems.len() == n_before).then_some(arch)
}
