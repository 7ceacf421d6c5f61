//! The kernels that `cuda` and `check` are about: those a program carries, or those rendered here.
//!
//! In: a Shape, the asked GPUs and what the program declares. Out: a [`Kernel`] per name and GPU, with its text.

use super::Declared;
use super::shape::Named;
use crate::model::Cubin;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::gpu::Gpu;
use kernwright_plan::nearest::nearest;
use kernwright_plan::spec::KernelSpec;
use std::collections::{BTreeSet, HashMap};
use std::error::Error;

/// One kernel for one GPU.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) arch: Arch,
    pub(super) name: String,
    /// `None` for the text of a program that was built by another version.
    pub(super) spec: Option<KernelSpec>,
    pub(super) text: String,
    /// It compiled, where the program carries that.
    pub(super) cubin: Option<Cubin>,
}

impl Kernel {
    /// Dynamic shared memory of a block, bytes.
    pub(super) fn shared_memory(&self) -> u32 {
        self.spec.as_ref().map_or(0, |spec| spec.shared_memory)
    }
}

/// Every kernel of a Shape for the asked GPUs. Without any: for those the program declares, else those of the Shape,
/// else all. `declared` is `None` where a preset was asked for.
pub(super) fn kernels(
    named: &Named,
    asked: &[Gpu],
    declared: Option<Declared>,
) -> Result<Vec<Kernel>, Box<dyn Error>> {
    let cubins = declared.map_or(&[][..], |declared| declared.cubins);
    let carried = declared.map_or(&[][..], |declared| declared.sources);
    let of_shape = &named.shape.targets;
    let find = |name: &str| of_shape.iter().find(|arch| arch.name == name).or_else(|| arch::find(name));
    let chosen: Vec<&Arch> = if asked.is_empty() {
        carried.iter().filter_map(|source| find(source.arch)).collect()
    } else {
        asked.iter().map(|gpu| &gpu.arch).collect()
    };
    let mut targets: Vec<&Arch> = Vec::new();
    for arch in chosen {
        if !targets.contains(&arch) {
            targets.push(arch);
        }
    }
    if targets.is_empty() {
        targets.extend(of_shape);
    }
    if targets.is_empty() {
        targets.extend(arch::ALL);
    }
    let mut all = Vec::new();
    for arch in targets {
        let mut specs: HashMap<String, KernelSpec> = kernwright_plan::kernels(&named.shape, arch)
            .into_iter()
            .map(|spec| (spec.name(), spec))
            .collect();
        let of_arch: Vec<_> = carried.iter().filter(|source| source.arch == arch.name).collect();
        if of_arch.is_empty() && !specs.is_empty() {
            all.extend(render(named, arch)?);
            continue;
        }
        all.extend(of_arch.into_iter().map(|source| Kernel {
            arch: arch.clone(),
            name: source.kernel.to_owned(),
            spec: specs.remove(source.kernel),
            text: source.text.to_owned(),
            cubin:
                cubins.iter().find(|cubin| cubin.arch == arch.name && cubin.kernel == source.kernel).copied(),
        }));
    }
    Ok(all)
}

/// What to say of a name that no kernel of `model` bears.
pub(super) fn unknown(model: &str, name: &str, kernels: &[Kernel]) -> String {
    let names: BTreeSet<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let alike: Vec<&str> = names.iter().copied().filter(|other| other.contains(name)).collect();
    let near = nearest(name, names.iter().copied()).or(match alike[..] {
        [only] => Some(only),
        _ => None,
    });
    let hint = match (near, &alike[..]) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, [first, second, ..]) => {
            format!("`{first}`, `{second}` and others have that in their names; `cuda --list` names all")
        }
        (None, _) => "`cuda --list` names them".to_owned(),
    };
    format!("`{model}` has no kernel `{name}` for these GPUs: {hint}")
}

#[cfg(feature = "render")]
fn render(named: &Named, arch: &Arch) -> Result<Vec<Kernel>, Box<dyn Error>> {
    let all = kernwright_codegen::generate::generate(&named.shape, std::slice::from_ref(arch))?;
    let kernel = |one: kernwright_codegen::generate::Generated| Kernel {
        arch: one.arch,
        name: one.kernel,
        spec: Some(one.spec),
        text: one.text,
        cubin: None,
    };
    Ok(all.into_iter().map(kernel).collect())
}

#[cfg(not(feature = "render"))]
fn render(named: &Named, arch: &Arch) -> Result<Vec<Kernel>, Box<dyn Error>> {
    let (name, arch) = (&named.name, &arch.name);
    Err(format!(
        "this program carries no kernels of `{name}` for `{arch}` and was built without the feature `render`: build it \
         with that, or declare `#[target({arch})]`"
    )
    .into())
}
