//! Shapes with little work that keep some widths of a preset each train on the GPU as on the host.

use crate::device::{options, text};
use crate::devices::{Devices, compile};
use crate::training::{Model, agree};
use kernwright_model::random::Random;
use kernwright_plan::Options;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::case::Content;
use kernwright_plan::kernels::of_plan;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{Initial, Shape, presets};
use kernwright_runtime::Cpu;
use std::collections::BTreeMap;

const STEPS: usize = 3;

/// Values of every parameter as training begins with them.
fn first_weights(shape: &Shape, plan: &Plan) -> Vec<(BufferId, Content)> {
    let mut content = Vec::new();
    for parameter in shape.parameters() {
        let mut values = vec![0.0; parameter.shape.iter().product()];
        match parameter.initial {
            Initial::Zeros => {}
            Initial::Ones => values.fill(1.0),
            Initial::Normal(deviation) => {
                Random::stream(7, &parameter.name).normals_at(0, deviation, &mut values);
            }
        }
        let values = parameter.pad(&values).into_owned();
        content.extend(plan.find(&parameter.name).map(|id| (id, Content::Float(values))));
    }
    // Wide sums move as far as narrow ones, and no model so far that rounding decides where to.
    let rate = 0.072 / shape.d_model as f32;
    let scalars = [("learning_rate", Content::Float(vec![rate])), ("step", Content::Int(vec![1]))];
    content.extend(scalars.into_iter().filter_map(|(name, value)| Some((plan.find(name)?, value))));
    content
}

fn models() -> Vec<(String, Model)> {
    let of = |preset: &presets::Preset| {
        let (name, miniatures) = (preset.name, preset.shape().miniatures());
        miniatures.into_iter().map(move |one| {
            let model = Model { shape: one.shape, batch: 2, length: one.length, weights: first_weights };
            (format!("{} of {name}", one.keeps), model)
        })
    };
    presets::ALL.iter().flat_map(of).collect()
}

#[test]
fn miniatures_of_every_preset_train_as_on_the_host() {
    let Some(available) = options("training miniatures of presets") else { return };
    let (models, options) = (models(), Options::default());
    let mut texts = BTreeMap::new();
    for (label, model) in &models {
        for spec in of_plan(&model.plan(&options), available.arch) {
            let text = text(&spec, available.arch).unwrap_or_else(|error| panic!("{label}: {error}"));
            texts.insert(spec.name(), text);
        }
    }
    let kernels: Vec<(&str, &str)> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    compile(&available, &kernels);
    let (mut devices, mut faults) = (Devices::new(&available), Vec::new());
    for (label, model) in &models {
        let mut cpu = Cpu::new(None).unwrap_or_else(|error| panic!("{error}"));
        let expected = model.train(&mut cpu, &Options::host(), STEPS);
        let expected = expected.unwrap_or_else(|error| panic!("{label}: {error:?}"));
        let device = devices.fresh(available.arch);
        let found = match model.train(device, &options, STEPS) {
            Ok(found) => found,
            Err(error) => {
                faults.push(format!("{label}: {error:?}"));
                continue;
            }
        };
        let learns = found.last() < found.first();
        if !agree(&found, &expected) || !learns {
            // The definition is slow: it is asked once.
            let first = match faults.is_empty() {
                true => format!("; {:?}", model.first_difference(devices.fresh(available.arch), &options)),
                false => String::new(),
            };
            faults.push(format!("{label}: {found:?} and on the host {expected:?}{first}"));
        }
    }
    eprintln!("{} models with {} kernels trained {STEPS} steps each", models.len(), kernels.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
