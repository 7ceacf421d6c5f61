//! Where tokens come from: text, whose bytes are the tokens, or `.bin` files of tokens.
//!
//! In: a path, or text embedded in the program. Out: [`Tokens`], one long sequence read by range. A file named
//! `*.bin` holds tokens, any other file is text, whatever its content. It knows nothing of batches.
//!
//! A folder is walked to the bottom and its files are taken in the order of their paths, compared part by part.
//! Names that begin with `.` are skipped, linked folders are not entered, linked files are. If all files are `.bin`,
//! they are the shards of the corpus; if none is, each is text, and a newline is put between two files where the first
//! does not end in one. A mixture is refused: whichever part was ignored, it might be the one that was meant.

mod folder;
mod shard;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::{fmt, fs};

use crate::checksum::Checksum;
use shard::Shard;

/// The text that `train` uses without `--data`: this project's own documents and sources, frozen.
pub const BUILT_IN: &[u8] = include_bytes!("../corpus/built_in.txt");

/// Tokens of each `.bin` that are checked against the vocabulary when it is opened. The rest is checked when read.
const N_CHECKED: usize = if cfg!(test) { 1 << 10 } else { 1 << 24 };

/// A corpus: one sequence of tokens, all below the vocabulary.
#[derive(Debug)]
pub struct Tokens {
    parts: Vec<Part>,
    /// Where each part ends in the sequence.
    ends: Vec<usize>,
    vocab: usize,
}

/// A stretch of the corpus that lies in one piece.
#[derive(Debug)]
struct Part {
    name: String,
    data: Data,
}

enum Data {
    Text(Vec<u8>),
    Embedded(&'static [u8]),
    Shard(Shard),
}

/// Why a corpus cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CorpusError {
    #[error("cannot read `{path}`")]
    Unreadable { path: String, source: io::Error },
    #[error("a corpus must be a file or a folder, found something else at `{path}`")]
    NotFile { path: String },
    #[error(
        "a corpus folder must hold either `.bin` files alone or none, found `{n_bins}` of them and `{n_others}` \
         others, such as `{other}`, in `{path}`: give them folders of their own"
    )]
    Mixed { path: String, n_bins: usize, n_others: usize, other: String },
    #[error("a corpus must have at least one token, found none in `{path}`")]
    Empty { path: String },
    #[error("a corpus must have at least one file that is not hidden, found none in `{path}`")]
    NoFile { path: String },
    #[error("a corpus must have at least `{needed}` tokens {reason}, found `{found}`")]
    TooShort { needed: usize, found: usize, reason: String },
    #[error("`{path}` must hold whole tokens of `{width}` bytes, found `{found}` bytes of them")]
    PartOfToken { path: String, width: usize, found: usize },
    #[error("`{path}` must hold the `{said}` tokens that its header says, found `{found}`")]
    LyingHeader { path: String, said: i64, found: usize },
    #[error(
        "`{path}` begins as llm.c's files do and must have a header of `{allowed}` bytes, found `{found}`"
    )]
    CutHeader { path: String, allowed: usize, found: usize },
    #[error("`{path}` must hold tokens, found a zip archive, as PyTorch saves weights")]
    Zip { path: String },
    #[error(
        "`{path}` must lead to a file, found a link to `{target}`, which is not there: mend the link or remove it"
    )]
    BrokenLink { path: String, target: String },
    #[error("`{path}` must not change while it is read, but has become shorter")]
    Shrunk { path: String },
    #[error("`{path}` must be of version `{allowed}` of its format, found `{found}`")]
    Version { path: String, allowed: i32, found: i32 },
    #[error("a token must be below `vocab`, `{vocab}`, found `{token}` at position `{position}` of `{path}`")]
    Token { token: u32, position: usize, path: String, vocab: usize },
    #[error("`vocab` must be at least 256 for text, whose tokens are bytes, found `{0}`")]
    VocabForText(usize),
}

impl Tokens {
    /// Opens the file or folder at `path`. Text is read into memory, `.bin` files are read when asked for.
    pub fn open(path: &Path, vocab: usize) -> Result<Self, CorpusError> {
        let unreadable = |source| CorpusError::Unreadable { path: path.display().to_string(), source };
        let metadata = fs::metadata(path).map_err(|source| folder::unreachable_file(path, source))?;
        if metadata.is_file() {
            let data = if folder::is_bin(path) {
                Data::Shard(Shard::open(path)?)
            } else {
                Data::Text(fs::read(path).map_err(unreadable)?)
            };
            return Self::from_parts(path, vec![Part { name: path.display().to_string(), data }], vocab);
        }
        if !metadata.is_dir() {
            // A device may have no end, a pipe may never begin.
            return Err(CorpusError::NotFile { path: path.display().to_string() });
        }
        let files = folder::files(path)?;
        let (bins, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| folder::is_bin(file));
        if let (false, Some(other)) = (bins.is_empty(), others.first()) {
            return Err(CorpusError::Mixed {
                path: path.display().to_string(),
                n_bins: bins.len(),
                n_others: others.len(),
                other: other.display().to_string(),
            });
        }
        let mut parts = Vec::new();
        for file in bins {
            parts.push(Part { name: file.display().to_string(), data: Data::Shard(Shard::open(file)?) });
        }
        if parts.is_empty() {
            parts.push(Part { name: path.display().to_string(), data: Data::Text(folder::text(&files)?) });
        }
        Self::from_parts(path, parts, vocab)
    }

    /// A corpus of text embedded in the program, called `name` in errors.
    pub fn embedded(name: &str, text: &'static [u8], vocab: usize) -> Result<Self, CorpusError> {
        let part = Part { name: name.to_owned(), data: Data::Embedded(text) };
        Self::from_parts(Path::new(name), vec![part], vocab)
    }

    fn from_parts(path: &Path, parts: Vec<Part>, vocab: usize) -> Result<Self, CorpusError> {
        let mut ends = Vec::with_capacity(parts.len());
        let mut end = 0;
        for part in &parts {
            let n = part.len();
            match &part.data {
                Data::Shard(shard) => {
                    shard.check(vocab, n.min(N_CHECKED)).map_err(|bad| bad.of(part, vocab))?
                }
                Data::Text(_) | Data::Embedded(_) if vocab < 256 => {
                    return Err(CorpusError::VocabForText(vocab));
                }
                Data::Text(_) | Data::Embedded(_) => {}
            }
            end += n;
            ends.push(end);
        }
        if end == 0 {
            return Err(CorpusError::Empty { path: path.display().to_string() });
        }
        Ok(Self { parts, ends, vocab })
    }

    /// Tokens in the corpus; at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The number that every token is below.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Whether the tokens are the bytes of text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        !self.parts.iter().any(|part| matches!(part.data, Data::Shard(_)))
    }

    /// The XXH64 checksum of the corpus: of all bytes of text; of a `.bin`, which may be too long to be read twice, of
    /// its length and its first and last MiB.
    ///
    /// # Errors
    /// When a file can no longer be read.
    pub fn fingerprint(&self) -> Result<u64, CorpusError> {
        let mut checksum = Checksum::default();
        for part in &self.parts {
            match &part.data {
                Data::Text(text) => checksum.update(text),
                Data::Embedded(text) => checksum.update(text),
                Data::Shard(shard) => {
                    shard.sum_ends(&mut checksum).map_err(|error| error.of(part, self.vocab))?
                }
            }
        }
        Ok(checksum.value())
    }

    /// Writes the tokens of `range` to `out`. Panics when the range leaves the corpus or `out` has another length.
    pub fn fill(&self, range: Range<usize>, out: &mut [i32]) -> Result<(), CorpusError> {
        assert!(range.end <= self.len(), "range {range:?} of a corpus of {} tokens", self.len());
        assert_eq!(out.len(), range.len(), "room for the tokens of {range:?}");
        let mut part = self.ends.partition_point(|end| *end <= range.start);
        let mut out = out;
        let mut at = range.start;
        while !out.is_empty() {
            let n = out.len().min(self.ends[part] - at);
            let (now, later) = std::mem::take(&mut out).split_at_mut(n);
            let start = at - (self.ends[part] - self.parts[part].len());
            self.parts[part].fill(start, now, self.vocab)?;
            (out, at, part) = (later, at + n, part + 1);
        }
        Ok(())
    }
}

impl Part {
    fn len(&self) -> usize {
        match &self.data {
            Data::Text(text) => text.len(),
            Data::Embedded(text) => text.len(),
            Data::Shard(shard) => shard.len(),
        }
    }

    fn fill(&self, start: usize, out: &mut [i32], vocab: usize) -> Result<(), CorpusError> {
        let bytes = match &self.data {
            Data::Text(text) => text.as_slice(),
            Data::Embedded(text) => text,
            Data::Shard(shard) => return shard.fill(start, out, vocab).map_err(|bad| bad.of(self, vocab)),
        };
        for (token, byte) in out.iter_mut().zip(&bytes[start..]) {
            *token = i32::from(*byte);
        }
        Ok(())
    }
}

impl shard::ReadError {
    fn of(self, part: &Part, vocab: usize) -> CorpusError {
        let path = part.name.clone();
        match self {
            Self::Token { token, position } => CorpusError::Token { token, position, path, vocab },
            Self::File(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                CorpusError::Shrunk { path }
            }
            Self::File(source) => CorpusError::Unreadable { path, source },
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, n) = match self {
            Self::Text(text) => ("text", text.len()),
            Self::Embedded(text) => ("embedded text", text.len()),
            Self::Shard(shard) => ("tokens", shard.len()),
        };
        write!(f, "{n} of {kind}")
    }
}

#[cfg(test)]
mod tests;
