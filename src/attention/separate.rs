//! Calls whose queries, keys and values are buffers of their own.

use super::compiled::Compiled;
use super::tensors::Separate;
use crate::error::Error;
use kernwright_plan::attention_step::Pass;
use kernwright_runtime::queue::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Element};

impl<T: Element> Compiled<T, Separate> {
    /// The output, and the log-sum-exp of each query's scores, [batch, heads, query_length], which `backward` needs. Returns before
    /// they are there.
    ///
    /// # Errors
    /// When a buffer has another length than it was compiled for, or the device fails.
    pub fn forward<'a>(
        &self,
        q: impl Into<DeviceSlice<'a, T>>,
        k: impl Into<DeviceSlice<'a, T>>,
        v: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<(DeviceBuffer<T>, DeviceBuffer<f32>), Error> {
        let (mut out, mut lse) = (self.output(Pass::Forward, 0)?, self.output(Pass::Forward, 1)?);
        self.forward_into(q, k, v, &mut out, &mut lse)?;
        Ok((out, lse))
    }

    /// The same into buffers that are there.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_into<'a, 'b>(
        &self,
        q: impl Into<DeviceSlice<'a, T>>,
        k: impl Into<DeviceSlice<'a, T>>,
        v: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSliceMut<'b, T>>,
        lse: impl Into<DeviceSliceMut<'b, f32>>,
    ) -> Result<(), Error> {
        let reads = [self.read(q.into()), self.read(k.into()), self.read(v.into())];
        self.call(Pass::Forward, &reads, &[self.write(&out.into()), self.write(&lse.into())])
    }

    /// The output alone: nothing is kept for a gradient.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn infer<'a>(
        &self,
        q: impl Into<DeviceSlice<'a, T>>,
        k: impl Into<DeviceSlice<'a, T>>,
        v: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<DeviceBuffer<T>, Error> {
        let mut out = self.output(Pass::Inference, 0)?;
        self.infer_into(q, k, v, &mut out)?;
        Ok(out)
    }

    /// The same into a buffer that is there.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn infer_into<'a, 'b>(
        &self,
        q: impl Into<DeviceSlice<'a, T>>,
        k: impl Into<DeviceSlice<'a, T>>,
        v: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<(), Error> {
        let reads = [self.read(q.into()), self.read(k.into()), self.read(v.into())];
        self.call(Pass::Inference, &reads, &[self.write(&out.into())])
    }

    /// The gradients of queries, keys and values, from that of the output, and from what `forward` was handed and gave.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn backward<'a>(
        &self,
        d_out: impl Into<DeviceSlice<'a, T>>,
        q: impl Into<DeviceSlice<'a, T>>,
        k: impl Into<DeviceSlice<'a, T>>,
        v: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSlice<'a, T>>,
        lse: impl Into<DeviceSlice<'a, f32>>,
    ) -> Result<[DeviceBuffer<T>; 3], Error> {
        let mut d_q = self.output(Pass::Backward, 0)?;
        let mut d_k = self.output(Pass::Backward, 1)?;
        let mut d_v = self.output(Pass::Backward, 2)?;
        let gradients = [&mut d_q, &mut d_k, &mut d_v].map(DeviceSliceMut::from);
        self.backward_into(d_out, [q.into(), k.into(), v.into()], out, lse, gradients)?;
        Ok([d_q, d_k, d_v])
    }

    /// The same into buffers that are there.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn backward_into<'a, 'b>(
        &self,
        d_out: impl Into<DeviceSlice<'a, T>>,
        qkv: [DeviceSlice<'a, T>; 3],
        out: impl Into<DeviceSlice<'a, T>>,
        lse: impl Into<DeviceSlice<'a, f32>>,
        gradients: [DeviceSliceMut<'b, T>; 3],
    ) -> Result<(), Error> {
        let mut reads = vec![self.read(d_out.into())];
        reads.extend(qkv.map(|one| self.read(one)));
        reads.extend([self.read(out.into()), self.read(lse.into())]);
        self.call(Pass::Backward, &reads, &gradients.map(|one| self.write(&one)))
    }
}
