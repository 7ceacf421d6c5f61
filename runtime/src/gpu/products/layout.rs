//! A row-major product as the column-major one that cuBLASLt does, and what tells one shape of product from another.
//!
//! In: a [`Product`]. Out: a [`Layout`], which names no memory but through [`Address`]. Read as column-major, a row-major
//! matrix is its transpose, so that `d = a' b'` becomes `d^T = b'^T a'^T`: operands change places, rows become columns,
//! and a bias, one number per column of d, runs along the rows of d^T, as cuBLASLt wants it. What an epilogue reads or writes
//! lies as d does.

use crate::driver::{Address, DriverError, Product, Rows};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::{Batch, Epilogue};
use std::fmt;

/// A column-major matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) at: Address,
    pub(super) dtype: Dtype,
    /// As it lies in memory, before it is transposed.
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From one column to the next, in elements.
    pub(super) leading: usize,
    /// Is its transpose taken?
    pub(super) transposed: bool,
    /// From one batch to the next, in elements.
    pub(super) batch_stride: usize,
}

impl Matrix {
    /// Elements from its first to behind its last, all batches included.
    pub(super) fn extent(&self, batches: usize) -> usize {
        let one = self.columns.saturating_sub(1) * self.leading + self.rows;
        batches.saturating_sub(1) * self.batch_stride + one
    }
}

/// Where one call begins, in elements from the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) left: usize,
    pub(super) right: usize,
    pub(super) d: usize,
}

/// `d = epilogue(left' right' + c + bias)`, column-major, `batches` times in a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// What the row-major product calls b.
    pub(super) left: Matrix,
    /// What it calls a.
    pub(super) right: Matrix,
    pub(super) c: Option<Matrix>,
    pub(super) d: Matrix,
    pub(super) bias: Option<Rows>,
    pub(super) epilogue: Epilogue<Matrix>,
    /// Summed dimension.
    pub(super) depth: usize,
    /// Products per call.
    pub(super) batches: usize,
    /// One per call.
    pub(super) starts: Vec<Start>,
}

impl Layout {
    /// How cuBLASLt would do it.
    ///
    /// # Errors
    /// When it cannot.
    pub(super) fn of(product: &Product) -> Result<Self, DriverError> {
        let &Product { a, a_transposed, b, b_transposed, c, bias, d, epilogue, m, n, k, .. } = product;
        let (inner, outer) = split(&product.batches);
        // Row-major `rows` x `columns` is column-major `columns` x `rows`.
        let turned = |of: Rows, rows: usize, columns: usize, transposed: bool, batch_stride: usize| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            let Rows { at, dtype, stride } = of;
            Matrix { at, dtype, rows: columns, columns: rows, leading: stride, transposed, batch_stride }
        };
        let layout = Self {
            left: turned(b, k, n, b_transposed, inner.b),
            right: turned(a, m, k, a_transposed, inner.a),
            c: c.map(|c| turned(c, m, n, false, inner.d)),
            d: turned(d, m, n, false, inner.d),
            bias,
            epilogue: epilogue.map(|matrix| turned(matrix, m, n, false, inner.d)),
            depth: k,
            batches: inner.count,
            starts: starts(&outer),
        };
        layout.check()?;
        Ok(layout)
    }

    fn check(&self) -> Result<(), DriverError> {
        let fault = |text: String| Err(DriverError::Failed(format!("{}: {text}", self.in_words())));
        let (left, right, d) = (self.left.dtype.name(), self.right.dtype.name(), self.d.dtype.name());
        if left != right {
            return fault(format!("operands must be of one type, found `{right}` and `{left}`"));
        }
        if self.d.dtype != self.left.dtype && self.d.dtype != Dtype::Fp32 || self.left.dtype.is_integer() {
            return fault(format!("a product of `{left}` may be written as `{left}` or `fp32`, found `{d}`"));
        }
        if let Some(c) = self.c.filter(|c| c.dtype != self.d.dtype) {
            let c = c.dtype.name();
            return fault(format!("what is added must be of the type of the result, `{d}`, found `{c}`"));
        }
        if let Some(bias) = self.bias.filter(|bias| bias.dtype != self.d.dtype) {
            let bias = bias.dtype.name();
            return fault(format!("a bias must be of the type of the result, `{d}`, found `{bias}`"));
        }
        if self.epilogue != Epilogue::None {
            self.check_epilogue().or_else(fault)?;
        }
        let all = [Some(self.left), Some(self.right), self.c, Some(self.d), self.epilogue.matrix().copied()];
        if let Some(bad) = all.into_iter().flatten().find(|one| one.leading < one.rows && one.columns > 1) {
            return fault(format!("rows of {} elements are {} apart", bad.rows, bad.leading));
        }
        if self.depth == 0 {
            return fault("nothing is summed".to_owned());
        }
        Ok(())
    }

    /// What cuBLASLt's documentation says of a gelu, and what no plan asks for.
    fn check_epilogue(&self) -> Result<(), String> {
        let (operand, d) = (self.left.dtype.name(), self.d.dtype.name());
        if self.d.dtype == Dtype::Fp32 {
            return Err(format!(
                "a gelu wants operands and a result of one narrow type, found `{operand}` and `{d}`"
            ));
        }
        if self.c.is_some() || self.batches != 1 || self.starts.len() != 1 {
            return Err("a product with a gelu has no batches, and nothing but a bias is added".to_owned());
        }
        if self.bias.is_some() && matches!(self.epilogue, Epilogue::GeluSlope(_)) {
            return Err("a product that is multiplied by the slope of a gelu has no bias".to_owned());
        }
        let Some(matrix) = self.epilogue.matrix() else { return Ok(()) };
        if matrix.dtype != self.d.dtype {
            let found = matrix.dtype.name();
            return Err(format!(
                "the input of a gelu must be of the type of the result, `{d}`, found `{found}`"
            ));
        }
        if !matrix.leading.is_multiple_of(EPILOGUE_LEADING) {
            let found = matrix.leading;
            return Err(format!(
                "rows of the input of a gelu must be a multiple of {EPILOGUE_LEADING} elements apart, found {found}"
            ));
        }
        Ok(())
    }

    /// Is there nothing to write?
    pub(super) fn is_empty(&self) -> bool {
        self.d.rows == 0 || self.d.columns == 0 || self.batches == 0 || self.starts.is_empty()
    }

    /// Is the sum made in place?
    pub(super) fn is_in_place(&self) -> bool {
        self.c.is_some_and(|c| c.at == self.d.at && c.leading == self.d.leading)
    }

    /// The product as the caller knows it: row-major.
    pub(super) fn in_words(&self) -> String {
        let times = self.batches * self.starts.len();
        let times = if times == 1 { String::new() } else { format!("{times} times ") };
        let (m, n, k) = (self.d.columns, self.d.rows, self.depth);
        let (operand, result) = (self.right.dtype.name(), self.d.dtype.name());
        let gelu = match self.epilogue {
            Epilogue::None => "",
            Epilogue::Gelu(_) => ", with gelu",
            Epilogue::GeluSlope(_) => ", with gelu's slope",
        };
        format!("the product {times}{m}x{k} by {k}x{n} of {operand} into {result}{gelu}")
    }

    /// What choosing an algorithm depends on.
    ///
    /// # Errors
    /// What `pointers` says of an address.
    pub(super) fn key(&self, pointers: Pointers<'_>) -> Result<Key, DriverError> {
        let matrix = |of: &Matrix, start: fn(&Start) -> usize| {
            let first = pointers(of.at)?;
            // Every call must be aligned, not only the first.
            let bits =
                self.starts.iter().fold(first, |bits, one| bits | (start(one) * of.dtype.bytes()) as u64);
            Ok::<_, DriverError>(Side {
                dtype: of.dtype,
                transposed: of.transposed,
                leading: of.leading,
                batch_stride: if self.batches > 1 { of.batch_stride } else { 0 },
                alignment: alignment(bits),
            })
        };
        let c = self.c.as_ref().filter(|_| !self.is_in_place());
        let added = match (self.c, c) {
            (None, _) => Added::Nothing,
            (Some(_), None) => Added::InPlace,
            (Some(_), Some(c)) => Added::Apart(matrix(c, |start| start.d)?),
        };
        let bias = self.bias.map(|bias| pointers(bias.at).map(alignment)).transpose()?;
        let epilogue = self.epilogue.try_map(|of| matrix(&of, |start| start.d))?;
        Ok(Key {
            m: self.d.columns,
            n: self.d.rows,
            k: self.depth,
            batches: self.batches,
            left: matrix(&self.left, |start| start.left)?,
            right: matrix(&self.right, |start| start.right)?,
            added,
            d: matrix(&self.d, |start| start.d)?,
            bias,
            epilogue,
        })
    }
}

/// From an address to what the GPU calls it.
pub type Pointers<'a> = &'a dyn Fn(Address) -> Result<u64, DriverError>;

/// What is added to a product.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Added {
    Nothing,
    InPlace,
    Apart(Side),
}

/// What a choice depends on of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) dtype: Dtype,
    pub(super) transposed: bool,
    pub(super) leading: usize,
    pub(super) batch_stride: usize,
    /// Bytes, up to [`ALIGNED`].
    pub(super) alignment: u32,
}

/// Products with equal keys may use one algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    m: usize,
    n: usize,
    k: usize,
    batches: usize,
    pub(super) left: Side,
    pub(super) right: Side,
    pub(super) added: Added,
    pub(super) d: Side,
    /// Its alignment.
    pub(super) bias: Option<u32>,
    pub(super) epilogue: Epilogue<Side>,
}

/// In the row-major order of the product: `a` and `b` with `t` where transposed, type, distance of rows, distance of
/// batches, alignment. It is what files call a shape.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |of: &Side| {
            let turned = if of.transposed { "t" } else { "" };
            let apart = if self.batches > 1 { format!("+{}", of.batch_stride) } else { String::new() };
            format!("{}{turned}/{}{apart}/{}", of.dtype.name(), of.leading, of.alignment)
        };
        write!(f, "{}x{}x{}", self.m, self.n, self.k)?;
        if self.batches > 1 {
            write!(f, " batches={}", self.batches)?;
        }
        write!(f, " a={} b={} d={}", side(&self.right), side(&self.left), side(&self.d))?;
        match &self.added {
            Added::Nothing => {}
            Added::InPlace => f.write_str(" c=d")?,
            Added::Apart(c) => write!(f, " c={}", side(c))?,
        }
        if let Some(alignment) = self.bias {
            write!(f, " bias/{alignment}")?;
        }
        match &self.epilogue {
            Epilogue::None => Ok(()),
            Epilogue::Gelu(None) => f.write_str(" gelu"),
            Epilogue::Gelu(Some(input)) => write!(f, " gelu={}", side(input)),
            Epilogue::GeluSlope(input) => write!(f, " slope={}", side(input)),
        }
    }
}

/// What the distance of rows of a gelu's input is a multiple of, elements: the library's word.
const EPILOGUE_LEADING: usize = 8;

/// No algorithm asks for a coarser alignment than this, bytes.
pub(super) const ALIGNED: u32 = 16;

/// The greatest power of two up to [`ALIGNED`] that divides an address.
pub(super) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(ALIGNED.trailing_zeros())
}

/// The loop that one call does, and those around it. Neighbours that walk evenly are one loop; of several the longest
/// goes into the call, unless its products all have one result: those come one after the other.
fn split(batches: &[Batch]) -> (Batch, Vec<Batch>) {
    let mut loops: Vec<Batch> = Vec::new();
    for &inner in batches.iter().filter(|batch| batch.count != 1) {
        let walks_on = |outer: usize, inner_stride: usize| outer == inner.count * inner_stride;
        match loops.last_mut() {
            Some(outer)
                if walks_on(outer.a, inner.a) && walks_on(outer.b, inner.b) && walks_on(outer.d, inner.d) =>
            {
                *outer = Batch { count: outer.count * inner.count, ..inner };
            }
            _ => loops.push(inner),
        }
    }
    let apart = (0..loops.len()).filter(|&index| loops[index].d != 0);
    let longest = apart.max_by_key(|&index| (loops[index].count, index));
    let chosen = longest.map_or(Batch { count: 1, a: 0, b: 0, d: 0 }, |index| loops.remove(index));
    (chosen, loops)
}

fn starts(loops: &[Batch]) -> Vec<Start> {
    let mut starts = vec![Start::default()];
    for batch in loops {
        starts = starts
            .iter()
            .flat_map(|start| {
                (0..batch.count).map(|number| Start {
                    left: start.left + number * batch.b,
                    right: start.right + number * batch.a,
                    d: start.d + number * batch.d,
                })
            })
            .collect();
    }
    starts
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
