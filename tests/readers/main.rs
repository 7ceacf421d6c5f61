//! The readers of what others wrote (`.bin`, safetensors, TOML of models and of GPUs, attributes), each under a stream
//! of damaged input.
//!
//! Sound input is damaged at random, a case per number, and read. Whatever comes: no panic, memory in proportion to the
//! input whatever it claims, errors of one line with a place inside the input, and what is accepted means the same when
//! it is written and read again. Two environment variables, both read here alone:
//!
//! - `KERNWRIGHT_FUZZ_SECONDS`: for how long each reader is tried, 2 if absent. Before a release:
//!   `KERNWRIGHT_FUZZ_SECONDS=600 cargo test --release --test readers -- --nocapture`, 50 minutes in all.
//! - `KERNWRIGHT_FUZZ_CASE`: the one case to try, as a failure names it. Without it the cases count from 0, so that a
//!   longer run begins with those of a shorter one.

mod attribute;
mod bin;
mod damage;
mod safetensors;
mod toml;

use kernwright_codegen::{print, tokens, toml as toml_reader};
use kernwright_model::random::Random;
use kernwright_plan::field::{Place, Problem};
use kernwright_plan::shape::{Shape, parse_text};
use peak_alloc::PeakAlloc;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What is allocated is counted for the whole process: one reader at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for the others of this process to end.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Memory that any input may cost, beside its share.
const FREE_BYTES: usize = 1 << 20;

/// Memory that a reader may take per byte of its input: a token costs a few hundred.
const BYTES_PER_BYTE: usize = 1 << 10;

/// Most bytes of a message: 1200 characters and a few that are escaped.
const LONGEST: usize = 6000;

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Accepted,
    Refused,
}

/// Says which case it was when a check panics.
struct Case<'a> {
    reader: &'a str,
    number: u64,
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("KERNWRIGHT_FUZZ_CASE={} tries this input of `{}` alone", self.number, self.reader);
        }
    }
}

/// Tries `check` on cases until the time is over. It gets the random numbers of its case, and panics on a fault.
fn hammer(reader: &str, mut check: impl FnMut(&mut Random) -> Outcome) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let _turn = turn();
    let one = number("KERNWRIGHT_FUZZ_CASE");
    let end = Instant::now() + Duration::from_secs(number("KERNWRIGHT_FUZZ_SECONDS").unwrap_or(2));
    let (mut n_cases, mut n_accepted) = (0_u64, 0_u64);
    let mut slowest = Duration::ZERO;
    while n_cases == 0 || (one.is_none() && Instant::now() < end) {
        let case = Case { reader, number: one.unwrap_or(n_cases) };
        let mut random = Random::stream(case.number, reader);
        let begun = Instant::now();
        n_accepted += u64::from(check(&mut random) == Outcome::Accepted);
        slowest = slowest.max(begun.elapsed());
        n_cases += 1;
        if n_cases.is_multiple_of(64) {
            // What is remembered of each Rust text, to tell places in it, is never given back otherwise.
            proc_macro2::extra::invalidate_current_thread_spans();
        }
    }
    eprintln!("`{reader}`: {n_cases} cases, {n_accepted} accepted, the slowest took {slowest:.1?}");
    // Damage so heavy that nothing passes would leave the far side of the reader untried.
    assert!(one.is_some() || n_accepted > n_cases / 100, "`{reader}`: {n_accepted} of {n_cases} accepted");
}

/// Calls `read` on an input of `n_bytes` and checks what it allocates at most.
fn within_memory<T>(n_bytes: usize, read: impl FnOnce() -> T) -> T {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let result = read();
    let taken = MEMORY.peak_usage().saturating_sub(before);
    let allowed = FREE_BYTES + BYTES_PER_BYTE * n_bytes;
    assert!(taken <= allowed, "{taken} bytes of memory for an input of {n_bytes}");
    result
}

/// A message must be one line that a terminal can show.
fn check_message(message: &str, input: &dyn Debug) {
    let is_sound = !message.is_empty() && message.len() <= LONGEST && !message.contains(char::is_control);
    assert!(is_sound, "the message {message:?} of {input:?}");
}

/// What a declaration came to: its Shape must survive its own text, its problems must be told well.
fn check_shape(read: Result<Shape, Vec<Problem>>, places: RangeInclusive<usize>, input: &str) -> Outcome {
    match read {
        Ok(shape) => {
            let text = shape.text();
            let whole = text.clone() + &shape.targets_text();
            let again = parse_text(&whole).unwrap_or_else(|error| panic!("{error} in {whole} of {input}"));
            assert_eq!(again, shape, "{whole} of {input}");
            let printed = print::toml(&whole);
            let again = toml_reader::read("Brain", &printed).shape();
            assert_eq!(again.as_ref(), Ok(&shape), "{printed} of {input}");
            let printed = format!("{}struct Brain;", print::attributes(&whole));
            let tokens =
                syn::parse_str(&printed).unwrap_or_else(|error| panic!("{error} in {printed} of {input}"));
            let again = tokens::read(&tokens).declaration.shape();
            assert_eq!(again.as_ref(), Ok(&shape), "{printed} of {input}");
            assert_eq!(parse_text(&text).map(|shape| shape.text()), Ok(text));
            assert!(shape.n_parameters() > 0);
            Outcome::Accepted
        }
        Err(problems) => check_problems(&problems, places, input),
    }
}

/// Problems are told in a line each, at a place inside the input.
fn check_problems(problems: &[Problem], places: RangeInclusive<usize>, input: &str) -> Outcome {
    assert!(!problems.is_empty(), "refused without a word: {input}");
    for Problem { at, message } in problems {
        check_message(message, &input);
        let is_inside = at.is_none_or(|Place(at)| places.contains(&at));
        assert!(is_inside, "{at:?} of {message:?} is outside {input}");
    }
    Outcome::Refused
}
