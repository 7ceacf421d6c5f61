//! What is read from a declaration, and what is said of its mistakes.

use super::*;
use crate::shape::presets;

fn messages(text: &str) -> String {
    parse_text(text).expect_err("the text has a mistake")
}

fn tiny(change: impl Fn(&str) -> Option<String>) -> String {
    let text = presets::find("tiny").expect("tiny is a preset").text();
    text.lines().filter_map(|line| change(line).map(|line| line + "\n")).collect()
}

#[test]
fn every_preset_survives_its_own_text() {
    for preset in presets::ALL {
        let shape = preset.shape();
        assert_eq!(parse_text(&shape.text()), Ok(shape), "{}", preset.name);
    }
}

#[test]
fn every_problem_is_reported_at_once_with_its_line() {
    let text = tiny(|line| match line.split(' ').next() {
        Some("model.vocab") => Some("model.vocab = many".into()),
        Some("attention.kv_heads") => Some("attention.kv_heads = 3".into()),
        Some("feed_forward.d_ff") => Some("feed_forward.d_f = 8".into()),
        Some("model.precision") => Some("model.precision = fp8".into()),
        _ => Some(line.to_owned()),
    });
    let messages = messages(&text);
    assert_eq!(messages.lines().count(), 4, "{messages}");
    assert!(messages.contains("line 1: `vocab` must be a whole number from 2 to 1048576, found `many`"));
    assert!(messages.contains("`kv_heads` must divide `heads`"));
    assert!(messages.contains("did you mean `d_ff`?"));
    assert!(messages.contains("one of `fp32`, `bf16`, found `fp8`"));
}

#[test]
fn bounds_and_multiples_are_checked() {
    for (line, message) in [
        ("attention.head_dim = 300", "`head_dim` must be a multiple of 8 up to 256, found `300`"),
        ("model.layers = 0", "`layers` must be a whole number from 1 to 1024, found `0`"),
        ("model.layers = -1", "found `-1`"),
        ("model.norm.eps = 0", "`eps` must be a number above 0 up to 1.0, found `0`"),
        ("model.norm.eps = nan", "found `nan`"),
        ("model.tied = 3", "`tied` must be a flag"),
        ("model.d_model = 100", "`d_model` must be a multiple of 8 up to 65536, found `100`"),
    ] {
        let path = line.split(' ').next().unwrap_or_default();
        let text = tiny(|old| {
            Some(if old.starts_with(&format!("{path} ")) { line.to_owned() } else { old.to_owned() })
        });
        assert!(messages(&text).contains(message), "{line}: {}", messages(&text));
    }
}

/// The text of `tiny` with these lines in place of `attention.causal = true`.
fn masked(lines: &str) -> String {
    tiny(|line| Some(if line == "attention.causal = true" { lines } else { line }.to_owned()))
}

#[test]
fn causal_and_full_may_each_be_switched_off() {
    for (lines, causal) in [
        ("", true),
        ("attention.causal", true),
        ("attention.causal = false", false),
        ("attention.full", false),
        ("attention.full = false", true),
        ("attention.causal = true\nattention.full = false", true),
        ("attention.full = true\nattention.causal = false", false),
    ] {
        let shape = parse_text(&masked(lines)).unwrap_or_else(|error| panic!("{lines}: {error}"));
        assert_eq!(shape.attention.causal, causal, "{lines}");
        assert_eq!(parse_text(&shape.text()), Ok(shape), "{lines}");
    }
}

#[test]
fn causal_and_full_at_odds_are_one_problem_at_the_later() {
    let before = tiny(|line| Some(line.to_owned()));
    let later = 2 + before.lines().position(|line| line == "attention.causal = true").expect("it is there");
    for (lines, message) in [
        ("attention.causal\nattention.full", "`full` contradicts `causal`: choose one"),
        ("attention.full\nattention.causal", "`causal` contradicts `full`: choose one"),
        (
            "attention.causal = false\nattention.full = false",
            "`full = false` contradicts `causal = false`: choose one",
        ),
        (
            "attention.full = false\nattention.causal = false",
            "`causal = false` contradicts `full = false`: choose one",
        ),
    ] {
        assert_eq!(messages(&masked(lines)), format!("line {later}: {message}"));
    }
    let unclear = messages(&masked("attention.causal = 3\nattention.full = false"));
    assert_eq!(unclear.lines().count(), 1, "{unclear}");
}

#[test]
fn what_is_planned_is_told_from_what_is_unknown() {
    for (lines, message) in [
        ("attention.window = 64", "`window` is not supported yet"),
        ("attention.local\nattention.local.window = 64", "`local` is not supported yet"),
        ("attention.local.window = 64", "`local` is not supported yet"),
        (
            "attention.qk_norm = whole",
            "`qk_norm` must be a flag: named alone, or `= true` or `= false`, and `whole` is not supported yet",
        ),
        (
            "model.precision = fp16",
            "`precision` must be one of `fp32`, `bf16`, and `fp16` is not supported yet",
        ),
        ("attention.windows = 64", "`windows` is not a field of `attention`"),
    ] {
        let path = lines.split(' ').next().unwrap_or_default();
        let text = tiny(|line| (line.split(' ').next() != Some(path)).then(|| line.to_owned()));
        let messages = messages(&format!("{text}{lines}\n"));
        assert_eq!(messages.lines().count(), 1, "{messages}");
        assert!(messages.contains(message), "{messages}");
    }
}

#[test]
fn a_missing_section_is_one_problem() {
    let messages = messages("model.vocab = 8\nmodel.d_model = 8\nmodel.layers = 1\n");
    assert_eq!(messages.lines().count(), 2, "{messages}");
    assert!(messages.contains("`#[attention(...)]` is missing"));
}

#[test]
fn defaults_are_filled_in() {
    let shape = parse_text(
        "model.vocab = 10\nmodel.d_model = 64\nmodel.layers = 1\nattention.heads = 4\n\
         feed_forward.gelu\nfeed_forward.d_ff = 16\ntarget.sm_86\n",
    )
    .expect("it is complete");
    assert_eq!((shape.context, shape.attention.kv_heads, shape.attention.head_dim), (2048, 4, 16));
    assert!(shape.attention.causal && !shape.tied && shape.attention.rope_theta.is_none());
    assert_eq!(shape.targets.len(), 1);
}
