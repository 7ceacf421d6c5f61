//! The search over a machine whose times are made up.

use super::super::super::bench::Case;
use super::super::report;
use super::super::units::{Pass, case, units};
use super::*;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::tuning::{self, Row, Table};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Compiles and runs nothing.
struct Made {
    arch: Arch,
    /// Tiles that were held to the definition and timed, by unit.
    checked: RefCell<Vec<(String, Vec<usize>)>>,
    timed: Cell<usize>,
    /// Does each tile seem faster than it is the first time, by so much?
    luck: Cell<f64>,
    seen: RefCell<Vec<Vec<usize>>>,
    compiled: RefCell<Vec<Trial>>,
}

impl Made {
    fn new() -> Self {
        let arch = arch::find("sm_90a").expect("it is a row").clone();
        let (checked, compiled) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let seen = RefCell::new(Vec::new());
        Self { arch, checked, timed: Cell::new(0), luck: Cell::new(1.0), seen, compiled }
    }

    /// Fastest with 112 keys in three places.
    fn seconds(tile: &[usize]) -> f64 {
        1e-4 * (1.0 + tile[2].abs_diff(112) as f64 / 100.0 + tile[3].abs_diff(3) as f64 / 10.0)
    }
}

impl Machine for Made {
    fn current(&self, unit: &Unit) -> Option<Vec<usize>> {
        (unit.kernel.of)(&unit.op(), &self.arch)
    }

    fn candidates(&self, unit: &Unit) -> Vec<Vec<usize>> {
        (unit.kernel.candidates)(&unit.op(), &self.arch)
    }

    fn texts(&mut self, trials: &[Trial]) -> Result<Vec<String>, Box<dyn Error>> {
        Ok(trials.iter().map(|(unit, tile)| format!("{} {tile:?}", unit.kernel.name)).collect())
    }

    fn compile(&mut self, trials: &[Trial]) -> Result<(), Box<dyn Error>> {
        *self.compiled.borrow_mut() = trials.to_vec();
        Ok(())
    }

    fn fault(&mut self, number: usize) -> Result<Option<String>, Box<dyn Error>> {
        let (_, tile) = &self.compiled.borrow()[number];
        Ok((tile[0] == 1).then(|| "spills: 8 bytes".to_owned()))
    }

    fn check(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: super::super::trials::Listener<'_>,
    ) -> Result<(), Box<dyn Error>> {
        for (number, tile) in tiles.iter().enumerate() {
            heard(Heard::Begin(number))?;
            self.checked.borrow_mut().push((unit.key(), tile.clone()));
            let fault = (tile[2] == 96).then(|| "step 0: expected 1, found 2".to_owned());
            if !heard(Heard::End(number, fault))? {
                break;
            }
        }
        Ok(())
    }

    fn time(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: &mut dyn FnMut(usize, f64) -> Result<bool, String>,
    ) -> Result<(), Box<dyn Error>> {
        for (number, tile) in tiles.iter().enumerate() {
            self.timed.set(self.timed.get() + 1);
            let is_first = !self.seen.borrow().contains(tile);
            self.seen.borrow_mut().push(tile.clone());
            let luck =
                if is_first && Some(tile) != self.current(unit).as_ref() { self.luck.get() } else { 1.0 };
            if !heard(number, luck * Self::seconds(tile))? {
                break;
            }
        }
        Ok(())
    }
}

fn forward() -> Vec<Unit> {
    let arch = arch::find("sm_90a").expect("it is a row");
    let cases = [1024, 4096].map(|length| case([64, 1, length], None, Case::CAUSAL));
    units(&cases, &[Pass::Forward], arch)
}

fn search<'a>(stop: &'a dyn Fn() -> bool) -> Search<'a> {
    Search { all: false, stop, end: stop, tell: &|_, _, _| {} }
}

#[test]
fn what_is_found_is_written_read_and_chosen() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut state = State::open(&folder.path().join("x"), "about").expect("it is new");
    let mut machine = Made::new();
    let (findings, is_whole) =
        tune(&forward(), &mut machine, &mut state, &search(&|| false)).expect("it runs");
    assert!(is_whole && findings.len() == 2);
    for finding in &findings {
        assert_eq!((finding.tile[2], finding.tile[3]), (112, 3), "{:?}", finding.tile);
        assert!(report::gain(finding).is_some_and(|gain| gain > 1.05));
        let rejected = finding.known.iter().filter(|(_, fate)| matches!(fate, Fate::Rejected(_)));
        assert!(rejected.clone().all(|(tile, _)| tile[0] == 1 || tile[2] == 96));
        assert!(rejected.count() >= 2);
    }
    let texts: std::collections::BTreeSet<_> =
        machine.checked.borrow().iter().map(|(_, tile)| tile.clone()).collect();
    assert_eq!(texts.len(), machine.checked.borrow().len(), "a text is held to the definition once");
    let lines = report::lines(&findings).join("\n");
    for wanted in
        ["keys 112, ring 3", "forward: geometric mean of 2 gains", "times: spills", "times: is wrong"]
    {
        assert!(lines.contains(wanted), "`{wanted}` is not in\n{lines}");
    }
    let picture = super::super::picture::picture(&findings, "a <title>");
    assert!(picture.contains("a &lt;title&gt;") && picture.matches("class=\"before\"").count() == 2);

    let table = report::table(&findings, Table { arch: "sm_90a".to_owned(), ..Table::default() });
    let text = tuning::write(&table, &[]);
    let read = tuning::read("x", &text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
    assert_eq!(read, table);
    let arch = Arch { tuned: Some(Arc::new(read)), ..machine.arch.clone() };
    for finding in &findings {
        assert_eq!((finding.unit.kernel.of)(&finding.unit.op(), &arch), Some(finding.tile.clone()));
    }
    assert_eq!(report::table(&findings, table.clone()), table, "the same again changes nothing");
}

#[test]
fn a_stop_loses_nothing_that_was_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || State::open(&folder.path().join("x"), "about").expect("it opens");
    let mut machine = Made::new();
    let left = Cell::new(40);
    let stop = || {
        left.set(left.get() - 1);
        left.get() < 0
    };
    let (_, is_whole) = tune(&forward(), &mut machine, &mut open(), &search(&stop)).expect("it stops");
    assert!(!is_whole && machine.timed.get() > 0);
    let before = machine.timed.get();
    let (findings, is_whole) =
        tune(&forward(), &mut machine, &mut open(), &search(&|| false)).expect("it goes on");
    assert!(is_whole);
    let timed: usize = findings.iter().map(|finding| finding.known.len()).sum();
    let mut fresh = Made::new();
    let path = folder.path().join("y");
    let mut state = State::open(&path, "about").expect("it is new");
    let (once, _) = tune(&forward(), &mut fresh, &mut state, &search(&|| false)).expect("it runs");
    assert_eq!(
        findings.iter().map(|f| &f.tile).collect::<Vec<_>>(),
        once.iter().map(|f| &f.tile).collect::<Vec<_>>()
    );
    assert_eq!(timed, once.iter().map(|finding| finding.known.len()).sum::<usize>());
    assert_eq!(machine.timed.get(), fresh.timed.get(), "{before} of them before the stop");
}

#[test]
fn what_was_faster_once_does_not_win() {
    let folder = tempfile::tempdir().expect("a folder");
    let tuned = |luck: f64, is_best: bool, name: &str| {
        let mut state = State::open(&folder.path().join(name), "about").expect("it is new");
        let mut machine = Made::new();
        // The best there is.
        let wins = Made::new();
        let units = &forward()[..1];
        let tile: Vec<usize> = wins
            .candidates(&units[0])
            .into_iter()
            .filter(|tile| tile[0] > 1 && tile[2] != 96)
            .min_by(|one, other| Made::seconds(one).total_cmp(&Made::seconds(other)))
            .expect("there are some");
        let row = Row { when: units[0].when(), kernel: units[0].kernel.name, values: tile, measured: None };
        let table = Table { arch: "sm_90a".to_owned(), card: String::new(), rows: vec![row] };
        machine.arch.tuned = is_best.then(|| Arc::new(table));
        machine.luck.set(luck);
        let (findings, _) = tune(units, &mut machine, &mut state, &search(&|| false)).expect("it runs");
        let Finding { tile, current, before, seconds, .. } = &findings[0];
        assert_eq!(tile == current, before == seconds);
        tile == current
    };
    assert!(tuned(0.5, true, "lucky"), "each was twice as fast, once");
    assert!(!tuned(0.5, false, "better"), "some are faster each time");
}

#[test]
fn without_time_for_turns_nothing_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut state = State::open(&folder.path().join("x"), "about").expect("it is new");
    let never = || false;
    let search = Search { all: false, stop: &never, end: &|| true, tell: &|_, _, _| {} };
    let (findings, is_whole) = tune(&forward(), &mut Made::new(), &mut state, &search).expect("it runs");
    assert!(!is_whole && findings.iter().all(|finding| finding.tile == finding.current));
    assert!(findings.iter().all(|finding| finding.known.len() > 10), "all was measured, though");
}
