//! Weights out of a checkpoint: only those of the very model are loaded.

use kernwright_model::batches::Position;
use kernwright_model::checkpoint::{Checkpoint, CheckpointError, Progress, TensorShape, save};
use kernwright_model::random::Random;
use kernwright_model::weights::{self, WeightsError};
use kernwright_plan::executor::Executor;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::parse_text;
use kernwright_plan::{Options, forward_step};

#[test]
fn a_checkpoint_with_a_tensor_that_the_model_lacks_is_not_loaded() {
    let shape = parse_text(
        "model.vocab = 13\nmodel.context = 8\nmodel.d_model = 16\nmodel.layers = 1\nattention.heads = 2\n\
         attention.rope\nfeed_forward.swiglu\nfeed_forward.d_ff = 24\n",
    )
    .unwrap();
    let mut executor = Reference::<f32>::new(Rounding::None);
    let plan = executor.load(forward_step(&shape, &Options::default(), 1, 8, Head::Logits(1))).unwrap();
    let progress = Progress {
        program: String::new(),
        shape: shape.text(),
        step: 1,
        tokens: 0,
        seed: 0,
        random: Random::new(0),
        position: Position { epoch: 0, index: 0 },
        options: serde_json::Value::Null,
        executor: serde_json::Value::Null,
    };
    let run = tempfile::tempdir().unwrap();
    let mut load = |tensors: &[TensorShape]| {
        let folder = save(run.path(), &progress, tensors, &mut |_, _, _| Ok(())).unwrap();
        weights::load(&mut executor, plan, &shape, &Checkpoint::open(&folder).unwrap())
    };
    let mut tensors = weights::tensors(&shape);
    load(&tensors).unwrap();
    tensors.push(TensorShape { name: "layers.1.extra".to_owned(), shape: vec![3] });
    let Err(WeightsError::Checkpoint(CheckpointError::Extra { name, .. })) = load(&tensors) else {
        panic!("the tensor is not noticed");
    };
    assert_eq!(name, "layers.1.extra");
}
