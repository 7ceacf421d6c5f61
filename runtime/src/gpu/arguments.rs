//! Arguments of a kernel as the driver wants them: a word for each, in its low bytes.
//!
//! In: the values of a command and the sizes of the kernel's parameters. Out: words, if they fit.

use crate::driver::{Address, DriverError, Value};

/// A word for each value; `pointer` gives the device's own address of a place.
pub(super) fn words(
    values: &[Value],
    parameters: &[usize],
    pointer: impl Fn(Address) -> Result<u64, DriverError>,
) -> Result<Vec<u64>, DriverError> {
    let sizes: Vec<usize> = values.iter().map(|value| size(*value)).collect();
    if sizes != parameters {
        return Err(DriverError::Failed(format!(
            "it takes arguments of {parameters:?} bytes, found {sizes:?}: its text is of another version"
        )));
    }
    values
        .iter()
        .map(|value| {
            Ok(match *value {
                Value::Address(Some(at)) => pointer(at)?,
                Value::Address(None) => 0,
                // A GPU reads the low bytes first, as every host that CUDA runs on.
                Value::I32(number) => u64::from(number.cast_unsigned()),
                Value::I64(number) => number.cast_unsigned(),
                Value::F32(number) => u64::from(number.to_bits()),
            })
        })
        .collect()
}

fn size(value: Value) -> usize {
    match value {
        Value::Address(_) | Value::I64(_) => 8,
        Value::I32(_) | Value::F32(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Allocation;

    fn pointer(at: Address) -> Result<u64, DriverError> {
        Ok(0x7f00_0000_0000 + at.offset as u64)
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
        let words = words(&values, &[8, 8, 4, 8, 4], pointer).expect("they fit");
        assert_eq!(words, [0x7f00_0000_0200, 0, 0xffff_fffe, 0xffff_ffff_ffff_fffd, 0x8000_0000]);
        assert_eq!(words[2].to_le_bytes()[..4], (-2_i32).to_le_bytes());
    }

    #[test]
    fn arguments_that_are_not_the_parameters_are_refused() {
        for parameters in [&[8_usize][..], &[8, 8], &[8, 4, 4], &[]] {
            let error =
                words(&[Value::Address(None), Value::I32(7)], parameters, pointer).expect_err("differs");
            assert!(error.to_string().contains("found [8, 4]"), "{error}");
        }
    }
}
