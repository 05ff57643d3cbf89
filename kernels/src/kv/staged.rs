//! The buffer that goes through registers: `num_stages` tiles of them, two of shared memory.

use core::cell::Cell;

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, RegArray, Val};

use super::tiles::{Ends, TileRing};
use super::{Arrived, Issued, KvBufferConfig, KvFamily, KvThreads, KvView, OwnRing, RowArrangement, TileForm, Tiles};
use crate::ring::{ByThreads, Filling, StageFill};

/// Tiles that are loaded into registers and stored into shared memory when their turn comes.
/// `TOKEN_GEN` (decode) keeps rows together in shared memory, as the tensor maps do; else a panel
/// is one vector wide.
pub struct Staged<const NUM_STAGES: u32, const TOKEN_GEN: bool>;

/// Tiles in registers, and two in shared memory.
pub struct StagedBuffer<'k, C> {
    tiles: Tiles<'k, C>,
    source: Ptr<'k, Global, bf16>,
    sets: Vec<RegArray<'k, u32>>,
    loaded: Cell<u32>,
    ring: Ends<'k, C, ByThreads>,
}

impl<const NUM_STAGES: u32, const TOKEN_GEN: bool> Staged<NUM_STAGES, TOKEN_GEN> {
    fn form<C: KvBufferConfig>() -> TileForm {
        let form = if TOKEN_GEN { RowArrangement::Swizzled } else { RowArrangement::Interleaved };
        TileForm { form, ..TileForm::swizzled::<C>() }
    }
}

impl<const NUM_STAGES: u32, const TOKEN_GEN: bool> KvFamily for Staged<NUM_STAGES, TOKEN_GEN> {
    type Input<'k> = Ptr<'k, Global, bf16>;
    type Buffer<'k, C: KvBufferConfig> = StagedBuffer<'k, C>;

    const STAGES: u32 = 2;
    const TENSOR_MAP: bool = false;

    fn name() -> String {
        format!("staged{NUM_STAGES}{}", if TOKEN_GEN { "_rows" } else { "" })
    }

    fn input<'k>(k: &'k Builder, name: &str) -> Self::Input<'k> {
        k.global(name)
    }

    fn open<'k, C: KvBufferConfig>(
        k: &'k Builder,
        name: &str,
        source: Self::Input<'k>,
        place: KvView<'k>,
        team: KvThreads,
    ) -> Self::Buffer<'k, C> {
        const { assert!(NUM_STAGES >= 1, "a tile must have registers to come into") };
        let filling = Filling { fill: StageFill::Stores, by: ByThreads };
        let opened = TileRing { place, team, form: Self::form::<C>(), stages: Self::STAGES, filling };
        let (mut tiles, ring) = Tiles::open(k, name, opened, &mut || ());
        tiles.turns = [NUM_STAGES; 2];
        // Exactly what a thread carries, whatever the number of warps: ⌈btile0·btile1 /
        // (threads·8)⌉ vectors.
        let registers = tiles.form.shares(team.threads()) * 4;
        let sets = (0..NUM_STAGES).map(|_| k.regs(registers, 0u32)).collect();
        StagedBuffer { tiles, source, sets, loaded: Cell::new(0), ring }
    }
}

impl<'k, C: KvBufferConfig> OwnRing<'k> for StagedBuffer<'k, C> {
    type Config = C;

    fn tiles(&self) -> &Tiles<'k, C> {
        &self.tiles
    }

    fn load_at(&self, place: &KvView<'k>, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Issued {
        let Tiles { k, .. } = self.tiles;
        let stage = self.loaded.get();
        self.loaded.set((stage + 1) % self.sets.len() as u32);
        let set = self.sets[stage as usize];
        k.when(wanted, || {
            for (index, share) in self.tiles.shares() {
                let token = tile * C::BTILE0 + share.row;
                for word in 0..4 {
                    set.set(4 * index + word, 0u32);
                }
                k.when(token.lt(place.tokens), || {
                    let words = place.vector(self.source, token, share.column()).cast::<u32>().load_vec::<4>();
                    for (word, value) in (0..4).zip(words) {
                        set.set(4 * index + word, value);
                    }
                });
            }
        });
        Issued { stage }
    }

    fn copy_at(&self, _: &KvView<'k>, issued: Issued, _: Val<'k, u32>) -> Arrived<'k, C> {
        let set = self.sets[issued.stage as usize];
        let form = self.tiles.form;
        let stored = self.ring.acquire().fill(|(to,)| {
            for (index, share) in self.tiles.shares() {
                let words = core::array::from_fn(|word| set.get(4 * index + word as u32));
                form.place(to.base(), &share).cast::<u32>().store_vec::<4>(words);
            }
        });
        stored.sync().into()
    }
}
