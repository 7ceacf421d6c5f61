//! One safetensors file of `f32` tensors.
//!
//! Written tensor by tensor: each is asked for when its turn comes, so that one tensor, not the model, is held in
//! memory, and the checksum is taken on the way. Read piece by piece when asked, not mapped: a file that is cut short
//! meanwhile is an error, not the end of the process. The safetensors library judges what the header says.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{CheckpointError, FileRecord, Kind, TensorShape};
use crate::atomic_file::write_synced;
use crate::checksum::Checksum;
use crate::message::one_line;

/// Where the tensors of each kind are.
pub(super) const WEIGHTS: &str = "weights.safetensors";
pub(super) const MOMENTS: &str = "moments.safetensors";

/// Bytes of the number that a file begins with: the length of its header.
const N_LENGTH: usize = 8;

/// Most bytes of a header, as the format's own library has it.
const LARGEST_HEADER: u64 = 100_000_000;

/// What a zip archive begins with.
const ZIP: &[u8] = b"PK\x03\x04";

/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

/// Hands over the numbers of a tensor, by kind and name.
pub(super) type Read<'a> =
    dyn FnMut(Kind, &str, &mut [f32]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + 'a;

impl Kind {
    /// The name in its file of the tensor that belongs to the weight `name`.
    pub(super) fn stored_name(self, name: &str) -> String {
        match self {
            Self::Weight => name.to_owned(),
            Self::FirstMoment => format!("m.{name}"),
            Self::SecondMoment => format!("v.{name}"),
        }
    }
}

/// Writes the tensors, in the given order, to a new file at `path`, which is on disk when this returns.
pub(super) fn write(
    path: &Path,
    tensors: &[(Kind, &TensorShape)],
    read: &mut Read<'_>,
) -> Result<FileRecord, CheckpointError> {
    let unwritable = |source| CheckpointError::Write { path: path.display().to_string(), source };
    let header = header(tensors).map_err(unwritable)?;
    let mut failure = None;
    let mut record = None;
    let written = write_synced(path, |file| {
        let mut file = Summed { file, checksum: Checksum::default(), n_bytes: 0 };
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut values = Vec::new();
        for (kind, tensor) in tensors {
            values.clear();
            values.resize(tensor.len(), 0.0f32);
            if let Err(source) = read(*kind, &tensor.name, &mut values) {
                failure = Some(CheckpointError::Tensor { name: kind.stored_name(&tensor.name), source });
                return Err(io::Error::other("the device failed"));
            }
            write_values(&mut file, &values)?;
        }
        record = Some(FileRecord { bytes: file.n_bytes, xxh64: hexadecimal(file.checksum.value()) });
        Ok(())
    });
    match (failure, written, record) {
        (Some(failure), ..) => Err(failure),
        (None, Err(source), _) => Err(unwritable(source)),
        (None, Ok(()), record) => record.ok_or_else(|| unwritable(io::Error::other("nothing was written"))),
    }
}

/// The header's JSON, padded so that the tensors start at a multiple of 8 bytes.
fn header(tensors: &[(Kind, &TensorShape)]) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let mut infos = Vec::with_capacity(tensors.len());
    for (kind, tensor) in tensors {
        let start = end;
        end += tensor.len() * size_of::<f32>();
        let info = TensorInfo { dtype: Dtype::F32, shape: tensor.shape.clone(), data_offsets: (start, end) };
        infos.push((kind.stored_name(&tensor.name), info));
    }
    let mut text = serde_json::to_vec(&Metadata::new(None, infos).map_err(io::Error::other)?)?;
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok(text)
}

fn write_values(file: &mut impl Write, values: &[f32]) -> io::Result<()> {
    let mut bytes = [0; 1 << 14];
    for values in values.chunks(bytes.len() / 4) {
        for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *bytes = value.to_le_bytes();
        }
        file.write_all(&bytes[..4 * values.len()])?;
    }
    Ok(())
}

/// A writer that takes the checksum of what passes.
struct Summed<'a> {
    file: &'a mut dyn Write,
    checksum: Checksum,
    n_bytes: u64,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.checksum.update(&bytes[..n]);
        self.n_bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn hexadecimal(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// An open file whose header is sound.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: String,
    file: File,
    /// Bytes in the file when it was opened.
    n_bytes: u64,
    metadata: Metadata,
    /// Bytes before the first tensor.
    start: u64,
}

impl TensorFile {
    /// Opens `path`, which must have the size of `record` and a sound header. The checksum is not taken.
    pub(super) fn open(path: &Path, record: &FileRecord) -> Result<Self, CheckpointError> {
        let name = || path.display().to_string();
        let unreadable = |source| CheckpointError::Read { path: name(), source };
        // Asked of the path: to open a pipe is to wait for whoever writes to it.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let file = File::open(path).map_err(unreadable)?;
        let n_bytes = file.metadata().map_err(unreadable)?.len();
        let failed = |source| failed(name(), source);
        let mut length = [0; N_LENGTH];
        file.read_exact_at(&mut length[..n_bytes.min(N_LENGTH as u64) as usize], 0).map_err(failed)?;
        // A file too short to say a length says 0 or little: more than it has.
        let found = u64::from_le_bytes(length);
        if length.starts_with(ZIP) && found > LARGEST_HEADER {
            return Err(CheckpointError::Zip { path: name() });
        }
        if n_bytes != record.bytes {
            return Err(CheckpointError::Size { path: name(), said: record.bytes, found: n_bytes });
        }
        let n_left = n_bytes.saturating_sub(N_LENGTH as u64);
        let allowed = n_left.min(LARGEST_HEADER);
        if found > allowed {
            return Err(CheckpointError::HeaderLength { path: name(), allowed, found });
        }
        let mut header = vec![0; found as usize];
        file.read_exact_at(&mut header, N_LENGTH as u64).map_err(failed)?;
        // The library checks each tensor's bytes against its shape, and that they neither overlap nor leave gaps.
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| CheckpointError::Header { path: name(), reason: one_line(error) })?;
        let (said, found) = (metadata.data_len() as u64, n_left - header.len() as u64);
        if said != found {
            return Err(CheckpointError::TensorBytes { path: name(), said, found });
        }
        Ok(Self { path: name(), file, n_bytes, metadata, start: (N_LENGTH + header.len()) as u64 })
    }

    /// Reads the whole file and compares its checksum.
    pub(super) fn verify(&self, record: &FileRecord) -> Result<(), CheckpointError> {
        let mut checksum = Checksum::default();
        self.for_each_piece(0..self.n_bytes, |piece| checksum.update(piece))?;
        let found = hexadecimal(checksum.value());
        if found == record.xxh64 {
            return Ok(());
        }
        Err(CheckpointError::Checksum { path: self.path.clone(), said: one_line(&record.xxh64), found })
    }

    /// The tensors, as stored, in the order of the file.
    pub(super) fn tensors(&self) -> Vec<TensorShape> {
        let names = self.metadata.offset_keys().into_iter();
        let shape = |name: &str| self.metadata.info(name).map(|info| info.shape.clone()).unwrap_or_default();
        names.map(|name| TensorShape { shape: shape(&name), name }).collect()
    }

    /// Copies the tensor stored as `name` to `out`. It must be of `f32` and of the given `shape`.
    pub(super) fn read(&self, name: &str, shape: &[usize], out: &mut [f32]) -> Result<(), CheckpointError> {
        let path = self.path.clone();
        let Some(info) = self.metadata.info(name) else {
            return Err(CheckpointError::Missing { name: one_line(name), path });
        };
        if info.dtype != Dtype::F32 || info.shape != shape {
            let describe = |dtype: Dtype, shape: &[usize]| format!("`{dtype}` of `{shape:?}`");
            let (allowed, found) = (describe(Dtype::F32, shape), describe(info.dtype, &info.shape));
            return Err(CheckpointError::TensorShape { name: one_line(name), allowed, found, path });
        }
        // The offsets were checked against the shape and the file when it was opened.
        let (start, end) = info.data_offsets;
        assert_eq!((end - start) / size_of::<f32>(), out.len(), "room for `{name}`");
        let mut out = out.iter_mut();
        self.for_each_piece(self.start + start as u64..self.start + end as u64, |piece| {
            let (values, _) = piece.as_chunks::<4>();
            out.by_ref().zip(values).for_each(|(out, value)| *out = f32::from_le_bytes(*value));
        })
    }

    /// Reads the bytes of `range` piece by piece; each but the last has [`PIECE`] bytes.
    fn for_each_piece(&self, range: Range<u64>, mut piece: impl FnMut(&[u8])) -> Result<(), CheckpointError> {
        let mut bytes = vec![0; PIECE.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let bytes = &mut bytes[..PIECE.min((range.end - at) as usize)];
            self.file.read_exact_at(bytes, at).map_err(|source| failed(self.path.clone(), source))?;
            piece(bytes);
            at += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Why bytes cannot be read that were there when the file was opened.
fn failed(path: String, source: io::Error) -> CheckpointError {
    if source.kind() == io::ErrorKind::UnexpectedEof {
        return CheckpointError::Shrunk { path };
    }
    CheckpointError::Read { path, source }
}
