//! Which device: what a user writes behind `--device`.

use std::fmt;
use std::str::FromStr;

/// A device to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// The first GPU where there is one that can be used, else the host's cores.
    #[default]
    Auto,
    /// The GPU of that number.
    Cuda(u32),
    /// The host as a GPU of that target, `sm_90a`: the generated kernels, thread by thread, with every access to memory
    /// checked.
    Emulator(String),
    /// The host's cores, in fp32.
    Cpu,
    /// The definition of each op, in fp64 and slow.
    Reference,
}

impl FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = || {
            format!(
                "a device is one of `auto`, `cpu`, `cuda`, `cuda:N` with the number of a GPU, `emulator:sm_90a` (or another \
                 target) and `reference`, found `{text}`"
            )
        };
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Self::Auto),
                "cpu" => Ok(Self::Cpu),
                "cuda" => Ok(Self::Cuda(0)),
                "reference" => Ok(Self::Reference),
                _ => Err(allowed()),
            },
            Some(("cuda", number)) => number.parse().map(Self::Cuda).map_err(|_| allowed()),
            Some(("emulator", target)) if !target.is_empty() => Ok(Self::Emulator(target.to_owned())),
            Some(_) => Err(allowed()),
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Emulator(target) => write!(f, "emulator:{target}"),
            Self::Cpu => f.write_str("cpu"),
            Self::Reference => f.write_str("reference"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_as_it_is_printed() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3", "emulator:sm_90a", "reference"] {
            assert_eq!(text.parse::<DeviceKind>().map(|kind| kind.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("cuda".parse(), Ok(DeviceKind::Cuda(0)));
        for wrong in ["gpu", "cuda:", "cuda:x", "emulator", "emulator:", ""] {
            let said = wrong.parse::<DeviceKind>().expect_err(wrong);
            assert!(said.ends_with(&format!("found `{wrong}`")), "{said}");
        }
    }
}
