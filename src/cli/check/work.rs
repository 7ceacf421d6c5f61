//! What is to be run: steps of miniatures, each different one once.
//!
//! In: a Shape, how its plans are made, the texts of its kernels for several GPUs. Out: [`Walk`]s, plans with the steps
//! that are worth running in them; and kernels that no walk reaches, of which there should be none.

use super::texts::Texts;
use kernwright_plan::arch::Arch;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::passes::forward::Head;
use kernwright_plan::passes::split_heads;
use kernwright_plan::plan::{Mode, Phase, Plan};
use kernwright_plan::shape::{Miniature, Shape};
use kernwright_plan::{Options, forward_step, train_step};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Sequences and tokens of each, where the user asks for some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) length: Option<usize>,
}

/// A plan, and the steps of it that are worth running.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) shape: Shape,
    pub(super) plan: Plan,
    /// In the order of the walk.
    pub(super) stops: Vec<Stop>,
}

/// A step to run on the emulator.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) step: usize,
    pub(super) micro: MicroStep,
    pub(super) arch: Arch,
    /// Its kernels, by name.
    pub(super) kernels: Vec<String>,
    /// Those whose text for this GPU is the same, this one first.
    pub(super) gpus: Vec<String>,
}

/// The order in which a training step runs.
pub(super) const ORDER: [(Phase, MicroStep); 6] = [
    (Phase::Prepare, MicroStep::First),
    (Phase::Forward, MicroStep::First),
    (Phase::Backward, MicroStep::First),
    (Phase::Forward, MicroStep::Later),
    (Phase::Backward, MicroStep::Later),
    (Phase::Update, MicroStep::First),
];

/// The phase and micro-batch of each step, as they run.
pub(super) fn order(plan: &Plan) -> impl Iterator<Item = (usize, MicroStep)> {
    let ranges = ORDER.map(|(phase, micro)| (plan.phase(phase), micro));
    ranges.into_iter().flat_map(|(steps, micro)| steps.map(move |step| (step, micro)))
}

/// What tells one step from another, apart from its sizes: op, slots with types and modes, texts of kernels.
type Signature = (&'static str, Vec<(&'static str, &'static str, Option<bool>)>, Vec<usize>);

/// Steps of this many values are still quick; of steps that are alike, the largest below it is taken.
const MOST_VALUES: usize = 1 << 17;

/// The training step, in both forms of which a plan chooses by its sizes, and the plan that generates.
fn plans(shape: &Shape, options: &Options, batch: usize, length: usize) -> [Plan; 3] {
    let asked = Head::Logits(batch);
    let [split, together] =
        split_heads::both(options).map(|options| train_step(shape, &options, batch, length));
    [split, together, forward_step(shape, options, batch, length, asked)]
}

/// The kernels that a step launches in a micro-batch; `None` where there are none yet.
fn kernels(plan: &Plan, step: usize, micro: MicroStep, arch: &Arch) -> Option<Vec<String>> {
    let step = plan.steps[step].at(micro);
    let Lowered::Launches(launches) = step.op.lower(&plan.io(&step), arch) else { return None };
    let name = |launch: &Launch| match launch {
        Launch::Kernel { spec, .. } => Some(spec.name()),
        _ => None,
    };
    Some(launches.iter().filter_map(name).collect())
}

/// The kernels of the model's own plans, by name.
fn wanted(shape: &Shape, options: &Options, sizes: Sizes, arch: &Arch) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    // Which tiles attention has depends on how many blocks there are: as many as of the miniature that keeps its heads.
    let longest = shape.miniatures().iter().map(|one| one.length.min(one.shape.context)).max();
    for plan in plans(&shape.shallow(), options, sizes.batch, sizes.length.or(longest).unwrap_or(1)) {
        names.extend(order(&plan).filter_map(|(step, micro)| kernels(&plan, step, micro, arch)).flatten());
    }
    names
}

/// How large the buffers of a step are.
fn size(plan: &Plan, step: usize) -> usize {
    let step = &plan.steps[step];
    let buffers =
        step.reads.iter().map(|read| read.buffer).chain(step.writes.iter().map(|write| write.buffer));
    buffers.map(|id| plan.buffer(id).len()).sum()
}

fn signature(plan: &Plan, step: usize, micro: MicroStep, numbers: Vec<usize>) -> Signature {
    let step = plan.steps[step].at(micro);
    let dtype = |id| plan.buffer(id).dtype.name();
    let reads = step.reads.iter().map(|read| (read.slot, dtype(read.buffer), None));
    let writes = step
        .writes
        .iter()
        .map(|write| (write.slot, dtype(write.buffer), Some(write.mode == Mode::Accumulate)));
    (step.op.name(), reads.chain(writes).collect(), numbers)
}

/// Everything to be run, and `kernel` for `GPU` that nothing reaches.
pub(super) fn walks(
    shape: &Shape,
    options: &Options,
    sizes: Sizes,
    texts: &Texts,
    is_asked: &dyn Fn(&str, &[String]) -> bool,
) -> Result<(Vec<Walk>, Vec<String>), String> {
    let mut walks: Vec<Walk> = Vec::new();
    let mut seen: HashMap<Signature, (usize, usize)> = HashMap::new();
    let mut missing: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for arch in &texts.targets {
        missing.insert(&arch.name, wanted(shape, options, sizes, arch));
    }
    let all = missing.clone();
    for Miniature { mut shape, length, .. } in shape.miniatures() {
        let length = sizes.length.unwrap_or(length.min(shape.context));
        shape.context = shape.context.max(length);
        for plan in plans(&shape, options, sizes.batch, length) {
            let at = walks.len();
            // By signature, those of one GPU after those of another.
            let mut found: Vec<(Signature, Stop)> = Vec::new();
            for arch in &texts.targets {
                for (step, micro) in order(&plan) {
                    let names = kernels(&plan, step, micro, arch).unwrap_or_default();
                    if names.iter().any(|name| !all[&*arch.name].contains(name)) {
                        continue;
                    }
                    let text = |name: &String| {
                        let found = texts.get(arch, name).map(|text| text.number);
                        found
                            .ok_or_else(|| format!("there is no text of kernel `{name}` for `{}`", arch.name))
                    };
                    let numbers: Vec<usize> = names.iter().map(text).collect::<Result<_, _>>()?;
                    if let Some(missing) = missing.get_mut(&*arch.name) {
                        missing.retain(|name| !names.contains(name));
                    }
                    if !is_asked(plan.steps[step].op.name(), &names) {
                        continue;
                    }
                    let signature = signature(&plan, step, micro, numbers);
                    if let Some(&(walk, stop)) = seen.get(&signature) {
                        add(&mut walks[walk].stops[stop].gpus, &arch.name);
                        continue;
                    }
                    match found.iter_mut().find(|(known, _)| *known == signature) {
                        Some((_, stop)) => {
                            add(&mut stop.gpus, &arch.name);
                            let (old, new) = (size(&plan, stop.step), size(&plan, step));
                            let is_better =
                                if old > MOST_VALUES { new < old } else { new > old && new <= MOST_VALUES };
                            // What is launched is this GPU's own.
                            if is_better && stop.arch == *arch {
                                (stop.step, stop.micro) = (step, micro);
                            }
                        }
                        None => {
                            let gpus = vec![arch.name.to_string()];
                            found.push((
                                signature,
                                Stop { step, micro, arch: arch.clone(), kernels: names, gpus },
                            ));
                        }
                    }
                }
            }
            found.sort_by_key(|(_, stop)| order(&plan).position(|place| place == (stop.step, stop.micro)));
            for (index, (signature, _)) in found.iter().enumerate() {
                seen.insert(signature.clone(), (at, index));
            }
            if !found.is_empty() {
                let stops = found.into_iter().map(|(_, stop)| stop).collect();
                walks.push(Walk { shape: shape.clone(), plan, stops });
            }
        }
    }
    let missing = missing
        .into_iter()
        .flat_map(|(arch, names)| names.into_iter().map(move |name| format!("kernel `{name}` for `{arch}`")));
    Ok((walks, missing.collect()))
}

fn add(gpus: &mut Vec<String>, name: &str) {
    if !gpus.iter().any(|known| known == name) {
        gpus.push(name.to_owned());
    }
}
