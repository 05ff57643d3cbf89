//! A planned task: an opcode, which is a device function, a record and weights.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, bytes_of, bytes_of_mut};
use tilewright_kernels::weights::{PrefetchForm, WeightStages};

use super::kernel::{Call, RingFeed};
use super::record::{FIELDS, TaskRecord};
use super::storage::KvPools;

/// A task as its op planned it.
pub struct Planned {
    pub(super) opcode: Opcode,
    pub(super) record: TaskRecord,
    /// Bytes of the op's own fields.
    pub(super) bytes: usize,
    pub(super) weights: Option<Stretch>,
}

impl Planned {
    /// A task that streams no weights: its device function, and what that reads of it, words of 32
    /// bits, at most [`FIELDS`] of them (more do not compile).
    pub fn new<F: Pod>(function: impl DeviceFunction, fields: F) -> Planned {
        const { assert!(size_of::<F>() <= 4 * FIELDS && size_of::<F>().is_multiple_of(4), "a record has room for 16 words") };
        let mut record = TaskRecord::default();
        bytes_of_mut(&mut record.fields)[..size_of::<F>()].copy_from_slice(bytes_of(&fields));
        Planned { opcode: Opcode::from(function), record, bytes: size_of::<F>(), weights: None }
    }

    /// Keeps only the first `bytes` bytes of the fields, where the last words are not used.
    #[must_use]
    pub fn keeping(self, bytes: usize) -> Planned {
        Planned { bytes: bytes.min(self.bytes), ..self }
    }

    /// Sets prepacked weights that the function reads by itself, from the stream's start on.
    #[must_use]
    pub fn reading(mut self, start: u32) -> Planned {
        self.record.weights = start;
        self
    }

    /// Sets weights that are streamed through the ring.
    #[must_use]
    pub fn streaming(self, weights: Stretch) -> Planned {
        Planned { weights: Some(weights), ..self }
    }
}

/// A task's part of a stream of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The stream, as [`Planner::stream`](super::Planner::stream) numbers it.
    pub stream: usize,
    /// First strip.
    pub first: usize,
    /// Strips.
    pub strips: usize,
    /// The stages that the task takes, and their order.
    pub taken: Taken,
}

/// The stages of its strips that a task takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All, strip by strip.
    Strips,
    /// All, by groups of that number of strips
    /// ([`StageOrder`](tilewright_kernels::weights::StageOrder)).
    Groups(u32),
    /// Of every strip the stages from the first to before the second.
    Part([u32; 2]),
    /// All, by K chunks: of every strip its next stages, a number that divides the strip's stages.
    Phases(u32),
}

/// A device function, specialised: everything of a task that is constant in the code. Values that
/// differ between its tasks (operands, features, rows) are in their records. Equal functions are
/// one opcode.
pub trait DeviceFunction: FunctionValue {
    /// Records the task's work, by all consumer warps of a block.
    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>);

    /// Shared memory that it needs.
    fn shared(&self, _warps: u32) -> SharedBytes {
        SharedBytes::default()
    }

    /// The pools, and with them the cells, that it looks at.
    fn pools(&self) -> Option<KvPools> {
        None
    }

    /// Keys and values that it reads from their pages: they are prefetched to L2.
    fn tokens(&self) -> Option<TokenStream> {
        None
    }

    /// Lets it [fill](DeviceFunction::fill) stages of the ring, of `stage_bytes` bytes: a block
    /// keeps the step's cells.
    fn stream(&mut self, _stage_bytes: u32) {}

    /// Whether it fills stages of the ring.
    fn fills(&self) -> bool {
        false
    }

    /// The number of the task's wait after which it [fills](DeviceFunction::fill) stages of the ring,
    /// by what the tasks that it waits for have written: weights of experts that they have chosen.
    /// Keys and values need no wait but for the step's cells ([`DeviceFunction::fills`]).
    fn fills_after(&self) -> Option<u32> {
        None
    }

    /// Records what fills stages of the ring for a task, before those of its weights: parts of
    /// pools, in the order in which [`run`](DeviceFunction::run) reads them by
    /// [`WeightStages::stage`]. The producer runs ahead of the task, and waits for nothing of its
    /// step but the cells, or the wait that is named. So only what no task of the step writes before
    /// this one may come this way ([`Planner::is_immutable`](super::Planner::is_immutable), [`RingFeed::streamed`]).
    fn fill<'k>(&self, _feed: RingFeed<'k, '_>) {}

    /// The form in which the task's first stages are read from prefetch registers, if they are
    /// prefetched ([`WeightStages::prefetched`]).
    fn prefetch_form(&self) -> Option<PrefetchForm> {
        None
    }

    /// Bytes of a strip of its weights where two come as one stage
    /// ([`in_pairs`](tilewright_kernels::gemv::task::ProductPlan::pair_bytes)).
    fn takes_pairs(&self) -> Option<u32> {
        None
    }

    /// Whether the task signals by itself, before its last stores.
    fn signals_early(&self) -> bool {
        false
    }

    /// Whether it looks for packets of other devices, one of which may be lost, or of tasks that it
    /// has not heard of: it must go on without them when it is told to ([`Call::left`]).
    fn polls_peers(&self) -> bool {
        false
    }

    /// Columns of the activations that it reads as packets, if it can poll all of them without
    /// waiting for a semaphore. Polling ends when the launch is aborted ([`Call::left`]).
    fn polled_columns(&self) -> Option<u32> {
        None
    }
}

/// Shared memory of a device function, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBytes {
    /// Bytes for sums.
    pub sums: u32,
    /// Bytes for activations, for the results of warps, or for other work.
    pub operand: u32,
}

/// Keys and values that a device function reads from their pages.
#[derive(Clone, Copy, Debug)]
pub struct TokenStream {
    /// Rows of the task.
    pub rows: u32,
    /// Splits of a row's tokens.
    pub splits: u32,
    /// Tokens that a row sees, its own included, if not all.
    pub window: Option<u32>,
    /// The pools.
    pub pools: KvPools,
    /// The record fields of the first row, the kv head, the split, and the pools of keys and
    /// values.
    pub fields: TokenFields,
}

/// Fields of a record by which keys and values are found: byte offsets in the op's own fields.
#[derive(Clone, Copy, Debug)]
pub struct TokenFields {
    /// The first row.
    pub first_row: usize,
    /// The kv head.
    pub kv_head: usize,
    /// The split.
    pub split: usize,
    /// The pools of keys and values.
    pub pools: [usize; 2],
}

/// The object-safe side of a device function, with one blanket implementation.
pub trait FunctionValue: Any + fmt::Debug + Send + Sync {
    /// A copy.
    fn boxed(&self) -> Box<dyn DeviceFunction>;
    /// Whether it is the same code.
    fn equals(&self, other: &dyn DeviceFunction) -> bool;
    /// Itself, to ask which it is.
    fn as_any(&self) -> &dyn Any;
}

impl<T: DeviceFunction + Clone + PartialEq> FunctionValue for T {
    fn boxed(&self) -> Box<dyn DeviceFunction> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn DeviceFunction) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An opcode: a device function of any op.
pub struct Opcode(Box<dyn DeviceFunction>);

impl Opcode {
    /// The device function, if it is this one.
    pub fn get<T: DeviceFunction>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }
}

impl<T: DeviceFunction> From<T> for Opcode {
    fn from(function: T) -> Opcode {
        Opcode(Box::new(function))
    }
}

impl Deref for Opcode {
    type Target = dyn DeviceFunction;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Opcode {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl Clone for Opcode {
    fn clone(&self) -> Opcode {
        Opcode(self.0.boxed())
    }
}

impl PartialEq for Opcode {
    fn eq(&self, other: &Opcode) -> bool {
        self.0.equals(&*other.0)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
