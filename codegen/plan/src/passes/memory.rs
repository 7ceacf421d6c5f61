//! Gives every buffer its place in one arena, by lifetimes: the peak is known before anything is allocated.
//!
//! Persistent buffers come first, in the order of their names' appearance; behind them the transient ones, largest
//! first, each at the lowest offset that is free while it lives.

use crate::buffer::{BufferId, Role};
use crate::plan::Plan;
use std::ops::Range;

/// Alignment of every buffer, bytes: the granularity of the widest bulk copies.
pub const ALIGNMENT: usize = 256;

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// First and last step that touch each base buffer; `None` for one that no step touches.
#[must_use]
pub fn lifetimes(plan: &Plan) -> Vec<Option<Range<usize>>> {
    let mut lives: Vec<Option<Range<usize>>> = vec![None; plan.buffers.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        let reads = step.reads.iter().map(|read| read.buffer);
        for id in reads.chain(step.writes.iter().map(|write| write.buffer)) {
            let life = &mut lives[plan.base(id).0.0];
            *life = Some(life.as_ref().map_or(index, |life| life.start)..index + 1);
        }
    }
    lives
}

/// Places every buffer that a step touches.
#[must_use]
pub fn place(mut plan: Plan) -> Plan {
    let lives = lifetimes(&plan);
    for buffer in &mut plan.buffers {
        buffer.offset = None;
    }
    let mut end = 0;
    for (index, buffer) in plan.buffers.iter_mut().enumerate() {
        if lives[index].is_some() && buffer.role.is_persistent() && buffer.view.is_none() {
            buffer.offset = Some(end);
            end += aligned(buffer.bytes());
        }
    }
    plan.persistent_bytes = end;
    let mut order: Vec<usize> = (0..plan.buffers.len())
        .filter(|index| {
            let buffer = &plan.buffers[*index];
            lives[*index].is_some() && !buffer.role.is_persistent() && buffer.view.is_none()
        })
        .collect();
    order.sort_by_key(|index| std::cmp::Reverse(plan.buffers[*index].bytes()));
    let mut placed: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    plan.arena_bytes = end;
    for index in order {
        let Some(life) = lives[index].clone() else { continue };
        let bytes = aligned(plan.buffers[index].bytes().max(1));
        let mut taken: Vec<Range<usize>> = placed
            .iter()
            .filter(|(other, _)| other.start < life.end && life.start < other.end)
            .map(|(_, room)| room.clone())
            .collect();
        taken.sort_by_key(|room| room.start);
        let mut offset = plan.persistent_bytes;
        for room in taken {
            if offset + bytes <= room.start {
                break;
            }
            offset = offset.max(room.end);
        }
        plan.buffers[index].offset = Some(offset);
        plan.arena_bytes = plan.arena_bytes.max(offset + bytes);
        placed.push((life, offset..offset + bytes));
    }
    plan
}

/// Proves that no two buffers that live at once share memory, and that none reaches past the arena. A plan without
/// places passes.
///
/// # Errors
/// Names the two buffers.
pub fn check(plan: &Plan) -> Result<(), String> {
    let lives = lifetimes(plan);
    let whole = 0..plan.steps.len();
    let mut rooms: Vec<(usize, Range<usize>, Range<usize>)> = Vec::new();
    for (index, buffer) in plan.buffers.iter().enumerate() {
        let (Some(offset), Some(life)) = (buffer.offset, lives[index].clone()) else { continue };
        let life = if buffer.role.is_persistent() { whole.clone() } else { life };
        let room = offset..offset + buffer.bytes();
        if room.end > plan.arena_bytes {
            return Err(format!("`{}` reaches past the arena", buffer.name));
        }
        rooms.push((index, life, room));
    }
    rooms.sort_by_key(|(_, _, room)| room.start);
    for (at, (first, life, room)) in rooms.iter().enumerate() {
        for (second, other_life, other_room) in &rooms[at + 1..] {
            if other_room.start >= room.end {
                break;
            }
            if other_life.start < life.end && life.start < other_life.end {
                let (a, b) = (&plan.buffers[*first].name, &plan.buffers[*second].name);
                return Err(format!("`{a}` and `{b}` share memory while both live"));
            }
        }
    }
    Ok(())
}

/// Bytes of the buffers of one role that the plan places. For transient roles this is the sum, not the peak.
#[must_use]
pub fn bytes(plan: &Plan, role: Role) -> usize {
    let placed = plan.buffers.iter().filter(|buffer| buffer.role == role && buffer.offset.is_some());
    placed.map(|buffer| aligned(buffer.bytes())).sum()
}

/// The most bytes of transient buffers that live at once: no placement can need less.
#[must_use]
pub fn transient_floor(plan: &Plan) -> usize {
    let lives = lifetimes(plan);
    let mut change = vec![0_isize; plan.steps.len() + 1];
    for (index, life) in lives.iter().enumerate() {
        let buffer = plan.buffer(BufferId(index));
        if let (Some(life), false, None) = (life, buffer.role.is_persistent(), buffer.view) {
            let bytes = aligned(buffer.bytes().max(1)).cast_signed();
            change[life.start] += bytes;
            change[life.end] -= bytes;
        }
    }
    let mut sum = 0;
    let peaks = change.iter().map(|change| {
        sum += change;
        sum
    });
    peaks.max().unwrap_or(0).max(0).cast_unsigned()
}
