//! The search: rounds of tiles around the best of each unit, until nothing near is unknown or time is up; then the fastest of each
//! unit and its current one take turns.
//!
//! In: units, a machine, what is known of earlier. Out: a [`Finding`] for each unit. What is measured is written at once, so a stop at
//! any point loses nothing; and no tile takes the place of another that did not lose to it in turns.

use super::search::{Fate, Known, best, fastest, proposals};
use super::state::State;
use super::trials::{Heard, Machine, Trial};
use super::units::Unit;
use std::collections::HashMap;
use std::error::Error;

/// Most rounds: the best moves by a number or two in each, and never far.
const ROUNDS: usize = 4;

/// Tiles that take turns with the current one, and how many turns.
const FINALISTS: usize = 3;
const TURNS: usize = 5;

/// A tile must be faster by so much to take the current one's place: less may be luck.
const GAIN: f64 = 1.015;

/// How to search.
pub(super) struct Search<'a> {
    /// Every legal tile, not only those near the best?
    pub(super) all: bool,
    /// Is it to measure nothing new?
    pub(super) stop: &'a dyn Fn() -> bool,
    /// Is it to end, whatever is left? There is time for turns between the two.
    pub(super) end: &'a dyn Fn() -> bool,
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
        let texts = machine.texts(&trials)?;
        let unknown = |number: &usize| {
            let (unit, tile) = &trials[*number];
            state.of(&unit.key(), tile, &texts[*number]).is_none()
        };
        let open: Vec<usize> = (0..trials.len()).filter(unknown).collect();
        machine.compile(&open.iter().map(|number| trials[*number].clone()).collect::<Vec<_>>())?;
        of += trials.len();
        for (index, unit) in units.iter().enumerate() {
            let mut missing: Vec<(&[usize], &str)> = Vec::new();
            for (number, (_, tile)) in trials.iter().enumerate().filter(|(n, _)| owners[*n] == index) {
                let text = texts[number].as_str();
                let mut fate = state.of(&unit.key(), tile, text);
                if let Ok(place) = open.binary_search(&number)
                    && let Some(fault) = machine.fault(place)?
                {
                    let rejected = Fate::Rejected(fault);
                    state.end(&unit.key(), tile, text, &rejected)?;
                    fate = Some(rejected);
                }
                match fate {
                    Some(fate) => {
                        known[index].push((tile.clone(), fate));
                        done += 1;
                    }
                    None => missing.push((tile, text)),
                }
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
    let mut is_whole = !(search.stop)();
    let mut findings = Vec::new();
    for ((unit, known), current) in units.iter().zip(known).zip(current) {
        findings.extend(current.map(|current| undecided(*unit, current, known)));
    }
    // What promises most comes first, should the time be short.
    let mut order: Vec<usize> = (0..findings.len()).collect();
    order.sort_by(|one, other| promised(&findings[*other]).total_cmp(&promised(&findings[*one])));
    for index in order {
        if (search.end)() {
            is_whole = false;
            break;
        }
        decide(&mut findings[index], machine, state)?;
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
    fn measure(&mut self, tiles: &[(&[usize], &str)]) -> Result<Vec<Known>, Box<dyn Error>> {
        let Self { unit, machine, state, verdicts, stop } = self;
        let key = unit.key();
        let new: Vec<_> = tiles.iter().filter(|(_, text)| !verdicts.contains_key(*text)).collect();
        let values: Vec<Vec<usize>> = new.iter().map(|(tile, _)| tile.to_vec()).collect();
        if !values.is_empty() {
            machine.check(unit, &values, &mut |heard| {
                match heard {
                    Heard::Begin(number) => state.begin(&key, new[number].0, new[number].1)?,
                    Heard::End(number, fault) => {
                        let (tile, text) = new[number];
                        if let Some(fault) = &fault {
                            state.end(&key, tile, text, &Fate::Rejected(format!("is wrong: {fault}")))?;
                        }
                        state.returned(&key, tile, text)?;
                        verdicts.insert((*text).to_owned(), fault);
                    }
                }
                Ok(!stop())
            })?;
        }
        let mut found: Vec<Known> = Vec::new();
        let mut right = Vec::new();
        for (tile, text) in tiles {
            match verdicts.get(*text) {
                Some(Some(fault)) => {
                    let fate = Fate::Rejected(format!("is wrong: {fault}"));
                    state.end(&key, tile, text, &fate)?;
                    found.push((tile.to_vec(), fate));
                }
                Some(None) => right.push((tile.to_vec(), *text)),
                // It was to stop before this one.
                None => {}
            }
        }
        let values: Vec<Vec<usize>> = right.iter().map(|(tile, _)| tile.clone()).collect();
        if let (Some((tile, text)), false) = (right.first(), stop()) {
            state.watch(&key, tile, text);
            machine.time(unit, &values, &mut |number, seconds| {
                let fate = Fate::Timed(seconds);
                state.end(&key, &values[number], right[number].1, &fate)?;
                found.push((values[number].clone(), fate));
                if let Some((tile, text)) = right.get(number + 1) {
                    state.watch(&key, tile, text);
                }
                Ok(!stop())
            })?;
            state.rest();
        }
        Ok(found)
    }
}

/// A unit with what is known, whose tile is the current one until another wins.
fn undecided(unit: Unit, current: Vec<usize>, known: Vec<Known>) -> Finding {
    let before = known.iter().find_map(|(tile, fate)| match fate {
        Fate::Timed(seconds) if *tile == current => Some(*seconds),
        _ => None,
    });
    Finding { unit, tile: current.clone(), current, before, seconds: before, known }
}

/// How many times faster the best seems; 0 where nothing is known.
fn promised(finding: &Finding) -> f64 {
    let best = best(&finding.known).map_or(f64::INFINITY, |(_, seconds)| seconds);
    finding.before.unwrap_or(f64::MAX) / best
}

/// Has the current tile and those that seem faster take turns, and prefers the fastest of them where it is by enough. Where the
/// current one cannot run, the best of what is known.
fn decide(finding: &mut Finding, machine: &mut dyn Machine, state: &mut State) -> Result<(), Box<dyn Error>> {
    let Some(before) = finding.before else {
        if let Some((tile, seconds)) = best(&finding.known) {
            (finding.tile, finding.seconds) = (tile.to_vec(), Some(seconds));
        }
        return Ok(());
    };
    let faster = fastest(&finding.known).into_iter().filter(|(_, seconds)| before > GAIN * seconds);
    let faster = faster.map(|(tile, _)| tile.to_vec()).take(FINALISTS);
    let finalists: Vec<Vec<usize>> = std::iter::once(finding.current.clone()).chain(faster).collect();
    if finalists.len() == 1 {
        return Ok(());
    }
    let n = finalists.len();
    let tiles: Vec<Vec<usize>> = finalists.iter().cycle().take(n * TURNS).cloned().collect();
    let key = finding.unit.key();
    let trials: Vec<Trial> = finalists.iter().map(|tile| (finding.unit, tile.clone())).collect();
    let texts = machine.texts(&trials)?;
    let mut times = vec![Vec::new(); n];
    state.watch(&key, &tiles[0], &texts[0]);
    machine.time(&finding.unit, &tiles, &mut |number, seconds| {
        times[number % n].push(seconds);
        let next = (number + 1) % n;
        state.watch(&key, &finalists[next], &texts[next]);
        Ok(true)
    })?;
    state.rest();
    let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
    finding.before = Some(medians[0]);
    finding.seconds = finding.before;
    let all = finalists.into_iter().zip(medians);
    if let Some((tile, seconds)) = all.min_by(|one, other| one.1.total_cmp(&other.1))
        && finding.before.is_some_and(|before| before > GAIN * seconds)
    {
        (finding.tile, finding.seconds) = (tile, Some(seconds));
    }
    Ok(())
}

/// The middle one.
fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests;
