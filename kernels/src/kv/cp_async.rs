//! The buffer of sm_80: `cp.async` into a ring of stages.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};

use super::{Fetched, KvBuffer, KvBufferConfig, KvFamily, KvThreads, Landed, Place, TileForm, Tiles};
use crate::ring::Cursor;

/// Rings of `STAGES` tiles, filled by `cp.async`. Two buffers that a loop uses in turn count each other's groups:
/// [`stream`](super::stream()) is such a loop.
pub struct CpAsync<const STAGES: u32>;

/// A ring filled by `cp.async`.
pub struct CpAsyncBuffer<'k, C> {
    tiles: Tiles<'k, C>,
    source: Ptr<'k, Global, bf16>,
    head: Cursor<'k>,
    tail: Cursor<'k>,
}

/// Buffers of a loop: keys and values.
const STREAMS: u32 = 2;

impl<const STAGES: u32> KvFamily for CpAsync<STAGES> {
    type Input<'k> = Ptr<'k, Global, bf16>;
    type Buffer<'k, C: KvBufferConfig> = CpAsyncBuffer<'k, C>;

    const TENSOR_MAP: bool = false;

    fn name() -> String {
        format!("cp_async{STAGES}")
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
        const { assert!(STAGES >= 2, "a ring of one stage has nothing to fetch ahead") };
        let tiles = Tiles::open(k, name, (place, team), TileForm::panels::<C>(), STAGES);
        let [head, tail] = [0; 2].map(|stage| Cursor::new(k, STAGES, stage, 0));
        CpAsyncBuffer { tiles, source, head, tail }
    }

    fn begin(_: &Builder) {}

    fn tile_bytes<C: KvBufferConfig>() -> u32 {
        STAGES * TileForm::panels::<C>().elements() * 2
    }
}

impl<'k, C: KvBufferConfig> KvBuffer<'k> for CpAsyncBuffer<'k, C> {
    type Config = C;

    fn tiles(&self) -> &Tiles<'k, C> {
        &self.tiles
    }

    fn ahead(&self) -> u32 {
        self.tiles.count - 1
    }

    fn unroll(&self) -> u32 {
        1
    }

    fn load_from_dram(&self, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Fetched {
        let Tiles { k, place, form, .. } = self.tiles;
        let (stage, _) = self.head.step();
        let base = self.tiles.tile(stage);
        k.when(wanted, || {
            for (_, share) in self.tiles.shares() {
                let token = tile * C::BTILE0 + share.row;
                let inside = token.lt(place.tokens);
                let row = place.pointer(self.source, inside.select(token, tile * C::BTILE0));
                let filled = inside.select::<u32>(16u32, 0u32);
                let to = form.place(base, &share);
                to.cp_async_as(row.at(share.column()), CpBytes::B16, CpCache::Cg, Some(filled));
            }
        });
        k.cp_async_commit();
        Fetched { stage: 0 }
    }

    fn copy_to_shared(&self, _: Fetched, _: Val<'k, u32>) -> Landed<'k> {
        let Tiles { k, team, .. } = self.tiles;
        k.cp_async_wait(STREAMS * self.ahead() - 1);
        team.sync(k);
        let (stage, _) = self.tail.step();
        Landed { base: self.tiles.tile(stage), stage }
    }
}
