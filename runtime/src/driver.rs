//! What a device does for an executor: memory, kernels, launches, events.
//!
//! In: names, bytes, texts and [`Command`]s, all plain data. Out: handles, bytes, times. The GPU and the emulator each
//! implement it. Must not know plans, steps or ops.

use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::{Batch, Epilogue};
use kernwright_plan::measure::Usage;
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::tensor_map::TensorLayout;

/// How a driver wants memory to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each buffer is an allocation of its own, so that every access outside of one is found.
    Separate,
    /// Buffers share few allocations, at the offsets of their plan.
    Arena,
}

/// A piece of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allocation(pub usize);

/// A kernel that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub usize);

/// A point in the order of what a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub usize);

/// Bytes of a device as they were when they were asked for; see [`Driver::fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Here already.
    Here(Vec<u8>),
    /// On their way; a number of the driver's own.
    UnderWay(usize),
}

/// A sequence of commands that a device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recording(pub usize);

/// A place in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The allocation.
    pub allocation: Allocation,
    /// Bytes from its beginning.
    pub offset: usize,
}

impl Address {
    /// The place so many bytes further on.
    #[must_use]
    pub fn after(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// The text of a kernel, and what it was made from.
#[derive(Clone, Debug)]
pub struct Text {
    /// Its name, block and shared memory.
    pub spec: KernelSpec,
    /// CUDA C++ that needs no other file.
    pub text: String,
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A pointer, or null.
    Address(Option<Address>),
    /// A tensor as the copy unit knows it.
    TensorMap {
        /// Its first element.
        at: Address,
        /// What lies from there on.
        layout: TensorLayout,
    },
    /// A 32-bit whole number.
    I32(i32),
    /// A 64-bit whole number.
    I64(i64),
    /// A single-precision number.
    F32(f32),
}

/// Rows in memory: the first element and the distance between rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows {
    /// The first element.
    pub at: Address,
    /// Element type.
    pub dtype: Dtype,
    /// From one row to the next, in elements.
    pub stride: usize,
}

impl Rows {
    /// The same rows, that many elements further on.
    #[must_use]
    pub fn after(self, elements: usize) -> Self {
        Self { at: self.at.after(elements * self.dtype.bytes()), ..self }
    }
}

/// Products of matrices, `d = epilogue(a' b' + c + bias)`, accumulated in fp32; see `kernwright_plan::launch::Gemm`.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Left operand: m x k, or k x m where it is transposed.
    pub a: Rows,
    /// Is it?
    pub a_transposed: bool,
    /// Right operand: k x n, or n x k where it is transposed.
    pub b: Rows,
    /// Is it?
    pub b_transposed: bool,
    /// What is added; may be `d` itself.
    pub c: Option<Rows>,
    /// One row of n that is added to every row.
    pub bias: Option<Rows>,
    /// Result.
    pub d: Rows,
    /// What becomes of a sum before it is written.
    pub epilogue: Epilogue<Rows>,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Summed dimension.
    pub k: usize,
    /// Nested repetitions, with the distances between them.
    pub batches: Vec<Batch>,
}

/// One thing a device does.
// A step has some hundreds of them: room does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Runs a kernel.
    Kernel {
        /// Which.
        kernel: Kernel,
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Its arguments.
        arguments: Vec<Value>,
    },
    /// Multiplies matrices.
    Product(Product),
    /// Copies bytes.
    Copy {
        /// Source.
        from: Address,
        /// Destination.
        to: Address,
        /// How many.
        bytes: usize,
    },
    /// Sets bytes to zero.
    Zero {
        /// The first.
        at: Address,
        /// How many.
        bytes: usize,
    },
    /// What is there is not read any more: a driver that looks for reads of what nobody wrote takes note.
    Discard {
        /// The first byte.
        at: Address,
        /// How many.
        bytes: usize,
    },
}

/// What can go wrong on a device.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The memory could not be had.
    #[error("no room for the {bytes} bytes of `{name}`")]
    Memory {
        /// What it was for.
        name: String,
        /// Bytes asked for.
        bytes: usize,
    },
    /// The host asked for bytes beyond an allocation.
    #[error("`{name}` has {size} bytes, asked for {bytes} from byte {offset} on")]
    Bounds {
        /// What it is for.
        name: String,
        /// Its size.
        size: usize,
        /// The first byte.
        offset: usize,
        /// How many.
        bytes: usize,
    },
    /// A text does not compile.
    #[error("kernel `{kernel}` does not compile: {reason}")]
    Compile {
        /// Its name.
        kernel: String,
        /// What the compiler says.
        reason: String,
    },
    /// What the device says of a command, or of itself.
    #[error("{0}")]
    Failed(String),
}

/// Why a recording did not run to its end.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ReplayError {
    /// Index of the command that failed, where the device tells.
    pub command: Option<usize>,
    /// What it says.
    pub error: DriverError,
}

/// A device. What it is told to do, it does in order; commands may still be running when a call returns, except for
/// `download` and `synchronize`, and an error may come with a later call.
pub trait Driver {
    /// How it wants memory to be asked for.
    fn layout(&self) -> Layout;

    /// Takes memory, aligned to 256 bytes. Its content is undefined; the name is for messages.
    ///
    /// # Errors
    /// When there is none left.
    fn allocate(&mut self, name: &str, bytes: usize) -> Result<Allocation, DriverError>;

    /// Gives memory back.
    ///
    /// # Errors
    /// When the device fails.
    fn free(&mut self, allocation: Allocation) -> Result<(), DriverError>;

    /// Copies bytes of the host to the device.
    ///
    /// # Errors
    /// When they reach past the allocation, or the device fails.
    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Copies bytes of the device to the host, once all that was asked for before is done.
    ///
    /// # Errors
    /// As for `upload`.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError>;

    /// Copies bytes of the device to the host as they are once all that was asked for before is done, without waiting
    /// for that.
    ///
    /// # Errors
    /// As for `download`.
    fn fetch(&mut self, from: Address, bytes: usize) -> Result<Fetch, DriverError> {
        let mut here = vec![0; bytes];
        self.download(from, &mut here)?;
        Ok(Fetch::Here(here))
    }

    /// The bytes of a fetch, once they are there. Does not wait for what was asked for later.
    ///
    /// # Errors
    /// When there is no such fetch, or anything before it failed.
    fn take(&mut self, fetch: Fetch) -> Result<Vec<u8>, DriverError> {
        match fetch {
            Fetch::Here(bytes) => Ok(bytes),
            Fetch::UnderWay(number) => {
                Err(DriverError::Failed(format!("fetch {number} is not of this device")))
            }
        }
    }

    /// The device's own address of a place, as a kernel would read it from memory.
    ///
    /// # Errors
    /// When there is no such place.
    fn pointer(&self, at: Address) -> Result<u64, DriverError>;

    /// Compiles and loads kernels, in the order of their texts.
    ///
    /// # Errors
    /// The first that does not compile.
    fn load(&mut self, texts: &[Text]) -> Result<Vec<Kernel>, DriverError>;

    /// Does one thing.
    ///
    /// # Errors
    /// When the device cannot, or finds fault with it.
    fn launch(&mut self, command: &Command) -> Result<(), DriverError>;

    /// Keeps commands, without running them.
    ///
    /// # Errors
    /// When the device cannot.
    fn record(&mut self, commands: Vec<Command>) -> Result<Recording, DriverError>;

    /// Runs kept commands.
    ///
    /// # Errors
    /// As for `launch`.
    fn replay(&mut self, recording: Recording) -> Result<(), ReplayError>;

    /// Drops kept commands.
    fn forget(&mut self, recording: Recording);

    /// Marks the point after all that was asked for so far.
    ///
    /// # Errors
    /// When the device fails.
    fn mark(&mut self) -> Result<Event, DriverError>;

    /// Seconds from one point to a later one, once the later one is reached. Both events are used up.
    ///
    /// # Errors
    /// When the device fails.
    fn seconds(&mut self, from: Event, to: Event) -> Result<f64, DriverError>;

    /// Seconds that each of some commands takes, by the device's clock, run in order; and how that is known, in words. A
    /// device whose launches cost more than what they launch does better than this.
    ///
    /// # Errors
    /// As for `replay`.
    fn time(&mut self, commands: &[Command]) -> Result<(&'static str, Vec<f64>), ReplayError> {
        let of_device = |error| ReplayError { command: None, error };
        let mut marks = Vec::with_capacity(commands.len());
        for (index, command) in commands.iter().enumerate() {
            let from = self.mark().map_err(of_device)?;
            self.launch(command).map_err(|error| ReplayError { command: Some(index), error })?;
            marks.push((from, self.mark().map_err(of_device)?));
        }
        let seconds = marks.into_iter().map(|(from, to)| self.seconds(from, to).map_err(of_device));
        Ok(("a clock that is read between launches", seconds.collect::<Result<_, _>>()?))
    }

    /// What it has taken of the device's memory.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// What was chosen by measurement and decides the last bits of results, as JSON; none where nothing is.
    fn choices(&self) -> Option<String> {
        None
    }

    /// Takes such choices for what was not launched or recorded yet.
    ///
    /// # Errors
    /// When they are damaged.
    fn adopt(&mut self, _choices: &str) -> Result<(), DriverError> {
        Ok(())
    }

    /// Waits until all that was asked for is done.
    ///
    /// # Errors
    /// What any of it met with.
    fn synchronize(&mut self) -> Result<(), DriverError>;
}
