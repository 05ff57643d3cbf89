//! Chosen edges, as back ends read them: by buffer and by task.

use std::fmt;

use tilewright_kernels::gemv::activations::ScaledForm;

use super::partial::Merge;
use super::walk::{Edge, Edges};
use crate::ops::Access;
use crate::program::{BufferId, Program, TaskId};

/// The mechanism by which producers hand a generation of a buffer to its consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// The step finds it in memory: nothing is handed over.
    Resident,
    /// Producers release a counter, consumers acquire it.
    Semaphore,
    /// Flagged words: 64-bit stores of data and generation number, as NCCL's LL protocol has them.
    Flagged {
        /// Whether consumers wait for a counter before they poll the words.
        semaphore: bool,
    },
    /// The last block that arrives merges the parts of all.
    Counted {
        /// Whether the result of the merge is flagged words.
        flagged: bool,
    },
    /// Producers and consumers are on several devices, and results are stored to peers.
    Peer {
        /// Whether they are flagged words.
        flagged: bool,
    },
}

impl Transport {
    /// Whether data carries its own arrival, so that no signal needs to release it.
    pub const fn is_flagged(self) -> bool {
        match self {
            Transport::Flagged { .. } => true,
            Transport::Counted { flagged } | Transport::Peer { flagged } => flagged,
            Transport::Resident | Transport::Semaphore => false,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Resident => "resident",
            Transport::Semaphore => "semaphore, released",
            Transport::Flagged { semaphore: true } => "flagged words, semaphore relaxed",
            Transport::Flagged { semaphore: false } => "flagged words, no semaphore",
            Transport::Counted { flagged: true } => "counted merge to flagged words",
            Transport::Counted { flagged: false } => "counted merge, released",
            Transport::Peer { flagged: true } => "peer, flagged words",
            Transport::Peer { flagged: false } => "peer, semaphore released",
        })
    }
}

/// The memory layout of activations between producers and consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActivationLayout {
    /// Rows of the buffer's type.
    Rows,
    /// 16-bit terms of the MMA operand.
    Split(SplitActivations),
    /// The merged vector of all splits of attention.
    Merged {
        /// Its extents.
        merge: Merge,
        /// The form of its terms, where it is split.
        split: Option<SplitActivations>,
    },
    /// Queries, keys and values of the current token, in addition to the KV pools.
    CurrentToken,
}

impl ActivationLayout {
    /// The split activations, if it has any.
    pub fn split(&self) -> Option<&SplitActivations> {
        match self {
            ActivationLayout::Split(split) => Some(split),
            ActivationLayout::Merged { split, .. } => split.as_ref(),
            ActivationLayout::Rows | ActivationLayout::CurrentToken => None,
        }
    }
}

impl fmt::Display for ActivationLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ActivationLayout::Rows => "rows",
            ActivationLayout::Merged { split: None, .. } => "merged rows",
            ActivationLayout::Merged { split: Some(_), .. } => "merged, split terms",
            ActivationLayout::CurrentToken => "current token",
            ActivationLayout::Split(split) => match (&split.weight, &split.order) {
                (Some(_), None) => "split terms with sums of squares",
                (Some(_), Some(_)) => "split terms with sums of squares, in act-order",
                (None, None) => "split terms",
                (None, Some(_)) => "split terms in act-order",
            },
        })
    }
}

/// The form in which consumers of a generation read split activations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitActivations {
    /// The form of the terms.
    pub form: ScaledForm,
    /// The weight of the norm, if there is one.
    pub weight: Option<BufferId>,
    /// The weights in whose act-order they lie, streamed together, if they have one.
    pub order: Option<Vec<BufferId>>,
}

/// An edge with its transport and its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenEdge {
    /// The edge.
    pub edge: Edge,
    /// Its transport.
    pub transport: Transport,
    /// Its memory layout.
    pub layout: ActivationLayout,
}

/// The generations of flagged words of a task's record, within a step, from 1; 0 where an operand
/// is not flagged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskGenerations {
    /// The generation of the activations.
    pub input: u32,
    /// The generation of the residual.
    pub residual: u32,
    /// The generation of the output.
    pub output: u32,
    /// Whether something else is written, which signals release.
    pub release: bool,
}

/// The edges of a program with their transports and layouts.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::edges::{ChosenEdges, EdgeRule, FlaggedUse};
/// use tilewright_megakernel::lower::{LowerOptions, lower};
/// use tilewright_graph::models::Llama;
/// use tilewright_megakernel::schedule::schedule;
/// let spec = Llama::named("llama-3.2-1b").unwrap().layers(1);
/// let target = Target::named("h100").unwrap();
/// let program = lower(&spec, &|_| DType::BF16, target, &LowerOptions::for_context(64))?;
/// let placed = schedule(program, 64)?;
/// let rule = EdgeRule { flagged: FlaggedUse::All, flagged_splits: true, token: true, split: None };
/// let chosen = ChosenEdges::choose(&placed, &rule)?;
/// let of = |name: &str| placed.buffers.iter().find(|buffer| buffer.name == name).unwrap().id;
/// assert_eq!(chosen.period(of("mlp")), 1);
/// assert!(!chosen.of_buffer(of("logits"))[1].transport.is_flagged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ChosenEdges {
    /// The edges, by buffer, then by generation.
    pub(super) buffers: Vec<Vec<ChosenEdge>>,
    /// The accesses of each task.
    pub(super) accesses: Vec<Vec<Access>>,
    pub(super) edges: Edges,
    pub(super) tasks: Vec<TaskGenerations>,
    /// For each task, whether it polls flagged words without waiting for a semaphore.
    pub(super) polls: Vec<bool>,
    /// The current token, where it comes as flagged words.
    pub(super) token: Option<CurrentToken>,
}

/// The current token of a program whose queries, keys and values come as flagged words.
#[derive(Clone, Debug)]
pub(super) struct CurrentToken {
    /// The queries.
    pub q: BufferId,
    /// The generation of each task, which is that of its layer; 0: it has none.
    pub tasks: Vec<u32>,
}

impl ChosenEdges {
    /// The edges of a buffer by generation; the first is what a step finds.
    pub fn of_buffer(&self, buffer: BufferId) -> &[ChosenEdge] {
        self.buffers.get(buffer.index()).map_or(&[], Vec::as_slice)
    }

    /// The data flow itself.
    pub fn edges(&self) -> &Edges {
        &self.edges
    }

    /// The accesses of a task.
    pub fn accesses(&self, task: TaskId) -> &[Access] {
        self.accesses.get(task.index()).map_or(&[], Vec::as_slice)
    }

    /// Generations of flagged words of a buffer in a step, of partial sums those of their merge; 0:
    /// it has none. The current token's words have [a place of their own](Self::token_period).
    pub fn period(&self, buffer: BufferId) -> u32 {
        match self.of_buffer(buffer).last() {
            Some(last) if last.transport.is_flagged() && self.token_queries() != Some(buffer) => match &last.layout {
                ActivationLayout::Merged { merge, .. } if merge.acc != buffer => 0,
                ActivationLayout::Merged { .. }
                | ActivationLayout::Rows
                | ActivationLayout::Split(_)
                | ActivationLayout::CurrentToken => last.edge.generation,
            },
            Some(_) | None => 0,
        }
    }

    /// Whether what a buffer holds carries its own arrival: flagged words, or a merge of them.
    pub(super) fn carries_arrival(&self, buffer: BufferId) -> bool {
        self.period(self.merge_of(buffer).map_or(buffer, |merge| merge.acc)) > 0
    }

    /// The merge that a buffer of sums or of maxima belongs to.
    pub fn merge_of(&self, buffer: BufferId) -> Option<Merge> {
        match self.of_buffer(buffer).last()?.layout {
            ActivationLayout::Merged { merge, .. } => Some(merge),
            ActivationLayout::Rows | ActivationLayout::Split(_) | ActivationLayout::CurrentToken => None,
        }
    }

    /// All merges, in the order of their buffers of sums.
    pub fn merges(&self) -> impl Iterator<Item = Merge> {
        let of = |id: usize| self.merge_of(id.into()).filter(move |merge| merge.acc.index() == id);
        (0..self.buffers.len()).filter_map(of)
    }

    /// Whether the splits of attention exchange flagged words, so that the first merges them.
    pub fn splits_are_flagged(&self) -> bool {
        let flagged = |merge: Merge| {
            self.of_buffer(merge.acc).iter().skip(1).all(|edge| matches!(edge.transport, Transport::Flagged { .. }))
        };
        self.merges().all(flagged)
    }

    /// The buffers with split activations: most bytes of the terms, and of the sums of squares.
    pub fn split_buffers(&self) -> impl Iterator<Item = (BufferId, [u64; 2])> {
        self.buffers.iter().enumerate().filter_map(|(id, edges)| {
            let bytes = edges.iter().filter_map(|edge| edge.layout.split()).map(|split| split.form.bytes());
            Some((id.into(), bytes.reduce(|[a, b], [c, d]| [a.max(c), b.max(d)])?))
        })
    }

    /// The split activations that a task reads instead of rows, and their buffer.
    pub fn split_read(&self, task: TaskId) -> Option<(BufferId, &SplitActivations)> {
        let read = self.accesses(task).iter().filter(|access| access.split_read().is_some());
        read.map(|access| (access.buffer, self.edges.read(task, access.buffer))).find_map(|of| self.split(of))
    }

    /// The split activations that a task stores, and their buffer.
    pub fn split_written(&self, task: TaskId) -> Option<(BufferId, &SplitActivations)> {
        let written = self.accesses(task).iter().filter(|access| access.is_write() && access.split.is_some());
        written.map(|access| (access.buffer, self.edges.written(task, access.buffer))).find_map(|of| self.split(of))
    }

    fn split(&self, (buffer, generation): (BufferId, u32)) -> Option<(BufferId, &SplitActivations)> {
        Some((buffer, self.of_buffer(buffer).get(generation as usize)?.layout.split()?))
    }

    /// The queries of the current token, where that comes as flagged words.
    fn token_queries(&self) -> Option<BufferId> {
        self.token.as_ref().map(|token| token.q)
    }

    /// Generations of the current token's flagged words in a step; 0: there are none.
    pub fn token_period(&self) -> u32 {
        self.token_queries().map_or(0, |q| self.edges.period(q))
    }

    /// The generation of the current token's flagged words that a task reads or writes; 0: none.
    pub fn token_generation(&self, task: TaskId) -> u32 {
        self.token.as_ref().and_then(|token| token.tasks.get(task.index())).copied().unwrap_or(0)
    }

    /// Bytes of the current token's flagged words: queries (f32), keys and values (bf16).
    pub fn token_bytes(&self, program: &Program) -> [u64; 3] {
        let extents = |id: BufferId| program.buffers.get(id.index()).map(|buffer| buffer.shape.clone());
        let of_token =
            |access: &Access| (Some(access.buffer) == self.token_queries()).then_some(access.token).flatten();
        let pools = self.accesses.iter().flatten().find_map(of_token);
        match (self.token_queries().and_then(extents).as_deref(), pools.and_then(|[pool, _]| extents(pool)).as_deref())
        {
            (Some(&[rows, heads, dim]), Some(&[kv_heads, ..])) => {
                let [queries, keys] = [rows * heads * dim, kv_heads * dim].map(|elements| elements as u64);
                [queries * 8, keys * 4, keys * 4]
            }
            (Some(_) | None, Some(_) | None) => [0; 3],
        }
    }

    /// The generations of a task's record.
    pub fn task(&self, task: TaskId) -> TaskGenerations {
        self.tasks.get(task.index()).copied().unwrap_or_default()
    }

    /// For each task, whether it polls flagged words without waiting for a semaphore.
    pub fn polls(&self) -> &[bool] {
        &self.polls
    }
}
