//! The product of matrices that a driver without a library for it gives to the host.
//!
//! In: a [`Product`] and the memory its places are in. Out: what it says, there. Operands are widened, sums and what becomes
//! of them are in fp32, the result is rounded as it is written, as a GPU's library does.

use crate::cpu::matmul::{Matrix, MatrixMut, Store, matmul};
use crate::driver::{Address, DriverError, Product, Rows};
use kernwright_plan::launch::Epilogue;
use kernwright_plan::ops::linear::GELU;

/// A device's memory, as the host gets at it.
pub trait HostMemory {
    /// Bytes that a launch reads: a memory that knows what nobody wrote finds fault with it.
    ///
    /// # Errors
    /// When they are not all in one allocation, or not written.
    fn load(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError>;

    /// Bytes that a launch writes.
    ///
    /// # Errors
    /// When they are not all in one allocation.
    fn store(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError>;
}

/// Widened rows of a matrix, without gaps.
fn load(
    memory: &impl HostMemory,
    of: Rows,
    n_rows: usize,
    n_columns: usize,
) -> Result<Vec<f32>, DriverError> {
    let mut bytes = vec![0; n_columns * of.dtype.bytes()];
    let mut values = Vec::with_capacity(n_rows * n_columns);
    for row in 0..n_rows {
        memory.load(of.after(row * of.stride).at, &mut bytes)?;
        values.extend(of.dtype.decode_all(&bytes).map(|value| value as f32));
    }
    Ok(values)
}

/// Does what the product says.
///
/// # Errors
/// What the memory says of a place.
pub fn multiply(product: &Product, memory: &mut impl HostMemory) -> Result<(), DriverError> {
    let n_batches: usize = product.batches.iter().map(|batch| batch.count).product();
    for index in 0..n_batches {
        let (mut rest, mut one) = (index, Product { batches: Vec::new(), ..product.clone() });
        for batch in product.batches.iter().rev() {
            let number = rest % batch.count;
            rest /= batch.count;
            one.a = one.a.after(number * batch.a);
            one.b = one.b.after(number * batch.b);
            one.c = one.c.map(|c| c.after(number * batch.d));
            one.d = one.d.after(number * batch.d);
            one.epilogue = one.epilogue.map(|rows| rows.after(number * batch.d));
        }
        multiply_one(&one, memory)?;
    }
    Ok(())
}

fn multiply_one(product: &Product, memory: &mut impl HostMemory) -> Result<(), DriverError> {
    let &Product { a, a_transposed, b, b_transposed, c, bias, d, epilogue, m, n, k, .. } = product;
    let operand = |of: Rows, rows: usize, columns: usize, transposed: bool| {
        let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
        load(memory, of, rows, columns).map(|values| (values, rows, columns))
    };
    let (a, a_rows, a_columns) = operand(a, m, k, a_transposed)?;
    let (b, b_rows, b_columns) = operand(b, k, n, b_transposed)?;
    let a = Matrix::new(&a, a_rows, a_columns, a_columns);
    let b = Matrix::new(&b, b_rows, b_columns, b_columns);
    let mut sums = match c {
        Some(c) => load(memory, c, m, n)?,
        None => vec![0.0; m * n],
    };
    let to = MatrixMut::new(&mut sums, m, n, n);
    let a = if a_transposed { a.transposed() } else { a };
    let b = if b_transposed { b.transposed() } else { b };
    matmul(to, Store::Add, 1.0, a, b);
    if let Some(bias) = bias {
        let bias = load(memory, bias, 1, n)?;
        for row in sums.chunks_mut(n.max(1)) {
            row.iter_mut().zip(&bias).for_each(|(sum, bias)| *sum += bias);
        }
    }
    match epilogue {
        Epilogue::None => {}
        Epilogue::Gelu(inputs) => {
            if let Some(inputs) = inputs {
                store(memory, inputs, n, &sums)?;
            }
            sums.iter_mut().for_each(|sum| *sum = GELU.value_and_slope(*sum).0);
        }
        Epilogue::GeluSlope(inputs) => {
            let inputs = load(memory, inputs, m, n)?;
            sums.iter_mut().zip(inputs).for_each(|(sum, input)| *sum *= GELU.value_and_slope(input).1);
        }
    }
    store(memory, d, n, &sums)
}

/// Rounds rows of a matrix into their places.
fn store(
    memory: &mut impl HostMemory,
    to: Rows,
    n_columns: usize,
    values: &[f32],
) -> Result<(), DriverError> {
    for (row, values) in values.chunks(n_columns.max(1)).enumerate() {
        let bytes = to.dtype.encode_all(values.iter().copied().map(f64::from));
        memory.store(to.after(row * to.stride).at, &bytes)?;
    }
    Ok(())
}
