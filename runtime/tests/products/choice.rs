//! Which algorithm is taken, remembered and replayed, on the stand-in.

use crate::setup::{Memory, Told, compare, plain, rows, stand_in};
use kernwright_compile::testing::Scratch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::{Batch, Epilogue};
use kernwright_runtime::driver::Product;
use kernwright_runtime::gpu::products::{Order, Pick, Products, Settings};
use std::fs;

const TYPES: [Dtype; 5] = [Dtype::Fp32; 5];

/// The right one that is faster, and the right one that comes first, of the stand-in's algorithms.
const FASTER: u32 = 4;
const FIRST: u32 = 0;
/// The fastest; its bits vary.
const UNORDERED: u32 = 5;

#[test]
fn the_fastest_right_algorithm_is_taken_and_each_wrong_one_is_told() {
    let Some((_folder, libraries)) = stand_in("algorithms of a stand-in") else { return };
    let memory = Memory::new(&TYPES, 200);
    let (product, before) = (plain(Dtype::Fp32, Dtype::Fp32), memory.clone());
    let mut told = Told::open(&libraries, Settings::default());
    assert_eq!(told.products.version(), "13.2.7");
    told.run(&product, &memory).unwrap();
    compare(&product, &before, &memory);
    assert_eq!(told.algorithm(), FASTER);
    let choice = told.products.choices().shapes.values().next().unwrap().clone();
    assert!(choice.microseconds < choice.first_microseconds, "{choice:?}");
    let (measured, notes) = told.told();
    assert_eq!(measured, 1);
    let wanted =
        ["algorithm 2 of 7 is off by", "algorithm 3 of 7 is off by NaN", "algorithm 4 of 7 is off by NaN"];
    assert_eq!(notes.len(), wanted.len(), "{notes:?}");
    for (note, wanted) in notes.iter().zip(wanted) {
        let prefix = "the product 5x6 by 6x7 of fp32 into fp32: ";
        assert!(note.starts_with(&format!("{prefix}{wanted}")), "{note}");
    }
    told.run(&product, &memory).unwrap();
    assert_eq!(told.told().0, 0, "a shape is measured once");
}

#[test]
fn settings_decide_what_is_asked_for() {
    let Some((_folder, libraries)) = stand_in("settings of a stand-in") else { return };
    let memory = Memory::new(&TYPES, 200);
    let product = plain(Dtype::Fp32, Dtype::Fp32);
    for (settings, algorithm, n_measured) in [
        (Settings { order: Order::Free, ..Settings::default() }, UNORDERED, 1),
        (Settings { candidates: 1, ..Settings::default() }, FIRST, 1),
        (Settings { pick: Pick::First, ..Settings::default() }, FIRST, 0),
    ] {
        let mut told = Told::open(&libraries, settings.clone());
        told.run(&product, &memory).unwrap();
        assert_eq!((told.algorithm(), told.told().0), (algorithm, n_measured), "{settings:?}");
        told.products.pick(Pick::Fastest);
        let shapes = told.products.choices().shapes.len();
        assert_eq!(shapes, 0, "another pick chooses anew");
    }
}

#[test]
fn every_kind_of_product_comes_out_right() {
    let Some((_folder, libraries)) = stand_in("products of a stand-in") else { return };
    let mut told = Told::open(&libraries, Settings::default());
    for (operand, result) in
        [(Dtype::Fp32, Dtype::Fp32), (Dtype::Bf16, Dtype::Bf16), (Dtype::Bf16, Dtype::Fp32)]
    {
        let types = [operand, operand, result, result, result];
        for number in 0..12 {
            let loops = [
                vec![],
                vec![Batch { count: 3, a: 60, b: 0, d: 70 }],
                vec![Batch { count: 2, a: 150, b: 60, d: 260 }, Batch { count: 3, a: 50, b: 0, d: 70 }],
            ];
            let product = Product {
                a_transposed: number % 2 == 1,
                b_transposed: number % 3 == 1,
                c: [None, Some(rows(2, result, 12)), Some(rows(3, result, 11))][number % 3],
                bias: (number % 4 > 1).then(|| rows(4, result, 0)),
                batches: loops[number / 2 % 3].clone(),
                ..plain(operand, result)
            };
            let memory = Memory::new(&types, 900);
            let before = memory.clone();
            told.run(&product, &memory).unwrap();
            compare(&product, &before, &memory);
            let matrix = product.d.at.allocation.0;
            assert!(before.0[matrix] != memory.0[matrix], "something was written");
        }
    }
    for (shape, choice) in &told.products.choices().shapes {
        assert_eq!(choice.traits.id, FASTER, "{shape}: {:?}", told.told());
    }
}

#[test]
fn a_gelu_in_a_product_comes_out_right_and_what_it_writes_beside_the_result_is_checked() {
    let Some((_folder, libraries)) = stand_in("gelu in products of a stand-in") else { return };
    let input = rows(3, Dtype::Bf16, 16);
    for (epilogue, bias) in [
        (Epilogue::Gelu(None), false),
        (Epilogue::Gelu(None), true),
        (Epilogue::Gelu(Some(input)), false),
        (Epilogue::Gelu(Some(input)), true),
        (Epilogue::GeluSlope(input), false),
    ] {
        let mut told = Told::open(&libraries, Settings::default());
        let bias = bias.then(|| rows(4, Dtype::Bf16, 0));
        let product = Product { epilogue, bias, ..plain(Dtype::Bf16, Dtype::Bf16) };
        let memory = Memory::new(&[Dtype::Bf16; 5], 200);
        let before = memory.clone();
        told.run(&product, &memory).unwrap();
        compare(&product, &before, &memory);
        assert_eq!(told.algorithm(), FASTER, "{product:?}");
        let is_written = matches!(epilogue, Epilogue::Gelu(Some(_)));
        assert_eq!(before.0[3] != memory.0[3], is_written, "{product:?}");
        // Of what only that matrix shows, the notes say so.
        let beside: Vec<_> = told.told().1.into_iter().filter(|note| note.contains("gelu's input")).collect();
        assert_eq!(beside.len(), usize::from(is_written), "{beside:?}");
        for note in beside {
            let wanted = "the product 5x6 by 6x7 of bf16 into bf16, with gelu: algorithm 4 of 7 is off by ";
            assert!(note.starts_with(wanted), "{note}");
        }
    }
}

#[test]
fn a_second_start_measures_nothing_and_a_damaged_memory_is_rebuilt() {
    let Some((_folder, libraries)) = stand_in("choices of a stand-in") else { return };
    let folder = Scratch::new("choices-kept");
    let settings = Settings { folder: Some(folder.path().to_path_buf()), ..Settings::default() };
    let memory = Memory::new(&TYPES, 200);
    let product = plain(Dtype::Fp32, Dtype::Fp32);
    let start = |n_measured: usize, n_notes: usize| {
        let mut told = Told::open(&libraries, settings.clone());
        told.run(&product, &memory).unwrap();
        assert_eq!(told.algorithm(), FASTER);
        let (measured, mut notes) = told.told();
        notes.retain(|note| !note.starts_with("the product"));
        assert_eq!((measured, notes.len()), (n_measured, n_notes), "{notes:?}");
    };
    start(1, 0);
    start(0, 0);
    let file = folder.path().join("stand-in-1-13.2.7.json");
    let whole = fs::read_to_string(&file).unwrap();
    assert!(whole.contains("5x7x6 a=fp32/9/"), "{whole}");
    fs::write(&file, &whole[..100]).unwrap();
    start(1, 1);
    start(0, 0);
    // An algorithm that the library does not take any more is chosen anew.
    let mark = "5741544f4e494e47";
    assert!(whole.contains(mark), "{whole}");
    fs::write(&file, whole.replace(mark, "5741544f4e494e48")).unwrap();
    start(1, 0);
    start(0, 0);
}

#[test]
fn a_run_replays_what_it_recorded_and_says_where_it_cannot() {
    let Some((_folder, libraries)) = stand_in("records of a stand-in") else { return };
    let memory = Memory::new(&TYPES, 200);
    let product = plain(Dtype::Fp32, Dtype::Fp32);
    let mut first = Told::open(&libraries, Settings { candidates: 1, ..Settings::default() });
    first.run(&product, &memory).unwrap();
    let recorded = first.products.choices().clone();

    let mut again = Told::open(&libraries, Settings::default());
    again.products.replay(recorded.clone());
    again.run(&product, &memory).unwrap();
    assert_eq!((again.algorithm(), again.told()), (FIRST, (0, vec![])), "though another is faster");

    let mut other = recorded.clone();
    other.library = "12.9.1".to_owned();
    let mut damaged = recorded.clone();
    let choice = damaged.shapes.values_mut().next().unwrap();
    choice.algorithm = choice.algorithm.replace("5741544f", "00000000");
    let mut strange = recorded.clone();
    strange.shapes = recorded.shapes.values().map(|choice| ("1x1x1".to_owned(), choice.clone())).collect();
    for (choices, wanted) in [
        (other, "cuBLASLt 12.9.1, this is `Stand-in 1` with 13.2.7"),
        (damaged, "does not take the algorithm that the run recorded for the product 5x6 by 6x7"),
        (strange, "the run recorded no algorithm for the product 5x6 by 6x7"),
    ] {
        let mut told = Told::open(&libraries, Settings::default());
        told.products.replay(choices);
        told.run(&product, &memory).unwrap();
        let (measured, notes) = told.told();
        assert_eq!((told.algorithm(), measured), (FASTER, 1));
        assert!(notes.iter().any(|note| note.contains(wanted)), "{notes:?}");
    }
}

#[test]
fn without_room_to_measure_the_first_algorithm_is_taken_and_told() {
    let Some((_folder, libraries)) = stand_in("room of a stand-in") else { return };
    // Rows so far apart that the left operand takes 80 MB; the stand-in gives 64 MiB.
    let product = Product {
        batches: vec![Batch { count: 2, a: 60, b: 0, d: 70 }],
        a: rows(0, Dtype::Fp32, 5_000_000),
        ..plain(Dtype::Fp32, Dtype::Fp32)
    };
    let memory = Memory::new(&TYPES, 200);
    let mut told = Told::open(&libraries, Settings::default());
    let pointers = |at| memory.address(at);
    let command = kernwright_runtime::driver::Command::Product(product);
    told.products.prepare(&[command], &pointers, std::ptr::null_mut()).unwrap();
    assert_eq!(told.algorithm(), FIRST);
    let notes = told.told().1;
    assert!(notes.len() == 1 && notes[0].contains("the library's first algorithm is taken"), "{notes:?}");
}

#[test]
fn what_is_missing_or_was_not_prepared_is_said() {
    let Some((folder, libraries)) = stand_in("failures of a stand-in") else { return };
    let memory = Memory::new(&TYPES, 200);
    let told = Told::open(&libraries, Settings::default());
    let product = plain(Dtype::Fp32, Dtype::Fp32);
    let error = told.products.launch(&product, &|at| memory.address(at), std::ptr::null_mut()).unwrap_err();
    let wanted = "the product 5x6 by 6x7 of fp32 into fp32: no algorithm was chosen for it";
    assert_eq!(error.to_string(), wanted);
    let mut told = told;
    let half = plain(Dtype::Fp16, Dtype::Fp16);
    let error = told.run(&half, &memory).unwrap_err().to_string();
    assert!(error.starts_with("the product 5x6 by 6x7 of fp16 into fp16: "), "{error}");

    let mut without = libraries.clone();
    without.found.retain(|found| found.path != folder.path().join("libcublasLt.so.13"));
    let error = Products::open(&without, "Stand-in 1", (8, 0), Settings::default()).unwrap_err().to_string();
    assert!(
        error.contains("`libcublasLt.so` was not found") && error.contains("pip install nvidia-cublas"),
        "{error}"
    );
}
