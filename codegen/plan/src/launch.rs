//! What a step becomes on a device: a short list of launches.
//!
//! In: an op's decision in `lower`. Out: [`Launch`], which each driver implements. Must not know any driver.

use crate::buffer::BufferId;
use crate::spec::KernelSpec;
use crate::tensor_map::TensorMap;

/// What `lower` made of one step.
#[derive(Clone, Debug, PartialEq)]
pub enum Lowered {
    /// Run these in order.
    Launches(Vec<Launch>),
    /// This op runs on the CPU only, so far; the text says why.
    NoKernel(&'static str),
}

/// One thing a driver can do.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// A generated kernel.
    Kernel {
        /// What to compile.
        spec: KernelSpec,
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Arguments in order: outputs, inputs, scalars.
        arguments: Vec<Argument>,
    },
    /// A matrix product by the vendor's library.
    Gemm(Gemm),
    /// Copies a whole buffer.
    Copy {
        /// Source.
        from: BufferId,
        /// Destination, of the same size.
        to: BufferId,
    },
    /// Sets every byte of a buffer to zero.
    Zero {
        /// What to clear.
        buffer: BufferId,
    },
}

/// One kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A pointer; null where the step has no such buffer.
    Buffer(Option<BufferId>),
    /// A pointer to these entries: memory of its own that is filled before anything runs, and not again.
    Table(Vec<Entry>),
    /// A tensor as the copy unit knows it, for a parameter `const __grid_constant__ TensorMap`.
    TensorMap(TensorMap),
    /// A 32-bit whole number.
    I32(i32),
    /// A 64-bit whole number.
    I64(i64),
    /// A single-precision number.
    F32(f32),
}

/// 8 bytes of a table that a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A pointer; null where there is no such buffer.
    Buffer(Option<BufferId>),
    /// A 64-bit whole number.
    I64(i64),
}

/// What becomes of each sum of a product before it is written, with the matrix that takes part in it: as large as the result,
/// with rows of its own distance. Gelu is that of its tanh form, `ActivationKind::GeluTanh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue<M> {
    /// It is written as it is.
    None,
    /// Its gelu is the result; the sum itself is written to the matrix, where there is one.
    Gelu(Option<M>),
    /// It is multiplied by the slope of gelu at the matrix' element.
    GeluSlope(M),
}

impl<M> Epilogue<M> {
    /// The matrix that takes part.
    pub fn matrix(&self) -> Option<&M> {
        match self {
            Self::None => None,
            Self::Gelu(matrix) => matrix.as_ref(),
            Self::GeluSlope(matrix) => Some(matrix),
        }
    }

    /// The same with another kind of matrix.
    pub fn map<N>(self, change: impl FnOnce(M) -> N) -> Epilogue<N> {
        match self {
            Self::None => Epilogue::None,
            Self::Gelu(matrix) => Epilogue::Gelu(matrix.map(change)),
            Self::GeluSlope(matrix) => Epilogue::GeluSlope(change(matrix)),
        }
    }

    /// The same with another kind of matrix, if there is one.
    ///
    /// # Errors
    /// What `change` says.
    pub fn try_map<N, E>(self, change: impl FnOnce(M) -> Result<N, E>) -> Result<Epilogue<N>, E> {
        Ok(match self {
            Self::None => Epilogue::None,
            Self::Gelu(matrix) => Epilogue::Gelu(matrix.map(change).transpose()?),
            Self::GeluSlope(matrix) => Epilogue::GeluSlope(change(matrix)?),
        })
    }
}

/// `d = epilogue(a' b' + beta c (+ bias))`, row-major; `'` transposes where asked. `a'` is m x k, `b'` k x n, `d` m x n. With
/// batches, one such product for each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemm {
    /// Left operand.
    pub a: Operand,
    /// Right operand.
    pub b: Operand,
    /// Added to the product; may be `d` itself (accumulation) or another buffer (a residual).
    pub c: Option<BufferId>,
    /// Length-n vector added to every row.
    pub bias: Option<BufferId>,
    /// Result.
    pub d: BufferId,
    /// What becomes of a sum before it is written.
    pub epilogue: Epilogue<BufferId>,
    /// First row of `c`, `d` and the epilogue's matrix that takes part.
    pub row: usize,
    /// Products of the same sizes, further on in the same buffers: nested loops, the outermost first; none for one
    /// product.
    pub batches: Vec<Batch>,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Summed dimension.
    pub k: usize,
}

/// A loop over products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub count: usize,
    /// From one to the next, in elements of `a`.
    pub a: usize,
    /// The same of `b`.
    pub b: usize,
    /// The same of `d`, of `c` and of the epilogue's matrix.
    pub d: usize,
}

/// A matrix operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// The buffer, row-major with its own row stride.
    pub buffer: BufferId,
    /// First row of the buffer that takes part; as many as m, n and k ask for follow.
    pub row: usize,
    /// First column of the buffer that takes part.
    pub column: usize,
    /// Use its transpose?
    pub transposed: bool,
}

impl Operand {
    /// A buffer as it is, from its first element on.
    #[must_use]
    pub fn plain(buffer: BufferId) -> Self {
        Self { buffer, row: 0, column: 0, transposed: false }
    }

    /// Its transpose.
    #[must_use]
    pub fn turned(buffer: BufferId) -> Self {
        Self { transposed: true, ..Self::plain(buffer) }
    }
}
