//! Loops over slices that the compiler turns into vector instructions, and sums with a fixed order.
//!
//! In: slices of one length and what to do per element. Out: sums, kept in 16 interleaved parts that are added up at
//! the end, since the compiler may not reorder a plain float sum.

/// Parts of a sum: two registers of eight.
pub(crate) const LANES: usize = 16;

/// Defines a function whose loops run with the widest vector instructions of this machine. What it calls must be
/// `#[inline(always)]`: a call that LLVM does not inline leads to code for the oldest machine. That includes closures,
/// and the functions behind a `fn` passed as a value; hence the type of its own here.
macro_rules! vector_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),+ $(,)?) -> $ret:ty $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),+) -> $ret {
            struct Call<A>(A);
            impl pulp::NullaryFnOnce for Call<($($type,)+)> {
                type Output = $ret;

                #[inline(always)]
                fn call(self) -> $ret {
                    let Self(($($arg,)+)) = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Call(($($arg,)+)))
        }
    };
}
pub(crate) use vector_fn;

/// Runs a short `work` with the widest vector instructions of this machine, if LLVM inlines it.
#[inline(always)]
pub(crate) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// The sum of the parts, in pairs.
#[inline(always)]
fn total(mut lanes: [f32; LANES]) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] += lanes[i + n];
        }
        n /= 2;
    }
    lanes[0]
}

/// The sum of `term` over one slice.
#[inline(always)]
pub(crate) fn sum1(a: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = a.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for a in chunks {
        for i in 0..LANES {
            lanes[i] += term(a[i]);
        }
    }
    for (lane, a) in lanes.iter_mut().zip(rest) {
        *lane += term(*a);
    }
    total(lanes)
}

/// The sum of `term` over two slices of one length.
#[inline(always)]
pub(crate) fn sum2(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += term(a[i], b[i]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(*a, *b);
    }
    total(lanes)
}

/// The sum of `term` over three slices of one length.
#[inline(always)]
pub(crate) fn sum3(a: &[f32], b: &[f32], c: &[f32], term: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let ((b, b_rest), (c, c_rest)) = (b.as_chunks::<LANES>(), c.as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for i in 0..LANES {
            lanes[i] += term(a[i], b[i], c[i]);
        }
    }
    for (lane, ((a, b), c)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest).zip(c_rest)) {
        *lane += term(*a, *b, *c);
    }
    total(lanes)
}

/// Sets each element to `map` of that of a slice.
#[inline(always)]
pub(crate) fn map1(to: &mut [f32], a: &[f32], map: impl Fn(f32) -> f32) {
    for (to, a) in to.iter_mut().zip(a) {
        *to = map(*a);
    }
}

/// Sets each element to `map` of those of two slices.
#[inline(always)]
pub(crate) fn map2(to: &mut [f32], a: &[f32], b: &[f32], map: impl Fn(f32, f32) -> f32) {
    for (to, (a, b)) in to.iter_mut().zip(a.iter().zip(b)) {
        *to = map(*a, *b);
    }
}

/// Adds to each element `map` of those of two slices.
#[inline(always)]
pub(crate) fn add2(to: &mut [f32], a: &[f32], b: &[f32], map: impl Fn(f32, f32) -> f32) {
    for (to, (a, b)) in to.iter_mut().zip(a.iter().zip(b)) {
        *to += map(*a, *b);
    }
}

/// The greatest element; minus infinity for none.
#[inline(always)]
pub(crate) fn max(a: &[f32]) -> f32 {
    let greater = |a: f32, b: f32| if a > b { a } else { b };
    let (chunks, rest) = a.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for a in chunks {
        for i in 0..LANES {
            lanes[i] = greater(lanes[i], a[i]);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, greater)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_take_every_element_once() {
        for n in [0_usize, 1, 15, 16, 17, 50] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let expected = (n * n.saturating_sub(1) / 2) as f32;
            assert_eq!(sum1(&a, |a| a), expected);
            assert_eq!(sum2(&a, &a, |a, b| a + b), 2.0 * expected);
            assert_eq!(sum3(&a, &a, &a, |a, b, c| a + b - c), expected);
            assert_eq!(max(&a), if n == 0 { f32::NEG_INFINITY } else { (n - 1) as f32 });
        }
    }
}
