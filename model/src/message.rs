//! Text of others inside a message of ours.
//!
//! In: anything that came out of a file. Out: one line that a terminal can show, and not too long a one.

use std::fmt::Display;

/// Characters that are shown.
const MOST: usize = 200;

/// `text` with control characters escaped, cut where it is too long to be read.
pub(crate) fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    let mut line = String::with_capacity(text.len().min(MOST));
    for (n, c) in text.chars().enumerate() {
        if n == MOST {
            line.push_str("...");
            break;
        }
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_text_is_cut() {
        assert_eq!(one_line("plain \"é\""), "plain \"é\"");
        assert_eq!(one_line("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(one_line("é".repeat(200)), "é".repeat(200));
        assert_eq!(one_line("é".repeat(201)), "é".repeat(200) + "...");
    }
}
