//! The buffers of a program that are not weights: cells, activations, pools, outputs.

use tilewright_kernels::experts::RouteShape;
use tilewright_layout::DType;

use super::options::LowerOptions;
use super::stage::Stage;
use crate::model::{ExpertSizes, LatentSizes, ModelSizes};
use crate::ops::{REQUEST_WORDS, RowCells};
use crate::program::{BufferId, BufferKind, DeviceId, Program};

/// Name of the token cell, i32 `[rows]`.
pub const TOKEN: &str = "token";
/// Name of the position cell, i32 `[rows]`; negative: the row is idle.
pub const POSITION: &str = "position";
/// Name of the page table, i32 `[rows, pages_per_sequence]`.
pub const PAGE_TABLE: &str = "page_table";
/// Name of the requests, i32 `[rows, 8]`: how each row's next token is chosen.
pub const REQUEST: &str = "request";
/// Name of the logits, f32 `[rows, vocab]`.
pub const LOGITS: &str = "logits";
/// Name of the next token, i32 `[rows]`.
pub const NEXT_TOKEN: &str = "next_token";
/// Name of what a stage takes that is not the first: the residual stream of all rows, an input, f32
/// `[rows, hidden]`.
pub const HIDDEN_IN: &str = "hidden.in";
/// Name of what a stage gives that is not the last: the residual stream of all rows, an output, f32
/// `[rows, hidden]`.
pub const HIDDEN_OUT: &str = "hidden.out";

/// The buffers that the host reads or writes: step inputs, which every device has, and results, on
/// the first device.
pub(super) struct HostBuffers {
    pub inlet: Inlet,
    pub at: RowCells,
    /// The sampling requests of the rows, if the program samples.
    pub request: Option<BufferId>,
    pub outlet: Outlet,
}

/// The input of a step.
#[derive(Clone, Copy)]
pub(super) enum Inlet {
    /// Token ids.
    Tokens(BufferId),
    /// The residual stream that another stage gave; each device has it.
    Hidden(BufferId),
}

/// The output of a step.
#[derive(Clone, Copy)]
pub(super) enum Outlet {
    /// Logits and the choice by them.
    Choice { logits: BufferId, next_token: BufferId },
    /// The residual stream, for another stage.
    Hidden(BufferId),
}

/// The state buffers of a device. Activations are shared by all layers: the next layer's writers
/// come after the last one's readers by way of the levels between, which the validator proves.
pub(super) struct StateBuffers {
    /// The residual stream after an even number of additions.
    pub residual: BufferId,
    /// The residual stream after an odd number of additions.
    pub middle: BufferId,
    /// Parts of the two, one from each device; none where results are added as they are made.
    pub parts: Option<ArrivingParts>,
    /// The layer norm of the residual stream, for models that have one.
    pub normed: Option<BufferId>,
    pub q: BufferId,
    /// Unrotated q and k, for models that normalise heads.
    pub raw: Option<[BufferId; 2]>,
    pub acc: BufferId,
    pub stats: BufferId,
    /// Activations of dense MLPs by their widths.
    pub mlps: Vec<(usize, BufferId)>,
    /// What heads that attend to latent vectors have besides.
    pub latents: Option<LatentBuffers>,
    /// Buffers of mixtures of experts, in the order of the model's sizes.
    pub experts: Vec<ExpertBuffers>,
    /// Key and value pool of each layer of the stage.
    pub pools: Vec<[BufferId; 2]>,
}

/// The buffers of heads that attend to latent vectors: rows.
#[derive(Clone, Copy)]
pub(super) struct LatentBuffers {
    /// The latent vectors of queries, if they have any.
    pub compressed: Option<BufferId>,
    /// Queries before they are absorbed and rotated.
    pub queries: BufferId,
    /// Latent vectors of keys before their norm.
    pub latent: BufferId,
    /// The keys that rotate.
    pub rotated: BufferId,
    /// The results of attention of all heads.
    pub attended: BufferId,
}

impl StateBuffers {
    /// The activations of MLPs of a width.
    pub fn mlp(&self, width: usize) -> Option<BufferId> {
        self.mlps.iter().find(|(known, _)| *known == width).map(|(_, id)| *id)
    }
}

/// The buffers of a mixture of experts on a device.
#[derive(Clone, Copy)]
pub(super) struct ExpertBuffers {
    /// The router's logits.
    pub logits: BufferId,
    /// The table of routes.
    pub routes: BufferId,
    /// Activations of the chosen experts.
    pub inner: BufferId,
}

/// Choices of the lowering that hold for all layers.
#[derive(Clone, Copy)]
pub(super) struct Choices<'c> {
    /// Splits of the tokens in attention.
    pub splits: usize,
    /// Whether results are summed from parts: those of devices, or one alone that is normalised.
    pub parts: bool,
    /// Whether products read layer norms.
    pub normed: bool,
    /// The widths of dense MLPs, the largest first.
    pub mlps: &'c [usize],
}

/// The buffers that receive partial sums on a device, by sending device.
pub(super) struct ArrivingParts {
    /// Parts of the embedding, and of what makes an even number of additions.
    pub residual: Vec<BufferId>,
    /// Parts of what makes an odd number of additions.
    pub middle: Vec<BufferId>,
}

/// Adds the state buffers of a program: the host's, and those of each device. `share` is the model
/// as a device sees it.
pub(super) fn add(
    program: &mut Program,
    spec: &ModelSizes,
    share: &ModelSizes,
    options: &LowerOptions,
    choices: Choices<'_>,
    stage: Stage,
) -> (HostBuffers, Vec<StateBuffers>) {
    let rows = options.rows;
    let devices = program.devices;
    let inlet = match stage.embeds() {
        true => Inlet::Tokens(program.add_buffer(TOKEN, BufferKind::Cell, DType::I32, &[rows])),
        false => Inlet::Hidden(program.add_buffer(HIDDEN_IN, BufferKind::Input, DType::F32, &[rows, spec.hidden])),
    };
    let mut cell = |name, shape: &[usize]| program.add_buffer(name, BufferKind::Cell, DType::I32, shape);
    let position = cell(POSITION, &[rows]);
    let page_table = cell(PAGE_TABLE, &[rows, options.pages_per_sequence()]);
    let request = (options.sampling && stage.chooses()).then(|| cell(REQUEST, &[rows, REQUEST_WORDS]));
    let mut states: Vec<_> = (0..devices).map(|at| activations(program, share, options, choices, at)).collect();
    let mut first = On { program: &mut *program, device: 0 };
    let mut output = |name, dtype, shape: &[usize]| first.add(name, BufferKind::Output, dtype, shape);
    let outlet = match stage.chooses() {
        true => Outlet::Choice {
            logits: output(LOGITS, DType::F32, &[rows, spec.vocab]),
            next_token: output(NEXT_TOKEN, DType::I32, &[rows]),
        },
        false => Outlet::Hidden(output(HIDDEN_OUT, DType::F32, &[rows, spec.hidden])),
    };
    let shape = [share.kv_heads, options.pool_pages(), options.page_tokens, share.head_dim];
    for (device, state) in states.iter_mut().enumerate() {
        let mut on = On { program: &mut *program, device };
        let mut pool =
            |layer, which| on.of_device(&format!("layers.{layer}.{which}"), BufferKind::KvPool, options.kv, &shape);
        let layers = stage.layers().filter(|_| stage.attends());
        state.pools = match share.latent {
            None => layers.map(|layer| ["k", "v"].map(|which| pool(layer, which))).collect(),
            // Keys have their values within.
            Some(_) => layers.map(|layer| [pool(layer, "k"); 2]).collect(),
        };
    }
    (HostBuffers { inlet, at: RowCells { position, page_table }, request, outlet }, states)
}

/// The activations of a device, without its pools.
fn activations(
    program: &mut Program,
    share: &ModelSizes,
    options: &LowerOptions,
    choices: Choices<'_>,
    device: usize,
) -> StateBuffers {
    let rows = options.rows;
    let Choices { splits, parts, normed, mlps } = choices;
    let devices = program.devices;
    let heads = share.heads;
    let kv_heads = share.kv_heads;
    let dim = share.head_dim;
    let mut on = On { program, device };
    let mut scratch = |name: &str, dtype, shape: &[usize]| on.of_device(name, BufferKind::Activation, dtype, shape);
    let residual = scratch("residual", DType::F32, &[rows, share.hidden]);
    let middle = scratch("residual.middle", DType::F32, &[rows, share.hidden]);
    let mut parts_of = |name: &str| -> Vec<BufferId> {
        (0..devices).map(|from| scratch(&format!("{name}.part{from}"), DType::F32, &[rows, share.hidden])).collect()
    };
    let parts = parts.then(|| ArrivingParts { residual: parts_of("residual"), middle: parts_of("residual.middle") });
    let normed = normed.then(|| scratch("normed", DType::F32, &[rows, share.hidden]));
    let q = scratch("q", DType::F32, &[rows, heads, dim]);
    let raw = share.head_norms.then(|| {
        [scratch("q.raw", DType::F32, &[rows, heads, dim]), scratch("k.raw", DType::F32, &[rows, kv_heads, dim])]
    });
    let acc = scratch("attention.acc", DType::F32, &[rows, heads, splits, share.value_dim()]);
    let stats = scratch("attention.stats", DType::F32, &[rows, heads, splits, 2]);
    let mlps = mlps.iter().enumerate().map(|(place, width)| {
        let width = width / devices;
        let name = if place == 0 { "mlp".to_owned() } else { format!("mlp.{width}") };
        (width, scratch(&name, options.activation, &[rows, width]))
    });
    let mlps = mlps.collect();
    let latents = share.latent.map(|sizes| {
        let LatentSizes { query, plain, rotated, value } = sizes;
        let mut of_row = |name: &str, width| scratch(name, DType::F32, &[rows, width]);
        LatentBuffers {
            compressed: (query > 0).then(|| of_row("q.latent", query)),
            queries: of_row("q.raw", heads * (plain + rotated)),
            latent: of_row("k.latent", dim - rotated),
            rotated: of_row("k.raw", rotated),
            attended: of_row("attended", heads * value),
        }
    });
    let experts = share.mixtures().zip(["", "shared."]).map(|(ExpertSizes { count, chosen, inner }, prefix)| {
        let shape = RouteShape { rows: rows as u32, experts: count as u32, chosen: chosen as u32 };
        let mut of_mixture = |name, dtype, shape: &[usize]| scratch(&format!("{prefix}{name}"), dtype, shape);
        ExpertBuffers {
            logits: of_mixture("router", DType::F32, &[rows, count]),
            routes: of_mixture("routes", DType::F32, &shape.table().map(|extent| extent as usize)),
            inner: of_mixture("experts", options.activation, &[rows, shape.slots() as usize * inner]),
        }
    });
    let experts = experts.collect();
    StateBuffers { residual, middle, parts, normed, q, raw, acc, stats, mlps, latents, experts, pools: Vec::new() }
}

/// Buffers on one device.
pub(super) struct On<'a> {
    pub program: &'a mut Program,
    pub device: usize,
}

impl On<'_> {
    pub fn add(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[usize]) -> BufferId {
        let id = self.program.add_buffer(name, kind, dtype, shape);
        let several = self.program.devices > 1;
        self.program.buffers[id.index()].device = several.then(|| DeviceId::from(self.device));
        id
    }

    /// Adds this device's copy of a buffer that every device has.
    fn of_device(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[usize]) -> BufferId {
        let name = if self.program.devices > 1 { format!("{name}.dev{}", self.device) } else { name.to_owned() };
        self.add(&name, kind, dtype, shape)
    }
}
