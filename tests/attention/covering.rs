//! Attention and its gradient on the emulator, over lengths, widths, groups, masks, types and tiles, held to their
//! definition.
//!
//! The product of all that is far too much to run at once, so that a default run takes a covering set: every two values
//! of different axes meet in some case, and every width with every type and every GPU's tiles.

use crate::device::{device, options, text};
use crate::plans;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::case::{Case, Fill};
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::kernels::of_plan;
use kernwright_plan::lockstep::{Lockstep, Outcome};
use kernwright_plan::ops::attention::{Attention, Form, Window};
use kernwright_plan::options::Options;
use kernwright_plan::plan::Plan;
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_runtime::emulator::{self, Emulator};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Instant;

/// Queries and keys: as many, more keys, and fewer, so that a mask leaves whole tiles of queries without any.
const LENGTHS: [[usize; 2]; 6] = [[1, 1], [129, 129], [200, 200], [1, 130], [33, 200], [200, 60]];
const HEAD_DIMS: [usize; 10] = [8, 40, 64, 80, 96, 128, 136, 192, 200, 256];
const GROUPS: [usize; 4] = [1, 2, 3, 8];
const CAPS: [Option<f64>; 2] = [None, Some(4.0)];
const ANSWERS: [bool; 2] = [true, false];
/// No bound, one on either side, and both.
const WINDOWS: [[Option<usize>; 2]; 7] = [
    [None, Some(0)],
    [None, None],
    [Some(32), Some(0)],
    [Some(32), Some(32)],
    [Some(19), None],
    [None, Some(7)],
    [Some(5), Some(50)],
];
/// With much, more and little shared memory.
const GPUS: [&str; 3] = ["sm_80", "sm_90a", "sm_86"];

/// Most cases of the covering set.
const MOST: usize = 300;

/// An index into each axis: lengths, width, group, window, cap, type, GPU, deterministic, split heads.
const AXES: usize = 9;
type Point = [usize; AXES];
/// Some axes and what they are to be.
type Want = Vec<(usize, usize)>;

const LENGTH: usize = 0;
const HEAD_DIM: usize = 1;
const WINDOW: usize = 3;
const DTYPE: usize = 5;
const GPU: usize = 6;

fn narrow() -> Vec<Dtype> {
    dtype::ALL.iter().filter(|row| row.bytes == 2).map(|row| row.dtype).collect()
}

fn sizes() -> [usize; AXES] {
    [
        LENGTHS.len(),
        HEAD_DIMS.len(),
        GROUPS.len(),
        WINDOWS.len(),
        CAPS.len(),
        narrow().len(),
        GPUS.len(),
        ANSWERS.len(),
        ANSWERS.len(),
    ]
}

/// What the covering set must hold: every two values; every width, type and GPU; and where there are many more keys than
/// queries or many fewer, every window and GPU.
fn wants(sizes: &[usize; AXES]) -> BTreeSet<Want> {
    let mut wants = BTreeSet::new();
    for one in 0..AXES {
        for other in one + 1..AXES {
            for a in 0..sizes[one] {
                wants.extend((0..sizes[other]).map(|b| vec![(one, a), (other, b)]));
            }
        }
    }
    for gpu in 0..sizes[GPU] {
        for a in 0..sizes[HEAD_DIM] {
            wants.extend((0..sizes[DTYPE]).map(|b| vec![(HEAD_DIM, a), (DTYPE, b), (GPU, gpu)]));
        }
        // The third has the first one's kernels.
        for a in (sizes[LENGTH] - 2..sizes[LENGTH]).filter(|_| gpu < 2) {
            wants.extend((0..sizes[WINDOW]).map(|b| vec![(LENGTH, a), (WINDOW, b), (GPU, gpu)]));
        }
    }
    wants
}

fn holds(point: &[Option<usize>; AXES], want: &Want) -> bool {
    want.iter().all(|(axis, value)| point[*axis] == Some(*value))
}

/// A small set that holds every want: each point begins with the largest one left and takes, axis by axis, the value
/// that meets most others.
fn covering(sizes: &[usize; AXES]) -> Vec<Point> {
    let mut left = wants(sizes);
    let mut points = Vec::new();
    while let Some(first) = left.iter().max_by_key(|want| (want.len(), std::cmp::Reverse(*want))).cloned() {
        let mut point = [None; AXES];
        first.iter().for_each(|(axis, value)| point[*axis] = Some(*value));
        for axis in 0..AXES {
            if point[axis].is_some() {
                continue;
            }
            let met = |value: usize| {
                let mut point = point;
                point[axis] = Some(value);
                left.iter().filter(|want| want.contains(&(axis, value)) && holds(&point, want)).count()
            };
            // Of equally good ones another one each time.
            let turned = (0..sizes[axis]).map(|value| (value + points.len()) % sizes[axis]);
            point[axis] = turned.max_by_key(|value| met(*value));
        }
        left.retain(|want| !holds(&point, want));
        points.push(point.map(Option::unwrap_or_default));
    }
    points
}

/// Every point there is.
fn product(sizes: &[usize; AXES]) -> Vec<Point> {
    let mut points = vec![[0; AXES]];
    for (axis, size) in sizes.iter().enumerate() {
        let extend = |point: &Point| {
            let mut point = *point;
            (0..*size)
                .map(move |value| {
                    point[axis] = value;
                    point
                })
                .collect::<Vec<_>>()
        };
        points = points.iter().flat_map(extend).collect();
    }
    points
}

/// A case and the GPU whose kernels it is to run.
fn case(point: &Point) -> (Case, Arch) {
    let [lengths, head_dim, group, window, cap, dtype, gpu, deterministic, split_heads] = *point;
    let (head_dim, dtype) = (HEAD_DIMS[head_dim], narrow()[dtype]);
    let ([length, key_length], [left, right]) = (LENGTHS[lengths], WINDOWS[window]);
    let op = Attention {
        heads: GROUPS[group],
        kv_heads: 1,
        head_dim,
        length,
        key_length,
        window: Window { left, right },
        softcap: CAPS[cap],
        scale: (head_dim as f64).sqrt().recip(),
        form: Form::Fused,
    };
    // A second sequence and a second head of keys where they cost little.
    let batch = if length < 100 { 2 } else { 1 };
    let kv_heads = if op.heads <= 2 { 2 } else { 1 };
    let op = Attention { heads: op.heads * kv_heads, kv_heads, ..op };
    let arch = arch::find(GPUS[gpu]).unwrap_or_else(|| panic!("no GPU `{}`", GPUS[gpu]));
    let options = Options {
        deterministic: ANSWERS[deterministic],
        in_turns: takes_turns(arch),
        ..plans::heads(ANSWERS[split_heads])
    };
    let label = format!("{batch} x {op:?}, {}, {}, {options:?}", dtype.name(), GPUS[gpu]);
    (filled(label, plans::plan(&op, batch, [dtype, dtype], &options)), arch.clone())
}

/// A plan of attention with what its inputs are.
pub(crate) fn filled(label: String, plan: Plan) -> Case {
    let find = |name| plan.find(name).unwrap_or_else(|| panic!("no `{name}`"));
    let (d_out, output) = (find("d_out"), find("out"));
    let operands = ["qkv", "queries", "keys"].into_iter().filter_map(|name| plan.find(name));
    let mut fills: Vec<_> = operands.map(|buffer| (buffer, Fill::Normal(1.3))).collect();
    fills.push((d_out, Fill::Normal(1.0)));
    Case { label, plan, fills, output, seed: d_out }
}

/// Runs a case step by step. Gives the greatest share of the tolerance for each slot.
fn run(case: &Case, arch: &Arch, options: &emulator::Options) -> Result<Vec<(&'static str, f64)>, String> {
    let chain = |error: &dyn std::error::Error| format!("{error:?}");
    let mut device = device(options, arch);
    let id = device.load(case.plan.clone()).map_err(|error| chain(&error))?;
    let mut lockstep = Lockstep::new(&case.plan).map_err(|error| chain(&error))?;
    for (buffer, content) in case.content(5) {
        lockstep.write(buffer, content.values()).map_err(|error| chain(&error))?;
    }
    let mut shares = Vec::new();
    for index in 0..case.plan.steps.len() {
        let outcome =
            lockstep.step(&mut device, id, index, MicroStep::First).map_err(|error| chain(&error))?;
        if let Some(fault) = outcome.fault() {
            return Err(fault);
        }
        match outcome {
            Outcome::Compared { rows, .. } => shares.extend(rows.iter().map(|row| (row.slot, row.share))),
            Outcome::NoKernel(why) => return Err(format!("step {index}: {why}")),
            Outcome::Failed(error) => return Err(chain(&error)),
        }
    }
    Ok(shares)
}

/// Runs all and panics with every fault.
pub(crate) fn sweep(what: &str, cases: &[(Case, Arch)]) {
    let Some(options) = options(what) else { return };
    let start = Instant::now();
    // Compiled together, each once, before several cases want the same one.
    let mut kernels = BTreeMap::new();
    for (case, arch) in cases {
        for spec in of_plan(&case.plan, arch) {
            kernels.insert(text(&spec, arch).unwrap_or_else(|error| panic!("{error}")), spec.name());
        }
    }
    let named: Vec<(&str, &str)> =
        kernels.iter().map(|(text, name)| (name.as_str(), text.as_str())).collect();
    let compiled = Emulator::new(options.clone()).and_then(|mut emulator| emulator.load_all(&named));
    compiled.unwrap_or_else(|error| panic!("{error}"));
    let ready = start.elapsed().as_secs_f64();

    let next = Mutex::new(cases.iter());
    let results = Mutex::new((BTreeMap::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((case, arch)) = next.lock().ok().and_then(|mut next| next.next()) {
                    let result = run(case, arch, &options);
                    let Ok(mut results) = results.lock() else { return };
                    match result {
                        Ok(shares) => shares.into_iter().for_each(|(slot, share)| {
                            let worst: &mut f64 = results.0.entry(slot).or_default();
                            *worst = worst.max(share);
                        }),
                        Err(fault) => results.1.push(format!("{}: {fault}", case.label)),
                    }
                }
            });
        }
    });
    let (worst, faults) = results.into_inner().unwrap_or_default();
    let worst: Vec<String> = worst.iter().map(|(slot, share)| format!("{slot} {share:.2}")).collect();
    eprintln!(
        "{what}: {} cases, {} kernels compiled in {ready:.0} s, all in {:.0} s, greatest shares of the tolerance: {}",
        cases.len(),
        kernels.len(),
        start.elapsed().as_secs_f64(),
        worst.join(", ")
    );
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn attention_matches_its_definition_wherever_two_settings_meet() {
    let points = covering(&sizes());
    assert!(points.len() <= MOST, "{} cases", points.len());
    sweep("attention, pairwise", &points.iter().map(case).collect::<Vec<_>>());
}

#[test]
#[ignore = "hours"]
fn attention_matches_its_definition_at_every_setting() {
    sweep("attention, all", &product(&sizes()).iter().map(case).collect::<Vec<_>>());
}

#[test]
fn the_covering_set_meets_every_want() {
    let sizes = sizes();
    let points = covering(&sizes);
    for want in wants(&sizes) {
        assert!(points.iter().any(|point| holds(&point.map(Some), &want)), "{want:?}");
    }
    assert_eq!(product(&sizes).len(), sizes.iter().product::<usize>());
}
