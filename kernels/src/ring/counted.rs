//! A producer that counts what is in flight: its cap may change while it runs, it can abort when
//! the consumers stop, and it ends without a copy on its way.

use super::cursor::Cursor;
use super::producer::{ByPieces, Empty, Filled, Producer};
use super::{Operands, StageFill};
use tilewright_codegen::build::{IntoVal, Mbarrier, Shared, Val, Var};
use tilewright_codegen::ir::attr::BarScope;

/// The end of a ring that fills stages, and counts those that it does not know to have arrived. One
/// thread comes here, or the lanes of a warp, which decide together whatever they do.
pub struct Counted<'k, B, O: Operands> {
    producer: Producer<'k, B, O, ByPieces>,
    /// The oldest stage that is in flight.
    arriving: Cursor<'k>,
    in_flight: Var<'k, u32>,
}

impl<'k, B, O: Operands> Producer<'k, B, O, ByPieces> {
    /// Whether the lanes of a warp fill together, not one thread.
    pub fn by_warp(&self) -> bool {
        self.parts.fill != StageFill::Engine
    }

    /// Turns the producer, before its first stage, into one that counts its stages in flight. The
    /// ring has no cap of its own ([`Shape::in_flight`](super::Shape::in_flight)).
    #[track_caller]
    pub fn counted(self) -> Counted<'k, B, O> {
        let k = self.parts.k;
        let stages = self.parts.shape.stages;
        assert!(self.arriving.is_none(), "ring: a cap that is fixed, and one that changes; take one of them");
        Counted { arriving: Cursor::new(k, stages, 0, 0), in_flight: k.var(0u32), producer: self }
    }
}

impl<'k, B, O: Operands> Counted<'k, B, O> {
    /// Whether the lanes of a warp fill together, not one thread.
    pub fn by_warp(&self) -> bool {
        self.producer.by_warp()
    }

    /// Whether a condition holds for any of the threads that fill, uniform among them.
    #[track_caller]
    pub fn any(&self, so: Val<'k, bool>) -> Val<'k, bool> {
        if self.by_warp() { so.any() } else { so }
    }

    /// Lets one of the threads that fill act, after a barrier of them.
    #[track_caller]
    pub fn one(&self, act: impl FnOnce()) {
        let k = self.producer.parts.k;
        if self.by_warp() {
            k.sync_warp();
            k.moving().when(k.lane().eq(0), act);
        } else {
            act();
        }
    }

    /// Whether the phase of a stage with that parity is complete, for all of those who fill.
    #[track_caller]
    fn complete(&self, bar: Mbarrier<'k, Shared>, parity: Val<'k, u32>, scope: BarScope) -> Val<'k, bool> {
        let complete = bar.test_wait(parity, scope);
        if self.by_warp() { complete.all() } else { complete }
    }

    /// Waits until fewer than `most` stages are in flight, which are at least 1 and at most those
    /// of the ring.
    #[track_caller]
    pub fn wait_below(&self, most: impl IntoVal<'k, u32>) {
        let k = self.producer.parts.k;
        let most = most.val(k);
        let most = if self.by_warp() { most.shfl_idx(0) } else { most };
        k.while_(|| self.in_flight.get().ge(most), || self.take_arrival());
    }

    #[track_caller]
    fn take_arrival(&self) {
        let (stage, parity) = self.arriving.step();
        self.producer.parts.full(stage).wait(parity);
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Acquires the next stage once all its readers have released it, for `fill` to fill. Until
    /// then, `listen` tells whether that will never happen: then `gave_up` is set, and nothing is
    /// filled.
    #[track_caller]
    pub fn acquire_unless(
        &self,
        gave_up: Var<'k, bool>,
        listen: impl FnOnce() -> Val<'k, bool>,
        fill: impl FnOnce(Empty<'k, B, O, ByPieces>) -> Filled<'k, B, O, ByPieces>,
    ) {
        let Producer { parts, next, .. } = &self.producer;
        let k = parts.k;
        k.moving().loop_(|| {
            let (stage, parity) = next.here();
            k.break_if(parts.empty.map_or(k.lit(true), |empty| self.complete(empty.at(stage), parity, parts.scope())));
            gave_up.set(self.any(listen()));
            k.break_if(gave_up.get());
        });
        k.moving().when(!gave_up.get(), || {
            let (stage, _) = next.step();
            fill(Empty { parts: *parts, stage, fill: ByPieces }).commit();
            self.in_flight.set(self.in_flight.get() + 1);
        });
    }

    /// Whether something is in flight that has not arrived; what has is counted.
    #[track_caller]
    pub fn flies(&self) -> Val<'k, bool> {
        let parts = &self.producer.parts;
        let (stage, parity) = self.arriving.here();
        let arrived = self.in_flight.get().gt(0) & self.complete(parts.full(stage), parity, BarScope::Cta);
        parts.k.when(arrived, || self.take_arrival());
        self.in_flight.get().gt(0)
    }

    /// Waits for everything in flight: a block must not end under a copy.
    #[track_caller]
    pub fn drain(self) {
        self.producer.parts.k.while_(|| self.in_flight.get().gt(0), || self.take_arrival());
    }
}
