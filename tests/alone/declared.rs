//! Declarations that between them have each pair of layout, element type, mask, bound and GPU family.

use crate::calls::Calls;
use crate::numbers::Number;
use kernwright::Attention;
use kernwright::attention::Compiled;

/// Something to be done with each declaration, on a GPU it is declared for.
pub(crate) trait Case {
    fn run<A: Attention<Element: Number>>(&self, target: &str, lengths: [usize; 2])
    where
        Compiled<A::Element, A::Tensors>: Calls<A::Element>;
}

#[derive(Attention)]
#[attention(heads = 4, kv_heads = 2, head_dim = 24, causal, dtype = bf16)]
#[target(sm_80)]
pub(crate) struct Plain;

/// The same numbers in another order.
#[derive(Attention)]
#[attention(heads = 4, kv_heads = 2, head_dim = 24, causal, dtype = bf16, layout = bhsd)]
#[target(sm_80)]
pub(crate) struct ByHead;

#[derive(Attention)]
#[attention(
    heads = 3, kv_heads = 1, head_dim = 16, full, window = 9, softcap = 2.5, scale = 0.4, dtype = fp16, layout = packed,
    nondeterministic
)]
#[target(sm_80)]
struct Bounded;

#[derive(Attention)]
#[attention(heads = 4, kv_heads = 2, head_dim = 40, causal, window = 11, dtype = fp16, layout = packed)]
#[target(sm_90a)]
struct Windowed;

#[derive(Attention)]
#[attention(heads = 2, head_dim = 64, full, softcap = 20.0, dtype = bf16, layout = bhsd, nondeterministic)]
#[target(sm_90a)]
struct Full;

/// Too wide for Hopper's gradient in one pass.
#[derive(Attention)]
#[attention(heads = 2, kv_heads = 1, head_dim = 136, causal, dtype = fp16, layout = bhsd)]
#[target(sm_90a)]
struct Wide;

/// Runs it with every declaration.
pub(crate) fn each(case: &impl Case) {
    case.run::<Plain>("sm_80", [37, 37]);
    case.run::<ByHead>("sm_80", [21, 43]);
    case.run::<Bounded>("sm_80", [37, 37]);
    case.run::<Windowed>("sm_90a", [37, 37]);
    case.run::<Full>("sm_90a", [43, 21]);
    case.run::<Wide>("sm_90a", [19, 37]);
}
