//! A ring's memory and mbarriers, and the one barrier that makes them known to the block.

use core::marker::PhantomData;

use tilewright_codegen::build::{Builder, Mbarrier, Shared};
use tilewright_codegen::ir::Needs;

use super::consumer::Consumer;
use super::producer::{ByBulk, ByPieces, ByThreads, Empty, Filled, Producer};
use super::threads::TeamRings;
use super::{Filling, Operands, RingError, RingThreads, Shape, StageFill};
use crate::ring::parts::{RingBarriers, RingParts};

/// A ring of stages in shared memory between one producer and its consumers: the pipeline of a
/// kernel.
///
/// | parameter | meaning |
/// |---|---|
/// | `B` | the brand: a type of the author's that names the ring, so that tokens of two rings cannot be exchanged |
/// | `O` | what a stage holds: a tuple of [`StageTile`](super::StageTile)s |
/// | `F` | how a stage is filled: [`ByBulk`], [`ByPieces`] or [`ByThreads`] |
///
/// A ring is made in three steps. A constructor allocates stages and mbarriers; [`start`] makes
/// them known to the block; [`split`](Ring::split) gives the two ends, a [`Producer`] and a
/// [`Consumer`], which each keep their position in registers.
///
/// | constructor | stages are filled by |
/// |---|---|
/// | [`bulk`](Ring::bulk) | one thread, by bulk copies and tensor maps (sm_90) |
/// | [`begun`](Ring::begun) | the same thread, which issues the first stages before the block synchronises |
/// | [`pieces`](Ring::pieces) | several copies per stage, by the copy engine or by the lanes of a warp |
/// | [`threads`](Ring::threads) | a number of threads, by `cp.async` |
///
/// The ends hand out tokens. A producer's `acquire` waits for an empty stage, `fill` starts the
/// copies and `commit` ends the step; a consumer's `wait` waits for a full stage and `release`
/// frees it. A token is moved by the step that uses it, so reading a stage before it is full does
/// not compile.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// use tilewright_kernels::ring::{BulkSource, Consumers, Ring, Shape, StageTile, start};
/// use tilewright_kernels::tile::Index;
/// use tilewright_layout::typed::Contiguous;
///
/// enum Rows {} // the brand
///
/// // y[r, c] = 2·x[r, c], rows of 128: warp 4 fetches, four warps compute, four stages, two of them in flight.
/// let kernel = record("double", Arch::Sm90a, block(160), |k| {
///     let rows = k.param::<u32>("rows");
///     let x = k.global::<f32>("x");
///     let y = k.global::<f32>("y");
///     let shape = Shape::stages(4).in_flight(2).consumers(Consumers::Warps(4));
///     let ring = Ring::bulk::<Rows>(k, (StageTile::<f32, Contiguous<128>>::typed(),), shape);
///     let (mut producer, mut consumer) = start(k, ring).split();
///     let fetch = || {
///         k.moving().for_(0u32, rows, |row| producer.acquire().fill((BulkSource::from(x.at(row * 128)),)).commit());
///     };
///     let compute = || {
///         k.moving().for_(0u32, rows, |row| {
///             let full = consumer.wait();
///             let (tile,) = full.tiles();
///             let doubled = tile.at([Index::thread(k)]).load() * 2.0;
///             full.release();
///             y.at(row * 128 + k.tid()).store(doubled);
///         });
///     };
///     k.moving().if_else(k.warp().lt(4), compute, || k.moving().when(k.lane().eq(0), fetch));
/// });
/// verify(kernel)?;
/// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
/// ```
///
/// A shape that cannot work, such as one without stages, is refused where the ring is constructed:
/// [`RingError`](super::RingError).
pub struct Ring<'k, B, O: Operands, F> {
    parts: RingParts<'k, B, O>,
    memory: O::Bases<'k>,
    by: F,
    /// Stages that were filled before the ring was known.
    begun: u32,
}

/// A ring that the block does not know of yet. [`start`] makes it ready.
#[must_use = "a ring is used after `start`"]
pub struct Unready<R>(R);

impl<'k, O: Operands> Ring<'k, (), O, ()> {
    /// A ring that one thread fills by bulk copies and tensor maps.
    #[track_caller]
    pub fn bulk<B>(k: &'k Builder, operands: O, shape: Shape) -> Unready<Ring<'k, B, O, ByBulk>> {
        Unready(Ring::of(k, &name::<B>(), operands, shape, Filling { fill: StageFill::Engine, by: ByBulk }, &mut || ()))
    }

    /// A ring that one thread of the block fills by bulk copies and tensor maps, and begins before
    /// the block synchronises: it makes the mbarriers, and starts the copies of the first stages,
    /// each by its number. They are as many as a producer finds empty without a wait: those that
    /// may be in flight.
    #[track_caller]
    pub fn begun<B>(
        k: &'k Builder,
        operands: O,
        shape: Shape,
        [thread, stages]: [u32; 2],
        fill: impl Fn(u32, Empty<'k, B, O, ByBulk>) -> Filled<'k, B, O, ByBulk>,
    ) -> Unready<Ring<'k, B, O, ByBulk>> {
        if stages > shape.in_flight {
            k.refuse(&RingError::InFlight { found: stages, stages: shape.in_flight });
        }
        let stages = stages.min(shape.in_flight);
        let shape = Shape { maker: thread, ..shape };
        let ring =
            Ring::of(k, &name::<B>(), operands, shape, Filling { fill: StageFill::Engine, by: ByBulk }, &mut || ());
        k.when(k.tid().eq(thread), || {
            k.fence_mbarrier_init();
            for stage in 0..stages {
                fill(stage, Empty { parts: ring.parts, stage: k.lit(stage), fill: ByBulk }).commit();
            }
        });
        Unready(Ring { begun: stages, ..ring })
    }

    /// A ring that is filled in pieces: by one thread and the copy engine where the architecture
    /// has one, by the lanes of a warp and `cp.async` where it has none.
    #[track_caller]
    pub fn pieces<B>(k: &'k Builder, operands: O, shape: Shape) -> Unready<Ring<'k, B, O, ByPieces>> {
        let fill = if Needs::Sm90.met_by(k.arch()) { StageFill::Engine } else { StageFill::Threads(32) };
        Unready(Ring::of(k, &name::<B>(), operands, shape, Filling { fill, by: ByPieces }, &mut || ()))
    }

    /// A ring that `threads` threads fill together by `cp.async`.
    #[track_caller]
    pub fn threads<B>(k: &'k Builder, operands: O, shape: Shape, threads: u32) -> Unready<Ring<'k, B, O, ByThreads>> {
        let filling = Filling { fill: StageFill::Threads(threads), by: ByThreads };
        Unready(Ring::of(k, &name::<B>(), operands, shape, filling, &mut || ()))
    }
}

/// The name of a brand.
pub(super) fn name<B>() -> String {
    let path = core::any::type_name::<B>();
    path.rsplit("::").next().unwrap_or(path).to_lowercase()
}

impl<'k, B, O: Operands, F: Copy> Ring<'k, B, O, F> {
    /// Allocates stages and mbarriers, separate for each team. One thread of each initialises
    /// mbarriers, and runs `beside`. A ring with mbarriers is used after [`start`], a ring of teams
    /// after a fence of all threads and a barrier.
    #[track_caller]
    pub(crate) fn of(
        k: &'k Builder,
        name: &str,
        operands: O,
        shape: Shape,
        Filling { fill, by }: Filling<F>,
        beside: &mut dyn FnMut(),
    ) -> Self {
        // Groups of copies are waited for while the next are on their way, and stores while the
        // last are read.
        let (least, to) = match fill {
            StageFill::Engine | StageFill::Threads(_) => (1, "Shape::stages"),
            StageFill::Groups { .. } | StageFill::Stores => {
                (2, "the ring, whose threads copy one while they read another")
            }
        };
        let (shape, error) = shape.checked(least, to);
        if let Some(error) = error {
            k.refuse(&error);
        }
        let stages = shape.stages;
        let team = shape.consumers.barrier_threads().unwrap_or(RingThreads::Block(0));
        let rings = team.rings(k);
        let memory = operands.allocate(k, name, rings.count * stages);
        let bases = operands.of_team(memory, rings.own, stages);
        let (full, empty) = barriers(k, name, shape, rings, fill, beside);
        let barriers = RingBarriers { k, full, empty, shape, fill };
        Ring { parts: RingParts { barriers, operands, bases, brand: PhantomData }, memory, by, begun: 0 }
    }

    /// The stages of all teams: memory that may be used for something else once all were read.
    pub(crate) fn memory(&self) -> O::Bases<'k> {
        self.memory
    }

    /// The producer's end and the consumers' end. Each has a cursor in registers, set here.
    #[track_caller]
    pub fn split(self) -> (Producer<'k, B, O, F>, Consumer<'k, B, O>) {
        (Producer::new(self.parts, self.by, self.begun), Consumer::new(self.parts))
    }
}

/// The mbarriers of a team's ring, where it has some. Not generic: it is compiled once for all
/// rings.
fn barriers<'k>(
    k: &'k Builder,
    name: &str,
    shape: Shape,
    TeamRings { team, count: rings, own }: TeamRings<'k>,
    fill: StageFill,
    beside: &mut dyn FnMut(),
) -> (Option<Mbarrier<'k, Shared>>, Option<Mbarrier<'k, Shared>>) {
    let fills = match fill {
        StageFill::Engine => 1,
        StageFill::Threads(threads) => threads,
        StageFill::Groups { .. } | StageFill::Stores => return (None, None),
    };
    let stages = shape.stages;
    let arrivals = shape.consumers.arrivals();
    let full = k.mbarriers(&format!("{name}.full"), rings * stages).at(own * stages);
    let empty = arrivals.map(|_| k.mbarriers(&format!("{name}.empty"), stages));
    k.moving().when(team.thread(k).eq(shape.maker), || {
        for stage in 0..stages {
            full.at(stage).init(fills);
            if let Some((empty, count)) = empty.zip(arrivals) {
                empty.at(stage).init(count * shape.cluster);
            }
        }
        beside();
    });
    (Some(full), empty)
}

/// Rings that start together: one, or two.
pub trait Rings {
    /// The rings, ready.
    type Ready;

    /// Whether another block of the cluster uses one of them.
    fn remote(&self) -> bool;

    /// Whether the copy engine does, and does not know it yet.
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
        self.0.parts.fill == StageFill::Engine && self.0.begun == 0
    }

    fn ready(self) -> Self::Ready {
        self.0
    }
}

impl<A: Rings, B: Rings> Rings for (A, B) {
    type Ready = (A::Ready, B::Ready);

    fn remote(&self) -> bool {
        self.0.remote() || self.1.remote()
    }

    fn engine(&self) -> bool {
        self.0.engine() || self.1.engine()
    }

    fn ready(self) -> Self::Ready {
        (self.0.ready(), self.1.ready())
    }
}

/// Synchronises the block, or the cluster if a ring spans it, after which all threads can use the
/// rings. Every thread calls it.
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
