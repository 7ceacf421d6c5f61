//! One `.bin` file of tokens: raw 16-bit tokens as nanoGPT writes them, or llm.c's files, which have a header of 256
//! 32-bit integers: magic, version, number of tokens. Everything is little-endian.
//!
//! In: a path. Out: tokens by range, or the first bad one. The layout is told by the header's magic number. The file is
//! read piece by piece when asked, not mapped: one that is cut short meanwhile is an error, not the end of the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::CorpusError;
use crate::checksum::Checksum;

/// Bytes of llm.c's header.
const HEADER: usize = 256 * 4;

/// A kind of header: its magic number, the version that is read, and bytes per token.
struct Layout {
    magic: i32,
    version: i32,
    width: usize,
}

const LAYOUTS: [Layout; 2] =
    [Layout { magic: 20_240_520, version: 1, width: 2 }, Layout { magic: 20_240_801, version: 7, width: 4 }];

/// Bytes at either end of a file that its fingerprint is made of.
const END: usize = 1 << 20;

/// Bytes that are read at once.
const PIECE: usize = 1 << 14;

/// An open file of tokens.
pub(super) struct Shard {
    file: File,
    /// Bytes in the file when it was opened.
    n_bytes: usize,
    /// Bytes before the first token.
    start: usize,
    /// Bytes per token: 2 or 4.
    width: usize,
}

/// Why tokens cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// A token is not below the vocabulary.
    Token { token: u32, position: usize },
    /// The system says no.
    File(io::Error),
}

impl Shard {
    /// Opens `path`, a regular file, and reads its header, if it has one.
    pub(super) fn open(path: &Path) -> Result<Self, CorpusError> {
        let name = || path.display().to_string();
        let unreadable = |source| CorpusError::Unreadable { path: name(), source };
        let file = File::open(path).map_err(unreadable)?;
        let n_bytes = file.metadata().map_err(unreadable)?.len();
        let n_bytes = usize::try_from(n_bytes).map_err(|error| unreadable(io::Error::other(error)))?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header[..n_bytes.min(HEADER)], 0).map_err(unreadable)?;
        let word = |i: usize| i32::from_le_bytes(std::array::from_fn(|byte| header[4 * i + byte]));
        // The zeros behind a shorter file make no magic number.
        let layout = LAYOUTS.iter().find(|layout| word(0) == layout.magic);
        if layout.is_some() && n_bytes < HEADER {
            return Err(CorpusError::CutHeader { path: name(), allowed: HEADER, found: n_bytes });
        }
        let (start, width) = layout.map_or((0, 2), |layout| (HEADER, layout.width));
        if is_zip(&file, &header, n_bytes).map_err(unreadable)? {
            return Err(CorpusError::Zip { path: name() });
        }
        let n_left = n_bytes - start;
        if n_left % width != 0 {
            return Err(CorpusError::PartOfToken { path: name(), width, found: n_left });
        }
        if let Some(layout) = layout {
            let (version, said, found) = (word(1), i64::from(word(2)), n_left / width);
            if version != layout.version {
                return Err(CorpusError::Version { path: name(), allowed: layout.version, found: version });
            }
            if usize::try_from(said) != Ok(found) {
                return Err(CorpusError::LyingHeader { path: name(), said, found });
            }
        }
        Ok(Self { file, n_bytes, start, width })
    }

    /// Tokens in the file.
    pub(super) fn len(&self) -> usize {
        (self.n_bytes - self.start) / self.width
    }

    /// Hands the file's length and its first and last [`END`] bytes, all of it if it is shorter, to `checksum`.
    pub(super) fn sum_ends(&self, checksum: &mut Checksum) -> Result<(), ReadError> {
        checksum.update(&(self.n_bytes as u64).to_le_bytes());
        let n = self.n_bytes.min(END);
        let mut bytes = vec![0; n];
        for start in [0, self.n_bytes - n] {
            self.file.read_exact_at(&mut bytes, start as u64).map_err(ReadError::File)?;
            checksum.update(&bytes);
        }
        Ok(())
    }

    /// Looks for a token that is not below `vocab` among the first `n`.
    pub(super) fn check(&self, vocab: usize, n: usize) -> Result<(), ReadError> {
        if self.width == 2 && vocab > usize::from(u16::MAX) {
            return Ok(());
        }
        let mut piece = [0; 4096];
        for start in (0..n).step_by(piece.len()) {
            let n = piece.len().min(n - start);
            self.fill(start, &mut piece[..n], vocab)?;
        }
        Ok(())
    }

    /// Writes the tokens from `start` on to `out`, all below `vocab` and none above `i32::MAX`.
    pub(super) fn fill(&self, start: usize, out: &mut [i32], vocab: usize) -> Result<(), ReadError> {
        let limit = u32::try_from(vocab).unwrap_or(u32::MAX).min(1 << 31);
        let mut largest = 0;
        let mut write = |out: &mut i32, token: u32| {
            largest = largest.max(token);
            *out = token.cast_signed();
        };
        let mut bytes = [0; PIECE];
        let mut at = self.start + start * self.width;
        for out in out.chunks_mut(PIECE / self.width) {
            let bytes = &mut bytes[..out.len() * self.width];
            self.file.read_exact_at(bytes, at as u64).map_err(ReadError::File)?;
            at += bytes.len();
            if self.width == 2 {
                let (tokens, _) = bytes.as_chunks::<2>();
                let tokens = tokens.iter().map(|token| u16::from_le_bytes(*token).into());
                out.iter_mut().zip(tokens).for_each(|(out, token)| write(out, token));
            } else {
                let (tokens, _) = bytes.as_chunks::<4>();
                let tokens = tokens.iter().map(|token| u32::from_le_bytes(*token));
                out.iter_mut().zip(tokens).for_each(|(out, token)| write(out, token));
            }
        }
        if largest < limit {
            return Ok(());
        }
        let bad = out.iter().position(|token| token.cast_unsigned() >= limit);
        bad.map_or(Ok(()), |at| {
            Err(ReadError::Token { token: out[at].cast_unsigned(), position: start + at })
        })
    }
}

/// Whether a file is a zip archive, such as the `pytorch_model.bin` that weights are found in: by what it begins with
/// and by the record that ends it, so that no tokens pass for one by chance.
fn is_zip(file: &File, header: &[u8], n_bytes: usize) -> io::Result<bool> {
    /// Bytes of the record that ends an archive without a comment; PyTorch writes none.
    const N_END: usize = 22;
    if !header.starts_with(b"PK\x03\x04") || n_bytes < N_END {
        return Ok(false);
    }
    let mut end = [0; 4];
    file.read_exact_at(&mut end, (n_bytes - N_END) as u64)?;
    Ok(end == *b"PK\x05\x06")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(magic: i32, version: i32, said: i32, tokens: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [magic, version, said].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(HEADER, 0);
        bytes.extend(tokens);
        bytes
    }

    /// The tokens of a file of `bytes`, or the error without the file's name.
    fn read(bytes: &[u8]) -> Result<Vec<i32>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        std::fs::write(&path, bytes).unwrap();
        let shard = Shard::open(&path)
            .map_err(|error| error.to_string().replace(&path.display().to_string(), "a.bin"))?;
        let mut out = vec![0; shard.len()];
        shard.fill(0, &mut out, usize::MAX).map_err(|bad| format!("{bad:?}"))?;
        Ok(out)
    }

    #[test]
    fn each_layout_is_told_by_its_header() {
        let narrow = [1, 0, 255, 255, 7, 1];
        assert_eq!(read(&narrow), Ok(vec![1, 65_535, 263]));
        assert_eq!(read(&file(20_240_520, 1, 3, &narrow)), Ok(vec![1, 65_535, 263]));
        let wide = [1, 0, 0, 0, 0, 1, 2, 0];
        assert_eq!(read(&file(20_240_801, 7, 2, &wide)), Ok(vec![1, 131_328]));
        assert_eq!(read(&file(20_240_520, 1, 0, &[])), Ok(vec![]));
        assert_eq!(read(b"PK\x03\x04PK"), Ok(vec![19_280, 1027, 19_280]));
    }

    #[test]
    fn damaged_files_are_refused() {
        let cut = |found: usize| file(20_240_520, 1, 3, &[])[..found].to_vec();
        let cases = [
            (
                cut(HEADER - 2),
                "`a.bin` begins as llm.c's files do and must have a header of `1024` bytes, found `1022`",
            ),
            (cut(4), "`a.bin` begins as llm.c's files do and must have a header of `1024` bytes, found `4`"),
            (vec![1, 0, 2], "`a.bin` must hold whole tokens of `2` bytes, found `3` bytes of them"),
            (
                file(20_240_801, 7, 1, &[0; 6]),
                "`a.bin` must hold whole tokens of `4` bytes, found `6` bytes of them",
            ),
            (
                file(20_240_520, 1, 9, &[0; 4]),
                "`a.bin` must hold the `9` tokens that its header says, found `2`",
            ),
            (
                file(20_240_520, 1, 1, &[0; 4]),
                "`a.bin` must hold the `1` tokens that its header says, found `2`",
            ),
            (
                file(20_240_520, 1, -2, &[0; 4]),
                "`a.bin` must hold the `-2` tokens that its header says, found `2`",
            ),
            (file(20_240_801, 1, 1, &[0; 4]), "`a.bin` must be of version `7` of its format, found `1`"),
            (
                [&b"PK\x03\x04"[..], &[0; 31], b"PK\x05\x06", &[0; 18]].concat(),
                "`a.bin` must hold tokens, found a zip archive, as PyTorch saves weights",
            ),
            (file(20_240_801, 7, 1, &[0xFF; 4]), "Token { token: 4294967295, position: 0 }"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(&bytes), Err(expected.to_owned()));
        }
    }
}
