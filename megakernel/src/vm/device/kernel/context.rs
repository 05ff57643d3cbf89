//! The context: what every part of the kernel works with.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};
use tilewright_kernels::gemv::task::LinearScratch;
use tilewright_kernels::warps::ConsumerWarps;

use super::cells::StepCells;
use super::peers::Peers;
use super::ring::Progress;
use super::sync::Sync;
use super::table::Table;
use super::trace::Trace;
use crate::vm::device::shape::KernelShape;

/// Memory of the device, by space.
#[derive(Clone, Copy)]
pub(super) struct MemorySpaces<'k> {
    pub prepacked: Ptr<'k, Global, u8>,
    pub plain: Ptr<'k, Global, u8>,
    pub state: Ptr<'k, Global, u8>,
    pub pools: Ptr<'k, Global, u8>,
    /// The other devices of a program of several.
    pub peers: Option<Peers<'k>>,
}

/// What every part of the kernel works with.
#[derive(Clone, Copy)]
pub(super) struct KernelContext<'k, 'p> {
    pub k: &'k Builder,
    pub shape: &'p KernelShape,
    pub memory: MemorySpaces<'k>,
    pub progress: Progress<'k>,
    pub table: Table<'k>,
    pub sync: Sync<'k>,
    pub consumers: ConsumerWarps<'k>,
    pub scratch: LinearScratch<'k>,
    pub cells: StepCells<'k>,
    /// Where times go, if they are wanted.
    pub trace: Option<Trace<'k>>,
    /// Steps of this launch.
    pub steps: Val<'k, u32>,
    /// What the kernel itself feeds ([`Feeds`]).
    pub advance: Val<'k, u32>,
    /// The tokens that end each row.
    pub ends: Ptr<'k, Global, i32>,
    /// Pages of each pool.
    pub pages: Val<'k, u32>,
    /// The masks of rows, where the machine takes any.
    pub masks: Option<Masks<'k>>,
    /// The text whose tokens are proposed, where the plan has proposals.
    pub proposals: Option<Proposals<'k>>,
}

/// The masks of rows, by which the host restricts their tokens.
#[derive(Clone, Copy)]
pub(super) struct Masks<'k> {
    /// Of every row not 0 if it has a mask.
    pub masked: Ptr<'k, Global, u32>,
    /// Tickets and masks, from the first row's ticket on.
    pub words: Ptr<'k, Global, u32>,
    /// Words from a row's ticket to the next one's.
    pub pitch: u32,
}

/// The sequence whose text the rows of a step go on with.
#[derive(Clone, Copy)]
pub(super) struct Proposals<'k> {
    /// Numbers, and after them the tokens: see [`text`](crate::vm::device::text).
    pub words: Ptr<'k, Global, i32>,
    /// What this block found of the step: of each row its choice, its token and its position, then
    /// what was decided.
    pub found: Ptr<'k, Shared, i32>,
    /// The best run of each warp.
    pub best: Ptr<'k, Shared, u32>,
}
