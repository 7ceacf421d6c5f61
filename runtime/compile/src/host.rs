//! The host's C++ compiler: `CXX` if set, else `c++` on `PATH`.
//!
//! In: [`Places`]. Out: a program that said who it is. Must not know what is compiled with it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::error::Error;
use crate::places::Places;

pub(crate) const ADVICE: &str =
    "install g++ (`apt-get install g++`) or set `CXX`; needed only for the emulator";

/// A C++ compiler that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCompiler {
    /// The program.
    pub program: PathBuf,
    /// What `CXX` holds behind it.
    pub arguments: Vec<String>,
    /// The first line it says of itself.
    pub version: String,
}

impl HostCompiler {
    /// Looks for it and asks for its version.
    ///
    /// # Errors
    /// When there is none or it does not run.
    pub fn find(places: &Places) -> Result<HostCompiler, Error> {
        let words: Vec<&str> = places.cxx.as_deref().unwrap_or("c++").split_whitespace().collect();
        let (name, arguments) = words.split_first().map_or(("c++", &[][..]), |(first, rest)| (*first, rest));
        let Some(program) = command::which(name, &places.path) else {
            return Err(Error::NoHostCompiler {
                problem: format!("`{name}` is not on `PATH`"),
                advice: ADVICE,
            });
        };
        let asked = command::output(&program, &[arguments, &["--version"]].concat(), Duration::from_secs(10));
        let text = asked.map_err(|reason| Error::NoHostCompiler {
            problem: format!("`{}` does not run: {reason}", program.display()),
            advice: ADVICE,
        })?;
        let version = text.lines().next().unwrap_or_default().trim().to_owned();
        Ok(HostCompiler {
            program,
            arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
            version,
        })
    }

    /// The command that starts it, with the arguments of `CXX`.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }
}
