//! An earlier `--json` that a measurement is held to.

use super::figures::Figures;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Reads it, before anything is measured.
pub(super) fn read(path: &Path) -> Result<Figures, Box<dyn Error>> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let before: Figures = serde_json::from_str(&text)
        .map_err(|error| format!("`{shown}` must be what `bench step --json` printed: {error}"))?;
    let speed = before.tokens_per_second;
    if !(speed.is_finite() && speed > 0.0) {
        return Err(format!(
            "`{shown}` must have a speed above 0, found `{speed}` tokens/s: measure a new one"
        )
        .into());
    }
    Ok(before)
}

/// Holds it to be of the same step on the same device.
pub(super) fn check(path: &Path, before: &Figures, now: &Figures) -> Result<(), Box<dyn Error>> {
    let Some((what, before, now)) = difference(before, now) else { return Ok(()) };
    let rule = format!("the baseline `{}` must be of the same {what}", path.display());
    Err(format!("{rule} (`{now}`), found `{before}`: measure a new one").into())
}

/// The first thing in which two measurements are not of the same step: what was asked for, not what came out.
fn difference(before: &Figures, now: &Figures) -> Option<(&'static str, String, String)> {
    let of = |figures: &Figures| {
        [
            ("shape", figures.shape.join(", ")),
            ("batch", figures.batch.to_string()),
            ("length", figures.length.to_string()),
            ("precision", figures.precision.clone()),
            ("grad dtype", figures.grad_dtype.clone()),
            ("attention", figures.attention.clone()),
            ("determinism", figures.deterministic.to_string()),
            ("passes left out", figures.without.join(", ")),
            ("forms taken instead", figures.with.join(", ")),
            ("head chunk", figures.head_chunk.map_or("its own".to_owned(), |rows| rows.to_string())),
            ("number of batches", figures.batches.to_string()),
            ("device", figures.device.clone()),
        ]
    };
    let pairs = of(before).into_iter().zip(of(now));
    let mut unlike = pairs.filter(|(before, now)| before != now);
    unlike.next().map(|((what, before), (_, now))| (what, before, now))
}

/// A line on how they compare, and whether the new one is fast enough.
pub(super) fn compare(before: &Figures, now: &Figures, least: f64) -> (String, bool) {
    let ratio = now.tokens_per_second / before.tokens_per_second;
    let (old, new) = (before.tokens_per_second.round(), now.tokens_per_second.round());
    // A ratio that is no number is no success.
    let passed = ratio >= least;
    let verdict = if passed { "at least" } else { "below" };
    (format!("{ratio:.3} of the baseline's {old} tokens/s, found {new}: {verdict} {least}"), passed)
}
