//! Cases: those of every op, and more of what kernels find hard: widths beyond a block, runs across warps, angles far
//! out, whole softmax rows as wide as real vocabularies, extreme numbers.

use crate::work::{Work, of_case};
use kernwright_model::random::Random;
use kernwright_plan::buffer::Role;
use kernwright_plan::case::{Case, Fill, case, copy, finish, input};
use kernwright_plan::ops;
use kernwright_plan::ops::activation::{Activation, ActivationKind};
use kernwright_plan::ops::adamw::AdamW;
use kernwright_plan::ops::embedding::Embedding;
use kernwright_plan::ops::head::Logits;
use kernwright_plan::ops::head_loss::{HeadLoss, IGNORED, scratch};
use kernwright_plan::ops::norm::{Norm, NormKind, NormWeight, with_copies};
use kernwright_plan::ops::positions::Positions;
use kernwright_plan::ops::rope::{Rope, RopeScaling};
use kernwright_plan::options::AdamWOptions;
use kernwright_plan::plan::{Phase, Plan, Step};
use kernwright_plan::tape::{read, write};

fn norm(kind: NormKind, (rows, groups, d): (usize, usize, usize), x: Fill) -> Case {
    let label = format!("{} {rows}x{groups}x{d}", kind.name());
    let mut reads = vec![("x", vec![rows, groups * d], x), ("weight", vec![d], Fill::Around(1.0))];
    let mut writes = vec![("y", vec![rows, groups * d]), ("rstd", vec![rows, groups])];
    if kind.has_bias() {
        reads.push(("bias", vec![d], Fill::Normal(0.5)));
        writes.push(("mean", vec![rows, groups]));
    }
    let op = Norm { kind, epsilon: 1e-5, weight: NormWeight::W, groups, count: d };
    case(&label, op, &reads, &writes)
}

fn norms(all: &mut Vec<Case>) {
    for kind in NormKind::ALL {
        for size in [
            (5, 1, 256),
            (67, 1, 1032),
            (3, 1, 2048),
            (3, 1, 8200),
            (2, 1, 16_392),
            (33, 5, 40),
            (531, 1, 72),
        ] {
            all.push(norm(kind, size, Fill::Around(0.7)));
        }
        all.extend(
            [(5, 1, 264), (3, 1, 1032), (2, 1, 16_392)]
                .map(|size| with_copies(norm(kind, size, Fill::Normal(1.0)))),
        );
        // Rows of zeros, of next to nothing, of one value, far from zero, and large.
        let value = |i: usize| match i / 64 {
            0 => 0.0,
            1 => 1e-20,
            2 => 3.0,
            3 => 1e4 + (i % 64) as f32,
            4 => (i as f32 - 280.0) * 1e-4,
            _ => (i as f32 * 0.7).sin() * 1e6,
        };
        all.push(norm(kind, (6, 1, 64), Fill::Values((0..384).map(value).collect())));
    }
}

fn activations(all: &mut Vec<Case>) {
    const EDGES: [f32; 24] = [
        -1e4, -200.0, -104.0, -103.0, -88.8, -87.0, -30.0, -13.0, -6.0, -1.0, -1e-3, -1e-30, -0.0, 0.0,
        1e-38, 1e-6, 0.3, 1.0, 5.0, 13.0, 87.0, 88.8, 104.0, 1e4,
    ];
    for kind in ActivationKind::ALL {
        let mut edges = EDGES.to_vec();
        if kind.is_gated() {
            edges.extend([1.5; EDGES.len()]);
        }
        for (rows, d, fill) in [(37, 264, Fill::Normal(3.0)), (1, EDGES.len(), Fill::Values(edges))] {
            let reads = [("x", vec![rows, kind.inputs() * d], fill)];
            let label = format!("{} {rows}x{d}", kind.name());
            all.push(case(&label, Activation { kind }, &reads, &[("y", vec![rows, d])]));
        }
    }
}

/// Runs of equal tokens, so many of each, scattered over the positions.
fn embedding(runs: &[usize], d: usize) -> Case {
    let vocab = 2 * runs.len() + 2;
    let mut tokens: Vec<i32> = Vec::new();
    for (index, n) in runs.iter().enumerate() {
        tokens.extend(vec![2 * index as i32 + 1; *n]);
    }
    let n = tokens.len();
    let mut random = Random::new(5);
    for at in (1..n).rev() {
        tokens.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut order: Vec<i32> = (0..n as i32).collect();
    order.sort_by_key(|position| tokens[*position as usize]);
    let reads = [
        ("tokens", vec![n], Fill::Ints(tokens)),
        ("table", vec![vocab, d], Fill::Normal(1.0)),
        ("token_order", vec![n], Fill::Ints(order)),
    ];
    case(
        &format!("runs of {n} in {vocab}x{d}"),
        Embedding { vocab, scale: 1.0 },
        &reads,
        &[("y", vec![n, d])],
    )
}

/// The middle heads of a wider buffer are turned.
fn rope((batch, length, heads, head_dim): (usize, usize, usize, usize), theta: f64) -> Case {
    let mut plan = Plan::default();
    let mut fills = Vec::new();
    let (rows, columns) = (batch * length, (heads + 2) * head_dim);
    let x = input(&mut plan, &mut fills, "x", &[rows, columns], &Fill::Normal(1.0));
    let wide = copy(&mut plan, x, "wide", Role::Activation);
    let view = plan.add_view("view", wide, head_dim..(heads + 1) * head_dim);
    let op = Rope { theta, scaling: RopeScaling::None, rotary: head_dim, head_dim, length, inverse: false };
    let (reads, writes) = (vec![read("x", view)], vec![write("y", view)]);
    plan.steps.push(Step { op: op.into(), reads, writes, phase: Phase::Forward });
    let y = copy(&mut plan, wide, "y", Role::Output);
    finish(&format!("{batch}x{length}x{heads}x{head_dim} {theta:e}"), plan, fills, y)
}

fn adamw(lengths: &[usize], update: i32, gradient: &Fill, factor: f32) -> Case {
    let mut plan = Plan::default();
    let (mut fills, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    let mut add =
        |slot, name: &str, n: usize, fill: &Fill| read(slot, input(&mut plan, &mut fills, name, &[n], fill));
    for (index, n) in lengths.iter().enumerate() {
        let squares = Fill::Values((0..*n).map(|i| 1e-12 * (i % 7) as f32).collect());
        for (slot, fill) in [
            ("parameter", &Fill::Normal(1.0)),
            ("gradient", gradient),
            ("m", &Fill::Normal(1e-8)),
            ("v", &squares),
        ] {
            let read = add(slot, &format!("{slot}.{index}"), *n, fill);
            reads.push(read);
            writes.extend((slot != "gradient").then(|| write(slot, read.buffer)));
        }
    }
    reads.push(add("learning_rate", "learning_rate", 1, &Fill::Values(vec![3e-4])));
    reads.push(add("factor", "factor", 1, &Fill::Values(vec![factor])));
    reads.push(add("update", "update", 1, &Fill::Ints(vec![update])));
    let options = AdamWOptions { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
    let (output, decays) = (reads[0].buffer, lengths.iter().map(|n| n % 2 == 1).collect());
    let op = AdamW { options, decays }.into();
    plan.steps.push(Step { op, reads, writes, phase: Phase::Forward });
    finish(&format!("{lengths:?}, update {update}, factor {factor}"), plan, fills, output)
}

/// As many tensors as a search over a table finds hard, whose lengths are around those of blocks.
fn many_tensors() -> Vec<usize> {
    (0..37).map(|i| [1, 4096, 4095, 4097, 8192, 3, 1025][i % 7]).collect()
}

fn head_loss((rows, vocab, columns, d, chunk): (usize, usize, usize, usize, usize), z_loss: f64) -> Case {
    let target = |row: usize| if row == 1 { IGNORED } else { ((row * 7919 + vocab - 1) % vocab) as i32 };
    let reads = [
        ("x", vec![rows, d], Fill::Normal(1.0)),
        ("weight", vec![columns, d], Fill::Normal(0.6)),
        ("targets", vec![rows], Fill::Ints((0..rows).map(target).collect())),
        ("inverse_count", vec![1], Fill::Values(vec![1.0 / (rows - 1) as f32])),
    ];
    let logits = Logits { vocab, scale: 1.0, softcap: None };
    let op = HeadLoss { chunk, logits, z_loss, single_pass: z_loss > 0.0 };
    let mut case = case(&format!("wide {rows}x{d} of {vocab}"), op, &reads, &[("loss", vec![1])]);
    scratch(&mut case.plan, chunk, columns);
    case
}

/// Cases that are not among those of an op.
fn hard() -> Vec<Case> {
    let mut all = Vec::new();
    norms(&mut all);
    activations(&mut all);
    for (batch, length, context, d) in [(3, 37, 50, 264), (17, 3, 4, 8), (2, 5, 5, 1032)] {
        let reads = [
            ("x", vec![batch * length, d], Fill::Normal(1.0)),
            ("table", vec![context, d], Fill::Normal(0.5)),
        ];
        let label = format!("{batch}x{length} of {context}x{d}");
        all.push(case(&label, Positions { length }, &reads, &[("y", vec![batch * length, d])]));
    }
    let runs: [(&[usize], usize); 4] = [
        (&[1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 2, 300, 1, 1, 7, 8, 9, 500], 40),
        (&[31, 33, 64, 300, 2], 264),
        (&[70], 2048),
        (&[2097, 3], 24),
    ];
    all.extend(runs.map(|(runs, d)| embedding(runs, d)));
    for (size, theta) in
        [((2, 129, 5, 64), 1e4), ((1, 2050, 1, 128), 5e5), ((2, 33, 9, 48), 1.5), ((1, 50, 6, 80), 1e12)]
    {
        all.push(rope(size, theta));
    }
    for n in [1, 2, 3, 5, 1023, 1025] {
        all.push(adamw(&[n], 3, &Fill::Normal(0.3), 0.2));
    }
    all.push(adamw(&many_tensors(), 3, &Fill::Normal(0.3), 0.2));
    for update in [1, 100_000, 2_000_000] {
        all.push(adamw(&[77, 8], update, &Fill::Normal(1e-7), 1.0));
    }
    for gradient in [f32::INFINITY, f32::NAN] {
        all.push(adamw(&[65], 0, &Fill::Values(vec![gradient; 65]), 0.0));
    }
    all.push(head_loss((9, 32_000, 32_000, 16, 4), 1e-4));
    all.push(head_loss((4, 50_257, 50_304, 8, 3), 0.0));
    all.push(head_loss((4, 50_257, 50_304, 8, 3), 1e-4));
    all
}

/// Every case in every type.
pub(crate) fn all() -> Vec<Work> {
    let cases = ops::ALL.iter().flat_map(|row| (row.cases)()).chain(hard());
    cases.flat_map(|case| of_case(&case)).collect()
}
