//! What was declared becomes CUDA text: every kernel any run of it may choose, for each target.
//!
//! In: a Shape, or attention alone, and its targets. Out: [`Generated`] kernels. Must not know files or the environment.

use crate::declaration::{Declaration, Declared};
use crate::render::{RenderError, render};
use crate::tables::Tables;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::chain;
use kernwright_plan::field::Problem;
use kernwright_plan::kernels;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::Shape;
use kernwright_plan::spec::KernelSpec;
use std::collections::HashMap;

/// The text of one kernel for one GPU.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The GPU.
    pub arch: Arch,
    /// The kernel's name, `KernelSpec::name`.
    pub kernel: String,
    /// What it was rendered from.
    pub spec: KernelSpec,
    /// CUDA C++.
    pub text: String,
}

/// Why there is no text. Each is a bug in Kernwright, not in the declaration.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The template and the spec disagree.
    #[error("cannot generate `{kernel}` for `{arch}`")]
    Render {
        /// The kernel's name.
        kernel: String,
        /// The GPU's name.
        arch: String,
        /// What the renderer says.
        source: Box<RenderError>,
    },
    /// A name does not spell everything that its spec holds.
    #[error("two different kernels for `{arch}` are both named `{kernel}`")]
    SameName {
        /// The name.
        kernel: String,
        /// The GPU's name.
        arch: String,
    },
}

/// Everything a declaration asks for: what the derive and the build script both start from. `overriding` is the
/// content of `KERNWRIGHT_TARGETS`, `tables` are the package's own.
///
/// # Errors
/// Every mistake of the declaration; or what is wrong with the tables, the targets or the templates, at no place of it.
pub fn declared(
    declaration: &Declaration,
    overriding: Option<&str>,
    tables: &Tables,
) -> Result<(Declared, Vec<Generated>), Vec<Problem>> {
    let nowhere = |message| vec![Problem { at: None, message }];
    let mut declared = declaration.declared()?;
    if !tables.problems.is_empty() {
        return Err(tables.problems.iter().cloned().flat_map(nowhere).collect());
    }
    tables.give(declared.targets_mut());
    let targets = targets(declared.targets(), overriding).map_err(nowhere)?;
    match of_plans(&declared.plans(), &targets) {
        Ok(all) => Ok((declared, all)),
        Err(error) => Err(nowhere(chain(&error))),
    }
}

/// The GPUs to generate for: those in `overriding` (the content of `KERNWRIGHT_TARGETS`: names between commas or
/// spaces, in the table or among those declared) if it names any, else those declared, else all.
///
/// # Errors
/// A line on the names nobody knows, with those that are allowed.
pub fn targets(declared: &[Arch], overriding: Option<&str>) -> Result<Vec<Arch>, String> {
    let names: Vec<&str> = overriding
        .unwrap_or_default()
        .split(|sign: char| sign == ',' || sign.is_whitespace())
        .filter(|name| !name.is_empty())
        .collect();
    let find = |name: &str| declared.iter().find(|arch| arch.name == name).or_else(|| arch::find(name));
    let unknown: Vec<_> =
        names.iter().filter(|name| find(name).is_none()).map(|name| format!("`{name}`")).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        return Err(format!("KERNWRIGHT_TARGETS: not a known GPU: {unknown}, allowed are {}", arch::names()));
    }
    let mut targets: Vec<Arch> = Vec::new();
    for arch in names.into_iter().filter_map(find) {
        if !targets.contains(arch) {
            targets.push(arch.clone());
        }
    }
    if targets.is_empty() {
        targets.extend_from_slice(declared);
    }
    if targets.is_empty() {
        targets.extend_from_slice(arch::ALL);
    }
    Ok(targets)
}

/// Every kernel of `shape` for each of `targets`, each once per target, in the order of the plan.
///
/// # Errors
/// The first kernel that cannot be rendered.
pub fn generate(shape: &Shape, targets: &[Arch]) -> Result<Vec<Generated>, GenerateError> {
    of_plans(&kernels::plans(shape), targets)
}

/// Every kernel of some plans for each of `targets`, likewise.
///
/// # Errors
/// As [`generate`].
pub fn of_plans(plans: &[Plan], targets: &[Arch]) -> Result<Vec<Generated>, GenerateError> {
    let mut all = Vec::new();
    for arch in targets {
        let mut seen: HashMap<String, KernelSpec> = HashMap::new();
        for spec in kernels::of_plans(plans, arch) {
            let kernel = spec.name();
            match seen.get(&kernel) {
                Some(earlier) if *earlier == spec => continue,
                Some(_) => return Err(GenerateError::SameName { kernel, arch: arch.name.to_string() }),
                None => {}
            }
            let text = render(&spec, arch).map_err(|error| GenerateError::Render {
                kernel: kernel.clone(),
                arch: arch.name.to_string(),
                source: Box::new(error),
            })?;
            seen.insert(kernel.clone(), spec.clone());
            all.push(Generated { arch: arch.clone(), kernel, spec, text });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::shape::presets;
    use std::collections::HashSet;

    fn tiny() -> Shape {
        presets::find("tiny").expect("tiny is a preset").shape()
    }

    fn names(targets: &[Arch]) -> Vec<&str> {
        targets.iter().map(|arch| &*arch.name).collect()
    }

    #[test]
    fn targets_are_overridden_then_declared_then_all() {
        let mut shape = tiny();
        assert_eq!(targets(&shape.targets, None).expect("all").len(), arch::ALL.len());
        shape.targets = vec![arch::ALL[1].clone()];
        assert_eq!(names(&targets(&shape.targets, Some(" , ")).expect("declared")), [&*arch::ALL[1].name]);
        let overridden = targets(&shape.targets, Some("sm_90a, sm_80 sm_90a")).expect("overridden");
        assert_eq!(names(&overridden), ["sm_90a", "sm_80"]);
        let new = Arch { name: "sm_130".into(), like: Some("sm_120a".into()), ..arch::ALL[0].clone() };
        shape.targets.push(new.clone());
        assert_eq!(
            targets(&shape.targets, Some("sm_130")),
            Ok(vec![new]),
            "its limits are the declaration's"
        );
        let error = targets(&shape.targets, Some("sm_90a,sm_91,sm_5")).expect_err("two are unknown");
        assert_eq!(
            error,
            format!("KERNWRIGHT_TARGETS: not a known GPU: `sm_91`, `sm_5`, allowed are {}", arch::names())
        );
    }

    #[test]
    fn each_kernel_of_each_preset_is_generated_once_per_target() {
        for preset in presets::ALL {
            let all =
                generate(&preset.shape(), arch::ALL).unwrap_or_else(|e| panic!("{}: {e:?}", preset.name));
            let keys: HashSet<_> = all.iter().map(|one| (&one.arch.name, &one.kernel)).collect();
            assert_eq!(keys.len(), all.len(), "{}", preset.name);
            let wanted = arch::ALL.iter().map(|arch| kernwright_plan::kernels(&preset.shape(), arch).len());
            assert_eq!(wanted.sum::<usize>(), all.len(), "{}", preset.name);
            assert!(all.iter().all(|one| !one.text.is_empty()));
        }
    }
}
