//! An executor that does nothing before somebody waits for it.
//!
//! In: what an executor is asked for. Out: the same as the definition's, later; how often somebody waited.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, Fetch, MicroStep, PlanId, Values};
use kernwright_plan::plan::Plan;
use kernwright_plan::reference::{Reference, Rounding};

/// Something that was asked for.
enum Asked {
    WriteFloats(PlanId, BufferId, Vec<f32>),
    WriteInts(PlanId, BufferId, Vec<i32>),
    Run(PlanId, Range<usize>, MicroStep),
    Fetch(PlanId, BufferId, usize),
}

/// The executor.
pub(crate) struct Lazy {
    plans: Vec<Plan>,
    n_fetches: usize,
    inner: RefCell<Inner>,
}

struct Inner {
    executor: Reference<f32>,
    asked: VecDeque<Asked>,
    fetched: HashMap<usize, Vec<f32>>,
    n_waits: Rc<Cell<usize>>,
}

impl Lazy {
    pub(crate) fn new(rounding: Rounding) -> Self {
        let executor = Reference::new(rounding);
        let inner =
            Inner { executor, asked: VecDeque::new(), fetched: HashMap::new(), n_waits: Rc::default() };
        Self { plans: Vec::new(), n_fetches: 0, inner: RefCell::new(inner) }
    }

    /// How often the host had to wait, counted on.
    pub(crate) fn counter(&self) -> Rc<Cell<usize>> {
        Rc::clone(&self.inner.borrow().n_waits)
    }

    /// Fetched, and never taken.
    pub(crate) fn forgotten(&self) -> usize {
        self.inner.borrow().fetched.len()
    }
}

impl Inner {
    /// Does all that was asked for, or as much as it takes to have this fetch.
    fn catch_up(&mut self, until: Option<usize>) -> Result<(), ExecutorError> {
        if !self.asked.is_empty() && until.is_none_or(|fetch| !self.fetched.contains_key(&fetch)) {
            self.n_waits.set(self.n_waits.get() + 1);
        }
        while until.is_none_or(|fetch| !self.fetched.contains_key(&fetch)) {
            let Some(next) = self.asked.pop_front() else { return Ok(()) };
            match next {
                Asked::WriteFloats(plan, buffer, values) => {
                    self.executor.write(plan, buffer, Values::Float(&values))?;
                }
                Asked::WriteInts(plan, buffer, values) => {
                    self.executor.write(plan, buffer, Values::Int(&values))?;
                }
                Asked::Run(plan, steps, micro) => self.executor.run(plan, steps, micro)?,
                Asked::Fetch(plan, buffer, number) => {
                    let values = self.executor.read(plan, buffer)?;
                    self.fetched.insert(number, values);
                }
            }
        }
        Ok(())
    }
}

impl Executor for Lazy {
    fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        let mut inner = self.inner.borrow_mut();
        inner.catch_up(None)?;
        self.plans.push(plan.clone());
        inner.executor.load(plan)
    }

    fn plan(&self, plan: PlanId) -> &Plan {
        &self.plans[plan.0]
    }

    fn write(&mut self, plan: PlanId, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
        values.check(self.plan(plan).buffer(buffer))?;
        self.inner.borrow_mut().asked.push_back(match values {
            Values::Float(values) => Asked::WriteFloats(plan, buffer, values.to_vec()),
            Values::Int(values) => Asked::WriteInts(plan, buffer, values.to_vec()),
        });
        Ok(())
    }

    fn read(&self, plan: PlanId, buffer: BufferId) -> Result<Vec<f32>, ExecutorError> {
        let mut inner = self.inner.borrow_mut();
        inner.catch_up(None)?;
        inner.executor.read(plan, buffer)
    }

    fn fetch(&mut self, plan: PlanId, buffer: BufferId) -> Result<Fetch, ExecutorError> {
        self.n_fetches += 1;
        self.inner.borrow_mut().asked.push_back(Asked::Fetch(plan, buffer, self.n_fetches));
        Ok(Fetch::UnderWay(self.n_fetches))
    }

    fn take(&mut self, fetch: Fetch) -> Result<Vec<f32>, ExecutorError> {
        let Fetch::UnderWay(number) = fetch else { panic!("{fetch:?} is not of this executor") };
        let mut inner = self.inner.borrow_mut();
        inner.catch_up(Some(number))?;
        Ok(inner.fetched.remove(&number).expect("it was asked for, and not taken yet"))
    }

    fn wait(&mut self) -> Result<(), ExecutorError> {
        self.inner.borrow_mut().catch_up(None)
    }

    fn run(&mut self, plan: PlanId, steps: Range<usize>, micro: MicroStep) -> Result<(), ExecutorError> {
        self.inner.borrow_mut().asked.push_back(Asked::Run(plan, steps, micro));
        Ok(())
    }
}
