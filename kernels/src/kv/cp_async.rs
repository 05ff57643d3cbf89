//! The buffer of sm_80: `cp.async` into a ring of stages.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};

use super::tiles::{Ends, TileRing};
use super::{Arrived, Issued, KvBufferConfig, KvFamily, KvThreads, KvView, OwnRing, TileForm, Tiles};
use crate::ring::{ByThreads, Filling, StageFill};

/// Rings of `STAGES` tiles, filled by `cp.async`. Two buffers that a loop uses in turn count each
/// other's groups: [`stream`](super::stream()) is such a loop.
pub struct CpAsync<const STAGES: u32>;

/// A ring filled by `cp.async`.
pub struct CpAsyncBuffer<'k, C> {
    tiles: Tiles<'k, C>,
    source: Ptr<'k, Global, bf16>,
    ring: Ends<'k, C, ByThreads>,
}

/// Buffers of a loop: keys and values.
const STREAMS: u32 = 2;

impl<const STAGES: u32> KvFamily for CpAsync<STAGES> {
    type Input<'k> = Ptr<'k, Global, bf16>;
    type Buffer<'k, C: KvBufferConfig> = CpAsyncBuffer<'k, C>;

    const STAGES: u32 = STAGES;
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
        place: KvView<'k>,
        team: KvThreads,
    ) -> Self::Buffer<'k, C> {
        let filling = Filling { fill: StageFill::Groups { rings: STREAMS }, by: ByThreads };
        let opened = TileRing { place, team, form: TileForm::swizzled::<C>(), stages: STAGES, filling };
        let (tiles, ring) = Tiles::open(k, name, opened, &mut || ());
        CpAsyncBuffer { tiles, source, ring }
    }
}

impl<'k, C: KvBufferConfig> OwnRing<'k> for CpAsyncBuffer<'k, C> {
    type Config = C;

    fn tiles(&self) -> &Tiles<'k, C> {
        &self.tiles
    }

    fn load_at(&self, place: &KvView<'k>, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Issued {
        let Tiles { k, form, .. } = self.tiles;
        let fetch = |base| {
            for (_, share) in self.tiles.shares() {
                let token = tile * C::BTILE0 + share.row;
                let inside = token.lt(place.tokens);
                let token = inside.select(token, tile * C::BTILE0);
                let filled = inside.select::<u32>(16u32, 0u32);
                let to = form.place(base, &share);
                let from = place.vector(self.source, token, share.column());
                to.cp_async_as(from, CpBytes::B16, CpCache::Cg, Some(filled));
            }
        };
        self.ring.acquire().fill(|(to,)| k.when(wanted, || fetch(to.base()))).commit();
        Issued { stage: 0 }
    }

    fn copy_at(&self, _: &KvView<'k>, _: Issued, _: Val<'k, u32>) -> Arrived<'k, C> {
        self.ring.wait()
    }
}
