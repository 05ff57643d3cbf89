//! The buffer that goes through registers: `num_stages` tiles of them, two of shared memory.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, RegArray, Val, Var};

use super::{Fetched, Form, KvBuffer, KvBufferConfig, KvFamily, KvThreads, Landed, Place, TileForm, Tiles};

/// Tiles that are loaded into registers and stored into shared memory when their turn comes. `TOKEN_GEN` (decode)
/// keeps rows together in shared memory, as the tensor maps do; else a panel is one vector wide.
pub struct Staged<const NUM_STAGES: u32, const TOKEN_GEN: bool>;

/// Tiles in registers, and two in shared memory.
pub struct StagedBuffer<'k, C> {
    tiles: Tiles<'k, C>,
    source: Ptr<'k, Global, bf16>,
    sets: Vec<RegArray<'k, u32>>,
    loaded: core::cell::Cell<u32>,
    side: Var<'k, u32>,
}

/// Tiles of a team in shared memory.
const SIDES: u32 = 2;

impl<const NUM_STAGES: u32, const TOKEN_GEN: bool> Staged<NUM_STAGES, TOKEN_GEN> {
    fn form<C: KvBufferConfig>() -> TileForm {
        let form = if TOKEN_GEN { Form::Panels } else { Form::Vectors };
        TileForm { form, ..TileForm::panels::<C>() }
    }
}

impl<const NUM_STAGES: u32, const TOKEN_GEN: bool> KvFamily for Staged<NUM_STAGES, TOKEN_GEN> {
    type Input<'k> = Ptr<'k, Global, bf16>;
    type Buffer<'k, C: KvBufferConfig> = StagedBuffer<'k, C>;

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
        place: Place<'k>,
        team: KvThreads,
    ) -> Self::Buffer<'k, C> {
        const { assert!(NUM_STAGES >= 1, "a tile must have registers to come into") };
        let tiles = Tiles::open(k, name, (place, team), Self::form::<C>(), SIDES);
        // Exactly what a thread carries, whatever the number of warps: ⌈btile0·btile1 / (threads·8)⌉ vectors.
        let registers = tiles.form.shares(team.threads()) * 4;
        let sets = (0..NUM_STAGES).map(|_| k.regs(registers, 0u32)).collect();
        StagedBuffer { tiles, source, sets, loaded: core::cell::Cell::new(0), side: k.var(0u32) }
    }

    fn begin(_: &Builder) {}

    fn tile_bytes<C: KvBufferConfig>() -> u32 {
        SIDES * Self::form::<C>().elements() * 2
    }
}

impl<'k, C: KvBufferConfig> KvBuffer<'k> for StagedBuffer<'k, C> {
    type Config = C;

    fn tiles(&self) -> &Tiles<'k, C> {
        &self.tiles
    }

    fn ahead(&self) -> u32 {
        self.sets.len() as u32
    }

    fn unroll(&self) -> u32 {
        self.sets.len() as u32
    }

    fn load_from_dram(&self, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Fetched {
        let Tiles { k, place, .. } = self.tiles;
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
                    let words = place.pointer(self.source, token).at(share.column()).cast::<u32>().load_vec::<4>();
                    for (word, value) in (0..4).zip(words) {
                        set.set(4 * index + word, value);
                    }
                });
            }
        });
        Fetched { stage }
    }

    /// Two sides are enough: one is stored again two tiles later, behind the barrier of the tile between.
    fn copy_to_shared(&self, fetched: Fetched, _: Val<'k, u32>) -> Landed<'k> {
        let Tiles { k, team, form, .. } = self.tiles;
        let (set, side) = (self.sets[fetched.stage as usize], self.side.get());
        let base = self.tiles.tile(side);
        for (index, share) in self.tiles.shares() {
            let words = core::array::from_fn(|word| set.get(4 * index + word as u32));
            form.place(base, &share).cast::<u32>().store_vec::<4>(words);
        }
        team.sync(k);
        self.side.set(side ^ 1);
        Landed { base, stage: side }
    }
}
