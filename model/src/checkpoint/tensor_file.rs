//! One safetensors file of `f32` tensors.
//!
//! Written tensor by tensor: each is asked for when its turn comes, so that one tensor, not the model, is held in
//! memory, and the checksum is taken on the way. Read through a map, its header checked by the safetensors library.

use std::io::{self, Write};
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{CheckpointError, FileRecord, Kind, TensorShape};
use crate::atomic_file::write_synced;
use crate::checksum::Checksum;
use crate::mapped::MappedFile;

/// Where the tensors of each kind are.
pub(super) const WEIGHTS: &str = "weights.safetensors";
pub(super) const MOMENTS: &str = "moments.safetensors";

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

/// A mapped file whose header is sound.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: String,
    map: MappedFile,
    metadata: Metadata,
    /// Bytes before the first tensor.
    start: usize,
}

impl TensorFile {
    /// Maps `path`, which must have the size of `record` and a sound header. The checksum is not taken.
    pub(super) fn open(path: &Path, record: &FileRecord) -> Result<Self, CheckpointError> {
        let name = path.display().to_string();
        let map =
            MappedFile::open(path).map_err(|source| CheckpointError::Read { path: name.clone(), source })?;
        if map.len() as u64 != record.bytes {
            let found = map.len() as u64;
            return Err(CheckpointError::Size { path: name, said: record.bytes, found });
        }
        match SafeTensors::read_metadata(&map) {
            Ok((n, metadata)) => Ok(Self { path: name, map, metadata, start: n + 8 }),
            Err(source) => Err(CheckpointError::Safetensors { path: name, source }),
        }
    }

    /// Reads the whole file and compares its checksum.
    pub(super) fn verify(&self, record: &FileRecord) -> Result<(), CheckpointError> {
        let found = hexadecimal(Checksum::of(&self.map));
        if found == record.xxh64 {
            return Ok(());
        }
        Err(CheckpointError::Checksum { path: self.path.clone(), said: record.xxh64.clone(), found })
    }

    /// The tensors, as stored, in the order of the file.
    pub(super) fn tensors(&self) -> Vec<TensorShape> {
        let names = self.metadata.offset_keys().into_iter();
        let shape = |name: &str| self.metadata.info(name).map(|info| info.shape.clone()).unwrap_or_default();
        names.map(|name| TensorShape { shape: shape(&name), name }).collect()
    }

    /// Copies the tensor stored as `name` to `out`. It must be of `f32` and of the given `shape`.
    pub(super) fn read(&self, name: &str, shape: &[usize], out: &mut [f32]) -> Result<(), CheckpointError> {
        let (name, path) = (name.to_owned(), self.path.clone());
        let Some(info) = self.metadata.info(&name) else {
            return Err(CheckpointError::Missing { name, path });
        };
        if info.dtype != Dtype::F32 || info.shape != shape {
            let describe = |dtype: Dtype, shape: &[usize]| format!("`{dtype}` of `{shape:?}`");
            let (allowed, found) = (describe(Dtype::F32, shape), describe(info.dtype, &info.shape));
            return Err(CheckpointError::TensorShape { name, allowed, found, path });
        }
        // The offsets were checked against the shape and the file when it was opened.
        let bytes = &self.map[self.start + info.data_offsets.0..self.start + info.data_offsets.1];
        let (values, _) = bytes.as_chunks::<4>();
        assert_eq!(values.len(), out.len(), "room for `{name}`");
        out.iter_mut().zip(values).for_each(|(out, value)| *out = f32::from_le_bytes(*value));
        Ok(())
    }
}
