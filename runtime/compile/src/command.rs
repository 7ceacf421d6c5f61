//! Runs a short foreign command (`python3 -c`, `c++ --version`) that may hang, be missing or be a wrapper.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What the command wrote to its standard output, or why there is none.
pub(crate) fn output(program: &Path, arguments: &[&str], limit: Duration) -> Result<String, String> {
    let deadline = Instant::now() + limit;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let (send, receive) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        // A thread of its own, left behind if a grandchild keeps the pipe open past the limit.
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            let _ = send.send(bytes);
        });
    }
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} ms", limit.as_millis()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    // At least a moment: the child may have ended just at the limit, its output already in the pipe.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(50));
    let bytes = receive.recv_timeout(left).map_err(|_| "its output never ended".to_owned())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first entry of a `PATH` that holds an executable file of this name; a name with a slash stands for itself.
pub(crate) fn which(name: &str, path: &[std::path::PathBuf]) -> Option<std::path::PathBuf> {
    if name.contains('/') {
        return Some(name.into()).filter(|file: &std::path::PathBuf| executable(file));
    }
    path.iter().map(|folder| folder.join(name)).find(|file| executable(file))
}

fn executable(file: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    file.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let start = Instant::now();
        let found = output(Path::new("/bin/sh"), &["-c", "sleep 30"], Duration::from_millis(100));
        assert_eq!(found, Err("no answer within 100 ms".to_owned()));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn output_failure_and_absence_are_told_apart() {
        let run = |text: &str| output(Path::new("/bin/sh"), &["-c", text], Duration::from_secs(20));
        assert_eq!(run("echo one; echo two"), Ok("one\ntwo\n".to_owned()));
        assert!(run("exit 3").is_err_and(|reason| reason.contains('3')));
        assert!(output(Path::new("/no/such/program"), &[], Duration::from_secs(1)).is_err());
    }

    #[test]
    fn which_takes_the_first_executable() {
        let path = ["/no/such/folder".into(), "/bin".into(), "/usr/bin".into()];
        assert_eq!(which("sh", &path), Some("/bin/sh".into()));
        assert_eq!(which("/bin/sh", &[]), Some("/bin/sh".into()));
        assert_eq!(which("no-such-program", &path), None);
    }
}
