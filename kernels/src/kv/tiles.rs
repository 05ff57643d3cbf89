//! What every buffer has: tiles in shared memory, a ring of them for each team, and the register tile read from one.

use core::marker::PhantomData;

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

use super::{Fragments, KvBufferConfig, KvThreads, MmaTile, Place, Share, TileForm};

/// The tiles of a buffer.
pub struct Tiles<'k, C> {
    pub(super) k: &'k Builder,
    pub(super) place: Place<'k>,
    pub(super) team: KvThreads,
    pub(super) form: TileForm,
    /// Tiles of a team.
    pub(super) count: u32,
    memory: Ptr<'k, Shared, bf16>,
    ring: Ptr<'k, Shared, bf16>,
    fragments: Fragments<'k>,
    config: PhantomData<C>,
}

impl<'k, C: KvBufferConfig> Tiles<'k, C> {
    /// Shared memory of that name, for `count` tiles of each team.
    pub(super) fn open(
        k: &'k Builder,
        name: &str,
        (place, team): (Place<'k>, KvThreads),
        form: TileForm,
        count: u32,
    ) -> Tiles<'k, C> {
        let memory = k.shared_aligned::<bf16>(name, team.count() * count * form.elements(), form.align());
        let ring = memory.at(team.index(k) * (count * form.elements()));
        Tiles {
            k,
            place,
            team,
            form,
            count,
            memory,
            ring,
            fragments: Fragments::new::<C>(k, form),
            config: PhantomData,
        }
    }

    /// Where a tile of this thread's team begins.
    pub(super) fn tile(&self, number: Val<'k, u32>) -> Ptr<'k, Shared, bf16> {
        self.ring.at(number * self.form.elements())
    }

    /// The vectors that this thread moves, numbered.
    pub(super) fn shares(&self) -> impl Iterator<Item = (u32, Share<'k>)> {
        let (form, threads) = (self.form, self.team.threads());
        let thread = move |k| self.team.thread(k);
        (0..form.shares(threads)).map(move |index| (index, form.share(thread(self.k), threads, index)))
    }

    /// Reads step `k_mma` of the contraction into the register tile.
    pub(super) fn read(&self, base: Ptr<'k, Shared, bf16>, k_mma: u32) {
        self.fragments.load(base, k_mma);
    }

    /// The register tile.
    pub(super) fn registers(&self) -> MmaTile<'k> {
        self.fragments.tile()
    }

    /// Where the tiles of all teams begin.
    pub(super) fn memory(&self) -> Ptr<'k, Shared, bf16> {
        self.memory
    }
}
