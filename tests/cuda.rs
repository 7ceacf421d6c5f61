//! Every generated kernel compiles without a spill or a remark, and what a plan launches is among them. Long because the sets of kernels
//! share how they are made, compiled and found wrong.

#![cfg(feature = "render")]

use kernwright_codegen::generate::{Generated, generate};
use kernwright_codegen::render::render;
use kernwright_compile::{Report, Resources, Source, compile_all, testing};
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::kernels::of_plan;
use kernwright_plan::launch::Lowered;
use kernwright_plan::ops::Op;
use kernwright_plan::ops::attention::{Attention, AttentionBackward, BackwardForm, Form, Window};
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::options::AttentionPath;
use kernwright_plan::passes::{ABLATIONS, SWITCHES, attention, forward::Head, split_heads};
use kernwright_plan::plan::{Phase, Plan, Read, Step, Write};
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::tape::{read, write};
use kernwright_plan::tile::Mask;
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_plan::tuning::{self, KERNELS, Row, Table, When};
use kernwright_plan::{Options, dtype, forward_step, kernels, ops, train_step};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// The presets that are compiled for every GPU by default; the others on request.
const COMPILED: [&str; 2] = ["tiny", "seed-102m"];

/// Presets that are compiled for some GPUs by default: with much and little shared memory, and of the newest kind.
const COMPILED_FOR_SOME: ([&str; 2], [&str; 3]) =
    (["gpt2-124m", "gemma-2-2b"], ["sm_86", "sm_90a", "sm_100a"]);

/// The GPU that kernels are tuned on.
const TUNED: &str = "sm_90a";

fn shape(name: &str) -> Shape {
    presets::find(name).unwrap_or_else(|| panic!("no preset `{name}`")).shape()
}

/// One text to compile.
struct Text {
    spec: KernelSpec,
    arch: Arch,
    text: String,
}

/// The kernels of these presets for these GPUs, each text once for each.
fn of_presets(names: &[&str], arches: &[Arch]) -> Vec<Text> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for name in names {
        let of_preset = generate(&shape(name), arches).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        for arch in arches {
            let has_any = of_preset.iter().any(|one| one.arch.name == arch.name);
            assert!(has_any, "{name} has no kernel for {}", arch.name);
        }
        let new = of_preset.into_iter().filter(|one| seen.insert((one.arch.name.clone(), one.text.clone())));
        all.extend(new.map(|Generated { spec, arch, text, .. }| Text { spec, arch, text }));
    }
    all
}

/// Of the GPUs that get the same text, the oldest, the newest, and the one that kernels are tuned on: what the compiler makes of
/// a text differs little between them, and an ignored test compiles each for all.
fn representative(all: Vec<Text>) -> Vec<Text> {
    let mut last: HashMap<String, usize> = HashMap::new();
    for (index, one) in all.iter().enumerate() {
        last.insert(one.text.clone(), index);
    }
    let mut seen = HashSet::new();
    let kept = all.into_iter().enumerate().filter(|(index, one)| {
        let is_first = seen.insert(one.text.clone());
        is_first || last[&one.text] == *index || one.arch.name == TUNED
    });
    kept.map(|(_, one)| one).collect()
}

/// Is it a product with a gelu, which has narrow types alone, and no kernel of ours in any?
fn takes_in_gelu(step: &Step) -> bool {
    match step.op {
        Op::Linear(Linear { gelu }) => gelu,
        Op::LinearBackward(_) => step.reads.iter().any(|read| read.slot == "gelu_input"),
        _ => false,
    }
}

/// The kernels of every op's cases.
fn of_cases(arch: &Arch) -> Vec<Text> {
    let mut specs = Vec::new();
    for case in ops::ALL.iter().flat_map(|row| (row.cases)()) {
        for step in &case.plan.steps {
            let lowered = step.op.lower(&case.plan.io(step), arch);
            if let Lowered::NoKernel(why) = lowered {
                assert!(takes_in_gelu(step), "{}, {}: {why}", step.op.name(), case.label);
            }
        }
        specs.extend(of_plan(&case.plan, arch));
    }
    specs.sort_by_key(KernelSpec::name);
    specs.dedup_by_key(|spec| spec.name());
    texts(specs, arch)
}

fn texts(specs: Vec<KernelSpec>, arch: &Arch) -> Vec<Text> {
    let text = |spec: KernelSpec| {
        let text = render(&spec, arch).unwrap_or_else(|error| panic!("{error:?}"));
        Text { spec, arch: arch.clone(), text }
    };
    specs.into_iter().map(text).collect()
}

/// The fused kernels of attention for heads of each of these sizes, alternately of each narrow type; with every GPU's tiles, and
/// with and without what else decides their text.
fn of_attention(arch: &Arch, head_dims: impl Iterator<Item = usize>) -> Vec<Text> {
    let narrow: Vec<Dtype> = dtype::ALL.iter().filter(|row| row.bytes == 2).map(|row| row.dtype).collect();
    let mut specs = Vec::new();
    for (index, head_dim) in head_dims.enumerate() {
        let dtype = narrow[index % narrow.len()];
        let is_plain = index % 4 < 2;
        let attention = Attention {
            heads: 3,
            kv_heads: 1,
            head_dim,
            length: 5,
            key_length: 5,
            window: if is_plain { Window::CAUSAL } else { Window { left: Some(2), right: Some(4) } },
            softcap: (!is_plain).then_some(30.0),
            scale: 0.3,
            form: Form::Fused,
        };
        for options in heads_and_orders() {
            specs.extend(of_plan(&attention_step(&attention, dtype, &options), arch));
        }
    }
    specs.sort_by_key(KernelSpec::name);
    specs.dedup_by_key(|spec| spec.name());
    texts(specs, arch)
}

/// The kernels of a GPU that a row of a table decides: those that the rule's tile changes.
fn of_row(row: &Row, arch: &Arch) -> Vec<KernelSpec> {
    let When { head_dim, group, mask, softcap, ordered, .. } = &row.when;
    let attention = Attention {
        heads: 2 * group,
        kv_heads: 1,
        head_dim: *head_dim.end(),
        length: 5,
        key_length: 5,
        window: if *mask == Some(Mask::Full) { Window::FULL } else { Window::CAUSAL },
        softcap: softcap.then_some(30.0),
        scale: 0.3,
        form: Form::Fused,
    };
    let deterministic = ordered.unwrap_or(true);
    let options = Options { deterministic, in_turns: takes_turns(arch), ..Options::default() };
    let of = |values: Vec<usize>| {
        let when = When { length: None, ..row.when.clone() };
        let rows = vec![Row { when, values, ..row.clone() }];
        let tuned = Some(Arc::new(Table { rows, ..Table::default() }));
        let arch = Arch { tuned, ..arch.clone() };
        let plans =
            split_heads::both(&options).map(|options| attention_step(&attention, Dtype::Bf16, &options));
        plans.iter().flat_map(|plan| of_plan(plan, &arch)).collect::<Vec<_>>()
    };
    let kernel = KERNELS.iter().find(|kernel| kernel.name == row.kernel).expect("it was read");
    let rule = (kernel.by_rule)(&attention.for_tiles(Dtype::Bf16, deterministic), arch);
    let by_rule = rule.map(of).unwrap_or_default();
    of(row.values.clone()).into_iter().filter(|spec| !by_rule.contains(spec)).collect()
}

/// The kernels of the rows of a table that differ from the rule's, each once.
fn of_table(table: &Table, arch: &Arch) -> Vec<Text> {
    let mut specs: Vec<KernelSpec> = table.rows.iter().flat_map(|row| of_row(row, arch)).collect();
    specs.sort_by_key(KernelSpec::name);
    specs.dedup_by_key(|spec| spec.name());
    texts(specs, arch)
}

/// Kernwright's tables.
fn tables() -> Vec<Table> {
    let tables = tuning::SHIPPED.iter().map(|(file, text)| tuning::read(file, text));
    tables.map(|table| table.unwrap_or_else(|problems| panic!("{problems:?}"))).collect()
}

/// Blocks of attention's gradient for a group of heads and for each of them, with sums in any order, and in one by either way.
fn heads_and_orders() -> Vec<Options> {
    let orders = [(true, false), (true, true), (false, false)].map(|(deterministic, in_turns)| Options {
        deterministic,
        in_turns,
        ..Options::default()
    });
    orders.iter().flat_map(split_heads::both).collect()
}

/// Attention and its gradient, whose operands are of one type.
fn attention_step(op: &Attention, dtype: Dtype, options: &Options) -> Plan {
    let (q, kv) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
    let mut plan = Plan::default();
    let mut add = |name: &str, columns: usize| plan.add(name, vec![op.length, columns], dtype, Role::Input);
    let operands = [("q", q), ("k", kv), ("v", kv), ("out", q), ("d_out", q)];
    let [q, k, v, out, d_out] = operands.map(|(name, columns)| add(name, columns));
    let [d_q, d_k, d_v] =
        [("d_q", operands[0].1), ("d_k", kv), ("d_v", kv)].map(|(name, columns)| add(name, columns));
    let lse = plan.add("lse", vec![1, op.heads, op.length], Dtype::Fp32, Role::Input);
    let backward = AttentionBackward { attention: op.clone(), form: BackwardForm::Ordered };
    let mut step = |op: Op, reads: Vec<Read>, writes: Vec<Write>, phase| {
        plan.steps.push(Step { op, reads, writes, phase })
    };
    step(
        op.clone().into(),
        vec![read("q", q), read("k", k), read("v", v)],
        vec![write("out", out), write("lse", lse)],
        Phase::Forward,
    );
    step(
        backward.into(),
        vec![
            read("q", q),
            read("k", k),
            read("v", v),
            read("out", out),
            read("lse", lse),
            read("d_out", d_out),
        ],
        vec![write("d_q", d_q), write("d_k", d_k), write("d_v", d_v)],
        Phase::Backward,
    );
    attention::choose(plan, options)
}

/// Compiles all and panics with every fault; `None` where there is no compiler, else the seconds it took.
fn compile(what: &str, all: &[Text]) -> Option<f64> {
    let what = format!("compiling {} kernels of {what}", all.len());
    let compiler = testing::compiler_or_skip(std::env::vars_os(), &what)?;
    let names: Vec<String> = all.iter().map(|one| one.spec.name()).collect();
    let sources: Vec<Source<'_>> = all
        .iter()
        .zip(&names)
        .map(|(one, name)| Source { name, text: &one.text, arch: &one.arch.name, options: &[] })
        .collect();
    let start = Instant::now();
    let reports = compile_all(&compiler, None, &sources, 0, &|_| {});
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{what}: {seconds:.1} s");
    let faults: Vec<String> =
        all.iter().zip(&reports).flat_map(|(one, report)| faults(one, report)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Some(seconds)
}

fn faults(one: &Text, report: &Report) -> Vec<String> {
    let name = one.spec.name();
    let mut faults = report.notes.clone();
    match (&report.result, report.resources.as_slice()) {
        (Err(error), _) => faults.push(error.to_string()),
        (Ok(_), [entry]) => {
            if entry.entry != name {
                faults.push(format!("its entry is called `{}`", entry.entry));
            }
            let Resources {
                registers, spill_stores_bytes: out, spill_loads_bytes: back, stack_bytes, ..
            } = entry;
            if entry.spills() || *stack_bytes > 0 {
                faults.push(format!(
                    "spills {out} bytes out and {back} in at {registers} registers, and has {stack_bytes} bytes of \
                     local memory"
                ));
            }
            // All shared memory is dynamic, or the limits the plan counts with are wrong.
            if entry.static_shared_bytes > 0 {
                faults.push(format!("has {} bytes of static shared memory", entry.static_shared_bytes));
            }
            if one.spec.shared_memory > one.arch.shared_memory {
                faults.push(format!("asks for {} bytes of shared memory", one.spec.shared_memory));
            }
        }
        (Ok(_), entries) => faults.push(format!("has {} entries, 1 is allowed", entries.len())),
    }
    faults.into_iter().map(|fault| format!("{name} for {}: {fault}", one.arch.name)).collect()
}

#[test]
fn every_kernel_compiles_without_spills_or_remarks() {
    let (names, arches) = COMPILED_FOR_SOME;
    let arches = arches.map(|name| arch::find(name).expect("it is a row").clone());
    let mut all = of_presets(&COMPILED, arch::ALL);
    all.extend(of_presets(&names, &arches));
    let all = representative(all);
    for name in [&*arch::ALL[0].name, TUNED, &*arch::ALL[arch::ALL.len() - 1].name] {
        assert!(all.iter().any(|one| one.arch.name == name), "nothing is compiled for {name}");
    }
    compile(&format!("{}, {}", COMPILED.join(", "), names.join(", ")), &all);
}

#[test]
#[ignore = "some minutes"]
fn every_kernel_of_every_preset_compiles_for_every_gpu() {
    let names: Vec<&str> = presets::ALL.iter().map(|preset| preset.name).collect();
    compile("all presets", &of_presets(&names, arch::ALL));
}

#[test]
fn every_kernel_of_every_case_compiles() {
    compile("all cases", &of_cases(&arch::ALL[0]));
}

#[test]
#[ignore = "some minutes"]
fn every_kernel_of_every_case_compiles_for_every_gpu() {
    compile("all cases", &arch::ALL.iter().flat_map(of_cases).collect::<Vec<_>>());
}

/// Heads of odd sizes, on a GPU with much shared memory and one with little, and wide ones on Hopper; presets have the usual
/// ones.
#[test]
fn attention_of_odd_heads_compiles_with_large_and_small_tiles() {
    let odd = [40, 80, 96, 192];
    for (name, head_dims) in [("sm_80", odd), ("sm_86", odd), ("sm_90a", [192, 200, 256, 128])] {
        let arch = arch::find(name).unwrap_or_else(|| panic!("no GPU `{name}`"));
        compile("attention", &of_attention(arch, head_dims.into_iter()));
    }
}

/// Those of one mask, which the text of a tile hardly depends on.
#[test]
fn tiles_of_every_table_compile_for_the_gpu_that_it_is_for() {
    let mut all = Vec::new();
    for mut table in tables() {
        let mut seen = HashSet::new();
        table.rows.retain(|row| {
            seen.insert((row.kernel, row.values.clone(), row.when.head_dim.clone(), row.when.ordered))
        });
        let arch = arch::find(&table.arch).unwrap_or_else(|| panic!("no GPU `{}`", table.arch));
        let found = of_table(&table, arch);
        assert!(!found.is_empty(), "the table of {} says nothing but what the rule says", table.arch);
        all.extend(found);
    }
    compile("the tables", &all);
}

#[test]
#[ignore = "some minutes"]
fn tiles_of_every_table_compile_for_every_gpu() {
    for arch in arch::ALL {
        let all: Vec<Text> = tables().iter().flat_map(|table| of_table(table, arch)).collect();
        compile(&format!("the tables for {}", arch.name), &all);
    }
}

#[test]
#[ignore = "an hour"]
fn attention_of_every_head_compiles_for_every_gpu() {
    for arch in arch::ALL {
        compile("attention", &of_attention(arch, (8..=256).step_by(8)));
    }
}

/// On two idle cores; a busy machine fails it, which is why it waits to be asked for.
#[test]
#[ignore = "a timing"]
fn the_102m_set_compiles_cold_for_one_gpu_in_20_seconds() {
    let mut set = of_presets(&["seed-102m"], arch::ALL);
    set.retain(|one| one.arch.name == "sm_90a");
    if let Some(seconds) = compile("seed-102m for sm_90a", &set) {
        assert!(seconds < 20.0, "{seconds:.1} s");
    }
}

/// Options of every kind: each switch, without clipping, another chunk, each precision with each way of attention.
fn options() -> Vec<Options> {
    let plain = Options::default();
    let mut all = vec![plain.clone(), Options { clip: None, ..plain.clone() }];
    all.push(Options { head_chunk: Some(77), ..plain.clone() });
    all.extend(
        SWITCHES.iter().map(|(name, _)| Options { without: vec![(*name).to_owned()], ..plain.clone() }),
    );
    all.extend(ABLATIONS.iter().map(|(name, _)| Options { with: vec![(*name).to_owned()], ..plain.clone() }));
    let precisions = dtype::ALL.iter().filter(|row| row.is_precision);
    for plain in precisions.map(|row| Options { precision: Some(row.dtype), ..plain.clone() }) {
        all.push(Options { attention: AttentionPath::Split, ..plain.clone() });
        all.extend(heads_and_orders().into_iter().map(|one| Options { precision: plain.precision, ..one }));
        all.push(plain);
    }
    all
}

/// Plans of odd sizes, and of the greatest length, with options of every kind.
fn plans(shape: &Shape) -> Vec<Plan> {
    let mut plans = Vec::new();
    for options in &options() {
        for (batch, length) in [(1, 1), (5, 137), (2, shape.context)] {
            plans.push(train_step(shape, options, batch, length));
            for head in [Head::Loss, Head::Logits(batch), Head::Logits(batch * length)] {
                plans.push(forward_step(shape, options, batch, length, head));
            }
        }
    }
    plans
}

#[test]
fn every_step_of_every_preset_becomes_launches() {
    for preset in presets::ALL {
        let shape = Shape { layers: 2, ..preset.shape() };
        for plan in plans(&shape) {
            for (index, step) in plan.steps.iter().enumerate() {
                for arch in arch::ALL {
                    let lowered = step.op.lower(&plan.io(step), arch);
                    let place =
                        || format!("{} for {}, step {index}:\n{}", preset.name, arch.name, plan.dump());
                    match lowered {
                        Lowered::Launches(launches) => assert!(!launches.is_empty(), "{}", place()),
                        Lowered::NoKernel(why) => panic!("{why}: {}", place()),
                    }
                }
            }
        }
    }
}

#[test]
fn a_step_of_any_size_launches_only_kernels_of_the_closed_set() {
    for preset in presets::ALL {
        // Layers are alike, and two of them are enough.
        let shape = Shape { layers: 2, ..preset.shape() };
        let plans = plans(&shape);
        for arch in arch::ALL {
            let closed: HashSet<String> = kernels(&shape, arch).iter().map(KernelSpec::name).collect();
            assert!(!closed.is_empty(), "{} has no kernel for {}", preset.name, arch.name);
            for plan in &plans {
                for spec in of_plan(plan, arch) {
                    let (name, rows) = (spec.name(), plan.find("tokens").map(|id| plan.buffer(id).len()));
                    let place = format!("{} for {}, {rows:?} tokens", preset.name, arch.name);
                    assert!(closed.contains(&name), "{place}: `{name}` is not among its kernels");
                }
            }
        }
    }
}

#[test]
fn kernels_of_one_name_have_one_text() {
    for arch in arch::ALL {
        let mut named: HashMap<String, Vec<KernelSpec>> = HashMap::new();
        for preset in presets::ALL {
            let shape = Shape { layers: 2, ..preset.shape() };
            for spec in plans(&shape).iter().flat_map(|plan| of_plan(plan, arch)) {
                let specs = named.entry(spec.name()).or_default();
                if !specs.contains(&spec) {
                    specs.push(spec);
                }
            }
        }
        assert!(!named.is_empty(), "no kernel for {}", arch.name);
        for (name, specs) in named {
            // Each twice: a text is the same each time.
            let texts: HashSet<String> = specs
                .iter()
                .chain(&specs)
                .map(|spec| render(spec, arch).unwrap_or_else(|error| panic!("{name}: {error:?}")))
                .collect();
            assert_eq!(texts.len(), 1, "`{name}` for {} stands for: {specs:#?}", arch.name);
        }
    }
}
