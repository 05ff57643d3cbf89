//! A ring's memory and mbarriers, and the one barrier that makes them known.

use super::consumer::Consumer;
use super::producer::{ByBulk, ByThreads, Producer};
use super::{Consumers, Operands, Shape};
use core::marker::PhantomData;
use tilewright_codegen::build::{Builder, Mbarrier, Shared};
use tilewright_codegen::ir::attr::BarScope;

/// What producer and consumers share: where everything is.
pub(super) struct Parts<'k, B, O: Operands> {
    pub k: &'k Builder,
    pub operands: O,
    pub bases: O::Bases<'k>,
    /// Completes when a stage's bytes are there.
    pub full: Mbarrier<'k, Shared>,
    /// Completes when a stage was read.
    pub empty: Mbarrier<'k, Shared>,
    pub shape: Shape,
    /// Whether the copy engine fills the stages, which is of another proxy than who reads them.
    pub engine: bool,
    brand: PhantomData<fn() -> B>,
}

impl<B, O: Operands> Clone for Parts<'_, B, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B, O: Operands> Copy for Parts<'_, B, O> {}

impl<B, O: Operands> Parts<'_, B, O> {
    /// The scope at which other blocks' arrivals at "empty" are waited for. Those of `wgmma`'s readers order no access of
    /// their own, so that nothing is waited for beyond the block.
    pub fn scope(&self) -> BarScope {
        match self.shape.consumers {
            Consumers::Warps(_) if self.shape.cluster > 1 => BarScope::Cluster,
            Consumers::Warps(_) | Consumers::Warpgroups(_) => BarScope::Cta,
        }
    }
}

/// A ring of stages between one producer and its consumers.
///
/// `B` is its brand, `O` what a stage holds, `F` how it is filled.
pub struct Ring<'k, B, O: Operands, F> {
    parts: Parts<'k, B, O>,
    fill: F,
}

/// A ring that the block does not know of yet. [`start`] makes it ready.
#[must_use = "a ring is used after `start`"]
pub struct Unready<R>(R);

impl<'k, O: Operands> Ring<'k, (), O, ()> {
    /// A ring that one thread fills by bulk copies and tensor maps.
    #[track_caller]
    pub fn bulk<B>(k: &'k Builder, operands: O, shape: Shape) -> Unready<Ring<'k, B, O, ByBulk>> {
        Unready(Ring { parts: parts(k, operands, shape, 1, true), fill: ByBulk })
    }

    /// A ring that `threads` threads fill together by `cp.async`.
    #[track_caller]
    pub fn threads<B>(k: &'k Builder, operands: O, shape: Shape, threads: u32) -> Unready<Ring<'k, B, O, ByThreads>> {
        Unready(Ring { parts: parts(k, operands, shape, threads, false), fill: ByThreads })
    }
}

/// Allocates stages and mbarriers; one thread initialises them.
#[track_caller]
fn parts<B, O: Operands>(k: &Builder, operands: O, shape: Shape, fills: u32, engine: bool) -> Parts<'_, B, O> {
    let path = core::any::type_name::<B>();
    let name = path.rsplit("::").next().unwrap_or(path).to_lowercase();
    let bases = operands.allocate(k, &name, shape.stages);
    let full = k.mbarriers(&format!("{name}.full"), shape.stages);
    let empty = k.mbarriers(&format!("{name}.empty"), shape.stages);
    k.when(k.tid().eq(0), || {
        for stage in 0..shape.stages {
            full.at(stage).init(fills);
            empty.at(stage).init(shape.consumers.count() * shape.cluster);
        }
    });
    Parts { k, operands, bases, full, empty, shape, engine, brand: PhantomData }
}

/// Rings that start together: one, or a tuple of up to four.
pub trait Rings {
    /// The rings, ready.
    type Ready;

    /// Whether another block of the cluster uses one of them.
    fn remote(&self) -> bool;

    /// Whether the copy engine does.
    fn engine(&self) -> bool;

    /// Hands them out.
    fn ready(self) -> Self::Ready;
}

impl<'k, B, O: Operands, F> Rings for Unready<Ring<'k, B, O, F>> {
    type Ready = Ring<'k, B, O, F>;

    fn remote(&self) -> bool {
        self.0.parts.shape.cluster > 1
    }

    fn engine(&self) -> bool {
        self.0.parts.engine
    }

    fn ready(self) -> Self::Ready {
        self.0
    }
}

macro_rules! rings {
    ($(($($R:ident $i:tt),+))+) => {$(
        impl<$($R: Rings),+> Rings for ($($R,)+) {
            type Ready = ($($R::Ready,)+);

            fn remote(&self) -> bool {
                $(self.$i.remote())||+
            }

            fn engine(&self) -> bool {
                $(self.$i.engine())||+
            }

            fn ready(self) -> Self::Ready {
                ($(self.$i.ready(),)+)
            }
        }
    )+};
}

rings! {
    (R0 0, R1 1)
    (R0 0, R1 1, R2 2)
    (R0 0, R1 1, R2 2, R3 3)
}

/// Every thread of the block, of the cluster where a ring reaches so far, comes here and knows the rings.
#[track_caller]
pub fn start<R: Rings>(k: &Builder, rings: R) -> R::Ready {
    // Threads of the block know by the barrier; the copy engine and other blocks do not.
    if rings.engine() || rings.remote() {
        k.when(k.tid().eq(0), || k.fence_mbarrier_init());
    }
    if rings.remote() {
        k.cluster_sync();
    } else {
        k.barrier();
    }
    rings.ready()
}

impl<'k, B, O: Operands, F> Ring<'k, B, O, F> {
    /// The producer's end and the consumers' end. Each has a cursor in registers, set here.
    #[track_caller]
    pub fn split(self) -> (Producer<'k, B, O, F>, Consumer<'k, B, O>) {
        (Producer::new(self.parts, self.fill), Consumer::new(self.parts))
    }
}
