//! The methods of a value that see all candidate blocks of a row.

use std::panic::Location;

use tilewright_graph::op::Op;
use tilewright_graph::rows::{Norm, Reduce, RowOp, Scale, Taps};
use tilewright_layout::tensor::{Batched, Ragged};

use super::Value;
use crate::format::{KnownFormat, ManyBlocks, PassKind, PerBlock};

impl<'t, F: KnownFormat, P: PassKind> Value<'t, F, P> {
    /// Reduces the values of the candidate blocks to one value for the row.
    #[track_caller]
    pub fn over_blocks(self, reduce: Reduce) -> Value<'t, Batched, P>
    where
        F: PerBlock,
        P: ManyBlocks,
    {
        self.record(Op::OverBlocks { x: self.id, over: RowOp::Reduce(reduce) }, Location::caller())
    }

    /// `e^(scale·x)` over its sum, each element over the candidate blocks.
    #[track_caller]
    pub fn softmax(self, scale: impl Into<Scale>) -> Value<'t, Ragged, P>
    where
        F: PerBlock,
        P: ManyBlocks,
    {
        self.record(Op::OverBlocks { x: self.id, over: RowOp::Softmax(scale.into()) }, Location::caller())
    }

    /// Divides each element by its norm along the candidate blocks.
    #[track_caller]
    pub fn normalize(self, norm: Norm) -> Value<'t, Ragged, P>
    where
        F: PerBlock,
        P: ManyBlocks,
    {
        self.record(Op::OverBlocks { x: self.id, over: RowOp::Normalize(norm) }, Location::caller())
    }

    /// `Σ_k w[k]·x[s − k]` along the candidate blocks, nothing before the first.
    #[track_caller]
    pub fn conv1d(self, taps: Taps) -> Value<'t, Ragged, P>
    where
        F: PerBlock,
        P: ManyBlocks,
    {
        self.record(Op::OverBlocks { x: self.id, over: RowOp::Conv1d(taps) }, Location::caller())
    }
}
