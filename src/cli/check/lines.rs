//! The lines of a kernel that a report speaks of.

use super::texts::Texts;
use super::work::Stop;

/// The lines that `report` names by number, each with its text, and the file where the kernel is an edited copy.
pub(super) fn quoted(report: &str, stop: &Stop, texts: &Texts) -> String {
    // A report begins with the kernel's name.
    let name = stop.kernels.iter().find(|name| report.contains(&format!("`{name}`: ")));
    let Some(text) = name.and_then(|name| texts.get(&stop.arch, name)) else { return String::new() };
    let file = text.file.as_ref().map(|file| format!("\n  in `{}`", file.display())).unwrap_or_default();
    let mut numbers: Vec<usize> = report
        .split("line ")
        .skip(1)
        .filter_map(|rest| rest.split(|sign: char| !sign.is_ascii_digit()).next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let line =
        |number: usize| Some(format!("\n  {number:5} | {}", text.text.lines().nth(number.checked_sub(1)?)?));
    let lines: String = numbers.into_iter().filter_map(line).collect();
    format!("{file}{lines}")
}

#[cfg(test)]
mod tests {
    use super::super::super::kernels::Kernel;
    use super::*;
    use kernwright_plan::arch;
    use kernwright_plan::executor::MicroStep;

    #[test]
    fn a_report_is_followed_by_its_lines() {
        let arch = arch::ALL[0].clone();
        let text = "first\nsecond\nthird".to_owned();
        let kernel = Kernel { arch: arch.clone(), name: "scale".into(), spec: None, text, cubin: None };
        let texts = Texts::new(vec![kernel]);
        let kernels = vec!["scale".to_owned()];
        let stop = Stop { step: 0, micro: MicroStep::First, arch, kernels, gpus: Vec::new() };
        let report = "cannot run: `scale`: thread (1, 0, 0) of block (0, 0, 0), line 3: reads what line 1 wrote, line 99";
        assert_eq!(quoted(report, &stop, &texts), "\n      1 | first\n      3 | third");
        assert_eq!(quoted("of another kernel, line 1", &stop, &texts), "");
    }
}
