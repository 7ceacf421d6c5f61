//! GPUs as flags name them: a target, a card, or a file that declares one.

use kernwright_plan::arch;
use kernwright_plan::card;
use kernwright_plan::gpu::{self, Gpu};
use std::path::Path;

/// What `--gpu` was given.
pub(super) fn parse(text: &str) -> Result<Gpu, String> {
    let path = Path::new(text);
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) {
        return read(path);
    }
    gpu::find(text)
}

/// Help on `--gpu`: what it is for, and every target with its cards.
pub(super) fn list(purpose: &str) -> String {
    let mut text =
        format!("{purpose}\n\nA target, a card, or FILE.toml, which declares a GPU by one it is like:\n");
    for arch in arch::ALL {
        let cards: Vec<_> =
            card::ALL.iter().filter(|card| card.arch == arch.name).map(card::Card::slug).collect();
        text.push_str(&format!("  {:<9}{}\n", arch.name, cards.join(", ")));
    }
    text.push_str("A target alone is timed as ");
    let defaults: Vec<_> = arch::ALL.iter().map(|arch| arch.card).collect();
    text.push_str(&defaults.join(", "));
    text
}

#[cfg(feature = "render")]
fn read(path: &Path) -> Result<Gpu, String> {
    use kernwright_codegen::toml;
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{file}`: {error}"))?;
    toml::read("", &text).read(gpu::read).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(|problem| toml::locate(&file, &text, problem)).collect();
        lines.join("\n")
    })
}

#[cfg(not(feature = "render"))]
fn read(path: &Path) -> Result<Gpu, String> {
    let path = path.display();
    Err(format!("this program was built without the feature `render`, which reads `{path}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_target_and_card() {
        let list = list("");
        assert!(arch::ALL.iter().all(|arch| list.contains(&*arch.name)), "{list}");
        assert!(card::ALL.iter().all(|card| list.contains(&card.slug())), "{list}");
    }
}
