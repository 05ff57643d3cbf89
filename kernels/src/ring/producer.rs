//! The producer's end: acquire → fill → commit.

use super::Operands;
use super::cursor::Cursor;
use super::setup::Parts;
use super::source::Sources;
use tilewright_codegen::build::Val;
use tilewright_codegen::ir::attr::NoInc;

/// A ring that one thread fills, by copies that complete on an mbarrier.
#[derive(Clone, Copy, Debug)]
pub struct ByBulk;

/// A ring that several threads fill, by `cp.async` each.
#[derive(Clone, Copy, Debug)]
pub struct ByThreads;

/// The end of a ring that fills stages. Every thread that fills comes through every step.
pub struct Producer<'k, B, O: Operands, F> {
    pub(super) parts: Parts<'k, B, O>,
    pub(super) next: Cursor<'k>,
    /// The stage that has to land before the next one is asked for, if there is a cap.
    pub(super) landing: Option<Cursor<'k>>,
    fill: F,
}

/// A stage that nobody reads, to be filled.
#[must_use = "a stage that was acquired is filled and committed"]
pub struct Empty<'k, B, O: Operands, F> {
    pub(super) parts: Parts<'k, B, O>,
    pub(super) stage: Val<'k, u32>,
    #[expect(dead_code, reason = "its type says how the stage is filled")]
    pub(super) fill: F,
}

/// A stage whose copies were started, to be committed.
#[must_use = "a stage that was filled is committed"]
pub struct Filled<'k, B, O: Operands, F> {
    parts: Parts<'k, B, O>,
    stage: Val<'k, u32>,
    fill: F,
}

impl<'k, B, O: Operands, F> Producer<'k, B, O, F> {
    #[track_caller]
    pub(super) fn new(parts: Parts<'k, B, O>, fill: F) -> Self {
        let (k, stages, cap) = (parts.k, parts.shape.stages, parts.shape.in_flight);
        // The phase before the first counts as complete: the first round finds every stage empty, and the first stages
        // wait for no landing.
        let landing = (cap < stages).then(|| Cursor::new(k, stages, stages - cap, 1));
        Producer { parts, next: Cursor::new(k, stages, 0, 1), landing, fill }
    }
}

impl<'k, B, O: Operands, F: Copy> Producer<'k, B, O, F> {
    /// Waits until the next stage was read by everybody, and until few enough stages are on their way.
    #[track_caller]
    pub fn acquire(&mut self) -> Empty<'k, B, O, F> {
        let parts = self.parts;
        if let Some(landing) = &mut self.landing {
            let (stage, parity) = landing.step();
            parts.full.at(stage).wait(parity);
        }
        let (stage, parity) = self.next.step();
        parts.empty.at(stage).wait_at(parity, parts.scope());
        Empty { parts, stage, fill: self.fill }
    }
}

impl<'k, B, O: Operands> Empty<'k, B, O, ByBulk> {
    /// Starts the copies of all operands, one source for each.
    #[track_caller]
    pub fn fill(self, sources: impl Sources<'k, O>) -> Filled<'k, B, O, ByBulk> {
        let Empty { parts, stage, .. } = self;
        let full = parts.full.at(stage);
        full.arrive_expect_tx(sources.bytes(parts.k, parts.operands));
        sources.load(parts.operands, parts.operands.views(parts.bases, stage), full);
        Filled { parts, stage, fill: ByBulk }
    }
}

impl<'k, B, O: Operands> Empty<'k, B, O, ByThreads> {
    /// This thread's share of the copies, by `cp.async` or plain stores.
    #[track_caller]
    pub fn fill(self, copies: impl FnOnce(O::Views<'k>)) -> Filled<'k, B, O, ByThreads> {
        let Empty { parts, stage, .. } = self;
        copies(parts.operands.views(parts.bases, stage));
        Filled { parts, stage, fill: ByThreads }
    }
}

impl<B, O: Operands> Filled<'_, B, O, ByBulk> {
    /// The stage is full as soon as its bytes are there.
    pub fn commit(self) {
        // The bytes themselves complete the barrier: nothing is left to do.
        let Filled { .. } = self;
    }
}

impl<B, O: Operands> Filled<'_, B, O, ByThreads> {
    /// The stage is full as soon as the copies of all threads that fill are there.
    #[track_caller]
    pub fn commit(self) {
        let Filled { parts, stage, fill: ByThreads } = self;
        parts.full.at(stage).arrive_after_cp_async(parts.k, NoInc::Yes);
    }
}
