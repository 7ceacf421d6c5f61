//! Text and paths as one types them into a shell: what a printed command is made of.

use std::path::Path;

/// Text as one word of a shell: as it is where that is safe, else in single quotes.
pub(super) fn word(text: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "_-+=./,:@%".contains(sign);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A path as one word of a shell, which no program takes for a flag.
pub(super) fn path(path: &Path) -> String {
    let text = path.display().to_string();
    if text.starts_with('-') { word(&format!("./{text}")) } else { word(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_quotes_gets_them() {
        for (given, typed) in [
            ("runs/tiny-2", "runs/tiny-2"),
            ("/a/b.c_d", "/a/b.c_d"),
            ("größe", "größe"),
            ("sp ace", "'sp ace'"),
            ("$x", "'$x'"),
            ("~", "'~'"),
            ("a;b", "'a;b'"),
            ("a\\b", "'a\\b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("-x", "./-x"),
            ("-x y", "'./-x y'"),
        ] {
            assert_eq!(path(Path::new(given)), typed, "{given}");
        }
        assert_eq!(word("-x"), "-x");
    }

    #[test]
    #[cfg(unix)]
    fn a_shell_reads_back_what_was_meant() {
        for text in ["a", "sp ace 'q", "$x `y` \"z\"", "*", "a\nb", "''", "\\", "#a", "!a"] {
            let script = format!("printf %s {}", word(text));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }
}
