//! The exponentials of a softmax.
//!
//! In: a row of scores. Out: the greatest, and the sum of all `exp(score - greatest)`. Loops over
//! elements are written out rather than handed in as closures: what LLVM does not inline it compiles for the oldest
//! machine, where a fused multiply-add is a function call.

use super::exp::exp_of_negative;
use super::lanes::{max, sum1};

/// Scores whose exponentials exist at once when they are not kept.
const ROOM: usize = 256;

/// Replaces the scores; call it under vector instructions.
#[inline(always)]
pub(crate) fn exponentials(scores: &mut [f32]) -> (f32, f32) {
    let greatest = max(scores);
    for score in scores.iter_mut() {
        *score = exp_of_negative(*score - greatest);
    }
    (greatest, sum1(scores, |p| p))
}

/// Leaves the scores as they are; call it under vector instructions.
#[inline(always)]
pub(crate) fn sum_of_exponentials(scores: &[f32]) -> (f32, f32) {
    let greatest = max(scores);
    let (mut room, mut sum) = ([0.0; ROOM], 0.0);
    for scores in scores.chunks(ROOM) {
        let room = &mut room[..scores.len()];
        for (p, score) in room.iter_mut().zip(scores) {
            *p = exp_of_negative(*score - greatest);
        }
        sum += sum1(room, |p| p);
    }
    (greatest, sum)
}
