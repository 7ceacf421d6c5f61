//! Products that take in a gelu or the slope of one, on a GPU, against sums in double precision: of sizes that plans have,
//! where the library must do them, and of odd ones, where it may refuse and must else be right. Without a GPU one line says
//! what was skipped; REQUIRE_GPU=1 turns that into a failure.

use crate::device::{Matrices, ROOM, expected, open, say, spread};
use crate::setup::rows;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::Epilogue;
use kernwright_plan::ops::activation::ActivationKind;
use kernwright_plan::ops::linear::GELU;
use kernwright_runtime::Gpu;
use kernwright_runtime::driver::{Command, Driver, Product};
use kernwright_runtime::gpu::products::Settings;
use kernwright_runtime::product::multiply;

const NARROW: [Dtype; 2] = [Dtype::Bf16, Dtype::Fp16];

/// Sizes m, n, k, of which all but m are multiples of 8 in a plan.
const SIZES: [(usize, usize, usize); 5] =
    [(67, 40, 56), (128, 96, 64), (1, 24, 8), (9, 120, 136), (300, 72, 48)];
const ODD: [(usize, usize, usize); 2] = [(67, 41, 53), (5, 7, 3)];

/// What an epilogue's matrix is here: that which has no other use.
const MATRIX: usize = 3;

/// A product as plans ask for it; rows are multiples of 8 elements apart, and apart from each other by as many as fit.
fn product(dtype: Dtype, epilogue: Epilogue<()>, bias: bool, (m, n, k): (usize, usize, usize)) -> Product {
    let b_transposed = !matches!(epilogue, Epilogue::GeluSlope(()));
    let apart = |columns: usize, more: usize| columns.next_multiple_of(8) + more;
    Product {
        a: rows(0, dtype, apart(k, 8)),
        a_transposed: false,
        b: rows(1, dtype, apart(if b_transposed { k } else { n }, 0)),
        b_transposed,
        c: None,
        bias: bias.then(|| rows(4, dtype, 0)),
        d: rows(2, dtype, apart(n, 8)),
        epilogue: epilogue.map(|()| rows(MATRIX, dtype, apart(n, 16))),
        m,
        n,
        k,
        batches: Vec::new(),
    }
}

/// Every kind, with what plans add.
const KINDS: [(Epilogue<()>, bool); 5] = [
    (Epilogue::Gelu(None), false),
    (Epilogue::Gelu(None), true),
    (Epilogue::Gelu(Some(())), false),
    (Epilogue::Gelu(Some(())), true),
    (Epilogue::GeluSlope(()), false),
];

/// What a product with an epilogue should write: matrix, index, value, and what it may be off by.
fn written(product: &Product, values: &[Vec<f64>]) -> Vec<(usize, usize, f64, f64)> {
    let epsilon = product.d.dtype.epsilon();
    let mut all = Vec::new();
    for (number, (index, sum, size)) in expected(product, values).into_iter().enumerate() {
        let (row, column) = (number / product.n, number % product.n);
        // Sums in fp32, in any order; the library may round before it adds a bias or goes on.
        let of_sum = (epsilon + 2e-6) * size;
        // A tangent to 10 bits, of which less than the whole sum depends.
        let of_gelu = 1.13 * of_sum + sum.abs() / 1024.0;
        let result = match &product.epilogue {
            Epilogue::None => sum,
            Epilogue::Gelu(input) => {
                if let Some(input) = input {
                    all.push((MATRIX, row * input.stride + column, sum, of_sum));
                }
                GELU.value_and_slope(sum).0
            }
            Epilogue::GeluSlope(input) => {
                sum * GELU.value_and_slope(values[MATRIX][row * input.stride + column]).1
            }
        };
        all.push((2, index, result, of_gelu + epsilon * result.abs()));
    }
    all
}

/// Holds a product to its definition, and what lies between its rows to what was there; false where the library offers
/// nothing for it.
fn check(gpu: &mut Gpu, matrices: &Matrices, product: &Product) -> bool {
    matrices.reset(gpu);
    let command = Command::Product(matrices.place(product));
    if let Err(error) = gpu.launch(&command) {
        assert!(error.to_string().contains("offers no algorithm"), "{error}: {product:?}");
        return false;
    }
    gpu.synchronize().unwrap();
    let dtype = product.d.dtype;
    let read = |gpu: &Gpu| [2, MATRIX].map(|matrix| matrices.read(gpu, matrix));
    let first = read(gpu);
    let mut found = matrices.values.clone();
    found[2] = dtype.decode_all(&first[0]).collect();
    found[MATRIX] = dtype.decode_all(&first[1]).collect();
    let (mut worst, mut at) = (0.0, String::new());
    for (matrix, index, expected, allowed) in written(product, &matrices.values) {
        let share = (found[matrix][index] - expected).abs() / allowed;
        if share > worst || share.is_nan() {
            let found = found[matrix][index];
            (worst, at) =
                (share, format!("element {index} of matrix {matrix}: expected {expected}, found {found}"));
        }
        found[matrix][index] = matrices.values[matrix][index];
    }
    assert!(worst <= 1.0, "{at}, {worst:.2} of what is allowed: {product:?}");
    assert!(found == matrices.values, "nothing else is written: {product:?}");
    // Kept as a graph it gives the same bits.
    matrices.reset(gpu);
    let recording = gpu.record(vec![command]).unwrap();
    gpu.replay(recording).unwrap();
    gpu.synchronize().unwrap();
    assert!(read(gpu) == first, "other bits from a graph: {product:?}");
    gpu.forget(recording);
    true
}

#[test]
fn products_that_take_in_a_gelu_or_its_slope_are_right_on_a_gpu() {
    let settings = Settings { candidates: 4, ..Settings::default() };
    let Some(mut gpu) = open("gelu in products on a GPU", settings) else { return };
    for dtype in NARROW {
        let matrices = Matrices::new(&mut gpu, dtype, dtype);
        for (epilogue, bias) in KINDS {
            for size in SIZES {
                let product = product(dtype, epilogue, bias, size);
                let is_done = check(&mut gpu, &matrices, &product);
                assert!(is_done, "cuBLASLt offers no algorithm, and plans ask for it: {product:?}");
            }
            for size in ODD {
                let product = product(dtype, epilogue, bias, size);
                if !check(&mut gpu, &matrices, &product) {
                    say(&format!("no algorithm for {size:?} of {} with {epilogue:?}", dtype.name()));
                }
            }
        }
        for allocation in matrices.allocations {
            gpu.free(allocation).unwrap();
        }
    }
}

/// Rounding hides the difference of the two forms in each element; in the mean of many it shows.
#[test]
fn the_librarys_gelu_is_that_of_the_tanh_form_on_a_gpu() {
    let Some(mut gpu) = open("the form of gelu on a GPU", Settings::default()) else { return };
    let matrices = Matrices::new(&mut gpu, Dtype::Fp16, Dtype::Fp16);
    let product = product(Dtype::Fp16, Epilogue::Gelu(None), false, (300, 120, 64));
    gpu.launch(&Command::Product(matrices.place(&product))).unwrap();
    gpu.synchronize().unwrap();
    let found: Vec<f64> = Dtype::Fp16.decode_all(&matrices.read(&gpu, 2)).collect();
    let share = share_of_erf(&product, &matrices.values, &found);
    assert!(share.abs() < 0.25, "{share:.3} of the way to the form with the error function");
}

/// How far, from the tanh form to that with the error function, what was found lies by least squares: 0 or 1 but for rounding.
fn share_of_erf(product: &Product, values: &[Vec<f64>], found: &[f64]) -> f64 {
    let (mut along, mut length) = (0.0, 0.0);
    for (index, sum, _) in expected(product, values) {
        let tanh = GELU.value_and_slope(sum).0;
        let difference = ActivationKind::Gelu.value_and_slope(sum).0 - tanh;
        along += (found[index] - tanh) * difference;
        length += difference * difference;
    }
    along / length
}

/// The oracles above are themselves held to the host, which needs no GPU.
#[test]
fn what_is_expected_of_a_gpu_with_gelu_is_what_the_host_computes() {
    for dtype in NARROW {
        let types = [dtype; 5];
        let before = spread(&types);
        let values: Vec<Vec<f64>> = (0..5).map(|number| before.values(number, dtype)).collect();
        for (epilogue, bias) in KINDS {
            for size in SIZES.into_iter().chain(ODD) {
                let product = product(dtype, epilogue, bias, size);
                let mut memory = before.clone();
                multiply(&product, &mut memory).unwrap();
                let mut found: Vec<Vec<f64>> = (0..5).map(|number| memory.values(number, dtype)).collect();
                for (matrix, index, expected, allowed) in written(&product, &values) {
                    let error = (found[matrix][index] - expected).abs();
                    assert!(
                        error <= 0.6 * allowed,
                        "{matrix}, {index}: {expected}, off by {error}: {product:?}"
                    );
                    found[matrix][index] = values[matrix][index];
                }
                assert!(found == values, "nothing else is written: {product:?}");
            }
        }
    }
    // And the host's gelu of the tanh form is told from the other by its rounded results.
    let before = spread(&[Dtype::Fp16; 5]);
    let values: Vec<Vec<f64>> = (0..5).map(|number| before.values(number, Dtype::Fp16)).collect();
    let product = product(Dtype::Fp16, Epilogue::Gelu(None), false, (300, 120, 64));
    let mut memory = before.clone();
    multiply(&product, &mut memory).unwrap();
    let share = share_of_erf(&product, &values, &memory.values(2, Dtype::Fp16));
    assert!(share.abs() < 0.1, "{share}");
    let other = |sum: f64| Dtype::Fp16.round(ActivationKind::Gelu.value_and_slope(sum).0);
    let mut erf = vec![0.0; ROOM];
    expected(&product, &values).into_iter().for_each(|(index, sum, _)| erf[index] = other(sum));
    let share = share_of_erf(&product, &values, &erf);
    assert!((share - 1.0).abs() < 0.1, "{share}");
}
