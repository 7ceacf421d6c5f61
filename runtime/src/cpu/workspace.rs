//! Room for intermediate results of one task, one per thread, kept between steps.
//!
//! In: how many words a task needs. Out: that many, with any content.

use std::sync::{Mutex, PoisonError};

/// One growing buffer per thread.
#[derive(Debug)]
pub(crate) struct Workspace {
    rooms: Vec<Mutex<Vec<f32>>>,
}

impl Workspace {
    pub(crate) fn new(threads: usize) -> Self {
        Self { rooms: (0..threads).map(|_| Mutex::new(Vec::new())).collect() }
    }

    /// Calls `work` with `words` words. It must not start parallel work: another task could come to this thread.
    pub(crate) fn with<R>(&self, words: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
        let index = rayon::current_thread_index().unwrap_or(0) % self.rooms.len().max(1);
        let mut room = self.rooms[index].lock().unwrap_or_else(PoisonError::into_inner);
        if room.len() < words {
            room.resize(words, 0.0);
        }
        work(&mut room[..words])
    }
}
