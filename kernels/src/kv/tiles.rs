//! The state that all buffers share: the register tile, and the division of a tile among the team.
//! The stages are a ring's.

use core::cell::RefCell;
use core::marker::PhantomData;

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared};
use tilewright_layout::Swizzled;

use super::{Arrived, Fragments, KvBufferConfig, KvThreads, KvView, Share, TileForm};
use crate::ring::{Consumer, Consumers, Empty, Filling, Full, Producer, Ring, RingError, Shape, StageTile};

/// The layout of a stage.
pub(super) type KvStage = (StageTile<bf16, Swizzled>,);

/// Both ends of a buffer's ring, which threads that fetch and use tiles hold together.
pub(super) struct Ends<'k, C, F> {
    producer: RefCell<Producer<'k, C, KvStage, F>>,
    consumer: RefCell<Consumer<'k, C, KvStage>>,
}

impl<'k, C, F: Copy> Ends<'k, C, F> {
    /// The next stage, to be filled.
    #[track_caller]
    pub(super) fn acquire(&self) -> Empty<'k, C, KvStage, F> {
        self.producer.borrow_mut().acquire()
    }

    /// The next stage that is full.
    #[track_caller]
    pub(super) fn wait(&self) -> Arrived<'k, C> {
        self.consumer.borrow_mut().wait().into()
    }
}

impl<'k, C> From<Full<'k, C, KvStage>> for Arrived<'k, C> {
    #[track_caller]
    fn from(full: Full<'k, C, KvStage>) -> Self {
        Arrived::of(full.into())
    }
}

/// The tiles of a buffer.
pub struct Tiles<'k, C> {
    pub(super) k: &'k Builder,
    pub(super) place: KvView<'k>,
    pub(super) team: KvThreads,
    pub(super) form: TileForm,
    /// Tiles that are issued before the first is used, and after which registers repeat.
    pub(super) turns: [u32; 2],
    /// The start of the tiles of all teams.
    pub(super) memory: Ptr<'k, Shared, bf16>,
    pub(super) fragments: Fragments<'k>,
    config: PhantomData<C>,
}

/// The ring of a buffer's tiles.
pub(super) struct TileRing<'k, F> {
    /// Place of the tiles in the pages.
    pub place: KvView<'k>,
    /// Threads that fetch and use the tiles.
    pub team: KvThreads,
    /// Form of a tile in a stage.
    pub form: TileForm,
    /// Stages of the ring, two at least.
    pub stages: u32,
    /// The method by which stages are filled.
    pub filling: Filling<F>,
}

impl<'k, C: KvBufferConfig> Tiles<'k, C> {
    /// Opens tiles in a ring of that name, and gives the ring's ends.
    pub(super) fn open<F: Copy>(
        k: &'k Builder,
        name: &str,
        TileRing { place, team, form, stages, filling }: TileRing<'k, F>,
        beside: &mut dyn FnMut(),
    ) -> (Tiles<'k, C>, Ends<'k, C, F>) {
        if stages < 2 {
            k.refuse(&RingError::Stages { found: stages, least: 2, to: "the family of buffers" });
        }
        let stages = stages.max(2);
        let shape = Shape::stages(stages).consumers(Consumers::Threads(team));
        let ring = Ring::of(k, name, (StageTile::new(form.layout()),), shape, filling, beside);
        let (memory,) = ring.memory();
        let fragments = Fragments::new::<C>(k, form);
        let (producer, consumer) = ring.split();
        let tiles = Tiles { k, place, team, form, turns: [stages - 1, 1], memory, fragments, config: PhantomData };
        (tiles, Ends { producer: producer.into(), consumer: consumer.into() })
    }

    /// The vectors that this thread moves, numbered.
    pub(super) fn shares(&self) -> impl Iterator<Item = (u32, Share<'k>)> {
        let form = self.form;
        let threads = self.team.threads();
        let thread = move |k| self.team.thread(k);
        (0..form.shares(threads)).map(move |index| (index, form.share(thread(self.k), threads, index)))
    }
}
