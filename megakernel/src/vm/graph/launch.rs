//! A launch as data: which kernel, how many blocks, what its arguments name.

use tilewright_codegen::device::TensorShape;
use tilewright_kernels::tile::Float;

use crate::program::BufferId;

/// Activations of a step, each overwritten by the next level that makes such: levels follow each
/// other on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scratch {
    /// The residual stream, f32 `[rows, hidden]`.
    Residual,
    /// The summand that a product adds to it, bf16 `[rows, hidden]`.
    Added,
    /// Its norm, bf16 `[rows, hidden]`; with [`Scratch::Squares`] it lacks the factor of a row.
    Normed,
    /// Sums of squares of 32 elements of the residual stream each, f32 `[hidden / 32, rows]`.
    Squares,
    /// Queries, keys and values as they are projected, bf16 `[rows, heads + 2 kv_heads, dim]`.
    Projected,
    /// Queries, bf16 `[rows, heads, dim]`.
    Queries,
    /// The result of attention, bf16 `[rows, heads, dim]`.
    Attended,
    /// Activations of the MLP, bf16 `[rows, intermediate]`.
    Gated,
    /// The router's logits, f32 `[rows, experts]`.
    RouterLogits,
    /// The experts that rows have chosen, u32 `[rows, chosen]`.
    ExpertIds,
    /// Their weights, f32 `[rows, chosen]`.
    ExpertWeights,
    /// The first choice of each expert among all in the order of experts, and the end of the last,
    /// u32 `[experts + 1]`.
    ExpertOffsets,
    /// The number of the choice at each place of that order, u32 `[rows · chosen]`.
    ExpertOrder,
    /// Activations of the experts in that order, bf16 `[rows · chosen, inner]`.
    ExpertGated,
    /// The results of each row's experts, bf16 `[rows · chosen, hidden]`.
    ExpertResults,
    /// This device's part of an all-reduce: bf16 `[rows, hidden]`; f32 for the embedding.
    Part,
    /// The place of every other sum, since peers may still read the previous one.
    OtherPart,
    /// Partial sums of a product whose contraction is split, f32.
    Partials,
    /// Weighted sums of the blocks that share a head of a row that is alone, f32 `[rows, kv_heads,
    /// splits, group, dim]`.
    SplitSums,
    /// Their maxima and sums of weights, f32 `[rows, kv_heads, splits, group, 2]`.
    SplitStats,
    /// The number of finished splits, u32 `[rows, kv_heads]`: zeros between launches.
    SplitsDone,
    /// The norm of rows whose tokens the device chooses, bf16 `[choices, hidden]`.
    Wanted,
    /// Logits of rows that are chosen for, f32 `[choices, vocab]`.
    WantedLogits,
    /// The number of barriers that each device has reached, and the timeout of a wait, u32
    /// [`BARRIER_WORDS`](tilewright_kernels::exchange::BARRIER_WORDS).
    Meetings,
    /// Logits of all devices' parts of the vocabulary, f32 `[choices, vocab]`: on the device that
    /// chooses.
    AllLogits,
    /// The best of every tile of them, keys of 64 bits `[choices, tiles]`: where only the likeliest
    /// is asked for.
    WantedBests,
    /// The keys of a layer's pages of codes, bf16, for the attention that comes next.
    Keys,
    /// The values.
    Values,
    /// The numbers of a matrix of codes, bf16, for the product that comes next.
    Widened,
}

/// The memory that a launch argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaunchMemory {
    /// Activations.
    Scratch(Scratch),
    /// Activations of one of several devices, from a byte on.
    Of {
        /// The device.
        device: u32,
        /// The kind of activations.
        scratch: Scratch,
        /// The first byte.
        first: u64,
    },
    /// A row of the last norm: the one whose logits are computed.
    NormedRow,
    /// Logits, f32: of the row, or of all rows.
    Logits,
    /// Matrices row by row, one below the other: a number of
    /// [`GraphPlan::matrices`](super::GraphPlan::matrices).
    Matrix(usize),
    /// A range of elements of the packed weights.
    Packed {
        /// The first.
        first: u64,
        /// The number of elements.
        len: u64,
    },
    /// The codes of a quantised matrix, as [`Widen`](tilewright_kernels::quant::Widen) reads them.
    Codes(BufferId),
    /// Its scales and zeros.
    Factors(BufferId),
    /// The column of every place of its rows.
    Order(BufferId),
    /// Biases one after the other: a number of [`GraphPlan::biases`](super::GraphPlan::biases).
    Bias(usize),
    /// A weight as it is.
    Plain(BufferId),
    /// A table of rotations: a number of [`GraphPlan::rotations`](super::GraphPlan::rotations).
    Rotation(usize),
    /// Keys or values.
    Pool(BufferId),
    /// A cell of the program.
    Cell(BufferId),
    /// The first row of every sequence, and after the last.
    QueryStarts,
    /// The first token of every sequence in a list of all, and after the last.
    TokenStarts,
    /// The page table of every sequence.
    SequenceTables,
    /// Tokens that a row sees which is a sequence of its own; of all other rows 0.
    Lengths,
    /// The cell of tokens.
    Tokens,
    /// The cell of positions.
    Positions,
    /// Rows whose tokens the device chooses; below 0: none.
    WantedRows,
    /// The chosen tokens.
    Chosen,
    /// The sampling requests.
    Requests,
    /// Whether each row has a mask.
    Masked,
    /// The rows' masks.
    Masks,
    /// Tokens that end rows.
    Ends,
    /// Steps that fed the next.
    Steps,
    /// Their tokens.
    History,
}

/// An argument of a launch, in the order of the kernel's parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchArg {
    /// A pointer.
    Pointer(LaunchMemory),
    /// A tensor map.
    Map(LaunchMemory, TensorShape),
    /// A number.
    Number(u32),
    /// A factor.
    Factor(f32),
}

impl LaunchArg {
    /// The memory that the argument names, if it names any.
    pub(super) fn memory(&self) -> Option<LaunchMemory> {
        match self {
            LaunchArg::Pointer(memory) | LaunchArg::Map(memory, _) => Some(*memory),
            LaunchArg::Number(_) | LaunchArg::Factor(_) => None,
        }
    }
}

/// Blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchGrid {
    /// A fixed number of blocks.
    Blocks(u32),
    /// A number of blocks for each sequence of the step that has several rows.
    PerSequence(u32),
    /// A number of blocks if some row at the step's beginning is a sequence of its own.
    WithRows(u32),
    /// A number by two axes for each row at the step's beginning that is a sequence of its own.
    PerRow([u32; 2]),
}

impl LaunchGrid {
    /// Whether a step has the launch in which no row is a separate sequence.
    pub fn is_of_prompts(self) -> bool {
        match self {
            LaunchGrid::Blocks(_) | LaunchGrid::PerSequence(_) => true,
            LaunchGrid::WithRows(_) | LaunchGrid::PerRow(_) => false,
        }
    }
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Number of its kernel among the plan's.
    pub kernel: usize,
    /// Its blocks.
    pub grid: LaunchGrid,
    /// Its arguments.
    pub args: Vec<LaunchArg>,
}

/// A sum of what all devices have, by NCCL, which is on all of them after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllReduce {
    /// The number of the launch that follows.
    pub before: usize,
    /// The summand of each device.
    pub from: Scratch,
    /// The destination of the sum.
    pub to: Scratch,
    /// Elements.
    pub elements: u64,
    /// Their type.
    pub float: Float,
}
