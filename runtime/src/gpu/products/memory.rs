//! Choices on disk, in one file per GPU and library: nothing is measured twice on one machine.
//!
//! In: a folder that was handed in. Out: choices. A file is replaced whole, by renaming; one that is damaged is rebuilt;
//! of two processes that write at once one may lose what it measured, and measures it again the next time.

use super::choices::Choices;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Grows when choices of earlier versions mean something else.
const FORMAT: u32 = 1;

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    #[serde(flatten)]
    choices: Choices,
}

/// The file of one GPU and library.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    path: PathBuf,
    gpu: String,
    library: String,
}

impl Memory {
    /// In `folder`, which need not exist.
    pub(super) fn new(folder: &Path, gpu: &str, library: &str) -> Self {
        let plain = |text: &str| -> String {
            let sign = |sign: char| if sign.is_ascii_alphanumeric() || sign == '.' { sign } else { '-' };
            text.to_lowercase().chars().map(sign).collect()
        };
        let path = folder.join(format!("{}-{}.json", plain(gpu), plain(library)));
        Self { path, gpu: gpu.to_owned(), library: library.to_owned() }
    }

    /// What it holds, and what is wrong with it: then it holds nothing.
    pub(super) fn read(&self) -> (Choices, Option<String>) {
        let nothing =
            Choices { gpu: self.gpu.clone(), library: self.library.clone(), shapes: Default::default() };
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (nothing, None),
            Err(error) => return (nothing, Some(self.complain(&format!("cannot be read: {error}")))),
        };
        let document: Document = match serde_json::from_str(&text) {
            Ok(document) => document,
            Err(error) => return (nothing, Some(self.complain(&format!("is damaged: {error}")))),
        };
        let Choices { gpu, library, .. } = &document.choices;
        if (document.format, gpu, library) != (FORMAT, &self.gpu, &self.library) {
            return (nothing, Some(self.complain("is of another version, GPU or library")));
        }
        let mut choices = document.choices;
        choices.shapes.retain(|_, choice| choice.words().is_some());
        (choices, None)
    }

    fn complain(&self, what: &str) -> String {
        format!("`{}` {what}; its algorithms are chosen anew", self.path.display())
    }

    /// Adds choices to what it holds by now.
    ///
    /// # Errors
    /// When the file cannot be written, in words.
    pub(super) fn add(&self, new: &Choices) -> Result<(), String> {
        let (mut choices, _) = self.read();
        choices.shapes.extend(new.shapes.iter().map(|(shape, choice)| (shape.clone(), choice.clone())));
        self.write(choices).map_err(|error| format!("cannot write `{}`: {error}", self.path.display()))
    }

    fn write(&self, choices: Choices) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let text = serde_json::to_string_pretty(&Document { format: FORMAT, choices })?;
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let passing = self.path.with_extension(format!("{}-{number}.part", std::process::id()));
        let written = std::fs::write(&passing, text).and_then(|()| std::fs::rename(&passing, &self.path));
        if written.is_err() {
            let _ = std::fs::remove_file(&passing);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::super::choices::{Choice, Traits};
    use super::*;
    use kernwright_compile::testing::Scratch;

    fn one(shape: &str, number: u64) -> Choices {
        let choice = Choice {
            algorithm: Choice::text(&[number; 8]),
            traits: Traits { tile: 3, split_k: 2, ..Traits::default() },
            microseconds: Some(12.5),
            first_microseconds: None,
            candidates: 8,
        };
        let shapes = [(shape.to_owned(), choice)].into();
        Choices { gpu: "NVIDIA H200".to_owned(), library: "13.1.0".to_owned(), shapes }
    }

    fn memory(folder: &Scratch) -> Memory {
        Memory::new(&folder.path().join("gemm"), "NVIDIA H200", "13.1.0")
    }

    #[test]
    fn choices_come_back_from_a_file_of_their_gpu_and_library() {
        let folder = Scratch::new("choices");
        let memory = memory(&folder);
        assert!(memory.read().0.shapes.is_empty());
        memory.add(&one("small", 1)).unwrap();
        memory.add(&one("large", 2)).unwrap();
        let (found, wrong) = memory.read();
        assert_eq!((found.shapes.len(), wrong), (2, None));
        assert_eq!(found.shapes["large"], one("large", 2).shapes["large"]);
        let other = Memory::new(&folder.path().join("gemm"), "NVIDIA H200", "13.2.0");
        assert!(other.read().0.shapes.is_empty(), "another library's algorithms mean nothing");
        let names: Vec<_> = folder.path().join("gemm").read_dir().unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "no passing file is left");
        assert_eq!(names[0].file_name(), "nvidia-h200-13.1.0.json");
    }

    #[test]
    fn a_damaged_file_is_reported_and_rebuilt() {
        let folder = Scratch::new("choices-damage");
        let memory = memory(&folder);
        memory.add(&one("small", 1)).unwrap();
        let whole = std::fs::read_to_string(&memory.path).unwrap();
        let damages = [
            whole[..whole.len() / 2].to_owned(),
            String::new(),
            whole.replace("\"format\": 1", "\"format\": 0"),
            whole.replace("13.1.0", "12.9.0"),
        ];
        for damaged in damages {
            std::fs::write(&memory.path, &damaged).unwrap();
            let (found, wrong) = memory.read();
            assert!(found.shapes.is_empty() && wrong.is_some_and(|text| text.contains("chosen anew")));
            memory.add(&one("large", 2)).unwrap();
            assert_eq!(memory.read().0.shapes.len(), 1);
        }
        std::fs::write(&memory.path, whole.replace(&Choice::text(&[1; 8]), "0001")).unwrap();
        assert!(memory.read().0.shapes.is_empty(), "one damaged choice is left out");
    }

    #[test]
    fn writers_at_once_leave_a_whole_file() {
        let folder = Scratch::new("choices-writers");
        let memory = memory(&folder);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let memory = memory.clone();
                scope.spawn(move || {
                    for round in 0..20 {
                        memory.add(&one(&format!("{writer} {round}"), round)).unwrap();
                        assert_eq!(memory.read().1, None);
                    }
                });
            }
        });
        assert!(memory.read().0.shapes.len() >= 20, "the last writer's are all there");
    }
}
