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
}
