//! The search: rounds of tiles around the best of each unit, until nothing near is unknown or time is up.
//!
//! In: units, a machine, what is known of earlier. Out: a [`Finding`] for each unit. What is measured is written at once, so a stop at
//! any point loses nothing.

use super::search::{Fate, Known, best, proposals};
use super::state::State;
use super::trials::{Heard, Machine, Prepared, Trial};
use super::units::Unit;
use std::collections::HashMap;
use std::error::Error;

/// Most rounds: the best moves by a number or two in each, and never far.
const ROUNDS: usize = 4;

/// Times that the best and the current tile take turns before one is preferred.
const DUELS: usize = 3;

/// A tile must be faster by so much to take the current one's place: less may be luck.
const GAIN: f64 = 1.01;

/// How to search.
pub(super) struct Search<'a> {
    /// Every legal tile, not only those near the best?
    pub(super) all: bool,
    /// Is it to stop?
    pub(super) stop: &'a dyn Fn() -> bool,
    /// Hears what goes on: how many tiles are done and known of, and what is next.
    pub(super) tell: &'a dyn Fn(usize, usize, &str),
}

/// What came of a unit.
pub(super) struct Finding {
    pub(super) unit: Unit,
    /// The tile it had, and what that takes, seconds.
    pub(super) current: Vec<usize>,
    pub(super) before: Option<f64>,
    /// The tile it is to have, and what that takes.
    pub(super) tile: Vec<usize>,
    pub(super) seconds: Option<f64>,
    /// All that is known.
    pub(super) known: Vec<Known>,
}

/// Searches; the second is whether it came to its end.
pub(super) fn tune(
    units: &[Unit],
    machine: &mut dyn Machine,
    state: &mut State,
    search: &Search<'_>,
) -> Result<(Vec<Finding>, bool), Box<dyn Error>> {
    let mut known: Vec<Vec<Known>> = vec![Vec::new(); units.len()];
    let current: Vec<Option<Vec<usize>>> = units.iter().map(|unit| machine.current(unit)).collect();
    let legal: Vec<Vec<Vec<usize>>> = units.iter().map(|unit| machine.candidates(unit)).collect();
    // Tiles whose text ran correctly once, or did not, whatever the length.
    let mut verdicts: HashMap<String, Option<String>> = HashMap::new();
    let (mut done, mut of) = (0, 0);
    for _ in 0..ROUNDS {
        let mut trials: Vec<Trial> = Vec::new();
        let mut owners = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let Some(current) = &current[index] else { continue };
            for tile in proposals(current, &legal[index], &known[index], search.all) {
                trials.push((*unit, tile));
                owners.push(index);
            }
        }
        if trials.is_empty() || (search.stop)() {
            break;
        }
        let prepared = machine.prepare(&trials)?;
        of += trials.len();
        for (index, unit) in units.iter().enumerate() {
            let mut missing: Vec<(&[usize], &Prepared)> = Vec::new();
            for (number, (_, tile)) in trials.iter().enumerate().filter(|(n, _)| owners[*n] == index) {
                let prepared = &prepared[number];
                let fate = match (state.of(&unit.key(), tile, &prepared.text), &prepared.fault) {
                    (Some(fate), _) => fate,
                    (None, Some(fault)) => Fate::Rejected(fault.clone()),
                    (None, None) => {
                        missing.push((tile, prepared));
                        continue;
                    }
                };
                known[index].push((tile.clone(), fate));
                done += 1;
            }
            let verdicts = &mut verdicts;
            let mut one =
                One { unit, machine: &mut *machine, state: &mut *state, verdicts, stop: search.stop };
            (search.tell)(done, of, &unit.place());
            let n_missing = missing.len();
            known[index].extend(one.measure(&missing)?);
            done += n_missing;
            (search.tell)(done, of, &unit.place());
            if (search.stop)() {
                break;
            }
        }
        if (search.stop)() {
            break;
        }
    }
    let is_whole = !(search.stop)();
    let mut findings = Vec::new();
    for ((unit, known), current) in units.iter().zip(known).zip(current) {
        let Some(current) = current else { continue };
        let finding = decided(*unit, current, known);
        findings.push(if is_whole { duel(finding, machine)? } else { finding });
    }
    Ok((findings, is_whole))
}

/// Measures tiles of one unit.
struct One<'a> {
    unit: &'a Unit,
    machine: &'a mut dyn Machine,
    state: &'a mut State,
    verdicts: &'a mut HashMap<String, Option<String>>,
    stop: &'a dyn Fn() -> bool,
}

impl One<'_> {
    fn measure(&mut self, tiles: &[(&[usize], &Prepared)]) -> Result<Vec<Known>, Box<dyn Error>> {
        let Self { unit, machine, state, verdicts, stop } = self;
        let key = unit.key();
        let new: Vec<_> =
            tiles.iter().filter(|(_, prepared)| !verdicts.contains_key(&prepared.text)).collect();
        let values: Vec<Vec<usize>> = new.iter().map(|(tile, _)| tile.to_vec()).collect();
        if !values.is_empty() {
            machine.check(unit, &values, &mut |heard| {
                match heard {
                    Heard::Begin(number) => state.begin(&key, new[number].0, &new[number].1.text)?,
                    Heard::End(number, fault) => {
                        state.returned(&key, new[number].0, &new[number].1.text)?;
                        verdicts.insert(new[number].1.text.clone(), fault);
                    }
                }
                Ok(!stop())
            })?;
        }
        let mut found: Vec<Known> = Vec::new();
        let mut right = Vec::new();
        for (tile, prepared) in tiles {
            match verdicts.get(&prepared.text) {
                Some(Some(fault)) => {
                    let fate = Fate::Rejected(format!("is wrong: {fault}"));
                    state.end(&key, tile, &prepared.text, &fate)?;
                    found.push((tile.to_vec(), fate));
                }
                Some(None) => right.push((tile.to_vec(), prepared)),
                // It was to stop before this one.
                None => {}
            }
        }
        let values: Vec<Vec<usize>> = right.iter().map(|(tile, _)| tile.clone()).collect();
        if !values.is_empty() && !stop() {
            machine.time(unit, &values, &mut |number, seconds| {
                let fate = Fate::Timed(seconds);
                state.end(&key, &values[number], &right[number].1.text, &fate)?;
                found.push((values[number].clone(), fate));
                Ok(!stop())
            })?;
        }
        Ok(found)
    }
}

/// What is best by what is known.
fn decided(unit: Unit, current: Vec<usize>, known: Vec<Known>) -> Finding {
    let seconds = |tile: &[usize]| {
        known.iter().find_map(|(other, fate)| match fate {
            Fate::Timed(seconds) if other == tile => Some(*seconds),
            _ => None,
        })
    };
    let before = seconds(&current);
    let found = best(&known).map(|(tile, seconds)| (tile.to_vec(), seconds));
    let (tile, seconds) = match found {
        Some((tile, seconds)) if before.is_none_or(|before| before > GAIN * seconds) => (tile, Some(seconds)),
        _ => (current.clone(), before),
    };
    Finding { unit, current, before, tile, seconds, known }
}

/// Has the tile that was found and the current one take turns, and keeps the current one unless it is slower again.
fn duel(mut finding: Finding, machine: &mut dyn Machine) -> Result<Finding, Box<dyn Error>> {
    if finding.tile == finding.current || finding.before.is_none() {
        return Ok(finding);
    }
    let pair = [finding.current.clone(), finding.tile.clone()];
    let tiles: Vec<Vec<usize>> = pair.iter().cycle().take(2 * DUELS).cloned().collect();
    let mut least = [f64::INFINITY; 2];
    machine.time(&finding.unit, &tiles, &mut |number, seconds| {
        least[number % 2] = least[number % 2].min(seconds);
        Ok(true)
    })?;
    let [before, seconds] = least;
    finding.before = Some(before);
    if before > GAIN * seconds {
        finding.seconds = Some(seconds);
    } else {
        finding.tile.clone_from(&finding.current);
        finding.seconds = Some(before);
    }
    Ok(finding)
}

#[cfg(test)]
mod tests;
