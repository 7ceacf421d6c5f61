//! Arguments of a kernel as the driver wants them: one after the other, each in the low bytes of as many words as it fills.
//!
//! In: the values of a command and the sizes of the kernel's parameters. Out: words, if they fit.

use crate::driver::{Address, DriverError, Value};
use crate::tensor_map::{TensorNumbers, WORDS};

/// The words of all values; `pointer` gives the device's own address of a place, `map` a tensor map.
pub(super) fn words<E: Into<DriverError>>(
    values: &[Value],
    parameters: &[usize],
    pointer: impl Fn(Address) -> Result<u64, DriverError>,
    map: impl Fn(&TensorNumbers) -> Result<[u64; WORDS], E>,
) -> Result<Vec<u64>, DriverError> {
    let sizes: Vec<usize> = values.iter().map(|value| size(*value)).collect();
    if sizes != parameters {
        return Err(DriverError::Failed(format!(
            "it takes arguments of {parameters:?} bytes, found {sizes:?}: its text is of another version"
        )));
    }
    let mut words = Vec::with_capacity(values.len());
    for value in values {
        words.push(match *value {
            Value::Address(Some(at)) => pointer(at)?,
            Value::Address(None) => 0,
            Value::TensorMap { at, layout } => {
                let numbers = TensorNumbers::new(pointer(at)?, &layout).map_err(DriverError::Failed)?;
                words.extend(map(&numbers).map_err(Into::into)?);
                continue;
            }
            // A GPU reads the low bytes first, as every host that CUDA runs on.
            Value::I32(number) => u64::from(number.cast_unsigned()),
            Value::I64(number) => number.cast_unsigned(),
            Value::F32(number) => u64::from(number.to_bits()),
        });
    }
    Ok(words)
}

fn size(value: Value) -> usize {
    match value {
        Value::TensorMap { .. } => 8 * WORDS,
        Value::Address(_) | Value::I64(_) => 8,
        Value::I32(_) | Value::F32(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Allocation;
    use kernwright_plan::dtype::Dtype;
    use kernwright_plan::tensor_map::{Dimension, Swizzle, TensorLayout};

    fn pointer(at: Address) -> Result<u64, DriverError> {
        Ok(0x7f00_0000_0000 + at.offset as u64)
    }

    /// Its numbers, to tell whose they are.
    fn map(numbers: &TensorNumbers) -> Result<[u64; WORDS], DriverError> {
        Ok(numbers.model())
    }

    #[test]
    fn a_tensor_map_takes_sixteen_words_between_its_neighbours() {
        let at = Address { allocation: Allocation(0), offset: 48 };
        let dimensions = [Dimension { size: 96, stride: 1, extent: 32 }];
        let layout = TensorLayout::new(Dtype::Bf16, Swizzle::Bytes64, &dimensions);
        let values = [Value::I32(5), Value::TensorMap { at, layout }, Value::I32(6)];
        let words = words(&values, &[4, 128, 4], pointer, map).expect("they fit");
        assert_eq!((words.len(), words[0], words[17]), (18, 5, 6));
        assert_eq!(words[1], 0x7f00_0000_0030);
        let refused = Value::TensorMap { at, layout: TensorLayout { rank: 9, ..layout } };
        let error = super::words(&[refused], &[128], pointer, map).expect_err("too many dimensions");
        assert_eq!(error.to_string(), "a tensor map must have 1 to 5 dimensions, found `9`");
    }

    #[test]
    fn every_value_is_in_the_low_bytes_of_its_word() {
        let at = Address { allocation: Allocation(0), offset: 512 };
        let values = [
            Value::Address(Some(at)),
            Value::Address(None),
            Value::I32(-2),
            Value::I64(-3),
            Value::F32(-0.0),
        ];
        let words = words(&values, &[8, 8, 4, 8, 4], pointer, map).expect("they fit");
        assert_eq!(words, [0x7f00_0000_0200, 0, 0xffff_fffe, 0xffff_ffff_ffff_fffd, 0x8000_0000]);
        assert_eq!(words[2].to_le_bytes()[..4], (-2_i32).to_le_bytes());
    }

    #[test]
    fn arguments_that_are_not_the_parameters_are_refused() {
        for parameters in [&[8_usize][..], &[8, 8], &[8, 4, 4], &[]] {
            let error =
                words(&[Value::Address(None), Value::I32(7)], parameters, pointer, map).expect_err("differs");
            assert!(error.to_string().contains("found [8, 4]"), "{error}");
        }
    }
}
