//! Tiles of the kernels that hold parts of matrices in shared memory: what a block works on at once.
//!
//! In: what an op is and a GPU's limits. Out: a tile that is legal there: of a row that was measured ([`crate::tuning`]), else by a
//! rule, as the number of blocks has it ([`rounds`]). Must not know templates or steps.

pub mod attention_backward;
pub mod attention_backward_hopper;
pub mod attention_backward_wide;
pub mod attention_forward;
pub mod attention_forward_hopper;
pub mod rounds;

use crate::arch::Arch;
use rounds::Owned;

/// What a choice of tile depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// Width of a head.
    pub head_dim: usize,
    /// Query heads of a head of keys.
    pub group: usize,
    /// Query heads of all sequences; 0 where they may be any number.
    pub heads: usize,
    /// Queries of a sequence.
    pub length: usize,
    /// What a query sees.
    pub mask: Mask,
    /// Are scores bounded?
    pub capped: bool,
    /// So narrowly that e^s and its sums are numbers of the operands' type, whatever the greatest score is?
    pub fixed: bool,
    /// Of gradients: must sums have one order?
    pub ordered: bool,
}

impl Default for Op {
    fn default() -> Self {
        Self {
            head_dim: 64,
            group: 1,
            heads: 0,
            length: 1,
            mask: Mask::Causal,
            capped: false,
            fixed: false,
            ordered: true,
        }
    }
}

/// Kinds of masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Every key.
    Full,
    /// Itself and what is before it.
    Causal,
    /// What is near it.
    Window,
}

impl Mask {
    /// Each with its name in a table.
    pub const ALL: &'static [(&'static str, Self)] =
        &[("full", Self::Full), ("causal", Self::Causal), ("window", Self::Window)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, mask)| *mask == self).map_or("", |(name, _)| name)
    }
}

/// A number of a tile, or a flag, which is 0 or 1.
pub struct Axis<T> {
    /// Its name in a table.
    pub name: &'static str,
    /// Is it a flag?
    pub is_flag: bool,
    /// What is worth trying.
    pub values: &'static [usize],
    get: Get<T>,
    set: Set<T>,
}

enum Get<T> {
    Count(fn(&T) -> usize),
    Flag(fn(&T) -> bool),
}

enum Set<T> {
    Count(fn(&mut T, usize)),
    Flag(fn(&mut T, bool)),
}

impl<T> Axis<T> {
    const fn count(
        name: &'static str,
        values: &'static [usize],
        get: fn(&T) -> usize,
        set: fn(&mut T, usize),
    ) -> Self {
        Self { name, is_flag: false, values, get: Get::Count(get), set: Set::Count(set) }
    }

    const fn flag(name: &'static str, get: fn(&T) -> bool, set: fn(&mut T, bool)) -> Self {
        Self { name, is_flag: true, values: &[0, 1], get: Get::Flag(get), set: Set::Flag(set) }
    }
}

/// A tile of one kernel.
pub trait Tile: Copy + 'static {
    /// Name of its rows in a table.
    const KERNEL: &'static str;
    /// Its numbers.
    const AXES: &'static [Axis<Self>];
    /// One of which nothing is set.
    const BLANK: Self;

    /// Can the kernel be made with it, for that op on that GPU? By shared memory, an estimate of registers, and what instructions
    /// take; what the compiler makes of it, only the compiler knows.
    fn is_legal(&self, op: &Op, arch: &Arch) -> bool;

    /// The one for what nobody measured; `None` where none fits the GPU.
    fn by_rule(op: &Op, arch: &Arch) -> Option<Self>;

    /// The same, then those that the rule has for fewer blocks than it counts on.
    #[must_use]
    fn by_rules(op: &Op, arch: &Arch) -> Vec<Self> {
        Self::by_rule(op, arch).into_iter().collect()
    }

    /// What a block owns, where tiles differ in it.
    fn owned(&self) -> Option<Owned> {
        None
    }

    /// The tile for an op; `None` where none fits the GPU, or the kernel is not for it.
    #[must_use]
    fn of(op: &Op, arch: &Arch) -> Option<Self> {
        rounds::choose(op, arch)
    }

    /// Its numbers, in the order of the axes.
    #[must_use]
    fn values(&self) -> Vec<usize> {
        let value = |axis: &Axis<Self>| match axis.get {
            Get::Count(get) => get(self),
            Get::Flag(get) => usize::from(get(self)),
        };
        Self::AXES.iter().map(value).collect()
    }

    /// The tile with these numbers.
    #[must_use]
    fn with(values: &[usize]) -> Self {
        let mut tile = Self::BLANK;
        for (axis, value) in Self::AXES.iter().zip(values) {
            match axis.set {
                Set::Count(set) => set(&mut tile, *value),
                Set::Flag(set) => set(&mut tile, *value != 0),
            }
        }
        tile
    }

    /// All tiles that are worth trying and legal.
    #[must_use]
    fn candidates(op: &Op, arch: &Arch) -> Vec<Self> {
        let mut all = vec![Vec::new()];
        for axis in Self::AXES {
            all = all
                .into_iter()
                .flat_map(|begun: Vec<usize>| {
                    axis.values.iter().map(move |value| [&begun[..], &[*value]].concat())
                })
                .collect();
        }
        all.iter().map(|values| Self::with(values)).filter(|tile| tile.is_legal(op, arch)).collect()
    }
}
