//! The buffer of sm_90: tensor maps into a ring of stages, completing on mbarriers.

use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Mbarrier, Param, Ptr, Shared, TensorMap, Val};
use tilewright_codegen::ir::attr::{Eviction, ProxyFence};

use super::place::gcd;
use super::{Fetched, KvBuffer, KvBufferConfig, KvFamily, KvThreads, Landed, Place, TileForm, Tiles};
use crate::ring::Cursor;

/// Rings of `STAGES` tiles, filled through a tensor map by the first thread of the team.
pub struct Tma<const STAGES: u32>;

/// A ring filled by the copy engine.
pub struct TmaBuffer<'k, C> {
    tiles: Tiles<'k, C>,
    map: Ptr<'k, Param, TensorMap>,
    full: Mbarrier<'k, Shared>,
    /// Where who fetches and who uses are apart: stages that were read.
    empty: Option<Mbarrier<'k, Shared>>,
    head: Cursor<'k>,
    tail: Cursor<'k>,
}

impl Tma<0> {
    /// Rows of a box: those of the tile that lie in one page.
    pub fn box_rows(tile_rows: u32, page_tokens: Option<u32>) -> u32 {
        page_tokens.map_or(tile_rows, |page| gcd(tile_rows, page))
    }
}

impl<const STAGES: u32> KvFamily for Tma<STAGES> {
    type Input<'k> = Ptr<'k, Param, TensorMap>;
    type Buffer<'k, C: KvBufferConfig> = TmaBuffer<'k, C>;

    const TENSOR_MAP: bool = true;

    fn name() -> String {
        format!("tma{STAGES}")
    }

    fn input<'k>(k: &'k Builder, name: &str) -> Self::Input<'k> {
        k.tensor_map(name)
    }

    fn open<'k, C: KvBufferConfig>(
        k: &'k Builder,
        name: &str,
        map: Self::Input<'k>,
        place: Place<'k>,
        team: KvThreads,
    ) -> Self::Buffer<'k, C> {
        const { assert!(STAGES >= 2, "a ring of one stage has nothing to fetch ahead") };
        let tiles = Tiles::open(k, name, (place, team), TileForm::panels::<C>(), STAGES);
        let bars = k.mbarriers(&format!("{name}_full"), team.count() * STAGES);
        let full = bars.at(team.index(k) * STAGES);
        let (one, empty) = match team {
            KvThreads::Apart { users, .. } => (k.tid(), Some((k.mbarriers(&format!("{name}_empty"), STAGES), users))),
            KvThreads::Block(_) | KvThreads::Warps(_) => (team.thread(k), None),
        };
        k.when(one.eq(0), || {
            for stage in 0..STAGES {
                full.at(stage).init(1);
                if let Some((empty, users)) = empty {
                    empty.at(stage).init(users);
                }
            }
            map.prefetch_map();
        });
        let empty = empty.map(|(empty, _)| empty);
        // The phase before the first counts as complete: who fetches waits for it in the first round.
        let (head, tail) = (Cursor::new(k, STAGES, 0, 1), Cursor::new(k, STAGES, 0, 0));
        TmaBuffer { tiles, map, full, empty, head, tail }
    }

    fn begin(k: &Builder) {
        k.fence_mbarrier_init();
        k.barrier();
    }

    fn tile_bytes<C: KvBufferConfig>() -> u32 {
        STAGES * TileForm::panels::<C>().elements() * 2
    }
}

impl<'k, C: KvBufferConfig> TmaBuffer<'k, C> {
    /// One box for each panel and each run of rows.
    fn fetch(&self, stage: Val<'k, u32>, tile: Val<'k, u32>) {
        let Tiles { k, place, team, form, .. } = self.tiles;
        let (to, full, run) = (self.tiles.tile(stage), self.full.at(stage), place.run(form.rows));
        // A warp's own tiles are read once: they need not stay in level two.
        let how = match team {
            KvThreads::Warps(_) => Bulk::default().policy(k.policy(Eviction::First)),
            KvThreads::Block(_) | KvThreads::Apart { .. } => Bulk::default(),
        };
        full.arrive_expect_tx(form.elements() * 2);
        for first in (0..form.rows).step_by(run as usize) {
            let token = tile * form.rows + first;
            // Pages behind the sequence have no entry in the table: the tile's first page stands for them.
            let token = token.lt(place.tokens).select(token, tile * form.rows);
            let row = place.row(token).cast::<i32>();
            for panel in 0..form.panel_count() {
                let column = k.lit((panel * form.width()) as i32);
                let to = to.at((panel * form.rows + first) * form.width());
                to.tensor_load(self.map, &[column, row, place.plane.cast::<i32>()], full, how);
            }
        }
    }

    /// Zeroes the rows of a tile that lie behind the sequence: a value there may be anything, and 0·NaN is NaN.
    fn clear(&self, base: Ptr<'k, Shared, bf16>, tile: Val<'k, u32>) {
        let Tiles { k, place, team, form, .. } = self.tiles;
        // As many threads as divide the tile: three warpgroups do not.
        let threads = 1 << team.threads().ilog2();
        let inside = place.tokens - tile * C::BTILE0;
        k.when(inside.lt(C::BTILE0), || {
            let thread = team.thread(k);
            for index in 0..form.shares(threads) {
                let share = form.share(thread, threads, index);
                k.when(share.row.ge(inside) & thread.lt(threads), || {
                    form.place(base, &share).cast::<u32>().store_vec::<4>([k.lit(0u32); 4]);
                });
            }
            if self.empty.is_some() {
                // Who reads them next is wgmma.
                k.fence_proxy_async(ProxyFence::Shared);
            }
            team.sync(k);
        });
    }
}

impl<'k, C: KvBufferConfig> KvBuffer<'k> for TmaBuffer<'k, C> {
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
        let Tiles { k, team, .. } = self.tiles;
        let (stage, parity) = self.head.step();
        if let Some(empty) = self.empty {
            empty.at(stage).wait(parity);
            k.when(wanted, || self.fetch(stage, tile));
        } else {
            k.when(wanted & team.thread(k).eq(0), || self.fetch(stage, tile));
        }
        Fetched { stage: 0 }
    }

    fn copy_to_shared(&self, _: Fetched, tile: Val<'k, u32>) -> Landed<'k> {
        let (stage, parity) = self.tail.step();
        let base = self.tiles.tile(stage);
        self.full.at(stage).wait(parity);
        if self.empty.is_none() {
            // The next box goes where this team read before: reads may still be on their way when the others are met, and the
            // copy does not queue behind them.
            self.tiles.k.fence_proxy_async(ProxyFence::Shared);
            self.tiles.team.sync(self.tiles.k);
        }
        if !C::TRANSPOSED {
            self.clear(base, tile);
        }
        Landed { base, stage }
    }

    /// Says so to who fetches, where that is another warp.
    fn release(&self, landed: Landed<'k>) {
        if let Some(empty) = self.empty {
            let k = self.tiles.k;
            k.when(k.lane().eq(0), || empty.at(landed.stage).arrive());
        }
    }
}
