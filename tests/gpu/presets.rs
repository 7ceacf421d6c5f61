//! The kernels of every preset, in shapes with little work that keep some of its widths each.

use crate::models::{batch, weights};
use crate::sweep::sweep;
use crate::work::{Run, Work};
use kernwright_plan::Options;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::presets;
use kernwright_plan::{forward_step, train_step};

/// A training step of two micro-batches, and logits, of every miniature of every preset.
fn all() -> Vec<Work> {
    let mut works = Vec::new();
    for preset in presets::ALL {
        for miniature in preset.shape().miniatures() {
            let (shape, options) = (&miniature.shape, Options::default());
            let label = format!("{} of {}", miniature.keeps, preset.name);
            let plan = train_step(shape, &options, 2, miniature.length);
            let both = plan.phase(Phase::Forward).start..plan.phase(Phase::Backward).end;
            let run = |content, steps, micro| Run { content, steps, micro };
            let runs = vec![
                run(weights(shape, &plan), plan.phase(Phase::Prepare), MicroStep::First),
                run(batch(&plan, shape.vocab, 1), both.clone(), MicroStep::First),
                run(batch(&plan, shape.vocab, 2), both, MicroStep::Later),
                run(Vec::new(), plan.phase(Phase::Update), MicroStep::First),
            ];
            works.push(Work { label: format!("training, {label}"), plan, runs });
            let plan = forward_step(shape, &options, 1, miniature.length, Head::Logits(2));
            let content = [weights(shape, &plan), batch(&plan, shape.vocab, 3)].concat();
            let runs = vec![run(content, 0..plan.steps.len(), MicroStep::First)];
            works.push(Work { label: format!("logits, {label}"), plan, runs });
        }
    }
    works
}

#[test]
fn every_step_of_the_miniatures_of_presets_matches_the_reference() {
    sweep("presets", all());
}
