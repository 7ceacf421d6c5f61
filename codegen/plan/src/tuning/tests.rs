//! Tables are read, chosen from and written.

use super::*;
use crate::arch;
use std::sync::Arc;

const TEXT: &str = r#"# Measured.
arch = "sm_90a"
card = "H200 SXM"

[[attention_forward_hopper]]
head_dim = 64
group = 3
length = "long"
mask = "causal"
consumers = 3
heads = 3
keys = 112
ring = 2
turns = true
staged = false
microseconds = 12.50
before = 13.00
measured_on = [24, 16384]

[[attention_forward_hopper]]
head_dim = [8, 64]
consumers = 2
heads = 1
keys = 176
ring = 2
turns = false
staged = true

[[attention_backward_keys]]
head_dim = 128
softcap = true
ordered = false
keys = 64
queries = 64
key_warps = 4
query_warps = 2
stages = 2
v_in_registers = true
"#;

fn table() -> Table {
    read("x", TEXT).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn hopper(table: Option<Table>) -> Arch {
    Arch { tuned: table.map(Arc::new), ..arch::find("sm_90a").expect("it is a row").clone() }
}

#[test]
fn the_first_row_for_an_op_has_its_tile() {
    let arch = hopper(Some(table()));
    let keys = |op: Op| HopperForward::of(&op, &arch).map(|tile| tile.keys);
    let op = Op { head_dim: 64, group: 3, length: 8192, ..Op::default() };
    assert_eq!(keys(op), Some(112));
    assert_eq!(keys(Op { group: 6, ..op }), Some(112), "three heads of a group of six share keys");
    for other in [
        Op { group: 4, ..op },
        Op { length: 4096, ..op },
        Op { mask: Mask::Full, ..op },
        Op { head_dim: 40, ..op },
    ] {
        assert_eq!(keys(other), Some(176), "{other:?}");
    }
    let rule = |op| HopperForward::by_rule(&op, &hopper(None)).map(|tile| tile.keys);
    for other in [Op { capped: true, ..op }, Op { head_dim: 72, ..op }] {
        assert_eq!(keys(other), rule(other), "no row is for {other:?}");
    }
    let of = |capped, ordered| {
        KeyBlock::of(&Op { head_dim: 128, capped, ordered, ..Op::default() }, &arch).map(|block| block.keys)
    };
    assert_eq!([of(true, false), of(true, true), of(false, false)], [Some(64), Some(128), Some(128)]);
}

#[test]
fn a_row_that_a_gpu_cannot_take_is_passed_over() {
    let mut arch = hopper(Some(table()));
    let op = Op { head_dim: 64, length: 64, ..Op::default() };
    assert_eq!(HopperForward::of(&op, &arch).map(|tile| tile.keys), Some(176));
    arch.shared_memory = 100 << 10;
    let smaller = HopperForward::of(&op, &arch);
    assert_eq!(smaller, HopperForward::by_rule(&op, &arch), "176 keys do not fit");
    let ampere = Arch { tuned: arch.tuned.clone(), ..arch::ALL[0].clone() };
    assert_eq!(HopperForward::of(&op, &ampere).filter(|tile| tile.keys == 176), None);
}

#[test]
fn what_is_written_is_read() {
    let table = table();
    let text = write(&table, &["Measured.".to_owned()]);
    assert_eq!(text, TEXT);
    assert_eq!(read("x", &text), Ok(table));
}

#[test]
fn mistakes_have_their_lines_and_what_is_allowed() {
    let problems = |from: &str, to: &str| read("t.toml", &TEXT.replacen(from, to, 1)).expect_err(to);
    for (from, to, wanted) in [
        (
            "ring = 2",
            "rings = 2",
            "t.toml:13:1: `rings` is not a field of `attention_forward_hopper`: allowed are `consumers`, `heads`, `keys`, \
             `ring`, `turns`, `staged`, `head_dim`, `group`, `length`, `mask`, `softcap`, `ordered`, `microseconds`, `before`, \
             `measured_on`",
        ),
        ("turns = true", "turns = 1", "t.toml:14:9: `turns` must be `true` or `false`"),
        ("keys = 112", "keys = 0", "t.toml:12:8: `keys` must be a whole number from 1 to 1024"),
        (
            "head_dim = 64",
            "head_dim = [64]",
            "t.toml:6:12: `head_dim` must be a width up to 256, or two: `[least, greatest]`",
        ),
        ("\"long\"", "\"huge\"", "t.toml:8:10: `length` must be one of `short`, `medium`, `long`"),
        ("\"causal\"", "true", "t.toml:9:8: `mask` must be one of `full`, `causal`, `window`"),
        ("\"sm_90a\"", "\"H200\"", "t.toml:2:8: `arch` must be a GPU such as `sm_80`"),
        ("card =", "cart =", "t.toml:3:1: `cart` is not a part of a table: allowed are `attention_forward`,"),
        (
            "[[attention_backward_keys]]",
            "[attention_backward_keys]",
            "t.toml:29:1: `attention_backward_keys` must be rows",
        ),
        (
            "[24, 16384]",
            "[24]",
            "t.toml:18:15: `measured_on` must be query heads of all sequences, and the length of each: `[256, 1024]`",
        ),
        (
            "before = 13.00\n",
            "",
            "t.toml:17:15: `measured_on` needs `microseconds` and `before`, which say what was measured",
        ),
        ("ring = 2", "ring =", "t.toml:13:"),
    ] {
        let found = problems(from, to);
        assert!(found[0].starts_with(wanted), "{found:?}");
    }
    let missing = problems("consumers = 3\nheads = 3\n", "");
    assert!(missing.len() == 2 && missing[0].starts_with("t.toml:5:1: `consumers` of"), "{missing:?}");
    assert_eq!(
        read("t.toml", ""),
        Err(vec!["t.toml:1:1: `arch` is missing: the GPU whose kernels were measured".to_owned()])
    );
}

#[test]
fn every_row_of_kernwrights_tables_is_legal_where_it_was_measured() {
    for (file, text) in SHIPPED {
        let table = read(file, text).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let arch = arch::find(&table.arch).unwrap_or_else(|| panic!("{file}: {}", table.arch));
        assert!(crate::card::ALL.iter().any(|card| card.name == table.card), "{file}: {}", table.card);
        assert!(!table.rows.is_empty(), "{file}");
        for row in &table.rows {
            let kernel = KERNELS.iter().find(|kernel| kernel.name == row.kernel).expect("it was read");
            let op = Op {
                head_dim: *row.when.head_dim.end(),
                group: row.when.group,
                heads: 0,
                length: LENGTHS
                    .iter()
                    .find(|(name, _)| Some(*name) == row.when.length)
                    .map_or(1, |(_, n)| *n),
                mask: row.when.mask.unwrap_or(Mask::Causal),
                capped: row.when.softcap,
                fixed: row.when.softcap,
                ordered: row.when.ordered.unwrap_or(true),
            };
            assert!((kernel.is_legal)(&row.values, &op, arch), "{file}: {row:?}");
        }
    }
}

/// Whatever tables there are: for every width each GPU has a tile, which is one of those that are legal.
#[test]
fn every_choice_is_legal_with_tables_and_without() {
    for arch in arch::ALL {
        for head_dim in (8..=256).step_by(8) {
            for (group, length, capped) in [(1, 1, false), (3, 2048, false), (4, 1 << 20, true)] {
                let op = Op { head_dim, group, length, capped, ..Op::default() };
                for kernel in KERNELS {
                    for found in [(kernel.of)(&op, arch), (kernel.by_rule)(&op, arch)].iter().flatten() {
                        let place = format!("{} for {op:?} on {}: {found:?}", kernel.name, arch.name);
                        assert!((kernel.is_legal)(found, &op, arch), "{place}");
                    }
                }
                let of = |name: &str| {
                    let kernel = KERNELS.iter().find(|kernel| kernel.name == name).expect("it is one");
                    (kernel.of)(&op, arch)
                };
                for name in ["attention_forward", "attention_backward_keys", "attention_backward_queries"] {
                    assert!(of(name).is_some(), "{name} for {op:?} on {}", arch.name);
                }
            }
        }
    }
}

#[test]
fn candidates_are_legal_and_have_the_rules_among_them() {
    let hopper = hopper(None);
    for head_dim in [64, 96, 128, 192, 256] {
        let op = Op { head_dim, group: 3, length: 4096, ..Op::default() };
        for kernel in KERNELS {
            let all = (kernel.candidates)(&op, &hopper);
            assert!(all.iter().all(|values| (kernel.is_legal)(values, &op, &hopper)), "{}", kernel.name);
            if let Some(rule) = (kernel.by_rule)(&op, &hopper) {
                assert!(all.contains(&rule), "{} for {head_dim}: {rule:?}", kernel.name);
            }
        }
    }
}

#[test]
fn tables_of_targets_that_resemble_a_gpu_come_first() {
    let names = |arch: &Arch| nearest(arch).iter().map(|table| table.arch.clone()).collect::<Vec<_>>();
    for table in TABLES.iter() {
        let arch = arch::find(&table.arch).expect("it is a row");
        assert_eq!(names(arch).first(), Some(&table.arch));
        let like = Arch { name: "sm_130".into(), like: Some(arch.name.clone()), ..arch::ALL[0].clone() };
        assert_eq!(names(&like).first(), Some(&table.arch));
    }
}

#[test]
fn no_gpu_takes_what_was_fastest_with_more_shared_memory() {
    for arch in arch::ALL {
        for table in nearest(arch) {
            let other = arch::find(&table.arch).expect("it is a row");
            let place = format!("{} of {}", table.arch, arch.name);
            assert!(other.shared_memory_multiprocessor <= arch.shared_memory_multiprocessor, "{place}");
        }
    }
    let first =
        |name: &str| nearest(arch::find(name).expect("it is a row")).first().map(|table| &*table.arch);
    let found = ["sm_87", "sm_89", "sm_120a", "sm_100a"].map(first);
    assert_eq!(found, [Some("sm_80"), Some("sm_86"), Some("sm_86"), None]);
}

#[test]
fn a_targets_own_table_is_a_part_of_its_text() {
    let text = "model.vocab = 1"; // Nothing else counts here.
    let (targets, other) = (hopper(Some(table())), arch::find("sm_80").expect("it is a row").clone());
    let lines = format!("{text}\n{}{}", targets.text(), other.text());
    let read = |lines: &str| {
        let fields = crate::field::read_text(lines);
        let tiles: Vec<_> = fields.iter().filter(|field| field.path.ends_with(".tiles")).cloned().collect();
        let problems = &mut Vec::new();
        let settings: Vec<_> = tiles.iter().map(|field| (TILES, field)).collect();
        let arch = crate::arch::custom::read("sm_90a", crate::field::Place(1), &settings, problems);
        (arch, problems.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>())
    };
    assert_eq!(read(&lines), (Some(targets), Vec::new()));
    let (arch, problems) = read(&lines.replace("keys = 112", "keys = many"));
    assert!(
        arch.is_none() && problems[0].starts_with("`tiles` must be a table that `tune` wrote: tiles:"),
        "{problems:?}"
    );
}
