//! Buffers: named arrays in device memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_graph::graph::{EXPERT, HeadOrder};
use tilewright_layout::DType;

use super::dtype::dtype_name;
use super::id::{BufferId, DeviceId};
use super::quantised::Quantised;
use super::region::Span;

/// A named row-major array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Its index in [`Program::buffers`](super::Program::buffers).
    pub id: BufferId,
    /// Its name, unique in the program.
    pub name: String,
    /// Its purpose, which decides whether tasks may write it.
    pub kind: BufferKind,
    /// Element type.
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    /// Extents, outermost first; rank 1 to 4, no extent 0.
    pub shape: Vec<usize>,
    /// The source of a weight's values; weights only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The quantised form of a weight, if it is quantised; weights only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantised: Option<Quantised>,
    /// The factor of the codes of an `f8e4m3` KV pool; if missing, 1. Such pools only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f32>,
    /// A number that is added to each element of the source, in f32; weights of f32 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<f32>,
    /// A factor of each element of the source, after the offset; weights of f32 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f32>,
    /// Byte offset in the shared activation arena; activations only. Two buffers whose bytes
    /// overlap there alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arena: Option<u64>,
    /// The device whose memory holds it; `None`: each device has its own, all alike. A buffer that
    /// tasks write has a device if the program has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
}

/// The purpose of a buffer, which decides what may write it and when it is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferKind {
    /// Bound at load, never written by a task.
    Weight,
    /// Scratch of one step: undefined at its start, written before it is read.
    Activation,
    /// The paged key or value cache: outlives the step.
    KvPool,
    /// Small state that the host sets between steps and that tasks may read: token ids, positions,
    /// page tables.
    Cell,
    /// Bound by the host before each step, never written by a task.
    Input,
    /// Written completely by every step, read by the host after it.
    Output,
}

impl BufferKind {
    /// Every kind.
    pub const ALL: [BufferKind; 6] = [
        BufferKind::Weight,
        BufferKind::Activation,
        BufferKind::KvPool,
        BufferKind::Cell,
        BufferKind::Input,
        BufferKind::Output,
    ];

    /// Whether tasks may write to it.
    pub const fn is_writable(self) -> bool {
        matches!(self, BufferKind::Activation | BufferKind::KvPool | BufferKind::Output)
    }

    /// Whether its contents are defined before the first task runs.
    pub const fn is_defined_at_start(self) -> bool {
        matches!(self, BufferKind::Weight | BufferKind::KvPool | BufferKind::Cell | BufferKind::Input)
    }
}

impl fmt::Display for BufferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BufferKind::Weight => "weight",
            BufferKind::Activation => "activation",
            BufferKind::KvPool => "kv_pool",
            BufferKind::Cell => "cell",
            BufferKind::Input => "input",
            BufferKind::Output => "output",
        })
    }
}

/// The origin of a weight's values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The checkpoint's tensor of that name.
    Tensor(String),
    /// A part of a checkpoint's tensor: what a device has of it, or one of several weights that it
    /// holds. An interval for each dimension, outermost first.
    Part {
        /// The tensor's name.
        tensor: String,
        /// The intervals; their lengths are the buffer's extents.
        index: Vec<Span>,
        /// The order in which the rows of the part are taken, if not their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<HeadOrder>,
    },
    /// The tensors of all experts below each other: the buffer has as many rows of each. `{expert}`
    /// in the name stands for the number of the expert.
    Experts {
        /// The tensors' name.
        tensor: String,
        /// How many there are.
        experts: usize,
        /// The part of each tensor, an interval for each dimension.
        index: Vec<Span>,
    },
    /// Consecutive rows of each head of a checkpoint's tensor, whose rows are heads one after the
    /// other: `[heads · rows, k]`, or each head's transposed, `[heads · k, rows]`.
    Heads {
        /// The tensor's name.
        tensor: String,
        /// Rows of a head of the tensor.
        each: usize,
        /// Those that are taken.
        rows: Span,
        /// Whether rows of a head become columns.
        transposed: bool,
    },
    /// Random values, the same for the same name: a program that runs without a checkpoint.
    Random(String),
    /// These values, row-major: a derived table such as the rotary frequencies.
    Values(Vec<f32>),
}

impl Buffer {
    /// The part of a buffer of all experts that one of them has, as a buffer of its own; `None` for
    /// any other buffer, and beyond the last expert.
    ///
    /// ```
    /// use tilewright_layout::DType;
    /// use tilewright_megakernel::program::{BufferKind, Program, Source, Span};
    /// # let target = tilewright_codegen::target::Target::named("h100").unwrap();
    /// let mut program = Program::new("experts", target);
    /// let id = program.add_buffer("gate", BufferKind::Weight, DType::BF16, &[4 * 8, 16]);
    /// let tensor = "experts.{expert}.gate".to_owned();
    /// let index = vec![Span::all(8), Span::all(16)];
    /// program.buffers[id.index()].source = Some(Source::Experts { tensor, experts: 4, index: index.clone() });
    /// let last = program.buffers[id.index()].of_expert(3).unwrap();
    /// let tensor = "experts.3.gate".to_owned();
    /// assert_eq!(last.source, Some(Source::Part { tensor, index, order: None }));
    /// assert_eq!(last.shape, [8, 16]);
    /// ```
    pub fn of_expert(&self, expert: usize) -> Option<Buffer> {
        let Some(Source::Experts { tensor, experts, index }) = &self.source else { return None };
        let tensor = tensor.replace(EXPERT, &expert.to_string());
        let source = Some(Source::Part { tensor, index: index.clone(), order: None });
        let name = format!("{} of expert {expert}", self.name);
        let shape = index.iter().map(|span| span.len()).collect();
        (expert < *experts).then(|| Buffer { name, shape, source, ..self.clone() })
    }

    /// Elements in it, or `None` where the product overflows.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))
    }

    /// Bytes that `elements` elements take where they are stored: of quantised weights, codes and
    /// scales.
    pub fn stored_bytes(&self, elements: usize) -> u64 {
        match (self.quantised.and_then(|form| form.codes().ok()), self.shape.last()) {
            (Some(codes), Some(&k)) => (elements as f64 * codes.bits(k as u32) / 8.0).ceil() as u64,
            _ => (elements as u64).saturating_mul(self.dtype.bytes() as u64),
        }
    }

    /// The factor of its elements: 1 except for pools of codes.
    pub fn factor(&self) -> f32 {
        self.scale.unwrap_or(1.0)
    }

    /// Bytes it takes, or `None` where the product overflows.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.bytes())
    }
}
