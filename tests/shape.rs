//! `shape`, and `--shape FILE.toml` wherever a Shape is asked for.

#![cfg(feature = "render")]

mod program;

use kernwright_plan::shape::presets;
use program::Program;

#[test]
fn a_printed_file_declares_the_same_to_every_command() {
    let program = Program::new();
    for preset in presets::ALL {
        let name = preset.name;
        program.file("brain.toml", program.ok(&format!("shape --preset {name} --toml")).as_bytes());
        let text = program.ok("shape --shape brain.toml --text");
        assert_eq!(text.trim_end(), preset.text().trim_end(), "{name}");
        let attributes = program.ok(&format!("shape --preset {name}"));
        assert_eq!(attributes, program.ok(&format!("shape --preset {name} --attribute")));
        assert!(attributes.starts_with("#[derive(kernwright::Transformer)]\n#[model("), "{attributes}");
        let parameters = program.ok("shape --shape brain.toml --parameters");
        let total = preset.shape().n_parameters();
        let total: String = parameters.lines().last().map_or(total.to_string(), str::to_owned);
        assert_eq!(total.replace(',', ""), format!("{} parameters", preset.shape().n_parameters()));
    }
}

#[test]
fn a_file_is_planned_generated_for_and_trained() {
    let program = Program::new();
    program.file(
        "brain.toml",
        program.ok("shape --preset tiny --toml").replace("layers = 5", "layers = 1").as_bytes(),
    );
    let plan: serde_json::Value =
        serde_json::from_str(&program.ok("plan --shape brain.toml --json")).expect("it is JSON");
    assert_eq!(plan["model"], "brain");
    assert!(program.ok("cuda --shape brain.toml --gpu sm_86 --list").contains("norm_forward"));
    program.ok("train --shape brain.toml --batch 1 --length 8 --steps 1 --eval-batches 1 --out run");
    assert!(program.ok("generate --checkpoint run --prompt A --tokens 2").starts_with('A'));
    let error = program.fails("plan --shape brain.toml --preset tiny", 2);
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn a_changed_field_changes_what_is_generated() {
    let program = Program::new();
    let kernels = |flags: &str| program.ok(&format!("cuda --preset tiny --gpu sm_86 --list {flags}"));
    let (plain, wide) = (kernels(""), kernels("--set attention.head_dim=40 --set attention.window=9"));
    assert!(plain.contains("_d32_wlm1_") && !plain.contains("_d40_"), "{plain}");
    assert!(wide.contains("_d40_wl8_") && !wide.contains("_d32_"), "{wide}");
    let error = program.fails("cuda --set model.layer=3", 1);
    assert!(error.contains("--set: ") && error.contains("`layers`"), "{error}");
}

#[test]
fn mistakes_of_a_file_have_file_line_and_column() {
    let program = Program::new();
    program.file(
        "brain.toml",
        b"[model]\nvocab = 256\nd_model = 100\nlayer = 2\n\n[attention]\nheads = 4\n\n[feed_forward]\nswiglu = 3\nd_ff = 64\n",
    );
    for command in ["plan", "cuda", "train", "shape"] {
        let error = program.fails(&format!("{command} --shape brain.toml"), 1);
        for wanted in [
            "brain.toml:3:11: `d_model` must be a multiple of 8",
            "brain.toml:4:1: `layer` is not a field of `model`: did you mean `layers`?",
            "brain.toml:10:10: `swiglu` must be a flag",
        ] {
            assert!(error.contains(wanted), "{command}: {wanted}: {error}");
        }
    }
    program.file("brain.toml", b"[model]\nvocab = 256\nd_model = 64\nlayers = 1\n");
    let error = program.fails("plan --shape brain.toml", 1);
    assert!(error.contains("brain.toml: `[attention]` is missing"), "{error}");
    program.file("brain.toml", b"[model\n");
    assert!(program.fails("plan --shape brain.toml", 1).contains("brain.toml:1:"));
    assert!(program.fails("plan --shape none.toml", 1).contains("cannot read `none.toml`"));
    assert!(program.fails("plan --shape .", 1).contains("cannot read `.`"));
}
