//! What a crate may be called: what cargo takes for a program, and Rust for the names it makes of it.

/// Strict and reserved words of Rust, and what cargo or a standard crate is called.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Names that Windows gives to devices.
const DEVICES: &[&str] = &["aux", "con", "nul", "prn"];

const LONGEST: usize = 64;

/// Checks a name; it is taken as it is.
pub(super) fn parse(name: &str) -> Result<String, String> {
    let must = "a crate's name must be letters of ASCII, digits, `-` and `_`, a letter first";
    if name.is_empty() {
        return Err(format!("{must}, found nothing"));
    }
    if let Some(sign) = name.chars().find(|sign| !(sign.is_ascii_alphanumeric() || ['-', '_'].contains(sign)))
    {
        return Err(format!("{must}, found `{}`", sign.escape_debug()));
    }
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(format!("{must}, found `{}` first", &name[..1]));
    }
    if name.len() > LONGEST {
        return Err(format!("a crate's name must have at most {LONGEST} letters, found {}", name.len()));
    }
    let plain = name.to_ascii_lowercase().replace('_', "-");
    if TAKEN.contains(&plain.as_str()) {
        return Err(format!("`{name}` is a word of Rust or of cargo: choose another name"));
    }
    if DEVICES.contains(&plain.as_str()) {
        return Err(format!("`{name}` is a device on Windows: choose another name"));
    }
    let ours = env!("CARGO_PKG_NAME");
    if plain.split('-').next() == Some(ours) {
        return Err(format!(
            "names that begin with `{ours}` are those of what it depends on: choose another name"
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_build_are_taken_and_others_refused_with_a_reason() {
        for name in ["my-model", "my_model", "Brain2", "a", "model-std"] {
            assert_eq!(parse(name).as_deref(), Ok(name));
        }
        for (name, wanted) in [
            ("", "found nothing"),
            ("größe", "found `ö`"),
            ("a b", "found ` `"),
            ("a/b", "found `/`"),
            ("a\n", "found `\\n`"),
            ("1b", "found `1` first"),
            ("-b", "found `-` first"),
            ("fn", "is a word of Rust"),
            ("std", "is a word of Rust"),
            ("proc_macro", "is a word of Rust"),
            ("Self", "is a word of Rust"),
            ("test", "or of cargo"),
            ("nul", "is a device"),
            ("kernwright", "of what it depends on"),
            ("Kernwright_model", "of what it depends on"),
            (&"a".repeat(65), "at most 64 letters, found 65"),
        ] {
            let error = parse(name).expect_err(name);
            assert!(error.contains(wanted), "{name}: {error}");
        }
    }
}
