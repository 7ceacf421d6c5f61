//! A tensor times a constant: `y = factor x`.

use super::Operation;
use super::rowwise::pointwise;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::spec::{SpecValue, field};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads x. Writes y, of the same shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// What x is multiplied by.
    pub factor: f64,
}

impl Operation for Scale {
    const NAME: &'static str = "scale";
    const STREAM: &'static [&'static str] = &["x", "y"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: io.buffer("y").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn backward(&self, step: &Step, _index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "x") else { return };
        let writes = tape.into(step, "x", "y").into_iter().collect();
        tape.emit(self.clone(), vec![d_y], writes);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let factor = field("factor", "f", SpecValue::Float(self.factor));
        pointwise(io, "scale/multiply", &[("y", "y_type"), ("x", "x_type")], vec![factor])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        Ok(vec![("y", inputs.get("x").iter().map(|x| *x * F::of(self.factor)).collect())])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |rows: usize, columns: usize, factor: f64| {
            let shape = vec![rows, columns];
            let reads = [("x", shape.clone(), Fill::Normal(1.0))];
            case(&format!("{rows}x{columns} by {factor}"), Scale { factor }, &reads, &[("y", shape)])
        };
        vec![one(7, 24, 0.22), one(1, 8, 48.0), one(33, 40, 1.0 / 3.0)]
    }
}
