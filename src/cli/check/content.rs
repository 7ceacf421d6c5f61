//! What the buffers of a plan hold before the first step: numbers that look random and are the same every time.
//!
//! In: a Shape and a plan of it. Out: content for each buffer that is set from outside. Weights keep the sizes of what
//! they multiply, so that no softmax saturates and every gradient counts.

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::Content;
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::Shape;

/// Few enough that tokens repeat, since gradients of one token are summed.
const TOKENS: usize = 29;

struct Random(u64);

impl Random {
    /// Knuth's linear congruential generator; its upper bits.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Around `centre`; the sum of four even numbers is near enough to normal.
    fn around(&mut self, centre: f64, deviation: f64) -> f32 {
        let unit = f64::from(1 << 24);
        let sum: f64 = (0..4).map(|_| self.below(1 << 24) as f64 / unit).sum();
        (centre + deviation * (sum - 2.0) * 3.0_f64.sqrt()) as f32
    }
}

/// Weights, moments and scalars: what stays over the micro-batches of a step.
pub(super) fn lasting(shape: &Shape, plan: &Plan) -> Vec<(BufferId, Content)> {
    let mut random = Random(17);
    let mut content = Vec::new();
    for parameter in shape.parameters() {
        let n: usize = parameter.shape.iter().product();
        let columns = parameter.shape.last().copied().unwrap_or(1) as f64;
        let (centre, deviation) = match parameter.name.as_str() {
            "embedding.weight" | "positions.weight" => (0.0, 1.0),
            _ if parameter.decays() => (0.0, columns.sqrt().recip()),
            name if name.ends_with("norm.weight") => (1.0, 0.2),
            _ => (0.0, 0.2),
        };
        let values: Vec<f32> = (0..n).map(|_| random.around(centre, deviation)).collect();
        let values = parameter.pad(&values).into_owned();
        content.extend(plan.find(&parameter.name).map(|id| (id, Content::Float(values))));
    }
    // As after some steps. The second moments are means of squares.
    for (index, buffer) in plan.buffers.iter().enumerate().filter(|(_, buffer)| buffer.role == Role::Moment) {
        let is_square = buffer.name.starts_with("v.");
        let values = (0..buffer.len()).map(|_| {
            let value = random.around(0.0, 0.01);
            if is_square { value * value + 1e-5 } else { value }
        });
        content.push((BufferId(index), Content::Float(values.collect())));
    }
    let n_counted = plan.find("targets").map_or(1, |id| plan.buffer(id).len());
    let scalars = [
        ("inverse_count", Content::Float(vec![1.0 / n_counted as f32])),
        ("learning_rate", Content::Float(vec![0.01])),
        ("step", Content::Int(vec![3])),
    ];
    content.extend(scalars.into_iter().filter_map(|(name, value)| Some((plan.find(name)?, value))));
    content
}

/// Tokens, targets of which every seventh does not count, and positions whose logits are asked for; others for each
/// micro-batch.
pub(super) fn batch(shape: &Shape, plan: &Plan, number: u64) -> Vec<(BufferId, Content)> {
    let Some(id) = plan.find("tokens") else { return Vec::new() };
    let mut random = Random(23 + number);
    let n = plan.buffer(id).len();
    let mut token = |most: usize| i32::try_from(random.below(most as u64)).unwrap_or(0);
    let tokens: Vec<i32> = (0..n).map(|_| token(shape.vocab.min(TOKENS))).collect();
    let targets = (0..n).map(|at| if at % 7 == 2 { IGNORED } else { token(shape.vocab) }).collect();
    let mut order: Vec<i32> = (0..).take(n).collect();
    order.sort_by_key(|position| tokens[usize::try_from(*position).unwrap_or(0)]);
    let positions = plan.find("positions").map_or(0, |id| plan.buffer(id).len());
    let positions = (0..positions).map(|_| token(n)).collect();
    let lists = [("tokens", tokens), ("targets", targets), ("token_order", order), ("positions", positions)];
    lists.into_iter().filter_map(|(name, list)| Some((plan.find(name)?, Content::Int(list)))).collect()
}
