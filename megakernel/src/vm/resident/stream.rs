//! Packed weights: the order in which the ring streams them.
//!
//! A stream is a run of strips (see [`Strip`]) that tasks take consecutive parts of: a matrix by
//! rows of eight, two matrices whose strips take turns, or the projections of a kv head's group.
//! Its order is the program's, not the placement's: a task's part is consecutive stages, whatever
//! SM it runs on. The [`StagePlacement`] of a stage follows from the stream and the number of SMs
//! alone: programs of any rows find the same packed weights.

use half::bf16;
use rayon::prelude::*;
use tilewright_kernels::weights::{CodePacker, StagePlacement, Strip};

use super::rounded::part_of_row;
use super::stored::StoredWeight;
use crate::ops::{GroupShape, QkvProjection};
use crate::program::{BufferId, Span};

/// Bytes of a B tile, in which places among packed weights are counted.
pub(in crate::vm) const TILE_BYTES: u64 = 512;

/// The rows of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Rows of one matrix, eight by eight.
    Matrix(BufferId),
    /// Strips of gate and of up, interleaved.
    Interleaved(BufferId, BufferId),
    /// Strips of q, k and v of a kv head's group.
    Group {
        /// Weights of q, k and v.
        weights: [BufferId; 3],
        /// The kv head.
        kv_head: usize,
        /// Key/value heads.
        kv_heads: usize,
        /// Query heads of the group.
        group: usize,
        /// Dimensions of a head.
        dim: usize,
    },
}

/// A run of strips of the packed weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its rows.
    pub rows: Rows,
    /// Shape of a strip.
    pub strip: Strip,
    /// Rows of the matrices, for streams of whole matrices.
    pub features: usize,
    /// The device whose packed weights have it.
    pub device: usize,
    /// Its start in that memory, in tiles of 512 bytes.
    pub start: u64,
    /// The placement of its stages.
    pub placement: StagePlacement,
}

impl Rows {
    /// Strips that make one strip of the output.
    fn interleaved(&self) -> usize {
        if matches!(self, Rows::Interleaved(..)) { 2 } else { 1 }
    }
}

impl Stream {
    /// A stream whose stages are placed in `stage_order`, with as many tasks as `sms` SMs.
    pub fn new(rows: Rows, strip: Strip, features: usize, start: u64, stage_order: StageOrder, sms: usize) -> Stream {
        let together = rows.interleaved();
        let of_group = if let Rows::Group { kv_heads, .. } = rows { kv_heads.max(1) } else { 1 };
        let stream = Stream { rows, strip, features, device: 0, start, placement: StagePlacement::IN_ORDER };
        let strips = (stream.strips() / together) as u32;
        let stages = together as u32 * strip.stages();
        let interleaved = |block| StagePlacement::new(strips, (sms / of_group) as u32, stages, block);
        let placement = match stage_order {
            StageOrder::InOrder => StagePlacement::IN_ORDER,
            StageOrder::Strips => interleaved(strip.stages()),
            StageOrder::Stages => interleaved(1),
        };
        Stream { placement, ..stream }
    }

    /// Strips.
    pub fn strips(&self) -> usize {
        let whole = self.features.div_ceil(Strip::ROWS as usize);
        match self.rows {
            Rows::Matrix(_) | Rows::Interleaved(..) => self.rows.interleaved() * whole,
            Rows::Group { group, dim, .. } => GroupShape { group, head_dim: dim }.strips(),
        }
    }

    /// Stages.
    pub fn stages(&self) -> usize {
        self.strips() * self.strip.stages() as usize
    }

    /// Whether nothing lies between it and the next stream.
    pub(in crate::vm) fn ends_with_a_tile(&self) -> bool {
        (self.strips() as u64 * u64::from(self.strip.bytes())).is_multiple_of(TILE_BYTES)
    }

    /// Tiles of 512 bytes.
    pub fn tiles(&self) -> u64 {
        (self.strips() as u64 * u64::from(self.strip.bytes())).div_ceil(TILE_BYTES)
    }

    /// The rows of a strip: of which weight, and which.
    pub fn rows_of(&self, strip: usize) -> [Option<(BufferId, usize)>; 8] {
        let eight = |buffer: BufferId, strip: usize| {
            std::array::from_fn(|i| Some((buffer, strip * 8 + i)).filter(|&(_, row)| row < self.features))
        };
        match self.rows {
            Rows::Matrix(buffer) => eight(buffer, strip),
            Rows::Interleaved(first, second) => eight(if strip.is_multiple_of(2) { first } else { second }, strip / 2),
            Rows::Group { weights, kv_head, group, dim, .. } => {
                let shape = GroupShape { group, head_dim: dim };
                let mut rows = [None; 8];
                for run in shape.runs(kv_head, Span::one(strip)) {
                    let (buffer, head) = match run.part {
                        QkvProjection::Query { head } => (weights[0], head),
                        QkvProjection::Key => (weights[1], kv_head),
                        QkvProjection::Value => (weights[2], kv_head),
                    };
                    // Pairs: the first halves are rows 0 to 3, their partners rows 4 to 7.
                    let places: &[usize] = if run.part == QkvProjection::Value { &[0] } else { &[0, 4] };
                    for (dims, start) in run.dims(dim).into_iter().zip(places) {
                        for (place, d) in (dims.lo..dims.hi).enumerate() {
                            rows[start + place] = Some((buffer, head * dim + d));
                        }
                    }
                }
                rows
            }
        }
    }

    /// Packs the stages at the places `places` into `memory`. `weight` gives a weight's values.
    pub fn pack<'w>(&self, places: Span, weight: impl Fn(BufferId) -> &'w StoredWeight + Sync, memory: &mut [bf16]) {
        match CodePacker::new(self.strip) {
            None => self.pack_rows(places, weight, memory),
            Some(packer) => self.pack_codes(&packer, places, weight, memory),
        }
    }

    fn pack_codes<'w>(
        &self,
        packer: &CodePacker,
        places: Span,
        weight: impl Fn(BufferId) -> &'w StoredWeight + Sync,
        memory: &mut [bf16],
    ) {
        let each = self.strip.stage_bytes() as usize;
        let stages = self.strip.stages();
        let memory: &mut [u8] = bytemuck::cast_slice_mut(memory);
        memory.par_chunks_mut(each).zip(places.lo..places.hi).for_each(|(memory, place)| {
            let stage = self.placement.stage(place as u32);
            let of = |(buffer, row)| match weight(buffer).row(row) {
                (StoredWeight::Codes(codes), row) => Some((&**codes.matrix(), row)),
                (StoredWeight::Dense(_) | StoredWeight::Experts(_), _) => None,
            };
            let rows = self.rows_of((stage / stages) as usize).map(|row| row.and_then(of));
            packer.pack_stage(stage % stages, &rows, memory);
        });
    }

    fn pack_rows<'w>(&self, places: Span, weight: impl Fn(BufferId) -> &'w StoredWeight + Sync, memory: &mut [bf16]) {
        let tensor = |(buffer, row)| match weight(buffer).row(row) {
            (StoredWeight::Dense(tensor), row) => (tensor, row),
            (StoredWeight::Codes(_) | StoredWeight::Experts(_), _) => {
                unreachable!("weights are bound in the form that the program says")
            }
        };
        let packer = self.strip.packer();
        let each = self.strip.stage_bytes() as usize / 2;
        let stages = self.strip.stages();
        memory.par_chunks_mut(each).zip(places.lo..places.hi).for_each(|(memory, place)| {
            let k = self.strip.k() as usize;
            let stage = self.placement.stage(place as u32);
            let columns = self.strip.columns(stage % stages);
            let of = |place| {
                let (tensor, row) = tensor(place);
                part_of_row(tensor, row * k + columns.start..row * k + columns.end)
            };
            let rows = self.rows_of((stage / stages) as usize).map(|row| row.map(of));
            let rows: [Option<&[bf16]>; 8] = std::array::from_fn(|i| rows[i].as_deref());
            packer.pack_stage(&rows, memory);
        });
    }
}

/// The order of a stream's stages among the packed weights
/// ([`StagePlacement`](tilewright_kernels::weights::StagePlacement)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StageOrder {
    /// In their order: what an SM reads is contiguous.
    InOrder,
    /// Strips interleaved over the SMs: the first strip of each SM's part, then the second.
    Strips,
    /// Stages interleaved over the SMs: what all SMs read at a time is contiguous.
    Stages,
}

impl StageOrder {
    /// All of them, each with the name that settings have for it.
    pub const ALL: [(&'static str, StageOrder); 3] =
        [("order", StageOrder::InOrder), ("strips", StageOrder::Strips), ("stages", StageOrder::Stages)];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            StageOrder::InOrder => "order",
            StageOrder::Strips => "strips",
            StageOrder::Stages => "stages",
        }
    }
}
