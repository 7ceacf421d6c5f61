//! How long each of some commands takes, on the device's own clock.
//!
//! In: commands. Out: seconds, and how they are known. The commands run as one graph, as in training, so that the host's
//! launches, which may take longer than what they launch, do not count. Where CUPTI is found the device's own records say
//! when each began and ended; else there is an event between each two, and what lies between two events with nothing in
//! between is taken off.

use super::activity::Activity;
use super::assignment::{self, Expected};
use super::calls::{Event, Fault, Graph, Timing};
use super::{Command, DriverError, Gpu};

/// How it is known how long each command takes, and seconds of each, in order.
pub(super) fn time(gpu: &Gpu, commands: &[Command]) -> Result<(&'static str, Vec<f64>), DriverError> {
    if let Some(activity) = &gpu.activity
        && let Some(seconds) = by_records(gpu, activity, commands)?
    {
        return Ok(("the GPU's own records (CUPTI)", seconds));
    }
    Ok(("events between the commands of a graph", by_events(gpu, commands)?))
}

/// `None` where the records do not fit the commands, or cannot be had.
fn by_records(gpu: &Gpu, activity: &Activity, commands: &[Command]) -> Result<Option<Vec<f64>>, DriverError> {
    let mut ran = Ok(());
    let records = activity.record(|| {
        // Made while records are taken: a graph from before may run without leaving any.
        ran = gpu.graph(commands).and_then(|graph| {
            let run = graph.launch(&gpu.stream).and_then(|()| gpu.stream.synchronize());
            run.map_err(|fault| gpu.late(fault))
        });
        Ok(())
    });
    ran?;
    // A profiler that is attached from outside, or a right that is missing, is no reason to fail.
    let Ok(records) = records else { return Ok(None) };
    let expected: Vec<Expected> = commands.iter().map(|command| expected(gpu, command)).collect();
    Ok(assignment::seconds(&expected, &records))
}

fn expected<'a>(gpu: &'a Gpu, command: &Command) -> Expected<'a> {
    match command {
        Command::Kernel { kernel, .. } => {
            Expected::Kernel(gpu.kernels.get(kernel.0).map_or("", |loaded| &loaded.name))
        }
        Command::Product(product) => {
            let times: usize = product.batches.iter().map(|batch| batch.count).product();
            Expected::Product(2.0 * times as f64 * (product.m * product.n * product.k) as f64)
        }
        Command::Copy { .. } => Expected::Copy,
        Command::Zero { .. } => Expected::Fill,
        Command::Discard { .. } => Expected::Nothing,
    }
}

fn by_events(gpu: &Gpu, commands: &[Command]) -> Result<Vec<f64>, DriverError> {
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
