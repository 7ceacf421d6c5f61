//! Numbers as people read them: three digits and a prefix.

/// `1.61 GFLOP`: powers of 1000.
pub(super) fn quantity(value: f64, unit: &str) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"], unit)
}

/// `12.0 MiB`: powers of 1024.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi"], "B")
}

/// `35.1 us`.
pub(super) fn seconds(value: f64) -> String {
    scaled(value * 1e9, 1000.0, &["n", "u", "m", ""], "s")
}

/// `102,629,376`.
pub(super) fn grouped(value: usize) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A column of rates that are read against each other: all in the unit that suits the greatest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// The unit.
    pub(super) title: &'static str,
    one: f64,
    decimals: usize,
}

impl Rates {
    /// Of numbers of FLOP/s.
    pub(super) fn of_flops(all: impl IntoIterator<Item = f64>) -> Self {
        Self::of(["MFLOP/s", "GFLOP/s", "TFLOP/s"], 1, all)
    }

    /// Of numbers of bytes per second.
    pub(super) fn of_bytes(all: impl IntoIterator<Item = f64>) -> Self {
        Self::of(["MB/s", "GB/s", "TB/s"], 2, all)
    }

    /// Units in steps of 1000, the first of which is a million.
    fn of(units: [&'static str; 3], decimals: usize, all: impl IntoIterator<Item = f64>) -> Self {
        let greatest = all.into_iter().fold(0.0, f64::max);
        let [millions, billions, trillions] = units;
        let (title, one) = match greatest {
            _ if greatest >= 1e12 => (trillions, 1e12),
            _ if greatest >= 1e9 => (billions, 1e9),
            _ => (millions, 1e6),
        };
        Self { title, one, decimals }
    }

    /// A number without its unit.
    pub(super) fn cell(&self, rate: Option<f64>) -> String {
        let decimals = self.decimals;
        rate.map_or("n/a".to_owned(), |rate| format!("{:.decimals$}", rate / self.one))
    }
}

fn scaled(value: f64, step: f64, prefixes: &[&str], unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let (mut value, mut index) = (value, 0);
    // What would be shown as 1000 belongs to the next prefix.
    while value >= step.min(999.5) && index + 1 < prefixes.len() {
        value /= step;
        index += 1;
    }
    let prefix = prefixes[index];
    let decimals = match value {
        _ if value >= 99.95 || (index == 0 && value.fract() == 0.0) => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {prefix}{unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        let shown = [
            quantity(0.0, "FLOP"),
            quantity(4.0, "FLOP"),
            quantity(999.6, "FLOP"),
            quantity(1.606e9, "FLOP"),
            bytes(1023.0),
            bytes(12.0 * 1024.0 * 1024.0),
            bytes(3.5 * 1024.0),
            seconds(35.12e-6),
            seconds(0.25e-9),
            seconds(12.0),
            grouped(7),
            grouped(102_629),
            grouped(1_235_814_400),
        ];
        let wanted = [
            "0",
            "4 FLOP",
            "1.00 kFLOP",
            "1.61 GFLOP",
            "1.00 KiB",
            "12.0 MiB",
            "3.50 KiB",
            "35.1 us",
            "0.25 ns",
            "12.0 s",
            "7",
            "102,629",
            "1,235,814,400",
        ];
        assert_eq!(shown, wanted);
    }
    #[test]
    fn a_column_of_rates_is_in_the_unit_of_its_greatest() {
        let column = |rates: Rates, all: &[f64]| {
            let cells = all.iter().map(|rate| rates.cell(Some(*rate)));
            (rates.title, cells.collect::<Vec<_>>().join(" "))
        };
        let of_flops = |all: &[f64]| column(Rates::of_flops(all.iter().copied()), all);
        assert_eq!(of_flops(&[989.5e12, 3.25e10]), ("TFLOP/s", "989.5 0.0".to_owned()));
        assert_eq!(of_flops(&[1e12]), ("TFLOP/s", "1.0".to_owned()));
        assert_eq!(of_flops(&[3.25e10, 0.4e9]), ("GFLOP/s", "32.5 0.4".to_owned()));
        assert_eq!(of_flops(&[0.9e9, 2e5]), ("MFLOP/s", "900.0 0.2".to_owned()));
        let bytes = [4.21e12, 3e10];
        assert_eq!(column(Rates::of_bytes(bytes), &bytes), ("TB/s", "4.21 0.03".to_owned()));
        let none = Rates::of_bytes([]);
        assert_eq!((none.title, none.cell(None).as_str()), ("MB/s", "n/a"));
    }
}
