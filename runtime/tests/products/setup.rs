//! The stand-in for cuBLASLt and the driver, and matrices in memory that it takes for a GPU's.

use kernwright_compile::testing::{Scratch, host_compiler_or_skip};
use kernwright_compile::{Libraries, Places};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::Epilogue;
use kernwright_runtime::driver::{Address, Allocation, Command, DriverError, Product, Rows};
use kernwright_runtime::gpu::products::{Message, Products, Settings};
use kernwright_runtime::product::{HostMemory, multiply};
use std::cell::RefCell;
use std::rc::Rc;

#[path = "matrices.rs"]
mod matrices;
pub(crate) use matrices::{Memory, rows};

/// Libraries that hold the stand-in; none, with a line that says so, where there is no C++ compiler.
pub(crate) fn stand_in(what: &str) -> Option<(Scratch, Libraries)> {
    let compiler = host_compiler_or_skip(std::env::vars_os(), what)?;
    let folder = Scratch::new("stand-in");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/products/stand_in.cc");
    let (library, driver) = (folder.path().join("libcublasLt.so.13"), folder.path().join("libcuda.so.1"));
    let mut command = compiler.command();
    command.args(["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
    let done = command.arg(&library).arg(source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // One library under two names: they share a clock.
    std::os::unix::fs::symlink(&library, &driver).unwrap();
    let variables = [("KERNWRIGHT_CUDA_PATH", folder.path().display().to_string())];
    let places = Places { root: folder.path().to_path_buf(), ..Places::from_variables(variables) };
    Some((folder, Libraries::find(&places)))
}

impl Memory {
    /// So many, of small numbers in this type.
    pub(crate) fn new(types: &[Dtype], elements: usize) -> Self {
        let value = |matrix: usize, index: usize| ((index * 37 + matrix * 11) % 64) as f64 / 32.0 - 1.0;
        let of = |(matrix, dtype): (usize, &Dtype)| {
            dtype.encode_all((0..elements).map(|index| value(matrix, index)))
        };
        Self(types.iter().enumerate().map(of).collect())
    }

    pub(crate) fn address(&self, at: Address) -> Result<u64, DriverError> {
        Ok(self.0[at.allocation.0].as_ptr() as u64 + at.offset as u64)
    }

    pub(crate) fn values(&self, matrix: usize, dtype: Dtype) -> Vec<f64> {
        dtype.decode_all(&self.0[matrix]).collect()
    }
}

/// `d = a b^T`, 5x6 by 6x7.
pub(crate) fn plain(operand: Dtype, result: Dtype) -> Product {
    Product {
        a: rows(0, operand, 9),
        a_transposed: false,
        b: rows(1, operand, 8),
        b_transposed: true,
        c: None,
        bias: None,
        d: rows(2, result, 12),
        epilogue: Epilogue::None,
        m: 5,
        n: 7,
        k: 6,
        batches: Vec::new(),
    }
}

/// Products on the stand-in, and what they told.
pub(crate) struct Told {
    pub(crate) products: Products,
    told: Rc<RefCell<Vec<Message>>>,
}

impl Told {
    pub(crate) fn open(libraries: &Libraries, settings: Settings) -> Self {
        let mut products = Products::open(libraries, "Stand-in 1", (8, 0), settings).unwrap();
        let told = Rc::new(RefCell::new(Vec::new()));
        let keep = Rc::clone(&told);
        products.tell(Box::new(move |message| keep.borrow_mut().push(message)));
        Self { products, told }
    }

    /// Prepares and launches.
    pub(crate) fn run(&mut self, product: &Product, memory: &Memory) -> Result<(), DriverError> {
        let pointers = |at| memory.address(at);
        let stream = std::ptr::null_mut();
        self.products.prepare(&[Command::Product(product.clone())], &pointers, stream)?;
        self.products.launch(product, &pointers, stream)
    }

    /// The family of the one algorithm that is in use.
    pub(crate) fn algorithm(&self) -> u32 {
        let shapes = &self.products.choices().shapes;
        assert_eq!(shapes.len(), 1, "{shapes:?}");
        shapes.values().next().unwrap().traits.id
    }

    /// What was told since the last call: shapes that were measured, and notes.
    pub(crate) fn told(&self) -> (usize, Vec<String>) {
        let mut measured = 0;
        let mut notes = Vec::new();
        for message in self.told.borrow_mut().drain(..) {
            match message {
                Message::Choosing { .. } => measured += 1,
                Message::Chosen { .. } => {}
                Message::Note(note) => notes.push(note),
            }
        }
        (measured, notes)
    }
}

/// Holds what lies in `found` to the host's product: its result, and what its epilogue reads or writes.
pub(crate) fn compare(product: &Product, before: &Memory, found: &Memory) {
    let mut expected = before.clone();
    multiply(product, &mut expected).unwrap();
    for rows in std::iter::once(&product.d).chain(product.epilogue.matrix()) {
        let (matrix, dtype) = (rows.at.allocation.0, rows.dtype);
        let pairs = expected.values(matrix, dtype).into_iter().zip(found.values(matrix, dtype));
        for (index, (expected, found)) in pairs.enumerate() {
            let close = (expected - found).abs() <= 2.0 * dtype.epsilon() * (1.0 + expected.abs());
            assert!(close, "element {index} of {matrix}: {expected} and {found} of {product:?}");
        }
    }
}
