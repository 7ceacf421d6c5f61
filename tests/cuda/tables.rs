//! The tiles of Kernwright's tables, which kernels of presets have only some of.

use super::attention::attention_step;
use super::compile::compile;
use super::{Text, texts};
use kernwright_plan::Options;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::kernels::of_plan;
use kernwright_plan::ops::attention::{Attention, Form, Window};
use kernwright_plan::passes::split_heads;
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::tile::Mask;
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_plan::tuning::{self, KERNELS, Row, Table, When};
use std::collections::HashSet;
use std::sync::Arc;

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
        let rows = vec![Row { when, values, measured: None, ..row.clone() }];
        let tuned = Some(Arc::new(Table { rows, ..Table::default() }));
        let arch = Arch { tuned, ..arch.clone() };
        let plans =
            split_heads::both(&options).map(|options| attention_step(&attention, Dtype::Bf16, &options));
        plans.iter().flat_map(|plan| of_plan(plan, &arch)).collect::<Vec<_>>()
    };
    let kernel = KERNELS.iter().find(|kernel| kernel.name == row.kernel).expect("it was read");
    let rule = (kernel.by_rule)(&attention.for_tiles(Dtype::Bf16, 1, deterministic), arch);
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
