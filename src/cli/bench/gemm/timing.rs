//! How long a product takes, by the library's first algorithm and by the fastest.
//!
//! In: a product. Out: seconds. Launches are kept as graphs and go through copies of the operands that lie apart.

use kernwright_plan::launch::Batch;
use kernwright_runtime::Gpu;
use kernwright_runtime::driver::{
    Address, Allocation, Command, Driver, DriverError, Product, Recording, Rows,
};
use kernwright_runtime::gpu::products::Pick;
use std::error::Error;

/// Seconds of one product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    /// By the first algorithm that the library offers.
    pub(super) first: f64,
    /// By the fastest of its candidates.
    pub(super) best: f64,
}

/// Copies of operands together fill this, more than caches hold.
const ROTATED: usize = 256 << 20;
const COPIES: usize = 16;
/// A graph runs for about so long on a GPU that does [`RATE`].
const GRAPH_SECONDS: f64 = 2e-3;
const RATE: f64 = 500e12;
const MOST_LAUNCHES: usize = 128;
const ROUNDS: usize = 7;
/// Elements of the numbers that operands repeat; a prime, so that no two rows are alike.
const PERIOD: usize = 65_521;

/// Runs it.
pub(super) fn measure(gpu: &mut Gpu, product: &Product) -> Result<Times, Box<dyn Error>> {
    let bytes: usize = matrices(product).iter().map(|(_, bytes)| bytes).sum();
    let n_copies = ROTATED.div_ceil(bytes.max(1)).clamp(1, COPIES);
    let mut taken = Vec::new();
    let times = with_copies(gpu, product, n_copies, &mut taken);
    for allocation in taken {
        gpu.free(allocation)?;
    }
    times
}

fn with_copies(
    gpu: &mut Gpu,
    product: &Product,
    n_copies: usize,
    taken: &mut Vec<Allocation>,
) -> Result<Times, Box<dyn Error>> {
    let mut copies = Vec::new();
    for _ in 0..n_copies {
        copies.push(Command::Product(copy(gpu, product, taken)?));
    }
    let times: usize = product.batches.iter().map(|batch| batch.count).product();
    let flops = 2.0 * (product.m * product.n) as f64 * (product.k * times) as f64;
    let n_launches = (GRAPH_SECONDS * RATE / flops.max(1.0)) as usize;
    let n_launches = n_launches.clamp(n_copies, MOST_LAUNCHES).next_multiple_of(n_copies);
    let commands: Vec<Command> = copies.iter().cycle().take(n_launches).cloned().collect();
    let mut recordings = Vec::new();
    for pick in [Pick::First, Pick::Fastest] {
        gpu.products_mut().pick(pick);
        recordings.push(gpu.record(commands.clone())?);
    }
    let mut least = [f64::INFINITY; 2];
    for round in 0..=ROUNDS {
        for (least, recording) in least.iter_mut().zip(&recordings) {
            let seconds = replayed(gpu, *recording)?;
            // The first round warms up.
            if round > 0 {
                *least = least.min(seconds / n_launches as f64);
            }
        }
    }
    recordings.into_iter().for_each(|recording| gpu.forget(recording));
    let [first, best] = least;
    Ok(Times { first, best })
}

fn replayed(gpu: &mut Gpu, recording: Recording) -> Result<f64, Box<dyn Error>> {
    let from = gpu.mark()?;
    gpu.replay(recording)?;
    let to = gpu.mark()?;
    Ok(gpu.seconds(from, to)?)
}

/// The matrices of a product, a, b, d, c where it is another, bias, the epilogue's, with the bytes from the first element to
/// behind the last.
fn matrices(product: &Product) -> Vec<(Rows, usize)> {
    let Product { a, a_transposed, b, b_transposed, c, bias, d, epilogue, m, n, k, batches } = product;
    let of = |rows: Rows, n_rows: usize, n_columns: usize, transposed: bool, stride: fn(&Batch) -> usize| {
        let (n_rows, n_columns) = if transposed { (n_columns, n_rows) } else { (n_rows, n_columns) };
        let span: usize = batches.iter().map(|batch| batch.count.saturating_sub(1) * stride(batch)).sum();
        (rows, (span + n_rows.saturating_sub(1) * rows.stride + n_columns) * rows.dtype.bytes())
    };
    let mut all = vec![
        of(*a, *m, *k, *a_transposed, |batch| batch.a),
        of(*b, *k, *n, *b_transposed, |batch| batch.b),
        of(*d, *m, *n, false, |batch| batch.d),
    ];
    all.extend(c.filter(|c| c.at != d.at).map(|c| of(c, *m, *n, false, |batch| batch.d)));
    all.extend(bias.map(|bias| of(bias, 1, *n, false, |_| 0)));
    all.extend(epilogue.matrix().map(|matrix| of(*matrix, *m, *n, false, |batch| batch.d)));
    all
}

/// The product on matrices of its own, as aligned as they were, with numbers between -1 and 1 in them.
fn copy(gpu: &mut Gpu, product: &Product, taken: &mut Vec<Allocation>) -> Result<Product, DriverError> {
    let mut places = Vec::new();
    for (rows, bytes) in matrices(product) {
        let shift = rows.at.offset % 256;
        let allocation = gpu.allocate("operands of `bench gemm`", shift + bytes)?;
        taken.push(allocation);
        let at = Address { allocation, offset: shift };
        gpu.upload(at, &content(rows, bytes))?;
        places.push(at);
    }
    let mut places = places.into_iter();
    let mut moved = |rows: Rows| Rows { at: places.next().unwrap_or(rows.at), ..rows };
    // In the order of `matrices`.
    let (a, b, d) = (moved(product.a), moved(product.b), moved(product.d));
    let c = product.c.map(|c| if c.at == product.d.at { Rows { at: d.at, ..c } } else { moved(c) });
    let bias = product.bias.map(&mut moved);
    let epilogue = product.epilogue.map(moved);
    Ok(Product { a, b, c, bias, d, epilogue, ..product.clone() })
}

fn content(rows: Rows, bytes: usize) -> Vec<u8> {
    let value = |index: usize| ((index * 2_654_435_761) % 2001) as f64 / 1000.0 - 1.0;
    let some = rows.dtype.encode_all((0..PERIOD.min(bytes / rows.dtype.bytes())).map(value));
    let mut content = Vec::with_capacity(bytes);
    while content.len() < bytes {
        content.extend_from_slice(&some[..some.len().min(bytes - content.len())]);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::dtype::Dtype;
    use kernwright_plan::launch::Epilogue;

    #[test]
    fn matrices_are_as_long_as_the_last_element_asks_for() {
        let rows = |number: usize, stride: usize| Rows {
            at: Address { allocation: Allocation(number), offset: 0 },
            dtype: Dtype::Bf16,
            stride,
        };
        let mut product = Product {
            a: rows(0, 10),
            a_transposed: true,
            b: rows(1, 7),
            b_transposed: false,
            c: Some(rows(2, 8)),
            bias: None,
            d: rows(2, 8),
            epilogue: Epilogue::None,
            m: 3,
            n: 5,
            k: 4,
            batches: Vec::new(),
        };
        let bytes =
            |product: &Product| matrices(product).iter().map(|(_, bytes)| bytes / 2).collect::<Vec<_>>();
        // a is 4 rows of 3, b 4 rows of 5, d 3 rows of 5, which c is too.
        assert_eq!(bytes(&product), [33, 26, 21]);
        product.batches =
            vec![Batch { count: 2, a: 100, b: 0, d: 50 }, Batch { count: 3, a: 0, b: 30, d: 5 }];
        product.c = Some(rows(3, 9));
        product.bias = Some(rows(4, 0));
        assert_eq!(bytes(&product), [133, 86, 81, 83, 5]);
        product.epilogue = Epilogue::GeluSlope(rows(5, 16));
        assert_eq!(bytes(&product), [133, 86, 81, 83, 5, 97]);
        assert_eq!(content(product.a, 266).len(), 266);
    }
}
