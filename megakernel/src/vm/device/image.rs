//! The image: weights in the order in which the ring streams them.
//!
//! A stream is a run of units (see [`Unit`]) that tasks take consecutive parts of: a matrix by rows of eight, two
//! matrices whose units take turns, or the projections of a kv head's group. Its order is the program's, not the
//! placement's: every task's part is contiguous, whatever SM it runs on.

use half::{bf16, f16};
use rayon::prelude::*;
use tilewright_kernels::decode::{Float, Unit};

use crate::program::{BufferId, GroupShape, Part, Span, float_of};
use crate::weights::WeightTensor;

/// Bytes in which places in the image are counted.
pub(super) const CHUNK: u64 = 512;

/// Whose rows a stream has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Rows of one matrix, eight by eight.
    Matrix(BufferId),
    /// Units of the first and of the second take turns.
    Turns(BufferId, BufferId),
    /// Units of q, k and v of a kv head's group.
    Group {
        /// Weights of q, k and v.
        weights: [BufferId; 3],
        /// The kv head.
        kv_head: usize,
        /// Query heads of the group.
        group: usize,
        /// Dimensions of a head.
        dim: usize,
    },
}

/// A run of units in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Whose rows.
    pub rows: Rows,
    /// Shape of a unit.
    pub unit: Unit,
    /// Rows of the matrices, for streams of whole matrices.
    pub features: usize,
    /// Where it begins, in chunks of 512 bytes.
    pub start: u64,
}

impl Stream {
    /// Units.
    pub fn units(&self) -> usize {
        let whole = self.features.div_ceil(Unit::ROWS as usize);
        match self.rows {
            Rows::Matrix(_) => whole,
            Rows::Turns(..) => 2 * whole,
            Rows::Group { group, dim, .. } => GroupShape { group, head_dim: dim }.units(),
        }
    }

    /// Chunks of 512 bytes.
    pub fn chunks(&self) -> u64 {
        self.units() as u64 * u64::from(self.unit.bytes()) / CHUNK
    }

    /// Where a unit begins, in chunks of 512 bytes.
    pub fn at(&self, unit: usize) -> u64 {
        self.start + unit as u64 * u64::from(self.unit.bytes()) / CHUNK
    }

    /// The rows of a unit: of which weight, and which.
    pub fn rows_of(&self, unit: usize) -> [Option<(BufferId, usize)>; 8] {
        let eight = |buffer: BufferId, unit: usize| {
            std::array::from_fn(|i| Some((buffer, unit * 8 + i)).filter(|&(_, row)| row < self.features))
        };
        match self.rows {
            Rows::Matrix(buffer) => eight(buffer, unit),
            Rows::Turns(first, second) => eight(if unit.is_multiple_of(2) { first } else { second }, unit / 2),
            Rows::Group { weights, kv_head, group, dim } => {
                let shape = GroupShape { group, head_dim: dim };
                let mut rows = [None; 8];
                for run in shape.runs(kv_head, Span::one(unit)) {
                    let (buffer, head) = match run.part {
                        Part::Query { head } => (weights[0], head),
                        Part::Key => (weights[1], kv_head),
                        Part::Value => (weights[2], kv_head),
                    };
                    // Pairs: the first halves are rows 0 to 3, their partners rows 4 to 7.
                    let places: &[usize] = if run.part == Part::Value { &[0] } else { &[0, 4] };
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

    /// Packs the units `units` into `place`. `tensor` gives a weight's values.
    pub fn pack<'w>(&self, units: Span, tensor: impl Fn(BufferId) -> &'w WeightTensor + Sync, place: &mut [bf16]) {
        let (packer, each) = (self.unit.packer(), self.unit.elements() as usize);
        place.par_chunks_mut(each).zip(units.lo..units.hi).for_each(|(place, unit)| {
            let k = self.unit.k() as usize;
            let rows = self.rows_of(unit).map(|row| row.map(|(buffer, row)| row_of(tensor(buffer), row, k)));
            let rows: [Option<&[bf16]>; 8] = std::array::from_fn(|i| rows[i].as_deref());
            packer.pack(&rows, place);
        });
    }
}

/// A row of a matrix as bf16; other types are rounded to nearest even.
fn row_of(tensor: &WeightTensor, row: usize, k: usize) -> std::borrow::Cow<'_, [bf16]> {
    let range = row * k..(row + 1) * k;
    match float_of(tensor.dtype()) {
        Some(Float::Bf16) => tensor.as_bf16().and_then(|all| all.get(range)).unwrap_or_default().into(),
        Some(Float::F16) => {
            let values: &[f16] = tensor.as_f16().and_then(|all| all.get(range)).unwrap_or_default();
            values.iter().map(|v| bf16::from_f32(v.to_f32())).collect::<Vec<_>>().into()
        }
        Some(Float::F32) | None => {
            let values = tensor.as_f32().and_then(|all| all.get(range)).unwrap_or_default();
            values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>().into()
        }
    }
}
