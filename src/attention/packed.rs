//! Calls whose queries, keys and values of a token are one row of one buffer.

use super::compiled::Compiled;
use super::tensors::Packed;
use crate::error::Error;
use kernwright_plan::attention_step::Pass;
use kernwright_runtime::queue::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Element};

impl<T: Element> Compiled<T, Packed> {
    /// The output, and the log-sum-exp of each query's scores, [batch, heads, length], which `backward` needs. Returns before
    /// they are there.
    ///
    /// # Errors
    /// When a buffer has another length than it was compiled for, or the device fails.
    pub fn forward<'a>(
        &self,
        qkv: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<(DeviceBuffer<T>, DeviceBuffer<f32>), Error> {
        let (mut out, mut lse) = (self.output(Pass::Forward, 0)?, self.output(Pass::Forward, 1)?);
        self.forward_into(qkv, &mut out, &mut lse)?;
        Ok((out, lse))
    }

    /// The same into buffers that are there.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_into<'a, 'b>(
        &self,
        qkv: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSliceMut<'b, T>>,
        lse: impl Into<DeviceSliceMut<'b, f32>>,
    ) -> Result<(), Error> {
        let writes = [self.write(&out.into()), self.write(&lse.into())];
        self.call(Pass::Forward, &[self.read(qkv.into())], &writes)
    }

    /// The output alone: nothing is kept for a gradient.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn infer<'a>(&self, qkv: impl Into<DeviceSlice<'a, T>>) -> Result<DeviceBuffer<T>, Error> {
        let mut out = self.output(Pass::Inference, 0)?;
        self.infer_into(qkv, &mut out)?;
        Ok(out)
    }

    /// The same into a buffer that is there.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn infer_into<'a, 'b>(
        &self,
        qkv: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<(), Error> {
        self.call(Pass::Inference, &[self.read(qkv.into())], &[self.write(&out.into())])
    }

    /// The gradient of queries, keys and values, in a buffer like theirs, from that of the output, and from what `forward` was
    /// handed and gave.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn backward<'a>(
        &self,
        d_out: impl Into<DeviceSlice<'a, T>>,
        qkv: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSlice<'a, T>>,
        lse: impl Into<DeviceSlice<'a, f32>>,
    ) -> Result<DeviceBuffer<T>, Error> {
        let mut d_qkv = self.output(Pass::Backward, 0)?;
        self.backward_into(d_out, qkv, out, lse, &mut d_qkv)?;
        Ok(d_qkv)
    }

    /// The same into a buffer that is there.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn backward_into<'a, 'b>(
        &self,
        d_out: impl Into<DeviceSlice<'a, T>>,
        qkv: impl Into<DeviceSlice<'a, T>>,
        out: impl Into<DeviceSlice<'a, T>>,
        lse: impl Into<DeviceSlice<'a, f32>>,
        d_qkv: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<(), Error> {
        let reads =
            [self.read(d_out.into()), self.read(qkv.into()), self.read(out.into()), self.read(lse.into())];
        self.call(Pass::Backward, &reads, &[self.write(&d_qkv.into())])
    }
}
