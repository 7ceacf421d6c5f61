//! How long each of some commands takes, on the device's own clock.
//!
//! In: commands. Out: seconds. They run as one graph with an event between each two, so that the host's launches, which may
//! take longer than what they launch, do not count. An event takes time as well: that between two with nothing in between
//! is taken off.

use super::calls::{Event, Fault, Graph, Timing};
use super::{Command, DriverError, Gpu};

/// Seconds of each command, in order.
pub(super) fn seconds(gpu: &Gpu, commands: &[Command]) -> Result<Vec<f64>, DriverError> {
    let new = |_| Event::new(Timing::On);
    let events = (0..commands.len() + 2).map(new).collect::<Result<Vec<_>, Fault>>()?;
    let graph = Graph::capture(&gpu.stream, || {
        events[0].record_in_capture(&gpu.stream)?;
        events[1].record_in_capture(&gpu.stream)?;
        commands.iter().zip(&events[2..]).try_for_each(|(command, event)| {
            gpu.ask(command)?;
            Ok::<(), DriverError>(event.record_in_capture(&gpu.stream)?)
        })
    })?;
    graph.launch(&gpu.stream)?;
    gpu.stream.synchronize().map_err(|fault| gpu.late(fault))?;
    let spans = events.windows(2).map(|pair| pair[0].seconds_until(&pair[1]));
    let spans = spans.collect::<Result<Vec<f64>, Fault>>()?;
    let (empty, rest) = spans.split_first().map_or((0.0, &[][..]), |(empty, rest)| (*empty, rest));
    Ok(rest.iter().map(|seconds| (seconds - empty).max(0.0)).collect())
}
