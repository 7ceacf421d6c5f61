//! Every kind of product on a GPU, against sums in double precision; and how long choosing takes. Needs no folder and no
//! cargo: libraries are found as the program finds them. Without a GPU one line says what was skipped; REQUIRE_GPU=1 turns
//! that into a failure.

use crate::setup::{Memory, rows};
use kernwright_compile::{Places, usable_libraries};
use kernwright_plan::arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::launch::{Batch, Epilogue, Launch, Lowered};
use kernwright_plan::shape::presets;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::Gpu;
use kernwright_runtime::cuda::product;
use kernwright_runtime::driver::{Address, Allocation, Command, Driver, DriverError, Product, Rows};
use kernwright_runtime::gpu::products::{Fp32, Message, Order, Settings};
use kernwright_runtime::gpu::{self, Settings as GpuSettings};
use kernwright_runtime::product::multiply;
use std::io::Write as _;
use std::time::Instant;

/// The first GPU; `None`, and a line of what is skipped, where there is none.
pub(crate) fn open(what: &str, settings: Settings) -> Option<Gpu> {
    let libraries = usable_libraries(&Places::from_variables(std::env::vars_os()));
    let settings = GpuSettings { products: settings, ..GpuSettings::default() };
    let no_kernels = Box::new(|_: &[_]| Err(DriverError::Failed("no kernels are compiled here".to_owned())));
    let opened =
        gpu::find(&libraries, 0).and_then(|facts| Gpu::open(&libraries, facts, settings, no_kernels));
    match opened {
        Ok(mut gpu) => {
            gpu.products_mut().tell(Box::new(|message| {
                if let Message::Note(note) = message {
                    say(&note);
                }
            }));
            Some(gpu)
        }
        Err(why) => {
            let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_GPU=1, but {why}");
            say(&format!("skipped: {what}: {why}"));
            None
        }
    }
}

/// Past the test harness, which would swallow what a passing test prints.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Elements of each matrix.
pub(crate) const ROOM: usize = 60_000;

/// Numbers between -1 and 1.
fn content(matrix: usize) -> Vec<f64> {
    let value = |index: usize| (((index + 7919 * matrix) * 2_654_435_761) % 4099) as f64 / 2049.0 - 1.0;
    (0..ROOM).map(value).collect()
}

/// Matrices of such numbers, on the host.
pub(crate) fn spread(types: &[Dtype]) -> Memory {
    let bytes = types.iter().enumerate().map(|(number, dtype)| dtype.encode_all(content(number)));
    Memory(bytes.collect())
}

/// Matrices a, b, d, c or that of an epilogue, bias, on the GPU and as they are there.
pub(crate) struct Matrices {
    pub(crate) allocations: Vec<Allocation>,
    pub(crate) values: Vec<Vec<f64>>,
    types: [Dtype; 5],
}

impl Matrices {
    pub(crate) fn new(gpu: &mut Gpu, operand: Dtype, result: Dtype) -> Self {
        let types = [operand, operand, result, result, result];
        let mut matrices = Self { allocations: Vec::new(), values: Vec::new(), types };
        for (number, dtype) in types.into_iter().enumerate() {
            let bytes = dtype.encode_all(content(number));
            matrices.allocations.push(gpu.allocate("matrix", bytes.len()).unwrap());
            matrices.values.push(dtype.decode_all(&bytes).collect());
        }
        matrices.reset(gpu);
        matrices
    }

    pub(crate) fn reset(&self, gpu: &mut Gpu) {
        for (number, (allocation, dtype)) in self.allocations.iter().zip(self.types).enumerate() {
            let at = Address { allocation: *allocation, offset: 0 };
            gpu.upload(at, &dtype.encode_all(content(number))).unwrap();
        }
    }

    /// The same product on these matrices.
    pub(crate) fn place(&self, product: &Product) -> Product {
        let moved = |of: Rows| {
            let at = Address { allocation: self.allocations[of.at.allocation.0], offset: of.at.offset };
            Rows { at, ..of }
        };
        let Product { a, b, c, bias, d, .. } = product;
        let (c, bias) = (c.map(moved), bias.map(moved));
        let epilogue = product.epilogue.map(moved);
        Product { a: moved(*a), b: moved(*b), c, bias, d: moved(*d), epilogue, ..product.clone() }
    }

    pub(crate) fn read(&self, gpu: &Gpu, matrix: usize) -> Vec<u8> {
        let mut bytes = vec![0; ROOM * self.types[matrix].bytes()];
        gpu.download(Address { allocation: self.allocations[matrix], offset: 0 }, &mut bytes).unwrap();
        bytes
    }
}

/// What the product should write but for its epilogue: elements of d by their index, row by row, each with the sum of the sizes
/// of what it sums.
pub(crate) fn expected(product: &Product, values: &[Vec<f64>]) -> Vec<(usize, f64, f64)> {
    let mut starts = vec![(0, 0, 0)];
    for batch in &product.batches {
        let numbers = 0..batch.count;
        let next = |&(a, b, d): &(usize, usize, usize)| {
            numbers.clone().map(move |n| (a + n * batch.a, b + n * batch.b, d + n * batch.d))
        };
        starts = starts.iter().flat_map(next).collect();
    }
    let of = |rows: Rows, row: usize, column: usize, transposed: bool, start: usize| {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        let first = rows.at.offset / rows.dtype.bytes();
        (rows.at.allocation.0, first + start + row * rows.stride + column)
    };
    let value = |(matrix, index): (usize, usize)| values[matrix][index];
    let mut all = Vec::new();
    for (a, b, d) in starts {
        for (row, column) in (0..product.m).flat_map(|row| (0..product.n).map(move |column| (row, column))) {
            let mut terms: Vec<f64> = (0..product.k)
                .map(|k| {
                    value(of(product.a, row, k, product.a_transposed, a))
                        * value(of(product.b, k, column, product.b_transposed, b))
                })
                .collect();
            terms.extend(product.c.map(|c| value(of(c, row, column, false, d))));
            terms.extend(product.bias.map(|bias| value(of(bias, 0, column, false, 0))));
            let size = terms.iter().map(|term| term.abs()).sum();
            all.push((of(product.d, row, column, false, d).1, terms.iter().sum(), size));
        }
    }
    all
}

/// Holds a product on the GPU to its definition, and what lies between its rows to what was there.
fn check(gpu: &mut Gpu, matrices: &Matrices, product: &Product, operand_error: f64) {
    matrices.reset(gpu);
    let command = Command::Product(matrices.place(product));
    gpu.launch(&command).unwrap_or_else(|error| panic!("{error}: {product:?}"));
    gpu.synchronize().unwrap();
    let first = matrices.read(gpu, 2);
    let found: Vec<f64> = product.d.dtype.decode_all(&first).collect();
    let mut untouched = vec![true; ROOM];
    let (mut worst, mut at) = (0.0, String::new());
    for (index, expected, size) in expected(product, &matrices.values) {
        // The rounding of the result, and of sums in fp32 in any order. The library may add a bias, or what was there, to
        // what it rounded: cuBLASLt 13.1 does so on an H200.
        let added = product.bias.is_some() || product.c.is_some();
        let rounded = if added { size } else { expected.abs() };
        let allowed = product.d.dtype.epsilon() * rounded + (operand_error + 2e-6) * size;
        let share = (found[index] - expected).abs() / allowed;
        if share > worst || share.is_nan() {
            (worst, at) = (share, format!("element {index}: expected {expected}, found {}", found[index]));
        }
        untouched[index] = false;
    }
    assert!(worst <= 1.0, "{at}, {worst:.2} of what is allowed: {product:?}");
    for index in (0..ROOM).filter(|index| untouched[*index]) {
        assert_eq!(
            found[index], matrices.values[2][index],
            "element {index} is not of the result: {product:?}"
        );
    }
    // Kept as a graph it gives the same bits.
    matrices.reset(gpu);
    let recording = gpu.record(vec![command]).unwrap();
    gpu.replay(recording).unwrap();
    gpu.synchronize().unwrap();
    assert!(matrices.read(gpu, 2) == first, "other bits from a graph: {product:?}");
    gpu.forget(recording);
}

/// Sizes m, n, k, and how much longer rows are than that.
const SIZES: [(usize, usize, usize, usize); 4] =
    [(67, 41, 53, 3), (128, 96, 64, 0), (1, 40, 8, 8), (9, 120, 136, 16)];

fn products(operand: Dtype, result: Dtype) -> Vec<Product> {
    let loops = [
        vec![],
        vec![Batch { count: 3, a: 9999, b: 0, d: 15_001 }],
        vec![
            Batch { count: 2, a: 24_000, b: 9000, d: 30_000 },
            Batch { count: 2, a: 10_400, b: 0, d: 13_008 },
        ],
    ];
    let mut all = Vec::new();
    for (number, (m, n, k, wider)) in SIZES.into_iter().enumerate() {
        for transposed in 0..4 {
            let (a_transposed, b_transposed) = (transposed % 2 == 1, transposed / 2 == 1);
            for (index, added) in [(0, 0), (1, 0), (2, 1), (0, 1), (1, 1), (2, 0)].into_iter().enumerate() {
                // Every third has loops of its own kind; the last size has none, since it would not fit.
                let batches = if number == 3 { vec![] } else { loops[(index + transposed) % 3].clone() };
                let a_columns = if a_transposed { m } else { k };
                let b_columns = if b_transposed { k } else { n };
                all.push(Product {
                    a: rows(0, operand, a_columns + wider),
                    a_transposed,
                    b: rows(1, operand, b_columns + wider),
                    b_transposed,
                    c: [None, Some(rows(2, result, n + wider)), Some(rows(3, result, n + 2 * wider))]
                        [added.0],
                    bias: (added.1 == 1).then(|| rows(4, result, 0)),
                    d: rows(2, result, n + wider),
                    epilogue: Epilogue::None,
                    m,
                    n,
                    k,
                    batches,
                });
            }
        }
    }
    all
}

const TYPES: [(Dtype, Dtype); 5] = [
    (Dtype::Fp32, Dtype::Fp32),
    (Dtype::Bf16, Dtype::Bf16),
    (Dtype::Bf16, Dtype::Fp32),
    (Dtype::Fp16, Dtype::Fp16),
    (Dtype::Fp16, Dtype::Fp32),
];

#[test]
fn products_of_every_type_transposition_sum_and_loop_are_right_on_a_gpu() {
    let settings = Settings { candidates: 4, ..Settings::default() };
    let Some(mut gpu) = open("products on a GPU", settings) else { return };
    for (operand, result) in TYPES {
        let matrices = Matrices::new(&mut gpu, operand, result);
        for product in products(operand, result) {
            check(&mut gpu, &matrices, &product, 0.0);
        }
        // The first element as little aligned as its type allows.
        let mut odd = products(operand, result)[7].clone();
        odd.batches.clear();
        for rows in [&mut odd.a, &mut odd.b, &mut odd.d] {
            rows.at.offset += 3 * rows.dtype.bytes();
        }
        check(&mut gpu, &matrices, &odd, 0.0);
        for allocation in matrices.allocations {
            gpu.free(allocation).unwrap();
        }
    }
}

#[test]
fn tf32_and_any_order_are_right_to_their_own_tolerance_on_a_gpu() {
    let settings = Settings { fp32: Fp32::Tf32, order: Order::Free, candidates: 4, ..Settings::default() };
    let Some(mut gpu) = open("products in TF32 on a GPU", settings) else { return };
    let matrices = Matrices::new(&mut gpu, Dtype::Fp32, Dtype::Fp32);
    for product in products(Dtype::Fp32, Dtype::Fp32).into_iter().step_by(5) {
        matrices.reset(&mut gpu);
        gpu.launch(&Command::Product(matrices.place(&product))).unwrap();
        gpu.synchronize().unwrap();
        let found: Vec<f64> = Dtype::Fp32.decode_all(&matrices.read(&gpu, 2)).collect();
        for (index, expected, size) in expected(&product, &matrices.values) {
            let error = (found[index] - expected).abs();
            assert!(error <= 2.0_f64.powi(-9) * size, "element {index}: {expected} and {}", found[index]);
        }
    }
}

#[test]
fn the_shapes_of_the_seed_model_are_chosen_in_seconds_on_a_gpu() {
    let Some(mut gpu) = open("choosing the products of a model", Settings::default()) else { return };
    let arch = gpu.facts().arch.unwrap_or(&arch::ALL[0]);
    let shape = presets::find("seed-102m").unwrap().shape();
    for batch in [4, 32] {
        let plan = train_step(&shape, &Options::default(), batch, 1024);
        let mut commands = Vec::new();
        for micro in [MicroStep::First, MicroStep::Later] {
            for step in plan.steps.iter().map(|step| step.at(micro)) {
                let Lowered::Launches(launches) = step.op.lower(&plan.io(&step), arch) else { continue };
                for launch in launches {
                    let Launch::Gemm(gemm) = launch else { continue };
                    // The sequences that algorithms are tried on are of their own: addresses only say how matrices lie.
                    let place = |id| {
                        Ok::<_, DriverError>(Address { allocation: Allocation(plan.base(id).0.0), offset: 0 })
                    };
                    commands.push(Command::Product(product(&plan, &gemm, place).unwrap()));
                }
            }
        }
        let before = gpu.products().choices().shapes.len();
        let begun = Instant::now();
        let pointers = |at: Address| Ok((at.allocation.0 as u64 + 1) * 4096 + at.offset as u64);
        gpu.products_mut().prepare(&commands, &pointers, std::ptr::null_mut()).unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        let shapes = gpu.products().choices().shapes.len() - before;
        say(&format!(
            "batch {batch}: {shapes} shapes of {} products chosen in {seconds:.2} s",
            commands.len()
        ));
        assert!(shapes > 10, "{shapes}");
        assert!(seconds < 10.0, "a start must not wait {seconds:.1} s");
    }
}

/// The oracle above is itself held to the host's product, which needs no GPU.
#[test]
fn what_is_expected_of_a_gpu_is_what_the_host_computes() {
    for (operand, result) in TYPES {
        let types = [operand, operand, result, result, result];
        let before = spread(&types);
        let values: Vec<Vec<f64>> = (0..5).map(|number| before.values(number, types[number])).collect();
        for product in products(operand, result).into_iter().step_by(7) {
            let mut memory = before.clone();
            multiply(&product, &mut memory).unwrap();
            let mut found = memory.values(2, result);
            for (index, expected, size) in expected(&product, &values) {
                let allowed = result.epsilon() * expected.abs() + 2e-6 * size;
                let error = (found[index] - expected).abs();
                assert!(error <= allowed, "element {index}: {expected} and {}: {product:?}", found[index]);
                found[index] = values[2][index];
            }
            assert!(found == values[2], "nothing else is written: {product:?}");
        }
    }
}
