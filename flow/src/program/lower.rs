//! A flow in a lowering: buffers and tasks of each layer.

use std::sync::Arc;

use thiserror::Error;
use tilewright_graph::dim::ModelShape;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{Indexer, LayerTasks, LevelDone, LowerError, Selected};
use tilewright_megakernel::model::ModelSizes;
use tilewright_megakernel::ops::{self, Op, SLOT_WORDS, Selection};
use tilewright_megakernel::program::{BufferId, BufferKind, Source, Span};

use super::score::is_blockwise;
use super::subject::elements;
use super::{RegisterError, Score, Select, Summarise, register};
use crate::bind::{FlowExtents, Parameters};
use crate::error::BindError;
use crate::flow::Traced;
use crate::memory::Budget;

/// Name of the slots, i32 `[rows, 2]`, in programs of flows with states.
pub const SLOT: &str = "slot";

/// A flow, what it is bound to, and its budget: what programs of a model are lowered with.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    traced: Arc<Traced>,
    block_tokens: usize,
    budget: Budget,
    parameters: Vec<Parameters>,
    is_observed: bool,
}

/// Names of the outputs of a layer where a flow is [observed](FlowSettings::observed): the blocks
/// of its [`Selection`], and the index of its last token.
pub fn observed_names(layer: usize) -> [String; 2] {
    [format!("layers.{layer}.selection.blocks"), format!("layers.{layer}.selection.last")]
}

/// Name of the output of an observed layer that has the scores of candidates, as [`Score`] leaves
/// them.
pub fn scores_name(layer: usize) -> String {
    format!("layers.{layer}.selection.scores")
}

/// Why a flow does not fit a model.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A requirement of the flow that the model does not meet.
    #[error("flow `{flow}`: {source}")]
    Bind {
        /// The flow.
        flow: String,
        /// The requirement.
        source: BindError,
    },
    /// Parameters for another number of layers.
    #[error("flow `{flow}` has parameters, and they were given for {found} layers; give them for each of {wanted}")]
    Layers {
        /// The flow.
        flow: String,
        /// Layers they were given for.
        found: usize,
        /// Layers of the model.
        wanted: usize,
    },
    /// Pages that are not whole blocks.
    #[error("pages of {page_tokens} tokens are not whole blocks of {block_tokens}; choose blocks that divide a page")]
    Pages {
        /// Tokens of a page.
        page_tokens: usize,
        /// Tokens of a block.
        block_tokens: usize,
    },
    /// Another flow or op of the same name.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl FlowSettings {
    /// A flow with blocks of `block_tokens` tokens and a budget.
    ///
    /// # Errors
    /// If its name belongs to another flow.
    pub fn new(traced: Traced, block_tokens: usize, budget: Budget) -> Result<FlowSettings, SettingsError> {
        let traced = register(traced)?;
        Ok(FlowSettings { traced, block_tokens, budget, parameters: Vec::new(), is_observed: false })
    }

    /// Sets the values of the flow's parameters, by layer.
    #[must_use]
    pub fn with_parameters(self, parameters: Vec<Parameters>) -> FlowSettings {
        FlowSettings { parameters, ..self }
    }

    /// Makes the selections of each layer outputs, so that the host can read them.
    #[must_use]
    pub fn observed(self) -> FlowSettings {
        FlowSettings { is_observed: true, ..self }
    }

    /// The flow.
    pub fn traced(&self) -> &Traced {
        &self.traced
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// The number of blocks that a row attends to.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Tokens up to which every row attends to all of its blocks, whatever is scored: steps of such
    /// rows may run by a program of [`Phase::Prompt`], which costs nothing but the summaries.
    ///
    /// ```
    /// use tilewright_flow::{algorithms, memory::Budget, program::FlowSettings};
    /// let quest = FlowSettings::new(algorithms::named("quest")?.trace()?, 16, Budget::new(64, 0.0, 1, 1)?)?;
    /// assert_eq!(quest.covered_tokens(), 66 * 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn covered_tokens(&self) -> usize {
        (self.budget.top_k() + self.budget.first() + self.budget.last()) * self.block_tokens
    }

    /// Checks that the flow fits a model.
    ///
    /// # Errors
    /// If the model or its pages lack something that the flow requires.
    pub fn check(&self, spec: &ModelSizes, page_tokens: usize) -> Result<(), SettingsError> {
        let block_tokens = self.block_tokens;
        let flow = || self.traced.name.clone();
        if block_tokens == 0 || !page_tokens.is_multiple_of(block_tokens) {
            return Err(SettingsError::Pages { page_tokens, block_tokens });
        }
        let bind = |source| SettingsError::Bind { flow: flow(), source };
        let model = self.model(spec);
        if self.traced.declared.parameters.is_empty() {
            return self.traced.extents(&model).map(drop).map_err(bind);
        }
        if self.parameters.len() != spec.layers {
            return Err(SettingsError::Layers { flow: flow(), found: self.parameters.len(), wanted: spec.layers });
        }
        self.parameters.iter().try_for_each(|layer| self.traced.bind(&model, layer).map(drop)).map_err(bind)
    }

    fn model(&self, spec: &ModelSizes) -> ModelShape {
        let ModelSizes { kv_heads, head_dim, .. } = *spec;
        ModelShape { kv_heads, group: spec.group(), head_dim, block_tokens: self.block_tokens }
    }
}

/// The kind of a program's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Tokens of prompts, or of rows that are within the budget: they attend to everything, and
    /// complete blocks are summarised.
    Prompt,
    /// The next tokens of different requests: the flow chooses what they attend to.
    Decode,
}

/// A flow as the [`Indexer`] of a lowering.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_flow::algorithms;
/// use tilewright_flow::memory::Budget;
/// use tilewright_flow::program::{FlowSettings, Lowered, Phase};
/// use tilewright_layout::DType;
/// use tilewright_megakernel::{lower::{LowerOptions, lower_indexed}, model::ModelSpec, validate::validate};
///
/// let quest = FlowSettings::new(algorithms::named("quest")?.trace()?, 16, Budget::new(64, 0.0, 1, 1)?)?;
/// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
/// let target = Target::named("h100").unwrap();
/// let mut indexer = Lowered::new(&quest, Phase::Decode, 1);
/// let options = LowerOptions::for_context(8192);
/// let program = lower_indexed(&spec, &|_| DType::BF16, target, &options, Some(&mut indexer))?;
/// assert!(validate(&program).is_valid());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lowered<'f> {
    flow: &'f FlowSettings,
    phase: Phase,
    slots: usize,
    /// Slots of all layers, where there are states.
    slot: Option<BufferId>,
}

/// The buffers of a layer's selection. Each layer has its own: on a device only their data orders
/// two layers.
struct Choosing {
    scores: BufferId,
    splits: usize,
    blocks: BufferId,
    last: BufferId,
}

impl<'f> Lowered<'f> {
    /// A flow for the programs of a phase. States are kept for `slots` requests at once.
    pub fn new(flow: &'f FlowSettings, phase: Phase, slots: usize) -> Lowered<'f> {
        Lowered { flow, phase, slots, slot: None }
    }

    /// The slots; made with the first layer.
    fn slot(&mut self, at: &mut LayerTasks<'_, '_>) -> Option<BufferId> {
        if self.slot.is_none() && !self.flow.traced.declared.states.is_empty() {
            let shape = [at.options().rows, SLOT_WORDS];
            self.slot = Some(at.buffer(SLOT, BufferKind::Cell, DType::I32, &shape));
        }
        self.slot
    }

    /// Scores and selection of a layer.
    fn choosing(&self, at: &mut LayerTasks<'_, '_>) -> Choosing {
        let rows = at.options().rows;
        let kv_heads = at.spec().kv_heads;
        let all = blocks_of_a_row(at, self.flow.block_tokens);
        let splits = if is_blockwise(&self.flow.traced) { splits(at, all) } else { 1 };
        let most = self.flow.budget.selected(all);
        let shape = [rows, kv_heads, splits, all.div_ceil(splits)];
        let scores = scores_name(at.layer());
        let kind = if self.flow.is_observed { BufferKind::Output } else { BufferKind::Activation };
        let scores = at.buffer(&scores, kind, DType::F32, &shape);
        let [blocks, last] = observed_names(at.layer());
        let blocks = at.buffer(&blocks, kind, DType::I32, &[rows, kv_heads, most]);
        let last = at.buffer(&last, kind, DType::I32, &[kv_heads, rows]);
        Choosing { scores, splits, blocks, last }
    }

    /// The buffers of a layer's fields, parameters and states.
    fn kept(&self, at: &mut LayerTasks<'_, '_>, extents: &FlowExtents) -> [Vec<BufferId>; 3] {
        let layer = at.layer();
        let declared = &self.flow.traced.declared;
        let kv_heads = at.spec().kv_heads;
        let page_tokens = at.options().page_tokens;
        let pages = at.options().pool_pages();
        let mut fields = Vec::new();
        for (field, &shape) in declared.fields.iter().zip(&extents.fields) {
            let shape = [kv_heads, pages, page_tokens / self.flow.block_tokens, elements(shape)];
            let name = format!("layers.{layer}.flow.{}", field.name);
            fields.push(at.buffer(&name, BufferKind::KvPool, field.dtype, &shape));
        }
        let mut parameters = Vec::new();
        for (parameter, &shape) in declared.parameters.iter().zip(&extents.parameters) {
            let values = self.flow.parameters[layer][&parameter.name].iter().map(|&x| x as f32).collect();
            let name = format!("layers.{layer}.flow.{}", parameter.name);
            let shape = [kv_heads, elements(shape)];
            parameters.push(at.weight(&name, DType::F32, &shape, Source::Values(values)));
        }
        let mut states = Vec::new();
        let blocks = blocks_of_a_row(at, self.flow.block_tokens);
        // Programs of both phases have the same pools.
        for (state, &shape) in declared.states.iter().zip(&extents.states) {
            let name = format!("layers.{layer}.flow.{}", state.name);
            let shape = [kv_heads, self.slots, blocks, 1 + elements(shape)];
            states.push(at.buffer(&name, BufferKind::KvPool, DType::F32, &shape));
        }
        [fields, parameters, states]
    }
}

/// Blocks that a row may have.
fn blocks_of_a_row(at: &LayerTasks<'_, '_>, block_tokens: usize) -> usize {
    at.options().pages_per_sequence() * (at.options().page_tokens / block_tokens)
}

/// Tasks that score the blocks of a row and kv head: as many as cover the SMs, of at least 64
/// blocks each.
fn splits(at: &LayerTasks<'_, '_>, blocks: usize) -> usize {
    const LEAST: usize = 64;
    let others = at.spec().kv_heads * at.options().rows;
    (at.target().sms / others.max(1)).clamp(1, blocks.div_ceil(LEAST))
}

impl Indexer for Lowered<'_> {
    fn layer(&mut self, at: &mut LayerTasks<'_, '_>) -> Result<Selected, LowerError> {
        let flow = self.flow;
        let spec = at.spec();
        flow.check(spec, at.options().page_tokens).map_err(|error| at.refuse(error))?;
        let extents = flow.traced.extents(&flow.model(spec)).map_err(|error| at.refuse(error))?;
        let [fields, parameters, states] = self.kept(at, &extents);
        let [k_pool, v_pool] = at.pools();
        let rows = at.rows();
        let place = at.place();
        let name = flow.traced.name.clone();
        let block_tokens = flow.block_tokens;
        let budget = flow.budget;
        let summarise = |at: &mut LayerTasks<'_, '_>, kv_head: usize, ready: LevelDone| {
            if fields.is_empty() {
                return Ok(());
            }
            let op = Op::from(Summarise {
                flow: name.clone(),
                block_tokens,
                group: spec.group(),
                k_pool,
                v_pool,
                at: place.clone(),
                kv_head,
                rows,
                fields: fields.clone(),
                parameters: parameters.clone(),
            });
            at.level(&format!("flow.summarise.h{kv_head}"), vec![op], &[ready]).map(drop)
        };
        let mut ready: Vec<LevelDone> = at.heads().to_vec();
        if self.phase == Phase::Prompt {
            // Nothing of the step reads a summary.
            ready.iter().enumerate().try_for_each(|(kv_head, &ready)| summarise(at, kv_head, ready))?;
            return Ok(Selected { ready, selection: None });
        }
        let slot = self.slot(at);
        let Choosing { scores, splits, blocks, last } = self.choosing(at);
        // States of all requests are one pool, which one task of a key head writes.
        let parts: Vec<Span> = match states.is_empty() {
            true => rows.iter().map(Span::one).collect(),
            false => vec![rows],
        };
        for (kv_head, ready) in ready.iter_mut().enumerate() {
            let score = |(rows, split)| {
                Op::from(Score {
                    flow: name.clone(),
                    block_tokens,
                    budget,
                    q: at.q(),
                    k_pool,
                    v_pool,
                    at: place.clone(),
                    kv_head,
                    rows,
                    split,
                    fields: fields.clone(),
                    parameters: parameters.clone(),
                    states: states.clone(),
                    slot,
                    scores,
                })
            };
            let of_split = parts.iter().flat_map(|&rows| (0..splits).map(move |split| (rows, split)));
            let scored = at.level(&format!("flow.score.h{kv_head}"), of_split.map(score).collect(), &[*ready])?;
            let at_place = place.clone();
            let select = |row| {
                let at = at_place.clone();
                let rows = Span::one(row);
                Op::from(Select { block_tokens, budget, k_pool, at, kv_head, rows, scores, blocks, last })
            };
            let selects = rows.iter().map(select).collect();
            *ready = at.level(&format!("flow.select.h{kv_head}"), selects, &[scored])?;
            // The block that a row's token completes is its last one, which is not a candidate: no
            // task waits for its summary.
            summarise(at, kv_head, scored)?;
        }
        Ok(Selected { ready, selection: Some(Selection { blocks, last, block_tokens }) })
    }
}

impl From<ops::RegisterError> for SettingsError {
    fn from(error: ops::RegisterError) -> SettingsError {
        SettingsError::Register(error.into())
    }
}
