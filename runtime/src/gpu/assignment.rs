//! Which record of the device is of which command.
//!
//! In: commands in their order, records in theirs. Out: seconds of each command, or that they do not fit together. Kernels of
//! ours are known by their names and divide the rest: what lies between two of them is of the commands between them. A
//! product may be several kernels of its library; where it cannot be told whose they are, their time is shared by work.

use super::activity::{Kind, Record};

/// What a command leaves on record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expected<'a> {
    /// A kernel of that name.
    Kernel(&'a str),
    /// Kernels with names of their own, for so many FLOPs.
    Product(f64),
    Copy,
    Fill,
    Nothing,
}

/// Seconds of each command; `None` where records are missing, or there are others.
pub(super) fn seconds(commands: &[Expected], records: &[Record]) -> Option<Vec<f64>> {
    let mut all = vec![0.0; commands.len()];
    let (mut command, mut record) = (0, 0);
    while command < commands.len() {
        if let Expected::Kernel(name) = &commands[command] {
            let found = records.get(record).filter(|found| is_named(found, name))?;
            all[command] = length(found);
            (command, record) = (command + 1, record + 1);
            continue;
        }
        let end = (command..commands.len()).find(|index| matches!(commands[*index], Expected::Kernel(_)));
        let end = end.unwrap_or(commands.len());
        let last = match commands.get(end) {
            Some(Expected::Kernel(name)) => {
                (record..records.len()).find(|index| is_named(&records[*index], name))?
            }
            _ => records.len(),
        };
        between(&commands[command..end], &records[record..last], &mut all[command..end])?;
        (command, record) = (end, last);
    }
    (record == records.len()).then_some(all)
}

fn is_named(record: &Record, name: &str) -> bool {
    matches!(&record.kind, Kind::Kernel(found) if found == name)
}

fn length(record: &Record) -> f64 {
    record.end.saturating_sub(record.start) as f64 / 1e9
}

/// The commands between two kernels of ours, none of which is one.
fn between(commands: &[Expected], records: &[Record], seconds: &mut [f64]) -> Option<()> {
    let places = |wanted: fn(&Expected) -> bool| -> Vec<usize> {
        (0..commands.len()).filter(|index| wanted(&commands[*index])).collect()
    };
    let copies = places(|command| *command == Expected::Copy);
    let fills = places(|command| *command == Expected::Fill);
    let products = places(|command| matches!(command, Expected::Product(_)));
    let (mut copy, mut fill) = (copies.iter(), fills.iter());
    let n_fills = records.iter().filter(|record| record.kind == Kind::Fill).count();
    // One entry per kernel of the library; what only ends a product goes with the one before.
    let mut parts: Vec<f64> = Vec::new();
    for record in records {
        match &record.kind {
            Kind::Copy => seconds[*copy.next()?] += length(record),
            Kind::Fill if n_fills == fills.len() => seconds[*fill.next()?] += length(record),
            // The library's own, before a product that adds up parts.
            Kind::Fill => *parts.last_mut()? += length(record),
            Kind::Kernel(name) => match parts.last_mut().filter(|_| ends_a_product(name)) {
                Some(part) => *part += length(record),
                None => parts.push(length(record)),
            },
        }
    }
    if copy.next().is_some() || (n_fills == fills.len() && fill.next().is_some()) {
        return None;
    }
    if parts.len() == products.len() {
        for (place, part) in products.iter().zip(parts) {
            seconds[*place] = part;
        }
        return Some(());
    }
    if parts.is_empty() || products.is_empty() {
        return None;
    }
    let (time, work): (f64, f64) =
        (parts.iter().sum(), products.iter().map(|place| flops(&commands[*place])).sum());
    for place in products {
        seconds[place] = time * flops(&commands[place]) / work;
    }
    Some(())
}

fn flops(command: &Expected) -> f64 {
    if let Expected::Product(flops) = command { *flops } else { 0.0 }
}

/// Is it the kernel that adds up the parts of a product?
fn ends_a_product(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("splitkreduce") || name.contains("splitk_reduce")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of so many milliseconds, one after the other.
    fn records(of: &[(&str, u64)]) -> Vec<Record> {
        let mut at = 100;
        let record = |(name, length): &(&str, u64)| {
            let kind = match *name {
                "copy" => Kind::Copy,
                "fill" => Kind::Fill,
                name => Kind::Kernel(name.to_owned()),
            };
            let (start, end) = (at, at + length * 1_000_000);
            at = end + 7;
            Record { kind, start, end }
        };
        of.iter().map(record).collect()
    }

    fn milliseconds(commands: &[Expected], of: &[(&str, u64)]) -> Option<Vec<f64>> {
        seconds(commands, &records(of)).map(|all| all.into_iter().map(|one| (one * 1e3).round()).collect())
    }

    const COMMANDS: &[Expected] = &[
        Expected::Kernel("norm"),
        Expected::Product(3.0),
        Expected::Product(1.0),
        Expected::Fill,
        Expected::Nothing,
        Expected::Kernel("norm"),
        Expected::Copy,
    ];

    #[test]
    fn kernels_of_ours_divide_what_lies_between_them() {
        let plain = [("norm", 1), ("gemm", 20), ("gemm", 30), ("fill", 4), ("norm", 5), ("copy", 6)];
        assert_eq!(milliseconds(COMMANDS, &plain), Some(vec![1.0, 20.0, 30.0, 4.0, 0.0, 5.0, 6.0]));
    }

    #[test]
    fn a_product_of_several_kernels_is_one_and_others_share_by_work() {
        let split = [
            ("norm", 1),
            ("gemm", 20),
            ("x::splitKreduce_kernel", 2),
            ("gemm", 30),
            ("fill", 4),
            ("norm", 5),
            ("copy", 6),
        ];
        assert_eq!(milliseconds(COMMANDS, &split), Some(vec![1.0, 22.0, 30.0, 4.0, 0.0, 5.0, 6.0]));
        let three = [("norm", 1), ("a", 20), ("b", 10), ("c", 10), ("fill", 4), ("norm", 5), ("copy", 6)];
        assert_eq!(milliseconds(COMMANDS, &three), Some(vec![1.0, 30.0, 10.0, 4.0, 0.0, 5.0, 6.0]));
    }

    #[test]
    fn records_that_are_missing_or_too_many_are_noticed() {
        let whole = [("norm", 1), ("gemm", 20), ("gemm", 30), ("fill", 4), ("norm", 5), ("copy", 6)];
        for missing in [0, 4, 5] {
            let mut some = whole.to_vec();
            some.remove(missing);
            assert_eq!(milliseconds(COMMANDS, &some), None, "without {missing}");
        }
        let none = [("norm", 1), ("fill", 4), ("norm", 5), ("copy", 6)];
        assert_eq!(milliseconds(COMMANDS, &none), None, "products without kernels");
        let more =
            [("norm", 1), ("gemm", 20), ("gemm", 30), ("fill", 4), ("norm", 5), ("copy", 6), ("norm", 1)];
        assert_eq!(milliseconds(COMMANDS, &more), None, "one more at the end");
    }
}
