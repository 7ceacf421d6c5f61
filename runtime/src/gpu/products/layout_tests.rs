//! The column-major form of a product, evaluated element by element, against the host's product.

use super::*;
use crate::driver::Allocation;
use crate::product::{HostMemory, multiply};
use kernwright_plan::ops::linear::GELU;

#[path = "../../../tests/products/matrices.rs"]
mod matrices;
use matrices::Memory;

impl Memory {
    fn read(&self, of: Rows, element: usize) -> f64 {
        let mut bytes = vec![0; of.dtype.bytes()];
        self.load(of.after(element).at, &mut bytes).unwrap();
        of.dtype.decode_all(&bytes).next().unwrap()
    }
}

fn rows_of(matrix: &Matrix) -> Rows {
    Rows { at: matrix.at, dtype: matrix.dtype, stride: matrix.leading }
}

/// What cuBLASLt is documented to do with a layout.
fn evaluate(layout: &Layout, memory: &mut Memory) {
    let element = |memory: &Memory, of: &Matrix, start: usize, row: usize, column: usize| {
        let (row, column) = if of.transposed { (column, row) } else { (row, column) };
        assert!(row < of.rows && column < of.columns, "outside of the matrix");
        memory.read(rows_of(of), start + row + column * of.leading)
    };
    for start in &layout.starts {
        for batch in 0..layout.batches {
            let at = |of: &Matrix, start: usize| start + batch * of.batch_stride;
            for column in 0..layout.d.columns {
                for row in 0..layout.d.rows {
                    let mut sum: f64 = (0..layout.depth)
                        .map(|k| {
                            element(memory, &layout.left, at(&layout.left, start.left), row, k)
                                * element(memory, &layout.right, at(&layout.right, start.right), k, column)
                        })
                        .sum();
                    if let Some(c) = &layout.c {
                        sum += element(memory, c, at(c, start.d), row, column);
                    }
                    if let Some(bias) = layout.bias {
                        sum += memory.read(bias, row);
                    }
                    let place = |of: &Matrix| rows_of(of).after(at(of, start.d) + row + column * of.leading);
                    let write = |memory: &mut Memory, to: Rows, value: f64| {
                        memory.store(to.at, &to.dtype.encode_all([value])).unwrap();
                    };
                    let result = match &layout.epilogue {
                        Epilogue::None => sum,
                        Epilogue::Gelu(input) => {
                            if let Some(input) = input {
                                write(memory, place(input), sum);
                            }
                            GELU.value_and_slope(sum).0
                        }
                        Epilogue::GeluSlope(input) => {
                            sum * GELU.value_and_slope(memory.read(place(input), 0)).1
                        }
                    };
                    write(memory, place(&layout.d), result);
                }
            }
        }
    }
}

/// Whole numbers, so that every order of adding gives the same.
fn content(elements: usize, dtype: Dtype, seed: usize) -> Vec<u8> {
    dtype.encode_all((0..elements).map(|index| ((index * 7 + seed * 3) % 5) as f64 - 2.0))
}

/// A matrix that begins further on.
fn rows(allocation: usize, dtype: Dtype, stride: usize) -> Rows {
    matrices::rows(allocation, dtype, stride).after(6)
}

const ROOM: usize = 4000;

fn product(
    transposed: (bool, bool),
    types: (Dtype, Dtype),
    c: usize,
    bias: bool,
    batches: &[Batch],
) -> Product {
    let (m, n, k) = (5, 7, 3);
    let (operand, result) = types;
    Product {
        a: rows(0, operand, 11),
        a_transposed: transposed.0,
        b: rows(1, operand, 9),
        b_transposed: transposed.1,
        c: match c {
            0 => None,
            1 => Some(rows(2, result, 13)),
            _ => Some(rows(3, result, 8)),
        },
        bias: bias.then(|| rows(4, result, 0)),
        d: rows(2, result, 13),
        epilogue: Epilogue::None,
        m,
        n,
        k,
        batches: batches.to_vec(),
    }
}

fn batch(count: usize, a: usize, b: usize, d: usize) -> Batch {
    Batch { count, a, b, d }
}

#[test]
fn the_column_major_product_is_the_hosts_for_every_transposition_type_sum_and_loop() {
    let loops: &[&[Batch]] = &[
        &[],
        &[batch(3, 70, 0, 90)],
        // Evenly nested: one loop of 6.
        &[batch(2, 180, 150, 270), batch(3, 60, 50, 90)],
        // Heads that share a right operand, then sequences; the longer loop goes into the call.
        &[batch(2, 400, 90, 500), batch(4, 60, 0, 90)],
        &[batch(5, 60, 40, 300), batch(2, 35, 200, 91), batch(1, 3, 3, 3)],
        // Products that are added up in one place come one after the other.
        &[batch(2, 60, 50, 0), batch(2, 200, 130, 200)],
    ];
    let mut n = 0;
    for transposed in [(false, false), (false, true), (true, false), (true, true)] {
        for types in [(Dtype::Fp32, Dtype::Fp32), (Dtype::Bf16, Dtype::Bf16), (Dtype::Fp16, Dtype::Fp32)] {
            for (c, bias) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
                for batches in loops {
                    let product = product(transposed, types, c, bias, batches);
                    let types = [types.0, types.0, types.1, types.1, types.1];
                    let contents =
                        types.iter().enumerate().map(|(index, dtype)| content(ROOM, *dtype, index));
                    let memory = Memory(contents.collect());
                    let (mut expected, mut found) = (memory.clone(), memory);
                    multiply(&product, &mut expected).unwrap();
                    evaluate(&Layout::of(&product).unwrap(), &mut found);
                    assert!(expected.0 == found.0, "{product:?}");
                    assert!(found.0[2] != content(ROOM, types[2], 2), "something was written");
                    n += 1;
                }
            }
        }
    }
    assert_eq!(n, 4 * 3 * 6 * loops.len());
}

/// A product with an epilogue whose matrix lies apart, in longer rows.
fn with(epilogue: Epilogue<()>, dtype: Dtype, bias: bool) -> Product {
    let plain = product((false, true), (dtype, dtype), 0, bias, &[]);
    Product { epilogue: epilogue.map(|()| rows(3, dtype, 24)), ..plain }
}

const EPILOGUES: [Epilogue<()>; 3] =
    [Epilogue::Gelu(None), Epilogue::Gelu(Some(())), Epilogue::GeluSlope(())];

#[test]
fn what_an_epilogue_reads_or_writes_lies_as_the_result_does() {
    for epilogue in EPILOGUES {
        for dtype in [Dtype::Bf16, Dtype::Fp16] {
            for bias in [false, true] {
                if bias && epilogue == Epilogue::GeluSlope(()) {
                    continue;
                }
                let product = with(epilogue, dtype, bias);
                let contents = (0..5).map(|index| content(ROOM, dtype, index));
                let memory = Memory(contents.collect());
                let (mut expected, mut found) = (memory.clone(), memory.clone());
                multiply(&product, &mut expected).unwrap();
                evaluate(&Layout::of(&product).unwrap(), &mut found);
                let [expected, found] = [&expected, &found].map(|memory| {
                    let all = memory.0.iter().flat_map(|bytes| dtype.decode_all(bytes));
                    all.collect::<Vec<f64>>()
                });
                for (index, (a, b)) in expected.iter().zip(&found).enumerate() {
                    // A tangent in fp32 and one in double precision may round to neighbours, and cancels where it is near -1.
                    let is_near = (a - b).abs() <= dtype.epsilon() * a.abs() + 4e-6;
                    assert!(is_near, "{index}: {a} and {b}, {product:?}");
                }
                let is_written = memory.0.iter().map(|bytes| dtype.decode_all(bytes).collect::<Vec<f64>>());
                let changed: Vec<bool> = is_written
                    .enumerate()
                    .map(|(index, before)| before != found[index * ROOM..(index + 1) * ROOM])
                    .collect();
                let input = epilogue == Epilogue::Gelu(Some(()));
                assert_eq!(changed, [false, false, true, input, false], "{product:?}");
            }
        }
    }
}

#[test]
fn loops_become_one_call_where_they_can() {
    let calls = |batches: &[Batch]| {
        let product = product((false, true), (Dtype::Fp32, Dtype::Fp32), 1, false, batches);
        let layout = Layout::of(&product).unwrap();
        (layout.batches, layout.starts.len())
    };
    assert_eq!(calls(&[]), (1, 1));
    assert_eq!(calls(&[batch(2, 180, 150, 270), batch(3, 60, 50, 90)]), (6, 1));
    assert_eq!(calls(&[batch(2, 400, 90, 500), batch(4, 60, 0, 90)]), (4, 2));
    assert_eq!(calls(&[batch(5, 60, 40, 300), batch(2, 35, 200, 91)]), (5, 2));
    assert_eq!(calls(&[batch(7, 60, 50, 0)]), (1, 7), "one result");
    assert_eq!(calls(&[batch(0, 60, 50, 90)]), (0, 1));
}

fn key(product: &Product) -> Key {
    let pointers = |at: Address| Ok((at.allocation.0 as u64 + 1) * 4096 + at.offset as u64);
    Layout::of(product).unwrap().key(&pointers).unwrap()
}

#[test]
fn what_a_choice_depends_on_makes_another_key_and_what_it_does_not_makes_none() {
    let base = product((false, true), (Dtype::Bf16, Dtype::Bf16), 0, false, &[batch(2, 64, 64, 64)]);
    let same = |change: fn(&mut Product)| {
        let mut other = base.clone();
        change(&mut other);
        key(&base) == key(&other)
    };
    let change: [fn(&mut Product); 14] = [
        |product| product.m += 1,
        |product| product.n += 1,
        |product| product.k += 1,
        |product| product.a_transposed = true,
        |product| product.b_transposed = false,
        |product| product.a.stride += 1,
        |product| product.b.stride += 1,
        |product| product.d.stride += 1,
        |product| product.d.dtype = Dtype::Fp32,
        |product| product.c = Some(product.d),
        |product| product.c = Some(rows(3, Dtype::Bf16, 13)),
        |product| product.bias = Some(rows(4, Dtype::Bf16, 0)),
        |product| product.batches[0].count += 1,
        |product| product.a.at.offset += 4,
    ];
    for (index, change) in change.into_iter().enumerate() {
        assert!(!same(change), "change {index}");
        let mut other = base.clone();
        change(&mut other);
        assert_ne!(key(&base).to_string(), key(&other).to_string(), "change {index}");
    }
    assert!(same(|product| product.a.at.allocation = Allocation(7)));
    assert!(same(|product| product.d.at.offset += 32));
    assert!(same(|product| product.batches.insert(0, batch(2, 1600, 1600, 1600))));
    assert!(!same(|product| product.batches.insert(0, batch(2, 1601, 1600, 1600))), "later calls lie oddly");
}

#[test]
fn epilogues_and_how_their_matrices_lie_make_other_keys_and_names() {
    let mut all: Vec<Product> = EPILOGUES.map(|epilogue| with(epilogue, Dtype::Bf16, false)).into();
    all.push(with(Epilogue::Gelu(None), Dtype::Bf16, true));
    all.push(product((false, true), (Dtype::Bf16, Dtype::Bf16), 0, false, &[]));
    for index in 1..3 {
        let mut other = all[index].clone();
        other.epilogue = other.epilogue.map(|rows| Rows { stride: 32, ..rows });
        all.push(other.clone());
        other.epilogue = other.epilogue.map(|rows| rows.after(2));
        all.push(other);
    }
    let names: std::collections::HashSet<String> = all.iter().map(|one| key(one).to_string()).collect();
    let keys: std::collections::HashSet<Key> = all.iter().map(key).collect();
    assert_eq!((names.len(), keys.len()), (all.len(), all.len()), "{names:?}");
    let spelled = |index: usize| key(&all[index]).to_string();
    let plain = "5x7x3 a=bf16/11/4 b=bf16t/9/4 d=bf16/13/4";
    assert_eq!(spelled(0), format!("{plain} gelu"));
    assert_eq!(spelled(1), format!("{plain} gelu=bf16/24/4"));
    assert_eq!(spelled(2), format!("{plain} slope=bf16/24/4"));
    assert_eq!(spelled(3), format!("{plain} bias/4 gelu"));
}

#[test]
fn a_key_is_spelled_as_the_row_major_product() {
    let mut product = product((false, true), (Dtype::Bf16, Dtype::Fp32), 2, true, &[batch(2, 64, 128, 256)]);
    product.m = 100;
    assert_eq!(
        key(&product).to_string(),
        "100x7x3 batches=2 a=bf16/11+64/4 b=bf16t/9+128/4 d=fp32/13+256/8 c=fp32/8+256/8 bias/8"
    );
    let words = Layout::of(&product).unwrap().in_words();
    assert_eq!(words, "the product 2 times 100x3 by 3x7 of bf16 into fp32");
}

#[test]
fn what_the_library_cannot_do_is_refused_in_words() {
    let base = product((false, false), (Dtype::Bf16, Dtype::Bf16), 1, true, &[]);
    let refusal = |change: fn(&mut Product)| {
        let mut other = base.clone();
        change(&mut other);
        Layout::of(&other).unwrap_err().to_string()
    };
    type Case = (fn(&mut Product), &'static str);
    let cases: [Case; 6] = [
        (|product| product.a.dtype = Dtype::Fp16, "operands must be of one type, found `fp16` and `bf16`"),
        (|product| product.d.dtype = Dtype::Fp16, "may be written as `bf16` or `fp32`, found `fp16`"),
        (
            |product| product.c = Some(rows(3, Dtype::Fp32, 8)),
            "what is added must be of the type of the result, `bf16`, found `fp32`",
        ),
        (
            |product| product.bias = Some(rows(4, Dtype::Fp32, 0)),
            "a bias must be of the type of the result, `bf16`, found `fp32`",
        ),
        (|product| product.a.stride = 2, "rows of 3 elements are 2 apart"),
        (|product| product.k = 0, "nothing is summed"),
    ];
    for (change, wanted) in cases {
        let refusal = refusal(change);
        assert!(refusal.contains(wanted) && refusal.starts_with("the product 5x"), "{refusal}");
    }
}

#[test]
fn an_epilogue_that_the_library_cannot_do_is_refused_in_words() {
    let refusal = |change: fn(&mut Product)| {
        let mut other = with(Epilogue::Gelu(Some(())), Dtype::Bf16, false);
        change(&mut other);
        Layout::of(&other).unwrap_err().to_string()
    };
    type Case = (fn(&mut Product), &'static str);
    let cases: [Case; 7] = [
        (
            |product| product.d.dtype = Dtype::Fp32,
            "with gelu: a gelu wants operands and a result of one narrow type, found `bf16` and `fp32`",
        ),
        (|product| *product = with(Epilogue::Gelu(None), Dtype::Fp32, true), "found `fp32` and `fp32`"),
        (|product| product.c = Some(product.d), "nothing but a bias is added"),
        (|product| product.batches = vec![batch(2, 60, 50, 90)], "has no batches"),
        (
            |product| product.epilogue = Epilogue::Gelu(Some(rows(3, Dtype::Fp16, 24))),
            "the input of a gelu must be of the type of the result, `bf16`, found `fp16`",
        ),
        (
            |product| product.epilogue = Epilogue::Gelu(Some(rows(3, Dtype::Bf16, 25))),
            "must be a multiple of 8 elements apart, found 25",
        ),
        (
            |product| *product = with(Epilogue::GeluSlope(()), Dtype::Bf16, true),
            "with gelu's slope: a product that is multiplied by the slope of a gelu has no bias",
        ),
    ];
    for (change, wanted) in cases {
        let refusal = refusal(change);
        assert!(refusal.contains(wanted) && refusal.starts_with("the product "), "{refusal}");
    }
}
