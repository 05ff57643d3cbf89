//! Lowering: a model's fused graph becomes the program of one decode step.
//!
//! `nodes` says what each node of the graph is to the lowering, and `layer` and `ends` make levels of it: cut
//! into tasks by [`lower`], whole by [`plan()`]. What no level runs is refused by the names of its
//! ops.
//!
//! Every level covers all SMs with row tiles of equal bytes. A block has five levels (six with q/k
//! norms), and attention is split over kv heads and tokens. Each task recomputes the norm of its
//! input, which is cheaper than a level; `layer` has the table. Nothing per token is in the
//! program. A range of layers ([`LowerOptions::layers`]) is a stage of a pipeline.
//!
//! May touch: [`tilewright_graph`], [`crate::model`], [`crate::program`]; sums are cut by what a
//! device's registers hold ([`crate::vm::device::DeviceOptions`]). Placement on SMs is
//! [`crate::schedule`]'s.

mod emit;
mod ends;
mod experts;
mod indexer;
mod latent_nodes;
mod latents;
mod layer;
mod level;
mod linear;
mod nodes;
mod options;
mod parts;
mod plan;
mod residual;
mod share;
mod stage;
mod state;
mod tensors;
mod tiling;
mod weights;

use std::cmp::Reverse;

use tilewright_codegen::target::Target;
use tilewright_graph::passes::{absorb_latents, fold_factors, fuse, halve_rotations, normalise, repeat_norms};
use tilewright_layout::DType;

use crate::model::{Architecture, ModelSizes};
use crate::program::Program;
use emit::Emitter;
pub use indexer::{Indexer, LayerTasks, Selected};
pub use level::LevelDone;
use nodes::LoweredNode;
pub use options::{LayerParts, LowerError, LowerOptions, MAX_PAGES, MAX_ROWS, MAX_SPLITS, MAX_TASKS};
use plan::PlannedLevels;
pub use plan::{Level, StepPlan};
use stage::Stage;
pub use state::{HIDDEN_IN, HIDDEN_OUT, LOGITS, NEXT_TOKEN, PAGE_TABLE, POSITION, REQUEST, TOKEN};
pub use tiling::STRIP;
pub(crate) use tiling::partition;
use weights::{StageWeights, WeightBuffers};

/// Lowers a model to the program of one decode step, which is not placed on SMs yet.
///
/// A block of the model becomes five levels of tasks, or six with norms of heads: q, k and v with
/// rotation and append; attention by key head and split of the tokens; the output projection; gate
/// and up; down. A level has as many tasks as cover the target's SMs. `dtype_of` gives the dtype in
/// which a tensor is stored.
///
/// # Errors
/// If an option is out of bounds, the sizes of the model do not fit each other, no task runs a node
/// of its graph, or the target has no SMs.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::{lower::{LowerOptions, lower}, model::ModelSpec};
/// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
/// let target = Target::named("h100").unwrap();
/// let program = lower(&spec, &|_| DType::BF16, target, &LowerOptions::for_context(4096)).unwrap();
/// assert!(program.tasks.len() < 16 * 5 * 132 + 200);
/// ```
pub fn lower(
    spec: &impl Architecture,
    dtype_of: &dyn Fn(&str) -> DType,
    target: Target,
    options: &LowerOptions,
) -> Result<Program, LowerError> {
    lower_indexed(spec, dtype_of, target, options, None)
}

/// Lowers a model with the ops of an [`Indexer`] in each layer, which chooses the tokens that rows
/// attend to.
///
/// # Errors
/// As [`lower`]; what the indexer refuses.
pub fn lower_indexed<'a>(
    spec: &impl Architecture,
    dtype_of: &dyn Fn(&str) -> DType,
    target: Target,
    options: &'a LowerOptions,
    indexer: Option<&'a mut dyn Indexer>,
) -> Result<Program, LowerError> {
    if indexer.is_some() && options.devices > 1 {
        return Err(LowerError::IndexedDevices { devices: options.devices });
    }
    Ok(emit(spec, dtype_of, target, options, Emission::Tasks(indexer))?.program)
}

/// Plans a step of a model: as [`lower`](super::lower), without tasks.
///
/// # Errors
/// As [`lower`](super::lower).
pub fn plan(
    spec: &impl Architecture,
    dtype_of: &dyn Fn(&str) -> DType,
    target: Target,
    options: &LowerOptions,
) -> Result<StepPlan, LowerError> {
    // One task is the whole.
    let target = Target { sms: 1, ..target };
    let Emitted { program, planned } = emit(spec, dtype_of, target, options, Emission::Levels)?;
    Ok(StepPlan { program, planned })
}

/// What levels are made of.
enum Emission<'a> {
    /// Tasks, with those of an indexer.
    Tasks(Option<&'a mut dyn Indexer>),
    /// Whole ops.
    Levels,
}

/// The emitted program, with tasks or without, and its levels.
struct Emitted {
    program: Program,
    planned: PlannedLevels,
}

fn emit<'a>(
    spec: &impl Architecture,
    dtype_of: &dyn Fn(&str) -> DType,
    target: Target,
    options: &'a LowerOptions,
    emission: Emission<'a>,
) -> Result<Emitted, LowerError> {
    let spec = &*spec.model()?;
    options.check(spec)?;
    if target.sms == 0 {
        return Err(LowerError::NoSms { target: target.name });
    }
    let stage = Stage::of(spec, options)?;
    let share = share::share(spec, options.devices)?;
    let splits = splits(&share, options, target.sms);
    let mut name = format!("{}, {} row(s)", spec.name(), options.rows);
    if let Some(layers) = options.layers.filter(|_| !stage.is_whole()) {
        name += &format!(", layers {layers}");
    }
    name += match options.parts {
        LayerParts::Stage | LayerParts::Layers => "",
        LayerParts::Attention => ", attention",
        LayerParts::Mlp => ", MLP",
    };
    let mut program = Program::new(name, target);
    program.devices = options.devices;
    let graph = halve_rotations(&fold_factors(&normalise(&absorb_latents(spec.graph())?)?)?)?;
    let graph = fuse(&repeat_norms(&graph)?)?;
    let nodes = nodes::read(&graph)?;
    let nodes = stage.nodes(&nodes)?;
    let sources = StageWeights { spec, graph: &graph, nodes, share: &share, stage, dtype_of };
    let weights = WeightBuffers::add(&mut program, sources)?;
    let parts = options.devices > 1 || nodes.iter().any(LoweredNode::is_summed_apart);
    let normed = nodes.iter().any(|node| node.layer_norm().is_some());
    let mut mlps: Vec<usize> = nodes.iter().filter_map(LoweredNode::mlp_width).collect();
    mlps.sort_unstable_by_key(|width| Reverse(*width));
    mlps.dedup();
    if options.devices > 1 && (spec.latent.is_some() || mlps.len() > 1) {
        return Err(LowerError::SharedLatents { devices: options.devices });
    }
    let choices = state::Choices { splits, parts, normed, mlps: &mlps };
    let (host, states) = state::add(&mut program, spec, &share, options, choices, stage);
    let shards = weights.into_iter().zip(states).collect();
    let (indexer, planned) = match emission {
        Emission::Tasks(indexer) => (indexer, None),
        Emission::Levels => (None, Some(PlannedLevels::default())),
    };
    let mut e = Emitter { program, planned, spec: &share, options, stage, host, shards, device: 0, splits };
    layer::lower(&mut e, nodes, indexer)?;
    Ok(Emitted { program: e.program, planned: e.planned.unwrap_or_default() })
}

/// Splits that cover the SMs with one attention task each: no more than a sequence has pages.
fn splits(spec: &ModelSizes, options: &LowerOptions, sms: usize) -> usize {
    options.splits.unwrap_or_else(|| {
        let cover = sms / spec.kv_heads.saturating_mul(options.rows).max(1);
        cover.clamp(1, options.pages_per_sequence().clamp(1, MAX_SPLITS))
    })
}
