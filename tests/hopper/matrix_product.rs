//! A product of matrices by TMA, mbarriers and wgmma, on any driver: the emulator's model and a GPU must give the very same
//! numbers, since elements are small whole numbers.

use kernwright_codegen::render::{File, render_file};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::spec::{KernelSpec, SpecValue, field};
use kernwright_plan::tensor_map::{Dimension, Swizzle, TensorLayout};
use kernwright_runtime::driver::{Address, Command, Driver, Text, Value};

const FILE: File =
    File { path: "tests/hopper/matrix_product.cu.tera", text: include_str!("matrix_product.cu.tera") };

/// No multiple of a tile; strides are multiples of 16 bytes.
const ROWS: usize = 200;
const COLUMNS: usize = 184;
const DEPTH: usize = 136;
/// What lies behind the result and must stay.
const BEHIND: usize = 256;

/// A variant of the kernel.
#[derive(Clone, Copy, Debug)]
struct Form {
    dtype: Dtype,
    width: u32,
    swizzle: Swizzle,
    b_is_mn: bool,
    a_in_registers: bool,
}

const FORMS: [Form; 7] = [
    Form { dtype: Dtype::Bf16, width: 96, swizzle: Swizzle::Bytes128, b_is_mn: false, a_in_registers: false },
    Form { dtype: Dtype::Fp16, width: 160, swizzle: Swizzle::Bytes128, b_is_mn: false, a_in_registers: true },
    Form { dtype: Dtype::Bf16, width: 128, swizzle: Swizzle::Bytes128, b_is_mn: true, a_in_registers: true },
    Form { dtype: Dtype::Fp16, width: 192, swizzle: Swizzle::Bytes128, b_is_mn: true, a_in_registers: false },
    Form { dtype: Dtype::Bf16, width: 64, swizzle: Swizzle::Bytes64, b_is_mn: true, a_in_registers: true },
    Form { dtype: Dtype::Fp16, width: 224, swizzle: Swizzle::Bytes64, b_is_mn: false, a_in_registers: false },
    Form { dtype: Dtype::Bf16, width: 96, swizzle: Swizzle::Bytes32, b_is_mn: true, a_in_registers: false },
];

impl Form {
    fn row_bytes(&self) -> u32 {
        self.swizzle.row_bytes().expect("every form has one")
    }

    fn spec(&self) -> KernelSpec {
        let stage = (128 + self.width) * self.row_bytes();
        let fields = vec![
            field("type", "", SpecValue::Type(self.dtype)),
            field("width", "n", SpecValue::Int(i64::from(self.width))),
            field("swizzle", "s", SpecValue::Int(i64::from(self.row_bytes()))),
            field("b_is_mn", "mn", SpecValue::Bool(self.b_is_mn)),
            field("a_in_registers", "registers", SpecValue::Bool(self.a_in_registers)),
            field("wgmma_widths", "", SpecValue::List(vec![u64::from(self.width)])),
        ];
        let shared_memory = 1024 + 3 * stage + 128 * self.width * 4;
        KernelSpec { template: "hopper/matrix_product", block: 384, shared_memory, fields }
    }

    /// Rows of a matrix as a tensor.
    fn layout(
        &self,
        dtype: Dtype,
        swizzle: Swizzle,
        [rows, columns]: [usize; 2],
        extents: [u32; 2],
    ) -> TensorLayout {
        let inner = Dimension { size: columns as u64, stride: 1, extent: extents[1] };
        let outer = Dimension { size: rows as u64, stride: columns as u64, extent: extents[0] };
        TensorLayout::new(dtype, swizzle, &[inner, outer])
    }
}

/// The text of every form, by name, for compilers.
pub(crate) fn texts() -> Vec<Text> {
    let text = |form: &Form| {
        let spec = form.spec();
        let text = render_file(&spec, &FILE).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        Text { spec, text }
    };
    FORMS.iter().map(text).collect()
}

/// Small whole numbers.
fn numbers(count: usize, seed: usize) -> Vec<i32> {
    (0..count).map(|i| ((i * i * 7 + i * 31 + i / 13 + seed) % 15) as i32 - 7).collect()
}

/// Runs every form and compares each element.
pub(crate) fn check<D: Driver>(driver: &mut D) {
    let room = |driver: &mut D, name: &str, bytes: &[u8]| {
        let allocation = driver.allocate(name, bytes.len()).unwrap_or_else(|error| panic!("{error}"));
        let at = Address { allocation, offset: 0 };
        driver.upload(at, bytes).unwrap_or_else(|error| panic!("{error}"));
        at
    };
    let kernels = driver.load(&texts()).unwrap_or_else(|error| panic!("{error}"));
    for (form, kernel) in FORMS.iter().zip(kernels) {
        let (left, right) = (numbers(ROWS * DEPTH, 1), numbers(DEPTH * COLUMNS, 5));
        let encode = |values: &[i32]| form.dtype.encode_all(values.iter().copied().map(f64::from));
        // As the kernel takes it: the rows of b are of n, or of k.
        let turned: Vec<i32> = (0..COLUMNS * DEPTH).map(|i| right[i % DEPTH * COLUMNS + i / DEPTH]).collect();
        let (b_size, b_values) =
            if form.b_is_mn { ([DEPTH, COLUMNS], &right) } else { ([COLUMNS, DEPTH], &turned) };
        let depth = form.row_bytes() / 2;
        let b_box = if form.b_is_mn { [depth, depth] } else { [form.width, depth] };
        let a = room(driver, "a", &encode(&left));
        let b = room(driver, "b", &encode(b_values));
        let before = Dtype::Fp32.encode_all((0..ROWS * COLUMNS + BEHIND).map(|_| -1.5));
        let d = room(driver, "d", &before);
        let map = |at, layout| Value::TensorMap { at, layout };
        let arguments = vec![
            map(d, form.layout(Dtype::Fp32, Swizzle::None, [ROWS, COLUMNS], [64, 32])),
            map(a, form.layout(form.dtype, form.swizzle, [ROWS, DEPTH], [128, depth])),
            map(b, form.layout(form.dtype, form.swizzle, b_size, b_box)),
            Value::I32(DEPTH.div_ceil(depth as usize) as i32),
        ];
        let grid = [(COLUMNS as u32).div_ceil(form.width), (ROWS as u32).div_ceil(128), 1];
        driver
            .launch(&Command::Kernel { kernel, grid, arguments })
            .unwrap_or_else(|error| panic!("{form:?}: {error}"));
        let mut bytes = vec![0; before.len()];
        driver.download(d, &mut bytes).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        let found: Vec<f32> =
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().expect("4 bytes"))).collect();
        for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))) {
            let terms = (0..DEPTH).map(|k| left[row * DEPTH + k] * right[k * COLUMNS + column]);
            let wanted: i32 = terms.sum();
            assert_eq!(found[row * COLUMNS + column], wanted as f32, "{form:?}, row {row}, column {column}");
        }
        assert!(found[ROWS * COLUMNS..].iter().all(|one| *one == -1.5), "{form:?} writes past the end");
        for at in [a, b, d] {
            driver.free(at.allocation).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
