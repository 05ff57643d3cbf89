//! Programs that a device does not run.

use thiserror::Error;
use tilewright_kernels::activation::SoftCapError;
use tilewright_kernels::gemm::GemmRefusal;
use tilewright_kernels::weights::{CodesError, StripError};
use tilewright_layout::DType;

use crate::program::{BufferId, Program, Span, TaskId};

/// Why the device machine does not run a program that is valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum Unsupported {
    #[error(
        "{what} ({buffer}) is written by tasks that no single wait of the task names; wait for one counter of them"
    )]
    Unawaited { what: &'static str, buffer: BufferId },
    #[error("a device does not run task {task} `{label}`: {source}")]
    Task {
        task: TaskId,
        label: String,
        #[source]
        source: Box<Unsupported>,
    },
    #[error("a graph of launches does not compute level `{level}`: {source}")]
    Level {
        level: String,
        #[source]
        source: Box<Unsupported>,
    },
    #[error("op `{op}` has no device function; lower the model with fused ops, or run it on `cpu`")]
    Op { op: &'static str },
    #[error("the program is for {devices} devices, and this machine has one; lower it for one, or run it on `cpu`")]
    Devices { devices: usize },
    #[error(
        "what it computes is sent to other buffers or is a shard's, and a device stores one whole result; run it on `cpu`"
    )]
    Sent,
    #[error("{what}: {found}, and a device needs {expected}; run it on `cpu`")]
    Number { what: &'static str, found: usize, expected: &'static str },
    #[error("{problem}; run it on `cpu`")]
    Refused { problem: String },
    #[error("{what} ({buffer}) is {found}, a device needs {expected}; lower the model with that type")]
    DType { what: &'static str, buffer: BufferId, found: DType, expected: &'static str },
    #[error(
        "partial results of attention ({buffer}) {found}, and a device merges them itself, each once; run it on `cpu`"
    )]
    Splits { buffer: BufferId, found: &'static str },
    #[error("buffer {buffer} lies at byte {offset}: beyond what a record can say, or not at a multiple of 16")]
    Offset { buffer: BufferId, offset: u64 },
    #[error(
        "weight {buffer} is prepacked or made into a table; to read it as it is, the op's row names it among its plain weights"
    )]
    Packed { buffer: BufferId },
    #[error("weight `{weight}` {source}, which a device does not run; run it on `cpu`")]
    Codes {
        weight: String,
        #[source]
        source: CodesError,
    },
    #[error(
        "weight `{weight}` is cut at column {column} for {devices} devices, within a group, which leaves groups of {group}, no \
         multiple of 16; share it by fewer, or run it on `cpu`"
    )]
    Cut { weight: String, column: usize, devices: usize, group: usize },
    #[error("weight `{weight}` is quantised, and this op reads rows of bf16; run it on `cpu`")]
    Quantised { weight: String },
    #[error(
        "weights `{first}` and `{second}` are streamed together and are quantised in different ways; run them on `cpu`"
    )]
    Mixed { first: String, second: String },
    #[error(transparent)]
    Strip(#[from] StripError),
    #[error(
        "a block needs {needed} bytes of shared memory for its tables, activations and two stages, the target has {limit}; \
         lower with fewer rows, or schedule for more SMs"
    )]
    Shared { needed: u64, limit: u64 },
    #[error("{what} is nothing that a graph of launches has; lower the model with at most 16 rows, or run it on `cpu`")]
    Launch { what: &'static str },
    #[error(
        "pool {pool} has {} pages, and its sequences {} entries of a page table; others have {} and {}, and a launch is told one \
         of each; give all pools the same, or run it on `cpu`",
        found.pages, found.table_width, known.pages, known.table_width
    )]
    Lengths { pool: BufferId, found: Lengths, known: Lengths },
    #[error("no launch computes a product: {0}")]
    Product(#[from] GemmRefusal),
    #[error(
        "a device leaves accesses of memory unordered: {conflict}; give the second task a buffer of its own, or run it on `cpu`"
    )]
    Unordered { conflict: String },
    #[error("the target `{target}` is not a GPU that the device machine generates code for")]
    Target { target: String },
    #[error("the program needs cells `token`, `position` and `page_table` of one place; it has another shape")]
    Cells,
}

impl From<SoftCapError> for Unsupported {
    fn from(error: SoftCapError) -> Unsupported {
        Unsupported::Refused { problem: error.to_string() }
    }
}

/// Lengths of a program: parameters of its kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Pages of each pool.
    pub pages: u32,
    /// Entries of a row of the page table.
    pub table_width: u32,
}

/// Refuses programs of several devices, for what runs on one.
pub(in crate::vm) fn one_device(program: &Program) -> Result<(), Unsupported> {
    match program.devices {
        1 => Ok(()),
        devices => Err(Unsupported::Devices { devices }),
    }
}

/// Refuses a number that is not a multiple; `expected` says which one is needed.
///
/// # Errors
/// If it is none.
pub fn multiple(what: &'static str, found: u32, of: u32, expected: &'static str) -> Result<(), Unsupported> {
    if found.is_multiple_of(of) { Ok(()) } else { Err(Unsupported::Number { what, found: found as usize, expected }) }
}

/// Rows of a task: what an MMA's operand holds.
///
/// # Errors
/// If there are more.
pub fn rows_of(span: Span) -> Result<u32, Unsupported> {
    match span.len() {
        found if found <= 16 => Ok(found as u32),
        found => Err(Unsupported::Number { what: "the rows of a task", found, expected: "16 at most" }),
    }
}
