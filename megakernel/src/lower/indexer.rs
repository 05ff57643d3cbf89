//! Ops of another crate in every layer: between the projections, which append keys and values, and
//! attention.
//!
//! The lowering asks an [`Indexer`] for its tasks of each layer and says when what they read is
//! complete; the indexer says when attention may start, and which blocks of tokens it sees. Regions
//! and counters are as for any other level, and the validator proves them.

use tilewright_codegen::target::Target;
use tilewright_layout::DType;

use super::emit::Emitter;
use super::level::LevelDone;
use super::options::{LowerError, LowerOptions};
use crate::model::ModelSizes;
use crate::ops::{Op, RowCells, Selection};
use crate::program::{BufferId, BufferKind, Source, Span};

/// Chooses the tokens that rows attend to, layer by layer.
///
/// This one lets attention wait for a level of its own, and chooses nothing:
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::lower::{Indexer, LayerTasks, LowerError, LowerOptions, Selected, lower, lower_indexed};
/// use tilewright_megakernel::model::ModelSpec;
/// use tilewright_megakernel::ops::{Copy, Op};
/// use tilewright_megakernel::program::{BufferKind, Region};
///
/// struct Snapshots;
///
/// impl Indexer for Snapshots {
///     fn layer(&mut self, at: &mut LayerTasks) -> Result<Selected, LowerError> {
///         let shape = [at.options().rows, at.spec().heads, at.spec().head_dim];
///         let copy = at.buffer(&format!("q.{}", at.layer()), BufferKind::Output, DType::F32, &shape);
///         let src = Region::whole(at.q(), &shape);
///         let dst = Region::whole(copy, &shape);
///         let all = at.heads().to_vec();
///         let done = at.level("snapshot", vec![Op::from(Copy { src, dst })], &all)?;
///         Ok(Selected { ready: vec![done; at.spec().kv_heads], selection: None })
///     }
/// }
///
/// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
/// let target = Target::named("h100").unwrap();
/// let options = LowerOptions::for_context(64);
/// let tasks = |program: Result<tilewright_megakernel::program::Program, _>| program.map(|p| p.tasks.len());
/// let dense = tasks(lower(&spec, &|_| DType::BF16, target.clone(), &options))?;
/// let indexed = tasks(lower_indexed(&spec, &|_| DType::BF16, target, &options, Some(&mut Snapshots)))?;
/// assert_eq!(indexed, dense + spec.layers);
/// # Ok::<(), LowerError>(())
/// ```
pub trait Indexer {
    /// Adds the tasks of a layer.
    ///
    /// # Errors
    /// If the indexer refuses the layer.
    fn layer(&mut self, at: &mut LayerTasks<'_, '_>) -> Result<Selected, LowerError>;
}

/// The condition and the selection of a layer's attention.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The level that each kv head's attention waits for.
    pub ready: Vec<LevelDone>,
    /// The blocks of tokens that rows attend to; `None`: all tokens.
    pub selection: Option<Selection>,
}

/// A layer between its projections and its attention: what there is to read, and a place for tasks.
pub struct LayerTasks<'e, 'a> {
    emitter: &'e mut Emitter<'a>,
    layer: usize,
    heads: &'e [LevelDone],
}

impl<'e, 'a> LayerTasks<'e, 'a> {
    pub(super) fn new(emitter: &'e mut Emitter<'a>, layer: usize, heads: &'e [LevelDone]) -> LayerTasks<'e, 'a> {
        LayerTasks { emitter, layer, heads }
    }

    /// The number of the layer.
    pub fn layer(&self) -> usize {
        self.layer
    }

    /// Extents of the model.
    pub fn spec(&self) -> &'a ModelSizes {
        self.emitter.spec
    }

    /// The choices of the lowering.
    pub fn options(&self) -> &'a LowerOptions {
        self.emitter.options
    }

    /// The target of the program.
    pub fn target(&self) -> &Target {
        &self.emitter.program.target
    }

    /// All rows of the batch.
    pub fn rows(&self) -> Span {
        self.emitter.rows()
    }

    /// The level, for each kv head, after which the queries of its group are rotated and the step's
    /// keys and values are in the pools.
    pub fn heads(&self) -> &'e [LevelDone] {
        self.heads
    }

    /// Rotated queries, f32 `[rows, heads, head_dim]`.
    pub fn q(&self) -> BufferId {
        self.emitter.state().q
    }

    /// The layer's pools of keys and values, `[kv_heads, pages, page_tokens, head_dim]`.
    pub fn pools(&self) -> [BufferId; 2] {
        self.emitter.pools(self.layer)
    }

    /// Positions and page tables.
    pub fn place(&self) -> RowCells {
        self.emitter.host.at.clone()
    }

    /// Adds a buffer; names are unique in a program.
    pub fn buffer(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[usize]) -> BufferId {
        self.emitter.program.add_buffer(name, kind, dtype, shape)
    }

    /// Adds a weight with its values.
    pub fn weight(&mut self, name: &str, dtype: DType, shape: &[usize], source: Source) -> BufferId {
        let id = self.buffer(name, BufferKind::Weight, dtype, shape);
        self.emitter.program.buffers[id.index()].source = Some(source);
        id
    }

    /// Adds one task per op; all wait for `ready`, at least one level and at most eight. Gives when
    /// all are done.
    ///
    /// # Errors
    /// An op that does not fit its operands; too many tasks.
    pub fn level(&mut self, name: &str, ops: Vec<Op>, ready: &[LevelDone]) -> Result<LevelDone, LowerError> {
        self.emitter.level(&format!("layers.{}.{name}", self.layer), ops, ready)
    }

    /// A refusal of this layer.
    pub fn refuse(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LowerError {
        LowerError::Indexer { layer: self.layer, source: source.into() }
    }
}
