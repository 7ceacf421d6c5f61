//! Rotary positions, in place, with cosines and sines computed once for all ropes that turn alike.

use super::blocks::for_blocks;
use super::lanes::vector_fn;
use super::slots::Slots;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::rope::Rope;

/// Cosines and sines of every position and pair, times the factor of the scaling: length rows of rotary / 2.
#[derive(Debug)]
struct Table {
    of: Rope,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

/// The tables of every rope of the loaded plans.
#[derive(Debug, Default)]
pub(crate) struct Angles {
    tables: Vec<Table>,
}

/// The rope without what its angles do not depend on.
fn key(rope: &Rope) -> Rope {
    Rope { inverse: false, head_dim: rope.rotary, ..rope.clone() }
}

impl Angles {
    /// Computes what `rope` needs, in f64, unless it is there.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    pub(crate) fn add(&mut self, rope: &Rope) {
        if self.find(rope).is_some() {
            return;
        }
        let (frequencies, factor) = (rope.frequencies(), rope.scaling.attention_factor());
        let of_position = |position: usize| frequencies.iter().map(move |f| position as f64 * f);
        let angles: Vec<f64> = (0..rope.length).flat_map(of_position).collect();
        self.tables.push(Table {
            of: key(rope),
            cosines: angles.iter().map(|angle| (factor * angle.cos()) as f32).collect(),
            sines: angles.iter().map(|angle| (factor * angle.sin()) as f32).collect(),
        });
    }

    fn find(&self, rope: &Rope) -> Option<&Table> {
        let key = key(rope);
        self.tables.iter().find(|table| table.of == key)
    }
}

/// Reads x, which is y's own buffer. Writes y.
pub(crate) fn rotate(op: &Rope, mut slots: Slots<'_>, angles: &Angles) -> Result<(), ExecutorError> {
    let y = slots.take_in_place("x", "y")?;
    let Some(table) = angles.find(op) else {
        return Err(ExecutorError::Plan("a `rope` step was not prepared".to_owned()));
    };
    let (half, sign) = (op.rotary / 2, if op.inverse { -1.0 } else { 1.0 });
    for_blocks(y, |first, mut y| {
        for row in 0..y.n_rows() {
            let at = (first + row) % op.length * half;
            let turns = [&table.cosines[at..at + half], &table.sines[at..at + half]];
            rotate_row(y.row(row), op.head_dim, turns, sign);
        }
    });
    Ok(())
}

vector_fn! {
    fn rotate_row(row: &mut [f32], head_dim: usize, turns: [&[f32]; 2], sign: f32) -> () {
        let [cosines, sines] = turns;
        for head in row.chunks_exact_mut(head_dim) {
            let (a, b) = head[..2 * cosines.len()].split_at_mut(cosines.len());
            rotate_pairs(a, b, cosines, sines, sign);
        }
    }
}

/// Its own function, because only arguments are known not to overlap.
#[inline(always)]
fn rotate_pairs(a: &mut [f32], b: &mut [f32], cosines: &[f32], sines: &[f32], sign: f32) {
    for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(cosines.iter().zip(sines)) {
        let (x, y, sin) = (*a, *b, sign * sin);
        *a = x * cos - y * sin;
        *b = y * cos + x * sin;
    }
}
