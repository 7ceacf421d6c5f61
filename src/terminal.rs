//! Writing to the terminal: a closed pipe ends the output, not the program.

use std::io::{self, Write};

/// Writes a line to standard output. A reader that has gone (`| head`) is no error; a full disk behind `>` is.
///
/// # Errors
/// When standard output cannot be written for any other reason than a closed pipe.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(unwritable(&error)),
        Ok(()) => Ok(()),
    }
}

/// The error of standard output, which says that it is it.
pub(crate) fn unwritable(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write standard output: {error}"))
}

/// Writes a line to standard error, where it can.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
