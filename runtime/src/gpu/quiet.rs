//! One at a time: what must not happen in one thread of the process while another captures a graph.
//!
//! cuBLASLt's state is the process's. Where one thread opened or closed it, or measured with it, a product that another
//! was capturing failed now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE: Mutex<()> = Mutex::new(());

/// Nobody else has this while it lives. It is not to be asked for twice by one thread.
pub(super) fn quiet() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
