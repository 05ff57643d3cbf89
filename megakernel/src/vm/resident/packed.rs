//! The layout of packed weights, for products that read them alongside the machines that stream
//! them.

use tilewright_kernels::weights::Strip;

use super::stream::{Rows, Stream, TILE_BYTES};
use crate::program::{self, BufferId, BufferKind, Program};

/// Packed weights and their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    weights: Vec<program::Buffer>,
    streams: Vec<Stream>,
}

/// Packed strips that lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vm) struct PackedStrips {
    /// Their start, in elements.
    pub first: u64,
    /// Elements.
    pub len: u64,
    /// Shape of a strip.
    pub strip: Strip,
}

impl Packed {
    /// The packed weights of a program, as these streams have them.
    pub fn new(program: &Program, streams: &[Stream]) -> Packed {
        let weights = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Weight);
        Packed { weights: weights.cloned().collect(), streams: streams.to_vec() }
    }

    /// Whether every stream lies in its order.
    pub(in crate::vm) fn is_in_order(&self) -> bool {
        self.streams.iter().all(|stream| stream.placement.is_in_order())
    }

    /// Finds the streams of these rows of a program's weights if they are contiguous, each in its
    /// order. `None` if they are not packed, or not contiguous.
    pub(in crate::vm) fn find(&self, program: &Program, rows: &[Rows]) -> Option<PackedStrips> {
        let mut found: Option<(PackedStrips, u64)> = None;
        for rows in rows {
            let rows = self.known(program, rows)?;
            let stream = self.streams.iter().find(|stream| stream.rows == rows && stream.placement.is_in_order())?;
            let len = stream.tiles() * TILE_BYTES / 2;
            let end = stream.start + stream.tiles();
            found = Some(match found {
                None => (PackedStrips { first: stream.start * TILE_BYTES / 2, len, strip: stream.strip }, end),
                // A stream begins with a whole tile: after codes that end within one strips do not
                // go on.
                Some((strips, last))
                    if strips.strip == stream.strip && last == stream.start && stream.ends_with_a_tile() =>
                {
                    (PackedStrips { len: strips.len + len, ..strips }, end)
                }
                Some(_) => return None,
            });
        }
        found.map(|(strips, _)| strips)
    }

    /// Translates rows to the buffer ids that the packed program has for the weights.
    fn known(&self, program: &Program, rows: &Rows) -> Option<Rows> {
        let of = |id: BufferId| {
            let wanted = program.buffers.get(id.index())?;
            let found = self.weights.iter().find(|known| known.name == wanted.name)?;
            let same = (found.dtype, &found.shape, found.quantised) == (wanted.dtype, &wanted.shape, wanted.quantised);
            same.then_some(found.id)
        };
        Some(match *rows {
            Rows::Matrix(weight) => Rows::Matrix(of(weight)?),
            Rows::Interleaved(first, second) => Rows::Interleaved(of(first)?, of(second)?),
            Rows::Group { weights: [q, k, v], kv_head, kv_heads, group, dim } => {
                Rows::Group { weights: [of(q)?, of(k)?, of(v)?], kv_head, kv_heads, group, dim }
            }
        })
    }
}
