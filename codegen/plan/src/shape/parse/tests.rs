//! What is read from a declaration, and what is said of its mistakes.

use super::*;
use crate::ops::attention::Window;
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
    assert!(messages.contains("one of `fp32`, `bf16`"));
}

#[test]
fn bounds_and_multiples_are_checked() {
    for (line, message) in [
        ("attention.head_dim = 300", "`head_dim` must be a whole number from 1 to 256, found `300`"),
        ("attention.head_dim = 31", "must be an even whole number, found `1.0` of `31`"),
        ("attention.rope.fraction = 0.3", "must be an even whole number, found `0.3` of `32`"),
        ("attention.rope.fraction = 1.5", "`fraction` must be a number above 0 up to 1.0, found `1.5`"),
        ("attention.qk_norm = each", "`qk_norm` must be a flag or one of `head`, `whole`, found `each`"),
        ("model.norm.weight = two", "`weight` must be one of `w`, `one_plus_w`, `none`, found `two`"),
        (
            "model.biases = [qkv, some]",
            "`biases` must be one or a list of `none`, `qkv`, `all`, `head`, found `[qkv, some]`",
        ),
        ("model.biases = []", "found `[]`"),
        ("model.biases = [qkv, all]", "`all` contradicts `qkv` in `biases`: choose one"),
        ("model.biases = [head, none]", "`head` contradicts `none` in `biases`: choose one"),
        ("model.layers = 0", "`layers` must be a whole number from 1 to 1024, found `0`"),
        ("model.layers = -1", "found `-1`"),
        ("model.norm.eps = 0", "`eps` must be a number above 1e-20 up to 1.0, found `0`"),
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

/// The text of `tiny` with these lines added.
fn with(lines: &str) -> String {
    let paths: Vec<_> = lines.lines().map(|line| line.split(' ').next().unwrap_or(line)).collect();
    let text =
        tiny(|line| (!paths.contains(&line.split(' ').next().unwrap_or(line))).then(|| line.to_owned()));
    format!("{text}{lines}\n")
}

#[test]
fn fields_at_odds_are_one_problem_each() {
    for (lines, message) in [
        ("feed_forward.experts = 8", "`experts`: mixtures of experts are not supported yet"),
        ("feed_forward.experts = some", "`experts` must be a whole number from 1 to 4096, found `some`"),
        ("attention.windows = 64", "`windows` is not a field of `attention`: did you mean `window`?"),
        ("attention.local.windw = 64\nmodel.pattern = [local, global]", "did you mean `window`?"),
        ("attention.local.window = 64", "`local` has a meaning only with a `pattern` that names it"),
        (
            "attention.global.window = 64",
            "`global` has a meaning only with a `pattern` that names another kind too",
        ),
        ("model.biases = [all, all]", "`all` is given twice in `biases`"),
        ("model.biases = [qkv, head, head]", "`head` is given twice in `biases`"),
        ("attention.no_rope", "`no_rope` is not a field of `attention`"),
        ("model.pattern = [locl, global]\nattention.global.window = 64", "found `[locl, global]`"),
        ("attention.rope.scaling = llama4\nattention.rope.scaling.factor = 8.0", "found `llama4`"),
        (
            "model.pattern = [local, global]\nattention.local.rope\nattention.local.rope.theta = 1e4\n\
             attention.local.no_rope",
            "`no_rope` contradicts `rope`: choose one",
        ),
        (
            "model.pattern = [local, far]",
            "`pattern` must be one or a list of `local`, `global`, found `[local, far]`",
        ),
        (
            "model.pattern = [local, local, local, local, local, global]",
            "at most as long as there are `layers` (`5`)",
        ),
        (
            "model.pattern = [local, global]\nattention.local.rope\nattention.local.no_rope",
            "`no_rope` contradicts `rope`: choose one",
        ),
        (
            "model.pattern = [local, global]\nattention.local.window = 4\nattention.local.no_window",
            "`no_window` contradicts `window`: choose one",
        ),
        ("attention.no_window", "`no_window` is not a field of `attention`"),
        (
            "feed_forward = 3",
            "`feed_forward` is a section, found `3`: give fields of it, `feed_forward.NAME = VALUE`",
        ),
        ("attention.window", "`window` must be a whole number from 1 to 1048576, found no value"),
        (
            "attention.window = [3, 0]",
            "`window` must be a whole number from 1 to 1048576, or have `left` and `right` by their names, found `[3, 0]`",
        ),
        (
            "attention.window\nattention.window.left = -1",
            "`left` must be a whole number from 0 to 1048576, found `-1`",
        ),
        (
            "attention.window = 8\nattention.window.left = 3",
            "`left` contradicts `window = N`, which is both sides: choose one",
        ),
        (
            "attention.window.left = 3\nattention.window.right = 0",
            "`right` has a meaning only with `full`: a `causal` query sees nothing behind it",
        ),
        ("model.parallel.shared_norm", "`shared_norm` has a meaning only with `parallel`"),
        (
            "model.parallel\nmodel.parallel.shared_norm\nmodel.norm.placement = both",
            "`shared_norm` needs `placement = pre`, found `both`",
        ),
        (
            "model.precision = fp32\nmodel.residual = bf16",
            "`residual` must be `fp32` or as `precision` (`fp32`)",
        ),
        ("attention.qk_norm.order = after", "`order` has a meaning only with `qk_norm`"),
        ("attention.rope.scaling = ntk", "`scaling` must be one of `none`, `llama3`, `yarn`, found `ntk`"),
        ("attention.rope.scaling.factor = 2.0", "`factor` has a meaning only with `scaling`"),
        (
            "attention.rope.scaling = yarn\nattention.rope.scaling.factor = 4.0",
            "`original_context` is missing: context before the scaling (a whole number from 1 to 16777216)",
        ),
        (
            "attention.rope.scaling = yarn\nattention.rope.scaling.factor = 4.0\n\
             attention.rope.scaling.original_context = 64\nattention.rope.scaling.low_freq_factor = 2.0",
            "`low_freq_factor` has a meaning only with `scaling = llama3`",
        ),
        (
            "attention.rope.scaling = llama3\nattention.rope.scaling.factor = 4.0\n\
             attention.rope.scaling.original_context = 64\nattention.rope.scaling.low_freq_factor = 4.0",
            "`low_freq_factor` must be below `high_freq_factor`, found `4` and `4`",
        ),
    ] {
        let messages = messages(&with(lines));
        assert_eq!(messages.lines().count(), 1, "{lines}: {messages}");
        assert!(messages.contains(message), "{lines}: {messages}");
    }
}

#[test]
fn the_whole_language_survives_its_own_text() {
    for lines in [
        "model.pattern = [local, local, global]\nattention.local.window = 7\nattention.global.no_rope",
        "model.pattern = [local, global]\nattention.window = 7\nattention.local.rope.theta = 90\n\
         attention.global.rope.fraction = 0.5",
        "model.pattern = [local]\nattention.local.window = 3",
        "attention.window\nattention.window.left = 63",
        "attention.causal = false\nattention.window\nattention.window.left = 63\nattention.window.right = 2",
        "attention.causal = false\nattention.window.right = 0",
        "model.pattern = [local, global]\nattention.causal = false\nattention.local.window.left = 5",
        "attention.window = 64\nattention.scale = 0.25\nattention.softcap = 50\nmodel.softcap = 30.0",
        "attention.qk_norm = whole\nattention.qk_norm.order = after",
        "attention.qk_norm = true\nmodel.norm.weight = one_plus_w\nmodel.norm.placement = both",
        "model.norm.weight = none\nmodel.norm.placement = post\nmodel.norm.embedding",
        "model.parallel\nmodel.biases = [all, head]\nfeed_forward.d_ff = 355",
        "model.parallel\nmodel.parallel.shared_norm\nmodel.biases = head\nattention.head_dim = 34",
        "model.residual = bf16\nmodel.embedding_scale = 11\nmodel.residual_scale = 0.22\nmodel.logits_scale = 0.1",
        "attention.rope.scaling = llama3\nattention.rope.scaling.factor = 32\n\
         attention.rope.scaling.original_context = 8192",
        "attention.rope.scaling = yarn\nattention.rope.scaling.factor = 4\n\
         attention.rope.scaling.original_context = 8192\nattention.rope.scaling.beta_fast = 16",
        "attention.rope = false\nattention.rope.theta = 10000.0",
    ] {
        // Without rope its settings have no meaning.
        let lines =
            if lines.starts_with("attention.rope = false") { "attention.rope = false" } else { lines };
        let mut text = with(lines);
        if lines == "attention.rope = false" || lines.contains("pattern") {
            text = text
                .lines()
                .filter(|line| !line.starts_with("attention.rope."))
                .collect::<Vec<_>>()
                .join("\n");
        }
        let shape = parse_text(&text).unwrap_or_else(|error| panic!("{lines}: {error}"));
        assert_eq!(parse_text(&shape.text()), Ok(shape.clone()), "{lines}:\n{}", shape.text());
        let plain = parse_text(&with("")).expect("it is tiny");
        assert_ne!(shape, plain, "{lines} has no effect");
    }
}

#[test]
fn a_kind_may_do_without_the_window_of_all() {
    let lines = "model.pattern = [local, global]\nattention.window = 9\nattention.global.no_window";
    let shape = parse_text(&with(lines)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (shape.attention.local.window, shape.attention.global.window),
        (Some(Window::nearer(9)), None)
    );
    assert_eq!(parse_text(&shape.text()), Ok(shape));
}

#[test]
fn a_norm_of_which_only_settings_are_said_is_the_default_one() {
    let shape = |lines: &str| parse_text(&with(lines)).unwrap_or_else(|error| panic!("{lines}: {error}"));
    for settings in ["model.norm.eps = 0.001", "model.norm.weight = none\nmodel.norm.eps = 0.001"] {
        let (short, long) = (format!("model.norm\n{settings}"), format!("model.norm = rms\n{settings}"));
        assert_eq!(shape(&short), shape(&long));
    }
    let bare = messages(&with("model.norm").replace("model.norm.", "# "));
    assert!(bare.contains("`norm` must be one of `rms`, `layer`, found no value"), "{bare}");
}

#[test]
fn a_misspelt_section_is_one_problem() {
    let text = with("").replace("feed_forward.", "feedforward.");
    let messages = messages(&format!("feedforward\n{text}"));
    assert_eq!(messages, "line 1: `feedforward` is not a section: did you mean `feed_forward`?");
}

#[test]
fn what_is_in_something_unknown_is_no_second_problem() {
    let messages = messages(&with("optimizer\noptimizer.x = 1\noptimizer.x.y = 2"));
    assert_eq!(messages.lines().count(), 1, "{messages}");
}

#[test]
fn a_pattern_is_kept_in_its_shortest_form() {
    let shape = |lines: &str| parse_text(&with(lines)).unwrap_or_else(|error| panic!("{lines}: {error}"));
    let long = shape("model.pattern = [local, global, local, global]\nattention.local.window = 9");
    assert_eq!(long, shape("model.pattern = [local, global]\nattention.local.window = 9"));
    assert_eq!(shape("model.pattern = [global, global]"), shape(""));
    assert_eq!(shape("attention.scale = 0.17677669529663687"), shape(""), "1 / sqrt(32)");
    let kinds: Vec<_> = (0..3).map(|layer| long.layer_kind(layer).window).collect();
    let near = Some(Window::nearer(9));
    assert_eq!(kinds, [near, None, near]);
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
    assert!(shape.attention.causal && !shape.tied && shape.attention.global.rope.is_none());
    assert_eq!(shape.targets.len(), 1);
}
