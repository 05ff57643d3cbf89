//! The producer's end: acquire → fill → commit.

use tilewright_codegen::build::{Bulk, Scalar, Val};
use tilewright_codegen::ir::attr::NoInc;
use tilewright_layout::view::OffsetMap;

use super::consumer::Full;
use super::cursor::Cursor;
use super::source::{Pieces, Sources, in_pieces};
use super::{Operands, StageFill, StageTile};
use crate::ring::parts::RingParts;

/// A ring that one thread fills, by copies that complete on an mbarrier.
#[derive(Clone, Copy, Debug)]
pub struct ByBulk;

/// A ring that several threads fill, by `cp.async` or by stores each.
#[derive(Clone, Copy, Debug)]
pub struct ByThreads;

/// A ring that is filled in pieces as the architecture can: by one thread and the copy engine, or
/// by a warp.
#[derive(Clone, Copy, Debug)]
pub struct ByPieces;

/// The end of a ring that fills stages. Every thread that fills comes through every step.
pub struct Producer<'k, B, O: Operands, F> {
    pub(super) parts: RingParts<'k, B, O>,
    pub(super) next: Cursor<'k>,
    /// The stage that has to arrive before the next one is issued, if there is a cap.
    pub(super) arriving: Option<Cursor<'k>>,
    fill: F,
}

/// An empty stage, to be filled.
#[must_use = "a stage that was acquired is filled and committed"]
pub struct Empty<'k, B, O: Operands, F> {
    pub(super) parts: RingParts<'k, B, O>,
    pub(super) stage: Val<'k, u32>,
    pub(super) fill: F,
}

/// A stage whose copies were started, to be committed.
#[must_use = "a stage that was filled is committed"]
pub struct Filled<'k, B, O: Operands, F> {
    parts: RingParts<'k, B, O>,
    stage: Val<'k, u32>,
    #[expect(dead_code, reason = "its type says how the stage is filled")]
    fill: F,
}

impl<'k, B, O: Operands, F> Producer<'k, B, O, F> {
    #[track_caller]
    pub(super) fn new(parts: RingParts<'k, B, O>, fill: F, begun: u32) -> Self {
        let k = parts.k;
        let stages = parts.shape.stages;
        let cap = parts.shape.in_flight;
        // The phase before the first counts as complete: the first round finds every stage empty,
        // and the first stages wait for no arrival.
        let at =
            |step: u32, waits: bool| Cursor::new(k, stages, step % stages, waits.then_some((1 + step / stages) % 2));
        let arriving = (cap < stages).then(|| at(stages - cap + begun, true));
        Producer { parts, next: at(begun, parts.fill != StageFill::Stores), arriving, fill }
    }
}

impl<'k, B, O: Operands, F: Copy> Producer<'k, B, O, F> {
    /// Waits until all readers have released the next stage, and until few enough stages are in
    /// flight.
    #[track_caller]
    pub fn acquire(&mut self) -> Empty<'k, B, O, F> {
        let parts = self.parts;
        if let Some(arriving) = &mut self.arriving {
            let (stage, parity) = arriving.step();
            parts.full(stage).wait(parity);
        }
        let (stage, parity) = self.next.step();
        if let Some(empty) = parts.empty {
            empty.at(stage).wait_at(parity, parts.scope());
        }
        Empty { parts, stage, fill: self.fill }
    }
}

impl<'k, B, O: Operands> Empty<'k, B, O, ByBulk> {
    /// Starts the copies of all operands, one source for each.
    #[track_caller]
    pub fn fill(self, sources: impl Sources<'k, O>) -> Filled<'k, B, O, ByBulk> {
        let Empty { parts, stage, .. } = self;
        let full = parts.full(stage);
        full.arrive_expect_tx(sources.bytes(parts.k, parts.operands));
        sources.load(parts.operands, parts.operands.views(parts.bases, stage), full);
        Filled { parts, stage, fill: ByBulk }
    }
}

impl<'k, B, O: Operands> Empty<'k, B, O, ByThreads> {
    /// Fills this thread's share of the copies, by `cp.async` or plain stores.
    #[track_caller]
    pub fn fill(self, copies: impl FnOnce(O::Views<'k>)) -> Filled<'k, B, O, ByThreads> {
        let Empty { parts, stage, .. } = self;
        copies(parts.operands.views(parts.bases, stage));
        Filled { parts, stage, fill: ByThreads }
    }
}

impl<'k, B, T: Scalar, L: OffsetMap> Empty<'k, B, (StageTile<T, L>,), ByPieces> {
    /// Starts copies of pieces of the tile, `bytes` bytes in all; the rest of the tile stays as it
    /// is.
    #[track_caller]
    pub fn fill(
        self,
        bytes: Val<'k, u32>,
        how: Bulk<'k>,
        copies: impl FnOnce(Pieces<'k>),
    ) -> Filled<'k, B, (StageTile<T, L>,), ByPieces> {
        let Empty { parts, stage, fill } = self;
        if parts.fill == StageFill::Engine {
            Empty { parts, stage, fill: ByBulk }.fill((in_pieces(bytes, how, copies),)).commit();
        } else {
            let (to,) = parts.operands.views(parts.bases, stage);
            copies(Pieces::by_lanes(to.base().cast()));
        }
        Filled { parts, stage, fill }
    }
}

impl<B, O: Operands, F> Filled<'_, B, O, F> {
    /// Commits the stage: it is full as soon as the copies of all filling threads are there.
    #[track_caller]
    pub fn commit(self) {
        let Filled { parts, stage, .. } = self;
        match parts.fill {
            // The bytes themselves complete the barrier, and stores are there once the team has
            // met.
            StageFill::Engine | StageFill::Stores => {}
            StageFill::Threads(_) => parts.full(stage).arrive_after_cp_async(parts.k, NoInc::Yes),
            StageFill::Groups { .. } => parts.k.cp_async_commit(),
        }
    }
}

impl<'k, B, O: Operands> Filled<'k, B, O, ByThreads> {
    /// Synchronises the threads that stored the stage: it is full for them, and the one before was
    /// read.
    #[track_caller]
    pub(crate) fn sync(self) -> Full<'k, B, O> {
        let Filled { parts, stage, .. } = self;
        parts.wait(stage, parts.k.lit(0));
        Full { parts, stage }
    }
}
