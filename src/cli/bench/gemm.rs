//! `bench gemm`: every shape of matrix product that a training step asks for, by the library's first algorithm and by the
//! fastest of its candidates.
//!
//! In: a Shape, a batch, a length. Out: a row per shape with times, rates and the share of the GPU's peak, as text or as
//! JSON. What the products are, the lowered plan says; `products` reads it, `timing` runs them.

mod products;
mod timing;

use super::super::device::{self, Asked};
use super::super::plan_flags::PlanFlags;
use super::super::progress;
use super::super::shape::ShapeArguments;
use super::super::table::{Row, Side, Table};
use super::super::units::{self, Rates};
use super::super::{Declared, Outcome};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use kernwright_plan::card::Card;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::gpu::products::{CANDIDATES, Fp32, MOST_CANDIDATES, Message, Settings};
use products::Shaped;
use serde::Serialize;
use std::process::ExitCode;
use timing::Times;

/// Flags of `bench gemm`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each shape runs as a graph of launches on operands that lie apart, more of them than caches hold, and the two algorithms \
take turns. Nothing is read from the file of remembered choices and nothing written there.

Examples:
  kernwright bench gemm --preset seed-102m --batch 32
  kernwright bench gemm --preset seed-102m --batch 4 --candidates 16 --json
  kernwright bench gemm --preset gpt2-124m --later --nondeterministic")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: ShapeArguments,
    /// Sequences per step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Tokens per sequence; by default the context of the shape, 1024 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,
    #[command(flatten)]
    plan: PlanFlags,
    /// The products of a later micro-batch, which add to the gradients of weights
    #[arg(long)]
    later: bool,
    /// Let products of fp32 operands round them to 10 bits of mantissa
    #[arg(long)]
    tf32: bool,
    /// Candidates of the library that are tried for each shape
    #[arg(long, value_name = "N", default_value_t = CANDIDATES as u16, value_parser = clap::value_parser!(u16).range(1..=MOST_CANDIDATES as i64))]
    candidates: u16,
    /// The GPU: cuda, or cuda:N for that of another number
    #[arg(long, value_name = "DEVICE", default_value = "cuda", value_parser = device::parse)]
    device: Asked,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    batch: usize,
    length: usize,
    gpu: &'a str,
    library: &'a str,
    card: Option<&'a str>,
    deterministic: bool,
    shapes: &'a [Measured],
    totals: Totals,
}

/// One shape of product, measured.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    shape: Shaped,
    first_milliseconds: f64,
    best_milliseconds: f64,
    first_tflops: f64,
    best_tflops: f64,
    /// The first's time over the best's.
    gain: f64,
    /// Of the card's peak for these operands, by the best; none for an unknown card.
    share: Option<f64>,
}

/// Of all products of a step.
#[derive(Clone, Copy, Serialize)]
struct Totals {
    products: usize,
    first_milliseconds: f64,
    best_milliseconds: f64,
    tflops: f64,
}

impl Measured {
    fn new(shape: Shaped, times: Times, card: Option<&Card>) -> Self {
        let rate = |seconds: f64| shape.flops / seconds / 1e12;
        let peak = card.map(|card| match shape.operand.bytes() {
            4 => card.fp32_flops,
            _ => card.tensor_flops,
        });
        Self {
            first_milliseconds: times.first * 1e3,
            best_milliseconds: times.best * 1e3,
            first_tflops: rate(times.first),
            best_tflops: rate(times.best),
            gain: times.first / times.best,
            share: peak.map(|peak| shape.flops / times.best / peak),
            shape,
        }
    }

    fn cells(&self, rates: Rates) -> Vec<String> {
        let Shaped { name, direction, m, n, k, times, types, added, per_step, .. } = &self.shape;
        let times = if *times == 1 { String::new() } else { format!("{times} x ") };
        vec![
            name.clone(),
            (*direction).to_owned(),
            format!("{times}{m} x {n} x {k}"),
            types.clone(),
            added.clone(),
            per_step.to_string(),
            format!("{:.4}", self.first_milliseconds),
            rates.cell(Some(1e12 * self.first_tflops)),
            format!("{:.4}", self.best_milliseconds),
            rates.cell(Some(1e12 * self.best_tflops)),
            format!("{:.2}x", self.gain),
            self.share.map_or("n/a".to_owned(), |share| format!("{:.0}%", 100.0 * share)),
        ]
    }
}

fn totals(all: &[Measured]) -> Totals {
    let sum =
        |of: fn(&Measured) -> f64| all.iter().map(|one| of(one) * one.shape.per_step as f64).sum::<f64>();
    let (first, best) = (sum(|one| one.first_milliseconds), sum(|one| one.best_milliseconds));
    Totals {
        products: all.iter().map(|one| one.shape.per_step).sum(),
        first_milliseconds: first,
        best_milliseconds: best,
        tflops: sum(|one| one.shape.flops) / (best * 1e9).max(f64::MIN_POSITIVE),
    }
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let index = match arguments.device {
        Asked::Auto => 0,
        Asked::Cuda(index) => index,
        Asked::Cpu => {
            note("error: `bench gemm` measures a GPU: `--device` may be `cuda` or `cuda:N`, found `cpu`");
            return Ok(ExitCode::from(2));
        }
    };
    let named = arguments.shape.resolve(declared)?;
    let context = named.shape.context;
    let (batch, length) =
        (arguments.batch as usize, arguments.length.map_or(context.min(1024), |n| n as usize));
    if length > context || batch.checked_mul(length).is_none_or(|tokens| tokens >= 1 << 31) {
        note(&format!(
            "error: `--length` must be at most {context}, the context of `{}`, and `--batch` times it below 2^31, found \
             `{batch}` times `{length}`",
            named.name
        ));
        return Ok(ExitCode::from(2));
    }
    let settings = Settings {
        folder: None,
        order: arguments.plan.order(),
        fp32: if arguments.tf32 { Fp32::Tf32 } else { Fp32::Exact },
        candidates: usize::from(arguments.candidates),
        ..Settings::default()
    };
    let (mut gpu, arch) = device::bare(index, &named.shape, settings, environment)?;
    let multiprocessors = Some(gpu.facts().multiprocessors as usize);
    let options = arguments.plan.options(&Options { multiprocessors, ..Options::default() }, &named.shape)?;
    let micro = if arguments.later { MicroStep::Later } else { MicroStep::First };
    let plan = train_step(&named.shape, &options, batch, length);
    let card = Card::of(&gpu.facts().name, gpu.facts().memory);
    // The bar here says what it is about, and the table what was chosen.
    gpu.products_mut().tell(Box::new(|message| {
        if let Message::Note(text) = message {
            note(&text);
        }
    }));
    let shapes = products::shapes(&plan, &arch, micro);
    let (bar, _) = progress::bar(Some(shapes.len() as u64), "measuring products", environment);
    let mut all = Vec::new();
    for (shape, product) in shapes {
        bar.set_message(shape.name.clone());
        all.push(Measured::new(shape, timing::measure(&mut gpu, &product)?, card));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let document = Document {
        model: &named.name,
        batch,
        length,
        gpu: &gpu.facts().name,
        library: gpu.products().version(),
        card: card.map(|card| &*card.name),
        deterministic: options.deterministic,
        totals: totals(&all),
        shapes: &all,
    };
    if arguments.json {
        line(&serde_json::to_string_pretty(&document)?)?;
    } else {
        line(&lines(&document).join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(document: &Document<'_>) -> Vec<String> {
    let Document { model, batch, length, gpu, library, card, shapes, totals, .. } = document;
    let peak = card.map_or("its peak is not known".to_owned(), |card| format!("peak of {card}"));
    let mut lines =
        vec![format!("{model}: {batch} x {length} tokens, on {gpu} ({peak}), cuBLASLt {library}\n")];
    let rates = Rates::of_flops(shapes.iter().map(|shape| 1e12 * shape.best_tflops));
    let titles = [
        ("product", Side::Left),
        ("of", Side::Left),
        ("m x n x k", Side::Left),
        ("types", Side::Left),
        ("adds", Side::Left),
        ("per step", Side::Right),
        ("first ms", Side::Right),
        (rates.title, Side::Right),
        ("best ms", Side::Right),
        (rates.title, Side::Right),
        ("gain", Side::Right),
        ("peak", Side::Right),
    ];
    let rows = shapes.iter().map(|shape| Row::Cells(shape.cells(rates))).collect();
    lines.extend(Table { columns: titles.to_vec(), rows }.lines());
    let Totals { products, first_milliseconds: first, best_milliseconds: best, tflops } = totals;
    lines.push(format!(
        "\n{products} products per step: {first:.2} ms by the first algorithms, {best:.2} ms by the best ({:.2}x, {})",
        first / best,
        units::quantity(1e12 * tflops, "FLOP/s")
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;
    use kernwright_plan::shape::presets;

    fn measured(card: Option<&Card>) -> Vec<Measured> {
        let shape = presets::find("seed-102m").unwrap().shape();
        let plan = train_step(&shape, &Options::default(), 4, 1024);
        let all = products::shapes(&plan, arch::find("sm_90a").unwrap(), MicroStep::First);
        let times = Times { first: 2e-3, best: 1e-3 };
        all.into_iter().map(|(shape, _)| Measured::new(shape, times, card)).collect()
    }

    #[test]
    fn rates_gains_and_shares_follow_from_times_and_shares_are_unknown_for_an_unknown_card() {
        let card = kernwright_plan::card::ALL.iter().find(|card| card.name == "H200 SXM");
        let all = measured(card);
        let qkv = all.iter().find(|one| one.shape.name == "attention.qkv").unwrap();
        let flops = 2.0 * 4096.0 * 1280.0 * 768.0;
        assert!((qkv.best_tflops - flops / 1e-3 / 1e12).abs() < 1e-9, "{}", qkv.best_tflops);
        assert_eq!(qkv.gain, 2.0);
        assert!((qkv.share.unwrap() - flops / 1e-3 / 989.5e12).abs() < 1e-12);
        let totals = totals(&all);
        assert!((totals.first_milliseconds - 2.0 * totals.products as f64).abs() < 1e-6);
        let unknown = measured(None);
        assert!(unknown.iter().all(|one| one.cells(Rates::of_flops([])).last().unwrap() == "n/a"));
    }

    #[test]
    fn the_table_has_a_row_per_shape_and_a_sum() {
        let all = measured(None);
        let document = Document {
            model: "seed",
            batch: 4,
            length: 1024,
            gpu: "NVIDIA H200",
            library: "13.1.0",
            card: None,
            deterministic: true,
            totals: totals(&all),
            shapes: &all,
        };
        let lines = lines(&document);
        assert_eq!(lines.len(), all.len() + 3, "{lines:#?}");
        assert!(
            lines[0].starts_with(
                "seed: 4 x 1024 tokens, on NVIDIA H200 (its peak is not known), cuBLASLt 13.1.0"
            )
        );
        assert!(
            lines.iter().any(|line| line.starts_with("attention.qkv") && line.contains("4096 x 1280 x 768"))
        );
        assert!(lines[lines.len() - 1].contains("(2.00x,"), "{}", lines[lines.len() - 1]);
    }
}
