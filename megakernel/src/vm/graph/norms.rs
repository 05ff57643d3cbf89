//! Norms of the residual stream: by a launch, or begun by what stores the stream and ended by the
//! product after it.

use tilewright_kernels::embed::{EmbedShape, TableOrder, embed_rows};
use tilewright_kernels::gemv::GemvEpilogue;
use tilewright_kernels::norm::{NormKind, NormShape, SLOT, add_rms_norm_rows, rms_norm_rows};
use tilewright_kernels::tile::Float;

use super::activations::{Begun, Embedding, NormActivations, NormOf, PackedProduct, Pending};
use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::planner::{GraphPlanner, WARPS, copying_warps};
use crate::program::BufferId;
use crate::vm::Unsupported;

/// Elements that a warp embeds at a time.
const WARP: u32 = 128;

impl GraphPlanner<'_> {
    /// Adds what is still to be added to the residual stream, where nothing normalises the sum: by the
    /// launch of the last norm, whose result is not read.
    pub(super) fn complete(&mut self) -> Result<(), Unsupported> {
        self.settle();
        let Some(Pending::Added { out, .. }) = self.pending else { return Ok(()) };
        let Some(norm) = self.last_norm else {
            return Err(Unsupported::Launch { what: "a residual stream that nothing normalises" });
        };
        self.norm(NormOf { x: out, ..norm })?;
        self.normed = None;
        Ok(())
    }

    /// Defers the addition of the last product to `residual`, which gives `out`, to the norm that
    /// follows.
    pub(super) fn add(&mut self, residual: BufferId, out: BufferId) -> Result<(), Unsupported> {
        self.pend(residual, Pending::Added { residual, out })
    }

    /// The parts of all devices are added to `residual`, which makes `out`: by the norm that comes
    /// next.
    pub(super) fn add_parts(&mut self, residual: BufferId, out: BufferId, part: Scratch) -> Result<(), Unsupported> {
        self.pend(residual, Pending::Parts { residual, out, part })
    }

    fn pend(&mut self, residual: BufferId, pending: Pending) -> Result<(), Unsupported> {
        self.whole(residual, Scratch::Residual)?;
        match self.pending.replace(pending) {
            None => Ok(()),
            Some(_) => Err(Unsupported::Launch { what: "two sums of the residual stream without a norm between" }),
        }
    }

    /// `out` is what this launch stores, which waits for what comes next: the norm of it may begin
    /// there.
    pub(crate) fn begin(&mut self, out: BufferId, launch: Begun) {
        self.settle();
        self.pending = Some(Pending::Begun { out, launch });
    }

    /// A launch that waited is made, without a norm.
    pub(super) fn settle(&mut self) {
        self.pending = match self.pending.take() {
            Some(Pending::Begun { launch, .. }) => {
                let launch = self.begun(&launch, None);
                self.plan.launches.push(launch);
                None
            }
            pending => pending,
        };
    }

    /// Begins a norm in the launch that stores the residual stream, if the launch can. Its
    /// activations are then `x ⊙ g`, with squares in a separate buffer.
    pub(super) fn begin_norm(&mut self, norm: NormOf) -> Result<bool, Unsupported> {
        let [rows, width] = self.extents(norm.x)?;
        let finish = |product: &PackedProduct| GemvEpilogue { normed: Some(Float::F32), ..product.finish };
        let begins = match &self.pending {
            Some(Pending::Begun { out, launch }) if *out == norm.x && width.is_multiple_of(SLOT) => match launch {
                Begun::Embedding(embedding) => embedding.width.is_multiple_of(WARP) && embedding.shard.is_none(),
                Begun::Product(product) => finish(product).check(&product.plan).is_ok(),
            },
            Some(_) | None => false,
        };
        let begins = begins && norm.layer.is_none();
        let Some(Pending::Begun { launch, .. }) = self.pending.take_if(|_| begins) else { return Ok(false) };
        let (weight, float) = self.plain(norm.weight)?;
        let [rows, width] = [rows, width].map(u64::from);
        let out = self.scratch(Scratch::Normed, rows * width * 2);
        let squares = self.scratch(Scratch::Squares, rows * (width / u64::from(SLOT)) * 4);
        let launch = self.begun(&launch, Some((float, [weight, out, squares])));
        self.plan.launches.push(launch);
        self.last_norm = Some(norm);
        self.normed = None;
        Ok(true)
    }

    /// The launch; a norm that begins in it has a weight of that type, and is stored there.
    fn begun(&mut self, launch: &Begun, norm: Option<(Float, [LaunchMemory; 3])>) -> Launch {
        let float = norm.map(|(float, _)| float);
        let mut launch = match launch {
            Begun::Embedding(Embedding { order, args, scale, shard, rows, .. }) => {
                let width = match order {
                    TableOrder::Strips(strip) => strip.k(),
                    TableOrder::Rows(width) => *width,
                };
                let warps = copying_warps(*rows, width);
                let ids = shard.map(|[_, ids]| ids);
                let shape =
                    EmbedShape { table: *order, out: Float::F32, warps, scale: *scale, shard: ids, norm: float };
                let arch = self.arch;
                let kernel = self.kernel(format!("{shape:?}"), || embed_rows(arch, shape));
                let first = shard.map(|[first, _]| LaunchArg::Number(first));
                let args = args.map(LaunchArg::Pointer).into_iter().chain(first).collect();
                Launch { kernel, grid: LaunchGrid::Blocks(*rows), args }
            }
            Begun::Product(product) => {
                let mut product = (**product).clone();
                product.finish.normed = float;
                self.multiply_packed(&product)
            }
        };
        launch.args.extend(norm.into_iter().flat_map(|(_, memory)| memory).map(LaunchArg::Pointer));
        launch
    }

    /// A buffer stands for a norm, which the first product that reads it computes.
    pub(crate) fn norm_for_readers(&mut self, buffer: BufferId, norm: NormOf) {
        self.norms.insert(buffer, norm);
    }

    /// The norm that a buffer stands for.
    pub(crate) fn norm_read_as(&self, buffer: BufferId) -> Option<NormOf> {
        self.norms.get(&buffer).copied()
    }

    /// Activations in the form that products read, after what is still to be stored.
    pub(super) fn prepare(&mut self, a: NormActivations) -> Result<Scratch, Unsupported> {
        match a {
            NormActivations::Norm(norm) => self.norm(norm),
            NormActivations::Stream(x) => self.rounded(x),
            NormActivations::Scratch(scratch) => {
                self.settle();
                Ok(scratch)
            }
        }
    }

    /// The residual stream, rounded to bf16.
    fn rounded(&mut self, x: BufferId) -> Result<Scratch, Unsupported> {
        self.complete()?;
        if self.pending.is_some() || self.shared_rows {
            return Err(Unsupported::Launch { what: "a residual stream that is read as it is before it is complete" });
        }
        self.whole(x, Scratch::Residual)?;
        let [rows, width] = self.extents(x)?;
        self.rows(rows)?;
        self.normed = None;
        let out = self.scratch(Scratch::Normed, u64::from(rows) * u64::from(width) * 2);
        let launch = self.copy_rows([rows, width], [LaunchMemory::Scratch(Scratch::Residual), out]);
        self.plan.launches.push(launch);
        Ok(Scratch::Normed)
    }

    /// The norm of the residual stream by a launch, after what is still to be added to it; by none
    /// where the norm is there already.
    pub(crate) fn norm(&mut self, norm: NormOf) -> Result<Scratch, Unsupported> {
        if self.normed != Some(norm) {
            self.launch_norm(norm)?;
            self.normed = Some(norm);
        }
        self.settle();
        Ok(Scratch::Normed)
    }

    fn launch_norm(&mut self, norm: NormOf) -> Result<(), Unsupported> {
        self.settle();
        self.last_norm = Some(norm);
        let NormOf { x, weight, eps, layer } = norm;
        let [rows, width] = self.extents(x)?;
        self.rows(rows)?;
        let out = self.scratch(Scratch::Normed, u64::from(rows) * u64::from(width) * 2);
        if let Some(Pending::Parts { residual, out, part }) = self.pending.take_if(|pending| pending.is_parts_of(x)) {
            self.heads.remove(&residual);
            self.residual(out, [rows, width]);
            if layer.is_some() {
                return Err(Unsupported::Launch { what: "a layer norm of the parts of several devices" });
            }
            return self.norm_of_parts(norm, [rows, width], part);
        }
        if self.shared_rows {
            return Err(Unsupported::Launch { what: "a norm of rows that are on other devices" });
        }
        let (weight, float) = self.plain(weight)?;
        let residual = self.scratch(Scratch::Residual, u64::from(rows) * u64::from(width) * 4);
        let x_float = Float::F32;
        let out_float = Float::Bf16;
        let bias = layer.and_then(|layer| layer.bias).map(|bias| self.plain(bias)).transpose()?;
        let kind = match layer {
            None => NormKind::Rms,
            Some(_) => NormKind::Layer { bias: bias.map(|(_, float)| float) },
        };
        let shape =
            NormShape { width, stride: width, x: x_float, weight: float, out: out_float, eps, kind, warps: WARPS };
        let arch = self.arch;
        let mut memory = vec![residual];
        let kernel = match self.pending.take() {
            Some(Pending::Added { residual, out }) if out == x => {
                // The sum takes the place of what it is the sum of.
                self.heads.remove(&residual);
                self.residual(out, [rows, width]);
                memory.push(LaunchMemory::Scratch(Scratch::Added));
                self.kernel(format!("add {shape:?}"), || add_rms_norm_rows(arch, shape, Float::Bf16))
            }
            None => {
                self.whole(x, Scratch::Residual)?;
                self.kernel(format!("{shape:?}"), || rms_norm_rows(arch, shape))
            }
            Some(_) => return Err(Unsupported::Launch { what: "a norm of another residual stream" }),
        };
        memory.push(weight);
        memory.extend(bias.map(|(memory, _)| memory));
        memory.push(out);
        let args = memory.into_iter().map(LaunchArg::Pointer).collect();
        self.launch(kernel, LaunchGrid::Blocks(rows), args);
        Ok(())
    }
}
