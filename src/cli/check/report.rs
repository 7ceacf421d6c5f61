//! What a check found, as a table or as data: a row per op, then every fault.
//!
//! In: findings. Out: lines, or a document for `--json`.

use super::super::table::{Row as Line, Side, Table};
use super::super::units;
use super::counters::{self, Counts};
use super::texts::Texts;
use super::walk::Finding;
use kernwright_plan::chain;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::lockstep::{Outcome, Row};
use kernwright_plan::ops;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One op.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OpRow {
    op: &'static str,
    /// Element types of what it writes.
    dtypes: Vec<&'static str>,
    /// Different texts that ran.
    n_kernels: usize,
    n_launches: usize,
    /// Of the buffer that comes closest to its tolerance, or goes furthest beyond it.
    error: Option<f64>,
    allowed: Option<f64>,
    share: Option<f64>,
    verdict: Verdict,
    /// Why it has no kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What is said of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Pass,
    Fail,
    NoKernel,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fault {
    op: String,
    kernels: Vec<String>,
    gpus: Vec<String>,
    /// Where a value is wrong: the op's name for the buffer, its type, index, both values.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    /// What was launched, where that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    launch: Option<String>,
    /// In words; the emulator's report where there is one.
    what: String,
}

#[derive(Clone, Debug, Serialize)]
struct Place {
    buffer: &'static str,
    dtype: &'static str,
    index: usize,
    n_elements: usize,
    expected: f64,
    found: f64,
    error: f64,
    share: f64,
}

/// Everything that a check found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Findings {
    pub(super) ops: Vec<OpRow>,
    pub(super) faults: Vec<Fault>,
    pub(super) kernels: Vec<KernelRow>,
    pub(super) n_kernels: usize,
    pub(super) n_launches: usize,
    pub(super) passed: bool,
}

/// One text of a kernel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KernelRow {
    kernel: String,
    op: &'static str,
    gpus: Vec<String>,
    n_steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<std::path::PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<Counts>,
}

impl Findings {
    /// Of these; `unreached` are kernels that nothing ran.
    pub(super) fn of(findings: &[Finding], texts: &Texts, unreached: &[String]) -> Self {
        let mut faults: Vec<Fault> = findings.iter().flat_map(|finding| faults(finding, texts)).collect();
        faults.extend(unreached.iter().map(|kernel| Fault {
            op: String::new(),
            kernels: Vec::new(),
            gpus: Vec::new(),
            place: None,
            launch: None,
            what: format!("{kernel} was not run: no plan of the check launches it"),
        }));
        let mut kernels: BTreeMap<usize, KernelRow> = BTreeMap::new();
        for Finding { op, stop, counters, .. } in
            findings.iter().filter(|one| !matches!(one.outcome, Outcome::NoKernel(_)))
        {
            for name in &stop.kernels {
                let Some(text) = texts.get(&stop.arch, name) else { continue };
                let row = || KernelRow {
                    kernel: name.clone(),
                    op,
                    gpus: Vec::new(),
                    n_steps: 0,
                    file: text.file.clone(),
                    counters: None,
                };
                let row = kernels.entry(text.number).or_insert_with(row);
                row.n_steps += 1;
                for counter in counters.iter().filter(|counter| counter.kernel == *name) {
                    row.counters.get_or_insert_default().add(counter, &text.text);
                }
                let new: Vec<_> = stop.gpus.iter().filter(|gpu| !row.gpus.contains(gpu)).cloned().collect();
                row.gpus.extend(new);
            }
        }
        let rows = ops::ALL.iter().flat_map(|row| op_rows(row.name, findings, texts));
        Self {
            ops: rows.collect(),
            passed: faults.is_empty(),
            faults,
            n_kernels: kernels.len(),
            n_launches: findings.iter().map(|finding| finding.launches).sum(),
            kernels: kernels.into_values().collect(),
        }
    }

    /// Ops without a kernel.
    pub(super) fn n_missing(&self) -> usize {
        self.ops.iter().filter(|row| row.verdict == Verdict::NoKernel).count()
    }

    /// The table.
    pub(super) fn table(&self) -> Vec<String> {
        use Side::{Left, Right};
        let columns = vec![
            ("op", Left),
            ("types", Left),
            ("kernels", Right),
            ("launches", Right),
            ("worst error", Right),
            ("allowed", Right),
            ("share", Right),
            ("", Left),
        ];
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1e}"));
        let row = |row: &OpRow| {
            let verdict = match (row.verdict, &row.why) {
                (Verdict::Pass, _) => "pass".to_owned(),
                (Verdict::Fail, _) => "FAIL".to_owned(),
                (Verdict::NoKernel, why) => match why.as_deref() {
                    Some("no kernel yet") | None => "no kernel yet".to_owned(),
                    Some(why) => format!("no kernel yet: {why}"),
                },
            };
            Line::Cells(vec![
                row.op.to_owned(),
                row.dtypes.join(", "),
                row.n_kernels.to_string(),
                row.n_launches.to_string(),
                number(row.error),
                number(row.allowed),
                row.share.map_or("-".to_owned(), |share| format!("{share:.2}")),
                verdict,
            ])
        };
        Table { columns, rows: self.ops.iter().map(row).collect() }.lines()
    }

    /// What was counted, kernel by kernel.
    pub(super) fn counts(&self) -> Vec<String> {
        counters::table(
            self.kernels.iter().filter_map(|row| Some((row.kernel.as_str(), row.counters.as_ref()?))),
        )
    }

    /// Every fault, and what is to be said last.
    pub(super) fn summary(&self, seconds: f64) -> Vec<String> {
        let mut lines = Vec::new();
        for fault in &self.faults {
            lines.push(String::new());
            lines.extend(fault.lines());
        }
        lines.push(String::new());
        let counts = format!("{}, {}", count(self.n_kernels, "kernel"), count(self.n_launches, "launch"));
        let seconds = units::seconds(seconds);
        lines.push(match (self.faults.len(), self.n_missing()) {
            (0, 0) => format!("{counts}, all within the tolerance, {seconds}"),
            (0, missing) => {
                let missing = count(missing, "op");
                format!("{counts}, all within the tolerance, {seconds}; without a kernel yet: {missing}")
            }
            (n, _) => format!("{counts}, {}, {seconds}", count(n, "fault")),
        });
        lines
    }
}

impl Fault {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("error: {}", self.what)];
        let gpus = self.gpus.join(", ");
        if let Some(launch) = &self.launch {
            lines.push(format!("  {launch}, for {gpus}"));
        } else if !self.kernels.is_empty() {
            let names: Vec<String> = self.kernels.iter().map(|name| format!("`{name}`")).collect();
            let kernels = if names.len() == 1 { "kernel" } else { "kernels" };
            lines.push(format!("  {kernels} {} for {gpus}", names.join(", ")));
        }
        lines
    }
}

/// `1 kernel`, `2 launches`.
fn count(n: usize, what: &str) -> String {
    let ending = match (n, what.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {what}{ending}", units::grouped(n))
}

/// A row per op, none where it is in no plan; one more for its steps without a kernel.
fn op_rows(op: &'static str, findings: &[Finding], texts: &Texts) -> Vec<OpRow> {
    let of_op: Vec<&Finding> = findings.iter().filter(|finding| finding.op == op).collect();
    let why = of_op.iter().find_map(|finding| match &finding.outcome {
        Outcome::NoKernel(why) => Some(why.clone()),
        _ => None,
    });
    let ran: Vec<&Finding> =
        of_op.into_iter().filter(|finding| !matches!(finding.outcome, Outcome::NoKernel(_))).collect();
    let mut rows = Vec::new();
    if !ran.is_empty() {
        let compared = || ran.iter().flat_map(|finding| rows_of(finding));
        let worst = compared().reduce(|worst, row| if beyond(row, worst) { row } else { worst });
        let dtypes: BTreeSet<&str> = compared().map(|row| row.dtype.name()).collect();
        let numbers = ran.iter().flat_map(|finding| {
            let number = |name: &String| texts.get(&finding.stop.arch, name).map(|text| text.number);
            finding.stop.kernels.iter().filter_map(number)
        });
        let failed = ran.iter().any(|finding| finding.outcome.fault().is_some());
        rows.push(OpRow {
            op,
            dtypes: dtypes.into_iter().collect(),
            n_kernels: numbers.collect::<BTreeSet<usize>>().len(),
            n_launches: ran.iter().map(|finding| finding.launches).sum(),
            error: worst.map(|row| row.error),
            allowed: worst.map(|row| row.allowed),
            share: worst.map(|row| row.share),
            verdict: if failed { Verdict::Fail } else { Verdict::Pass },
            why: None,
        });
    }
    rows.extend(why.map(|why| OpRow {
        op,
        dtypes: Vec::new(),
        n_kernels: 0,
        n_launches: 0,
        error: None,
        allowed: None,
        share: None,
        verdict: Verdict::NoKernel,
        why: Some(why),
    }));
    rows
}

fn rows_of(finding: &Finding) -> &[Row] {
    match &finding.outcome {
        Outcome::Compared { rows, .. } => rows,
        _ => &[],
    }
}

/// Is it worse? What is no number is worst.
fn beyond(row: &Row, other: &Row) -> bool {
    row.share > other.share || row.share.is_nan()
}

/// Every fault of a step.
fn faults(finding: &Finding, texts: &Texts) -> Vec<Fault> {
    let Finding { op, stop, outcome, .. } = finding;
    let fault = |what: String, place| Fault {
        op: (*op).to_owned(),
        kernels: stop.kernels.clone(),
        gpus: stop.gpus.clone(),
        place,
        launch: None,
        what,
    };
    match outcome {
        Outcome::NoKernel(_) => Vec::new(),
        Outcome::Failed(error) => {
            let (launch, report) = failure(error);
            let lines = super::lines::quoted(&report, stop, texts);
            let told = stop.kernels.iter().find_map(|name| report.strip_prefix(&format!("`{name}`: ")));
            let what = format!("`{op}`: {}{lines}", told.unwrap_or(&report));
            vec![Fault { launch, ..fault(what, None) }]
        }
        Outcome::Compared { rows, strays } => {
            let wrong = rows.iter().filter(|row| !row.passes()).map(|row| fault(told(row), Some(place(row))));
            wrong.chain(strays.iter().map(|stray| fault(stray.clone(), None))).collect()
        }
    }
}

/// What was launched, in words, and what the emulator says of it; else the error with its causes.
fn failure(error: &ExecutorError) -> (Option<String>, String) {
    match error {
        // The step is the only one of its plan: its number says nothing.
        ExecutorError::Device { what, source } if what.starts_with("run step ") => {
            let launch = what.split_once("), ").map(|(_, launch)| launch.to_owned());
            (launch, chain(source.as_ref()))
        }
        error => (None, chain(error)),
    }
}

fn told(row: &Row) -> String {
    let Row { op, slot, dtype, index, elements, expected, found, error, allowed, share, .. } = row;
    format!(
        "`{op}`: `{slot}` ({}) at index {index} of {elements} must be {expected:.6e}, found {found:.6e}: off by \
         {error:.1e}, {allowed:.1e} is allowed, {share:.2} of the tolerance",
        dtype.name()
    )
}

fn place(row: &Row) -> Place {
    Place {
        buffer: row.slot,
        dtype: row.dtype.name(),
        index: row.index,
        n_elements: row.elements,
        expected: row.expected,
        found: row.found,
        error: row.error,
        share: row.share,
    }
}
