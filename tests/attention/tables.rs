//! Tiles of Kernwright's tables, of every length: other tests see those of short ones, and of what no row is for. All were held to the
//! definition on a GPU when they were measured; here the emulator looks for what is right by luck.

use crate::covering::{filled, sweep};
use crate::plans;
use kernwright_plan::Options;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::case::Case;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::ops::attention::{Attention, Form, Window};
use kernwright_plan::tile::Mask;
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_plan::tuning::{KERNELS, Row, SHIPPED, Table, When, read};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many queries and keys as make some tiles, the last ones not whole.
const LENGTH: usize = 200;

/// What a row is for, as an op of the length of this test.
fn op(row: &Row) -> Attention {
    let When { head_dim, group, mask, .. } = &row.when;
    Attention {
        heads: *group,
        kv_heads: 1,
        head_dim: *head_dim.end(),
        length: LENGTH,
        key_length: LENGTH,
        window: if *mask == Some(Mask::Full) { Window::FULL } else { Window::CAUSAL },
        softcap: None,
        scale: (*head_dim.end() as f64).sqrt().recip(),
        form: Form::Fused,
    }
}

/// A row for any length and number of heads, alone in its table.
fn with(arch: &Arch, row: &Row) -> Arch {
    let when = When { length: None, ..row.when.clone() };
    let table = Table {
        arch: arch.name.to_string(),
        card: String::new(),
        rows: vec![Row { when, measured: None, ..row.clone() }],
    };
    Arch { tuned: Some(Arc::new(table)), ..arch.clone() }
}

/// A case for each tile that the rule has not and that no other case has, with that tile; or one for each kernel of each table.
fn cases(all: bool) -> Vec<(Case, Arch)> {
    let mut rows: BTreeMap<_, (Row, &Arch)> = BTreeMap::new();
    for (file, text) in SHIPPED {
        let table = read(file, text).unwrap_or_else(|problems| panic!("{problems:?}"));
        let arch = arch::find(&table.arch).unwrap_or_else(|| panic!("no GPU `{}`", table.arch));
        for row in table.rows {
            let kernel = KERNELS.iter().find(|kernel| kernel.name == row.kernel).expect("it was read");
            let tile_op = op(&row).for_tiles(Dtype::Bf16, 1, row.when.ordered.unwrap_or(true));
            if (kernel.by_rule)(&tile_op, arch).as_ref() != Some(&row.values) {
                let (tile, file) = if all { (row.values.clone(), "") } else { (Vec::new(), *file) };
                rows.entry((row.kernel, tile, file)).or_insert((row, arch));
            }
        }
    }
    let case = |(row, arch): (Row, &Arch)| {
        let (op, arch) = (op(&row), with(arch, &row));
        let deterministic = row.when.ordered.unwrap_or(true);
        let options = Options { deterministic, in_turns: takes_turns(&arch), ..plans::heads(false) };
        let label = format!("{} for {}: {:?}", row.kernel, arch.name, row.values);
        (filled(label, plans::plan(&op, 1, [Dtype::Bf16; 2], &options)), arch)
    };
    rows.into_values().map(case).collect()
}

fn run(what: &str, all: bool) {
    let cases = cases(all);
    assert!(!cases.is_empty(), "the tables say nothing but what the rule says");
    sweep(what, &cases);
}

#[test]
fn attention_matches_its_definition_with_tiles_of_the_tables() {
    run("attention, some tiles of the tables", false);
}

#[test]
#[ignore = "some minutes"]
fn attention_matches_its_definition_with_every_tile_of_the_tables() {
    run("attention, tiles of the tables", true);
}
