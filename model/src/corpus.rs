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
        let metadata = fs::metadata(path).map_err(unreadable)?;
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
mod tests {
    use super::*;

    fn all(tokens: &Tokens) -> Vec<i32> {
        let mut out = vec![0; tokens.len()];
        tokens.fill(0..tokens.len(), &mut out).unwrap();
        out
    }

    fn bytes_of(tokens: &Tokens) -> Vec<u8> {
        all(tokens).into_iter().map(|token| u8::try_from(token).unwrap()).collect()
    }

    fn raw(tokens: &[u16]) -> Vec<u8> {
        tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
    }

    #[test]
    fn a_text_file_is_its_bytes_invalid_utf8_included() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let text = b"caf\xC3\xA9 \xFF\x00\n";
        fs::write(&path, text).unwrap();
        assert_eq!(bytes_of(&Tokens::open(&path, 256).unwrap()), text);
        let error = Tokens::open(&path, 255).unwrap_err().to_string();
        assert_eq!(error, "`vocab` must be at least 256 for text, whose tokens are bytes, found `255`");
        assert_eq!(bytes_of(&Tokens::embedded("poem", b"\xFEab", 256).unwrap()), b"\xFEab");
    }

    #[test]
    fn a_folder_of_text_is_joined_in_path_order_by_newlines() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b/inner", ".git"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let files = [("b/inner/x", "three"), ("b/y", "four\n"), ("a", "one\n"), ("b.txt", "two"), ("c", "")];
        let hidden = [(".DS_Store", "no"), (".git/HEAD", "no")];
        files.iter().chain(&hidden).for_each(|(name, text)| fs::write(at(name), text).unwrap());
        let found = String::from_utf8(bytes_of(&Tokens::open(folder.path(), 300).unwrap())).unwrap();
        assert_eq!(found, "one\nthree\nfour\ntwo");
    }

    #[test]
    fn shards_join_in_path_order_and_any_range_of_them_reads_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let sequence: Vec<u16> = (0..97).map(|i| i * 13 % 101).collect();
        let pieces = [&sequence[..1], &sequence[1..40], &[], &sequence[40..41], &sequence[41..]];
        for (i, piece) in pieces.iter().enumerate() {
            fs::write(folder.path().join(format!("part_{i}.bin")), raw(piece)).unwrap();
        }
        let tokens = Tokens::open(folder.path(), 101).unwrap();
        let expected: Vec<i32> = sequence.iter().map(|token| i32::from(*token)).collect();
        assert_eq!(all(&tokens), expected);
        for start in 0..=97 {
            for end in start..=97 {
                let mut out = vec![-1; end - start];
                tokens.fill(start..end, &mut out).unwrap();
                assert_eq!(out, expected[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_folder_of_text_beside_tokens_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.bin"), raw(&[1, 2])).unwrap();
        fs::write(at(".hidden"), "no part of it").unwrap();
        assert!(!Tokens::open(folder.path(), 256).unwrap().is_text());
        fs::create_dir(at("inner")).unwrap();
        fs::write(at("inner/b.txt"), "text").unwrap();
        fs::write(at("z.txt"), "text").unwrap();
        let error = Tokens::open(folder.path(), 256).unwrap_err().to_string();
        let expected = format!(
            "a corpus folder must hold either `.bin` files alone or none, found `1` of them and `2` others, such as \
             `{}`, in `{}`: give them folders of their own",
            at("inner/b.txt").display(),
            folder.path().display()
        );
        assert_eq!(error, expected);
        fs::remove_file(at("a.bin")).unwrap();
        assert!(Tokens::open(folder.path(), 256).unwrap().is_text());
        assert!(Tokens::embedded("poem", b"a", 256).unwrap().is_text());
    }

    #[test]
    fn a_fingerprint_tells_texts_and_the_ends_of_tokens_apart() {
        let folder = tempfile::tempdir().unwrap();
        let fingerprint = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            Tokens::open(&path, 300).unwrap().fingerprint().unwrap()
        };
        assert_eq!(fingerprint("a.txt", b"Nobody inspects"), Checksum::of(b"Nobody inspects"));
        assert_ne!(fingerprint("a.txt", b"Nobody inspects"), fingerprint("b.txt", b"Nobody inspectz"));
        let mib = 1 << 20;
        for n in [2, mib - 2, mib, 2 * mib, 5 * mib] {
            let bytes = vec![0; n];
            let whole = fingerprint("a.bin", &bytes);
            assert_eq!(whole, fingerprint("b.bin", &bytes), "{n} bytes");
            assert_ne!(whole, fingerprint("a.bin", &vec![0; n + 2]), "{n} bytes and 2 more");
            for at in [0, n - 2, (n - 1).min(mib - 2), n.saturating_sub(mib)] {
                let mut other = bytes.clone();
                other[at & !1] = 1;
                assert_ne!(whole, fingerprint("a.bin", &other), "byte {at} of {n}");
            }
        }
    }

    #[test]
    fn a_file_of_tokens_that_is_cut_while_it_is_used_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, raw(&[7; 50_000])).unwrap();
        let tokens = Tokens::open(&path, 10).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20).unwrap();
        let mut out = [0; 10];
        tokens.fill(0..10, &mut out).unwrap();
        let error = tokens.fill(40_000..40_010, &mut out).unwrap_err().to_string();
        let expected = "must not change while it is read, but has become shorter";
        assert_eq!(error, format!("`{}` {expected}", path.display()));
        assert!(matches!(tokens.fingerprint(), Err(CorpusError::Shrunk { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn devices_pipes_and_sockets_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket.bin");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [Path::new("/dev/zero"), &socket, &pipe] {
            let error = Tokens::open(path, 256).unwrap_err().to_string();
            let expected = "a corpus must be a file or a folder, found something else at";
            assert_eq!(error, format!("{expected} `{}`", path.display()));
        }
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_named_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, raw(&[1, 2, 50, 3])).unwrap();
        let error = Tokens::open(&path, 50).unwrap_err().to_string();
        let expected = "a token must be below `vocab`, `50`, found `50` at position `2` of ";
        assert_eq!(error, format!("{expected}`{}`", path.display()));
        assert!(Tokens::open(&path, 51).is_ok());
    }

    #[test]
    fn a_bad_token_past_the_checked_part_is_found_when_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let mut bytes = vec![0; 2 * N_CHECKED];
        bytes.extend(raw(&[9, 10]));
        fs::write(&path, bytes).unwrap();
        let tokens = Tokens::open(&path, 10).unwrap();
        let mut out = [0];
        tokens.fill(N_CHECKED..N_CHECKED + 1, &mut out).unwrap();
        assert_eq!(out, [9]);
        let error = tokens.fill(N_CHECKED + 1..N_CHECKED + 2, &mut out).unwrap_err();
        assert!(matches!(error, CorpusError::Token { token: 10, position, .. } if position == N_CHECKED + 1));
    }

    #[test]
    fn what_cannot_be_a_corpus_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |path: &Path| Tokens::open(path, 256).unwrap_err().to_string();
        let shown = |path: &Path| path.display().to_string();
        let root = folder.path();
        assert_eq!(
            error(root),
            format!(
                "a corpus must have at least one file that is not hidden, found none in `{}`",
                shown(root)
            )
        );
        let missing = root.join("missing");
        assert_eq!(error(&missing), format!("cannot read `{}`", shown(&missing)));
        for name in ["empty.txt", "empty.bin"] {
            let path = root.join(name);
            fs::write(&path, b"").unwrap();
            let expected = format!("a corpus must have at least one token, found none in `{}`", shown(&path));
            assert_eq!(error(&path), expected);
        }
    }
}
