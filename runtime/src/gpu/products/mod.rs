//! Products of matrices on a GPU, by cuBLASLt, each shape by the fastest algorithm that was seen to be right.
//!
//! In: a [`Product`], and where its matrices lie. Out: calls in a stream. An algorithm is chosen once per shape: as a run
//! recorded it, as a file remembers it, or by checking and timing what the library offers. The context of the GPU must be
//! current on the thread, and all launches must be in one stream, since they share a workspace. Must not know plans.

mod choices;
mod descriptors;
mod device;
mod functions;
mod layout;
mod memory;
mod preparation;
mod scratch;
mod selection;
mod sequence;
mod verdict;

use crate::driver::{DriverError, Product};
use cudarc::driver::sys::CUstream;
use descriptors::{Beside, Call, Handle};
use device::{Block, Device};
use functions::{CublasLt, Driver};
use kernwright_compile::{Libraries, Library};
use layout::{Key, Layout};
use memory::Memory;
use preparation::Prepared;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

pub use choices::{Choice, Choices, Traits};
pub use descriptors::Fp32;
pub use layout::Pointers;

/// How algorithms are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the files that remember choices; none remembers nothing.
    pub folder: Option<PathBuf>,
    /// In which order a product may add.
    pub order: Order,
    /// How fp32 operands are multiplied.
    pub fp32: Fp32,
    /// How many of the library's candidates are tried, [`MOST_CANDIDATES`] at most.
    pub candidates: usize,
    /// Which of them is taken.
    pub pick: Pick,
}

impl Default for Settings {
    fn default() -> Self {
        let (order, fp32, pick) = (Order::default(), Fp32::default(), Pick::default());
        Self { folder: None, order, fp32, candidates: CANDIDATES, pick }
    }
}

/// In which order a product may add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In one: the same operands give the same bits every time.
    #[default]
    Fixed,
    /// In any.
    Free,
}

/// Which of the candidates is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// The fastest in a measurement.
    #[default]
    Fastest,
    /// The first, by the library's own estimate; nothing is measured or remembered.
    First,
}

/// Candidates that are tried where nobody says otherwise.
pub const CANDIDATES: usize = 8;
/// The most that may be.
pub const MOST_CANDIDATES: usize = 16;
/// The oldest major version of the library that is known to work.
const OLDEST: usize = 12;

/// What a user may want to see while algorithms are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The next shape is measured.
    Choosing {
        /// Shapes that are done.
        done: usize,
        /// All there are.
        of: usize,
        /// This one, in words.
        product: String,
    },
    /// All are done.
    Chosen {
        /// How many were measured.
        shapes: usize,
        /// In which time.
        seconds: f64,
    },
    /// Something that should be known.
    Note(String),
}

/// Who is told.
pub type Tell = Box<dyn FnMut(Message)>;

/// Workspace for products, bytes: what NVIDIA recommends for the GPU.
#[must_use]
pub fn workspace_bytes(capability: (u32, u32)) -> usize {
    if capability.0 >= 9 { 32 << 20 } else { 8 << 20 }
}

/// The matrix library on one GPU.
pub struct Products {
    handle: Rc<Handle>,
    device: Device,
    workspace: Block,
    version: String,
    gpu: String,
    settings: Settings,
    memory: Option<Memory>,
    /// What the file held, and what was added since.
    remembered: Choices,
    /// What a run recorded.
    recorded: Choices,
    /// What is in use.
    chosen: Choices,
    prepared: HashMap<Key, Prepared>,
    tell: Option<Tell>,
    /// What nobody was told yet.
    untold: Vec<Message>,
}

impl fmt::Debug for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, shapes) = (&self.version, self.prepared.len());
        f.debug_struct("Products").field("version", version).field("shapes", &shapes).finish_non_exhaustive()
    }
}

impl Products {
    /// Opens the library on the GPU of the current context, and takes the workspace.
    ///
    /// # Errors
    /// When the library is missing, too old, or finds no GPU.
    pub fn open(
        libraries: &Libraries,
        gpu: &str,
        capability: (u32, u32),
        settings: Settings,
    ) -> Result<Self, DriverError> {
        let failed = |error: kernwright_compile::Error| DriverError::Failed(error.to_string());
        let driver = libraries.load(Library::Driver).map_err(failed)?;
        let device = Device::new(Driver::bind(&driver).map_err(failed)?);
        let loaded = libraries.load(Library::CublasLt).map_err(failed)?;
        let functions = CublasLt::bind(&loaded).map_err(failed)?;
        let (major, version) = descriptors::version(&functions);
        if major < OLDEST {
            return Err(DriverError::Failed(format!(
                "`{}` is cuBLASLt {version}, and {OLDEST} or later is needed: {}",
                loaded.path.display(),
                Library::CublasLt.advice()
            )));
        }
        let handle = Handle::open(functions)?;
        let workspace = device.allocate("workspace of products", workspace_bytes(capability))?;
        let memory = settings.folder.as_ref().map(|folder| Memory::new(folder, gpu, &version));
        let nothing = Choices { gpu: gpu.to_owned(), library: version.clone(), shapes: BTreeMap::new() };
        let (remembered, wrong) = memory.as_ref().map_or((nothing.clone(), None), Memory::read);
        Ok(Self {
            handle,
            device,
            workspace,
            version,
            gpu: gpu.to_owned(),
            settings,
            memory,
            remembered,
            recorded: nothing.clone(),
            chosen: nothing,
            prepared: HashMap::new(),
            tell: None,
            untold: wrong.into_iter().map(Message::Note).collect(),
        })
    }

    /// Version of cuBLASLt.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whom to tell from now on, and of what there was before.
    pub fn tell(&mut self, tell: Tell) {
        self.tell = Some(tell);
        for message in std::mem::take(&mut self.untold) {
            self.say(message);
        }
    }

    fn say(&mut self, message: Message) {
        match &mut self.tell {
            Some(tell) => tell(message),
            None => self.untold.push(message),
        }
    }

    /// The algorithms in use, for a run to record.
    pub fn choices(&self) -> &Choices {
        &self.chosen
    }

    /// From now on takes the algorithms that a run recorded. Those of another GPU or library mean nothing here: a note
    /// says so, and they are chosen anew.
    pub fn replay(&mut self, choices: Choices) {
        if !choices.shapes.is_empty() && (&choices.gpu, &choices.library) != (&self.gpu, &self.version) {
            let Choices { gpu, library, .. } = choices;
            let note = format!(
                "the run chose its matrix products on `{gpu}` with cuBLASLt {library}, this is `{}` with {}: they are chosen \
                 anew, and results may differ in their last bits",
                self.gpu, self.version
            );
            self.say(Message::Note(note));
            return;
        }
        self.recorded.shapes = choices.shapes;
        self.forget();
    }

    /// The algorithms in use, as JSON; none where no product was prepared.
    pub(super) fn record(&self) -> Option<String> {
        let is_used = !self.chosen.shapes.is_empty();
        is_used.then(|| serde_json::to_string(&self.chosen).ok()).flatten()
    }

    /// The inverse of `record`.
    pub(super) fn adopt(&mut self, record: &str) -> Result<(), DriverError> {
        let choices = serde_json::from_str(record).map_err(|error| {
            DriverError::Failed(format!(
                "the algorithms of matrix products that the run recorded are damaged: {error}"
            ))
        })?;
        self.replay(choices);
        Ok(())
    }

    /// May a product add in any order from now on?
    pub fn order(&mut self, order: Order) {
        self.settings.order = order;
        self.forget();
    }

    /// Takes other candidates from now on.
    pub fn pick(&mut self, pick: Pick) {
        self.settings.pick = pick;
        self.forget();
    }

    fn forget(&mut self) {
        self.prepared.clear();
        self.chosen.shapes.clear();
    }

    /// Asks the stream for a product, which was prepared. The stream may be capturing.
    ///
    /// # Errors
    /// When it was not, or the library refuses.
    pub fn launch(
        &self,
        product: &Product,
        pointers: Pointers<'_>,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let layout = Layout::of(product)?;
        if layout.is_empty() {
            return Ok(());
        }
        self.enqueue(&layout, pointers, stream).map_err(|error| in_context(&layout, error))
    }

    fn enqueue(&self, layout: &Layout, pointers: Pointers<'_>, stream: CUstream) -> Result<(), DriverError> {
        let prepared = self.prepared.get(&layout.key(pointers)?);
        let prepared =
            prepared.ok_or_else(|| DriverError::Failed("no algorithm was chosen for it".to_owned()))?;
        let [left, right, d] = [layout.left.at, layout.right.at, layout.d.at].map(pointers);
        let (left, right, d) = (left?, right?, d?);
        let c = layout.c.map_or(Ok(d), |c| pointers(c.at))?;
        let beside = Beside {
            bias: layout.bias.map_or(Ok(0), |bias| pointers(bias.at))?,
            epilogue: layout.epilogue.matrix().map_or(Ok(0), |matrix| pointers(matrix.at))?,
        };
        let bytes = |elements: usize, size: usize| (elements * size) as u64;
        let (operand, result) = (layout.left.dtype.bytes(), layout.d.dtype.bytes());
        for start in &layout.starts {
            let call = Call {
                left: left + bytes(start.left, operand),
                right: right + bytes(start.right, operand),
                c: c + bytes(start.d, result),
                d: d + bytes(start.d, result),
                beside,
                workspace: (self.workspace.at, self.workspace.bytes),
                stream,
            };
            prepared.operation.launch(&prepared.algorithm, call)?;
        }
        Ok(())
    }
}

/// An error that says of which product it is.
fn in_context(layout: &Layout, error: DriverError) -> DriverError {
    match error {
        DriverError::Failed(text) => DriverError::Failed(format!("{}: {text}", layout.in_words())),
        other => other,
    }
}

impl super::Gpu {
    /// What multiplies.
    #[must_use]
    pub fn products(&self) -> &Products {
        &self.products
    }

    /// The same, to tell it how. What was recorded keeps its algorithms.
    pub fn products_mut(&mut self) -> &mut Products {
        &mut self.products
    }
}
