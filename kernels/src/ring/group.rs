//! A ring for threads that copy by `cp.async` and read what the others copied: groups and one
//! barrier a turn.

use super::setup::name;
use super::{ByThreads, Consumer, Consumers, Filling, Full, Operands, Producer, Ring, RingThreads, Shape, StageFill};
use core::marker::PhantomData;
use tilewright_codegen::build::{Builder, Val, Var};

/// A ring that the whole block fills and reads, on every architecture.
///
/// A turn waits for one stage and frees the one of the turn before; what fills it belongs to the
/// turn. So a turn gives two tokens, and [`Current::done`] wants the second one used:
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// use tilewright_kernels::ring::{GroupRing, StageTile};
/// use tilewright_kernels::tile::Index;
/// use tilewright_layout::typed::Contiguous;
///
/// enum Tiles {}
///
/// // out[c] = Σₜ x[t, 511 - c]: 128 threads, four elements each.
/// let kernel = record("pipeline", Arch::Sm80, block(128), |k| {
///     let tiles = k.param::<u32>("tiles");
///     let x = k.global::<f32>("x");
///     let out = k.global::<f32>("out");
///     let mine = Index::thread(k) * 4;
///     let operands = (StageTile::<f32, Contiguous<512>>::typed(),);
///     let mut ring = GroupRing::new::<Tiles, _>(k, operands, 3, |number, (tile,)| {
///         k.when(number.lt(tiles), || tile.at([mine]).cp_async(x.at(number * 512 + mine.get(k))));
///     });
///     let sum = k.regs(4, 0.0f32);
///     k.moving().for_(0, tiles, |_| {
///         let (current, free) = ring.turn();
///         let (tile,) = current.tiles();
///         for i in 0..4 {
///             sum.set(i, sum.get(i) + tile.base().at(k.lit(511u32) - (mine + i).get(k)).load());
///         }
///         let claimed = free.fill();
///         current.done(claimed);
///     });
///     ring.finish();
///     out.at(mine.get(k)).store_vec([0, 1, 2, 3].map(|i| sum.get(i)));
/// });
/// verify(kernel)?;
/// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
/// ```
pub struct GroupRing<'k, B, O: Operands, F> {
    producer: Producer<'k, B, O, ByThreads>,
    consumer: Consumer<'k, B, O>,
    /// The number of the tile that is fetched next.
    number: Var<'k, u32>,
    fetch: F,
}

/// The stage that this turn reads.
#[must_use = "a turn ends with `done`"]
pub struct Current<'k, B, O: Operands>(Full<'k, B, O>);

/// The stage that all threads left in the previous turn.
#[must_use = "the free stage of a turn is filled"]
pub struct Free<'a, 'k, B, O: Operands, F> {
    ring: &'a mut GroupRing<'k, B, O, F>,
}

/// The free stage of a turn was given its group.
#[must_use = "a turn ends with `done`"]
pub struct Claimed<B>(PhantomData<fn() -> B>);

impl<'k, O: Operands> GroupRing<'k, (), O, ()> {
    /// A ring of at least two stages, all but one on their way; of fewer it is refused,
    /// [`RingError::Stages`](super::RingError::Stages). `fetch` starts this thread's copies of the
    /// tile of a number, counted from 0, where there is such a tile.
    #[track_caller]
    pub fn new<B, F>(k: &'k Builder, operands: O, stages: u32, fetch: F) -> GroupRing<'k, B, O, F>
    where
        F: Fn(Val<'k, u32>, O::Views<'k>),
    {
        let shape = Shape::stages(stages).consumers(Consumers::Threads(RingThreads::Block(k.threads())));
        let filling = Filling { fill: StageFill::Groups { rings: 1 }, by: ByThreads };
        let (producer, consumer) = Ring::of(k, &name::<B>(), operands, shape, filling, &mut || ()).split();
        let mut ring = GroupRing { producer, consumer, number: k.var(0u32), fetch };
        for _ in 1..stages.max(2) {
            ring.fetch_next();
        }
        ring
    }
}

impl<'k, B, O: Operands, F: Fn(Val<'k, u32>, O::Views<'k>)> GroupRing<'k, B, O, F> {
    #[track_caller]
    fn fetch_next(&mut self) {
        let number = self.number.get();
        self.producer.acquire().fill(|tiles| (self.fetch)(number, tiles)).commit();
        self.number.set(number + 1);
    }

    /// Waits for the next stage; after its barrier all threads have left the previous one.
    #[track_caller]
    pub fn turn(&mut self) -> (Current<'k, B, O>, Free<'_, 'k, B, O, F>) {
        (Current(self.consumer.wait()), Free { ring: self })
    }

    /// Waits for whatever is still on its way.
    #[track_caller]
    pub fn finish(self) {
        self.number.get().builder().cp_async_wait(0);
    }
}

impl<'k, B, O: Operands, F: Fn(Val<'k, u32>, O::Views<'k>)> Free<'_, 'k, B, O, F> {
    /// Fetches the next tile into it, one group in any case.
    #[track_caller]
    pub fn fill(self) -> Claimed<B> {
        self.ring.fetch_next();
        Claimed(PhantomData)
    }
}

impl<'k, B, O: Operands> Current<'k, B, O> {
    /// The tiles of the stage.
    #[track_caller]
    pub fn tiles(&self) -> O::Views<'k> {
        self.0.tiles()
    }

    /// The turn is over.
    pub fn done(self, claimed: Claimed<B>) {
        let Claimed(PhantomData) = claimed;
    }
}
