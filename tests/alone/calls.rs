//! One interface over calls of every layout, and content that is the same numbers in each.

use crate::numbers::{Number, random};
use kernwright::attention::{Compiled, Packed, Separate};
use kernwright::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut};
use kernwright_plan::shape::{AttentionShape, Layout};

/// Gradients in their layout.
pub(crate) type Gradients<T> = Vec<Vec<T>>;

/// Calls; those of one layout take one buffer, those of the others three.
pub(crate) trait Calls<T> {
    fn forward(&self, qkv: &[DeviceBuffer<T>]) -> (DeviceBuffer<T>, DeviceBuffer<f32>);
    fn forward_into(&self, qkv: &[DeviceBuffer<T>], out: DeviceSliceMut<'_, T>, lse: DeviceSliceMut<'_, f32>);
    fn infer(&self, qkv: &[DeviceBuffer<T>]) -> DeviceBuffer<T>;
    fn backward(
        &self,
        d_out: &DeviceBuffer<T>,
        qkv: &[DeviceBuffer<T>],
        out: &DeviceBuffer<T>,
        lse: &DeviceBuffer<f32>,
    ) -> Vec<DeviceBuffer<T>>;
    fn backward_into(
        &self,
        d_out: &DeviceBuffer<T>,
        qkv: &[DeviceBuffer<T>],
        out: DeviceSlice<'_, T>,
        lse: DeviceSlice<'_, f32>,
        gradients: Vec<DeviceSliceMut<'_, T>>,
    );
}

fn done<V>(result: Result<V, kernwright::Error>) -> V {
    result.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

fn three<V>(values: Vec<V>) -> [V; 3] {
    values.try_into().unwrap_or_else(|_| panic!("there are three"))
}

impl<T: Number> Calls<T> for Compiled<T, Separate> {
    fn forward(&self, qkv: &[DeviceBuffer<T>]) -> (DeviceBuffer<T>, DeviceBuffer<f32>) {
        done(self.forward(&qkv[0], &qkv[1], &qkv[2]))
    }

    fn forward_into(
        &self,
        qkv: &[DeviceBuffer<T>],
        out: DeviceSliceMut<'_, T>,
        lse: DeviceSliceMut<'_, f32>,
    ) {
        done(self.forward_into(&qkv[0], &qkv[1], &qkv[2], out, lse));
    }

    fn infer(&self, qkv: &[DeviceBuffer<T>]) -> DeviceBuffer<T> {
        done(self.infer(&qkv[0], &qkv[1], &qkv[2]))
    }

    fn backward(
        &self,
        d_out: &DeviceBuffer<T>,
        qkv: &[DeviceBuffer<T>],
        out: &DeviceBuffer<T>,
        lse: &DeviceBuffer<f32>,
    ) -> Vec<DeviceBuffer<T>> {
        done(self.backward(d_out, &qkv[0], &qkv[1], &qkv[2], out, lse)).into()
    }

    fn backward_into(
        &self,
        d_out: &DeviceBuffer<T>,
        qkv: &[DeviceBuffer<T>],
        out: DeviceSlice<'_, T>,
        lse: DeviceSlice<'_, f32>,
        gradients: Vec<DeviceSliceMut<'_, T>>,
    ) {
        let qkv = three(qkv.iter().map(DeviceBuffer::as_slice).collect());
        done(self.backward_into(d_out, qkv, out, lse, three(gradients)));
    }
}

impl<T: Number> Calls<T> for Compiled<T, Packed> {
    fn forward(&self, qkv: &[DeviceBuffer<T>]) -> (DeviceBuffer<T>, DeviceBuffer<f32>) {
        done(self.forward(&qkv[0]))
    }

    fn forward_into(
        &self,
        qkv: &[DeviceBuffer<T>],
        out: DeviceSliceMut<'_, T>,
        lse: DeviceSliceMut<'_, f32>,
    ) {
        done(self.forward_into(&qkv[0], out, lse));
    }

    fn infer(&self, qkv: &[DeviceBuffer<T>]) -> DeviceBuffer<T> {
        done(self.infer(&qkv[0]))
    }

    fn backward(
        &self,
        d_out: &DeviceBuffer<T>,
        qkv: &[DeviceBuffer<T>],
        out: &DeviceBuffer<T>,
        lse: &DeviceBuffer<f32>,
    ) -> Vec<DeviceBuffer<T>> {
        vec![done(self.backward(d_out, &qkv[0], out, lse))]
    }

    fn backward_into(
        &self,
        d_out: &DeviceBuffer<T>,
        qkv: &[DeviceBuffer<T>],
        out: DeviceSlice<'_, T>,
        lse: DeviceSlice<'_, f32>,
        mut gradients: Vec<DeviceSliceMut<'_, T>>,
    ) {
        done(self.backward_into(d_out, &qkv[0], out, lse, gradients.pop().expect("there is one")));
    }
}

/// What calls read.
pub(crate) struct Content<T> {
    pub(crate) qkv: Vec<DeviceBuffer<T>>,
    pub(crate) d_out: DeviceBuffer<T>,
}

impl<T: Number> Content<T> {
    pub(crate) fn new(device: &Device, shape: &AttentionShape, batch: usize, lengths: [usize; 2]) -> Self {
        let tokens = batch * lengths[0];
        let of = [(shape.heads, lengths[0]), (shape.kv_heads, lengths[1]), (shape.kv_heads, lengths[1])];
        let widths = of.map(|(heads, _)| heads * shape.head_dim);
        let draw = |seed: u64, (heads, length): (usize, usize)| {
            let values = random(seed, batch * length * heads * shape.head_dim);
            if shape.layout == Layout::Bhsd {
                by_head(&values, heads, length, shape.head_dim)
            } else {
                values
            }
        };
        let all = [0, 1, 2].map(|index| draw(index as u64 + 1, of[index]));
        let upload = |values: &[f32]| {
            let elements: Vec<T> = values.iter().map(|value| T::of(*value)).collect();
            done(device.upload(&elements))
        };
        let qkv = match shape.layout {
            Layout::Bshd | Layout::Bhsd => all.iter().map(|one| upload(one)).collect(),
            Layout::Packed => {
                let row = |token: usize| {
                    let parts = all.iter().zip(widths);
                    parts.flat_map(move |(one, width)| one[token * width..(token + 1) * width].to_vec())
                };
                vec![upload(&(0..tokens).flat_map(row).collect::<Vec<f32>>())]
            }
        };
        Self { qkv, d_out: upload(&draw(4, of[0])) }
    }
}

/// [batch, length, heads, head_dim] as [batch, heads, length, head_dim].
pub(crate) fn by_head<V: Copy>(values: &[V], heads: usize, length: usize, head_dim: usize) -> Vec<V> {
    let mut all = Vec::with_capacity(values.len());
    for sequence in values.chunks(length * heads * head_dim) {
        for head in 0..heads {
            for row in sequence.chunks(heads * head_dim) {
                all.extend_from_slice(&row[head * head_dim..(head + 1) * head_dim]);
            }
        }
    }
    all
}
