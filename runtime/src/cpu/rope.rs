//! Rotary positions, in place, with cosines and sines computed once per (theta, head_dim, length).

use super::blocks::for_rows;
use super::slots::Slots;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::rope::{Rope, angle};
use std::collections::HashMap;

/// Cosines and sines of every position and pair: length rows of head_dim / 2.
#[derive(Debug)]
struct Table {
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

/// The tables of every rope of the loaded plans.
#[derive(Debug, Default)]
pub(crate) struct Angles {
    tables: HashMap<(u64, usize, usize), Table>,
}

fn key(rope: &Rope) -> (u64, usize, usize) {
    (rope.theta.to_bits(), rope.head_dim, rope.length)
}

impl Angles {
    /// Computes what `rope` needs, in f64, unless it is there.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn add(&mut self, rope: &Rope) {
        self.tables.entry(key(rope)).or_insert_with(|| {
            let pairs =
                (0..rope.length).flat_map(|position| (0..rope.head_dim / 2).map(move |i| (position, i)));
            let angles: Vec<f64> =
                pairs.map(|(position, i)| angle(rope.theta, rope.head_dim, position, i)).collect();
            Table {
                cosines: angles.iter().map(|angle| angle.cos() as f32).collect(),
                sines: angles.iter().map(|angle| angle.sin() as f32).collect(),
            }
        });
    }
}

/// Reads x, which is y's own buffer. Writes y.
pub(crate) fn rotate(op: &Rope, mut slots: Slots<'_>, angles: &Angles) -> Result<(), ExecutorError> {
    let y = slots.take_in_place("x", "y")?;
    let Some(table) = angles.tables.get(&key(op)) else {
        return Err(ExecutorError::Plan("a `rope` step was not prepared".to_owned()));
    };
    let (half, sign) = (op.head_dim / 2, if op.inverse { -1.0 } else { 1.0 });
    for_rows(y, |row, y| {
        let at = row % op.length * half;
        let (cosines, sines) = (&table.cosines[at..at + half], &table.sines[at..at + half]);
        for head in y.chunks_exact_mut(op.head_dim) {
            let (a, b) = head.split_at_mut(half);
            let turns = cosines.iter().zip(sines);
            for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(turns) {
                let (x, y, sin) = (*a, *b, sign * sin);
                *a = x * cos - y * sin;
                *b = y * cos + x * sin;
            }
        }
    });
    Ok(())
}
