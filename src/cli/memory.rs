//! The memory that training takes, before it takes any.
//!
//! In: a Shape, a batch, plans, what a device takes beside them. Out: bytes by what they are for, the room there is for
//! them, the largest batch that fits, and what is said of one that does not. A plan is a pure function and cheap, so a
//! batch is tried by planning it.

use super::device::{Beside, Device};
use super::{program, shell, units};
use kernwright_plan::arch::Arch;
use kernwright_plan::buffer::Role;
use kernwright_plan::launch::Lowered;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::passes::memory;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step, train_step};
use std::fmt;

/// The memory there is.
pub(super) struct Room {
    /// Bytes; `None` where nobody knows.
    pub(super) bytes: Option<u64>,
    /// Who says so, in words that a number follows.
    pub(super) of: String,
}

impl Room {
    /// What is free on a device, or what of it may be used, in MiB.
    pub(super) fn on(device: &Device, budget: Option<u64>) -> Self {
        Self::new(device.free, &device.description, budget)
    }

    fn new(free: Option<u64>, device: &str, budget: Option<u64>) -> Self {
        match (free, budget.map(|mebibytes| mebibytes.saturating_mul(1 << 20))) {
            (free, Some(budget)) if free.is_none_or(|free| budget <= free) => {
                Self { bytes: Some(budget), of: "`--memory-budget` allows".to_owned() }
            }
            (free, _) => Self { bytes: free, of: format!("{device} has free") },
        }
    }
}

/// What training needs, by what for.
pub(super) struct Need {
    /// What lasts, by role; roles without any are left out.
    lasting: Vec<(Role, u64)>,
    /// What steps use in turn.
    transient: u64,
    /// What the device takes whatever the plan.
    beside: Beside,
}

impl Need {
    /// Of training and validation with this batch.
    pub(super) fn of_run(
        shape: &Shape,
        options: &PlanOptions,
        beside: &Beside,
        batch: usize,
        length: usize,
    ) -> Self {
        let training = train_step(shape, options, batch, length);
        let evaluation = forward_step(shape, options, batch, length, Head::Loss);
        Self::of(&[&training, &evaluation], beside)
    }

    /// Of training steps alone.
    pub(super) fn of_step(plan: &Plan, beside: &Beside) -> Self {
        Self::of(&[plan], beside)
    }

    /// Of plans over the same weights.
    fn of(plans: &[&Plan], beside: &Beside) -> Self {
        let lasting = Role::ALL.into_iter().filter(|role| role.is_persistent()).map(|role| {
            let bytes = plans.iter().enumerate().map(|(index, plan)| {
                // Weights and what belongs to them are shared.
                if index > 0 && role.is_shared() { 0 } else { memory::bytes(plan, role) }
            });
            (role, bytes.sum::<usize>() as u64)
        });
        let transient = plans.iter().map(|plan| plan.arena_bytes - plan.persistent_bytes);
        Self {
            lasting: lasting.filter(|(_, bytes)| *bytes > 0).collect(),
            transient: transient.max().unwrap_or(0) as u64,
            beside: beside.clone(),
        }
    }

    /// All of it.
    pub(super) fn total(&self) -> u64 {
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.sum::<u64>();
        let lasting = sum(&mut self.lasting.iter().map(|(_, bytes)| *bytes));
        lasting + self.transient + sum(&mut self.beside.iter().map(|(_, bytes)| *bytes))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| units::bytes(bytes as f64);
        write!(f, "`{}` (", bytes(self.total()))?;
        for (role, of_role) in &self.lasting {
            write!(f, "{} {}, ", role.name(), bytes(*of_role))?;
        }
        write!(f, "activations {}", bytes(self.transient))?;
        for (what, of_device) in &self.beside {
            write!(f, ", {what} {}", bytes(*of_device))?;
        }
        f.write_str(")")
    }
}

/// Training that is to find room.
pub(super) struct Fit<'a> {
    pub(super) room: &'a Room,
    /// What a batch needs.
    pub(super) need: Box<dyn Fn(usize) -> Need + 'a>,
    /// The largest batch that may be asked for, whatever room there is.
    pub(super) limit: usize,
    /// Can all of its steps be launched?
    pub(super) launches: Box<dyn Fn(usize) -> bool + 'a>,
}

impl Fit<'_> {
    /// The most sequences that fit; 0 where not even one does, or where nobody knows the room.
    pub(super) fn most(&self) -> usize {
        let Some(bytes) = self.room.bytes else { return 0 };
        largest(self.limit, |batch| (self.need)(batch).total() <= bytes && (self.launches)(batch))
    }

    /// Is there room for this batch?
    ///
    /// # Errors
    /// What is needed, what there is, and the command of the largest batch that fits.
    pub(super) fn check(&self, batch: usize) -> Result<(), String> {
        let need = (self.need)(batch);
        match self.room.bytes {
            Some(bytes) if need.total() > bytes => Err(self.refusal(&need, bytes)),
            _ => Ok(()),
        }
    }

    /// What is said where so much is needed and so many bytes are not enough.
    pub(super) fn refusal(&self, need: &Need, bytes: u64) -> String {
        let way_out = match self.most() {
            0 => "not even `--batch 1` fits: give a smaller `--length`, or a smaller model".to_owned(),
            most => {
                let command = command(&most.to_string(), std::env::args().skip(1));
                format!("the largest `--batch` that fits is `{most}`: {command}")
            }
        };
        let (of, shown) = (&self.room.of, units::bytes(bytes as f64));
        format!("training needs {need}, and {of} `{shown}`; {way_out}")
    }
}

/// Can a GPU launch every step of a plan?
pub(super) fn launches(plan: &Plan, arch: &Arch) -> bool {
    plan.steps.iter().all(|step| !matches!(step.op.lower(&plan.io(step), arch), Lowered::NoKernel(_)))
}

/// This very command with another `--batch`.
fn command(batch: &str, arguments: impl Iterator<Item = String>) -> String {
    let mut words = vec![program()];
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--batch" => _ = arguments.next(),
            text if text.starts_with("--batch=") => {}
            text => words.push(shell::word(text)),
        }
    }
    words.extend(["--batch".to_owned(), batch.to_owned()]);
    words.join(" ")
}

/// The largest number from 1 to `most` that fits; 0 where none does. What is above one that does not fit does not fit.
fn largest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let mut next = 1;
    while next <= most && fits(next) {
        next = next.saturating_mul(2);
    }
    // The last one that fitted, and one that did not or may not be asked for.
    let (mut largest, mut end) = (next / 2, next.min(most + 1));
    while end - largest > 1 {
        let middle = largest + (end - largest) / 2;
        *if fits(middle) { &mut largest } else { &mut end } = middle;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::shape::presets;

    #[test]
    fn the_largest_that_fits_is_found() {
        for most in [0, 1, 2, 3, 8, 100] {
            for limit in 0..=most + 3 {
                assert_eq!(largest(most, |n| n <= limit), limit.min(most), "{limit} of {most}");
            }
        }
    }

    #[test]
    fn a_larger_batch_needs_no_less_and_the_weights_the_same() {
        for options in [PlanOptions::default(), PlanOptions::host()] {
            let shape = presets::find("tiny").map(|preset| preset.shape()).unwrap_or_else(|| unreachable!());
            let beside = vec![("room for products", 3 << 20)];
            let need = |batch| Need::of_run(&shape, &options, &beside, batch, 96);
            let needs: Vec<Need> = (1..=20).map(need).collect();
            for pair in needs.windows(2) {
                assert!(pair[0].total() < pair[1].total());
                assert!(pair[0].lasting[0] == pair[1].lasting[0], "parameters");
            }
            let text = needs[0].to_string();
            assert!(text.contains("(parameter ") && text.contains("moment "), "{text}");
            assert!(text.ends_with(", room for products 3.00 MiB)"), "{text}");
            let bare = Need::of_run(&shape, &options, &Vec::new(), 1, 96);
            assert_eq!(needs[0].total() - bare.total(), 3 << 20);
            let plan = train_step(&shape, &options, 1, 96);
            assert_eq!(Need::of_step(&plan, &Vec::new()).total(), plan.arena_bytes as u64);
        }
    }

    #[test]
    fn a_budget_counts_where_it_is_less_than_what_is_free() {
        let room = Room::new(Some(5 << 20), "CPU", Some(3));
        assert_eq!((room.bytes, room.of.as_str()), (Some(3 << 20), "`--memory-budget` allows"));
        let room = Room::new(Some(2 << 20), "CPU", Some(3));
        assert_eq!((room.bytes, room.of.as_str()), (Some(2 << 20), "CPU has free"));
        assert_eq!(Room::new(None, "CPU", Some(3)).bytes, Some(3 << 20));
        assert_eq!(Room::new(None, "CPU", None).bytes, None);
    }

    #[test]
    fn what_a_device_takes_beside_plans_leaves_room_for_less() {
        let shape = presets::find("tiny").map(|preset| preset.shape()).unwrap_or_else(|| unreachable!());
        let room = Room::new(Some(200 << 20), "GPU 0", None);
        let fit = |bytes: u64| {
            let (beside, shape) = (vec![("room for products", bytes)], &shape);
            let need =
                move |batch| Need::of_step(&train_step(shape, &PlanOptions::default(), batch, 128), &beside);
            Fit { room: &room, need: Box::new(need), limit: 1000, launches: Box::new(|_| true) }
        };
        let few = Fit { launches: Box::new(|batch| batch <= 3), ..fit(0) };
        assert_eq!(few.most(), 3, "a launch has its limits, too");
        let most = [0, 50 << 20, 200 << 20].map(|bytes| fit(bytes).most());
        assert!(most[0] > most[1] && most[1] > 0 && most[2] == 0, "{most:?}");
        assert_eq!(fit(50 << 20).check(most[1]), Ok(()));
        let error = fit(50 << 20).check(most[0]).expect_err("it does not fit");
        for part in ["room for products 50.0 MiB", "GPU 0 has free `200 MiB`", &format!("is `{}`: ", most[1])]
        {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
        let error = fit(300 << 20).check(1).expect_err("nothing fits");
        assert!(error.contains("not even `--batch 1` fits"), "{error}");
    }

    #[test]
    fn the_command_is_the_same_but_for_the_batch() {
        let given = ["train", "--batch", "64", "--data", "my text", "--batch=3", "--steps", "4"];
        let typed = command("12", given.iter().map(ToString::to_string));
        let (_, rest) = typed.split_once(' ').unwrap_or_default();
        assert_eq!(rest, "train --data 'my text' --steps 4 --batch 12");
    }
}
