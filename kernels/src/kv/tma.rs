//! The buffer of sm_90: tensor maps into a ring of stages, completing on mbarriers.

use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Param, Ptr, Shared, TensorMap, Val};
use tilewright_codegen::device::{Promotion, TensorShape, TileSwizzle};
use tilewright_codegen::ir::attr::{Eviction, ProxyFence};
use tilewright_layout::DType;

use super::place::gcd;
use super::tiles::{Ends, KvStage, TileRing};
use super::{Arrived, Issued, KvBufferConfig, KvFamily, KvThreads, KvView, OwnRing, TileForm, Tiles};
use crate::ring::{ByBulk, Empty, Filling, StageFill, in_pieces};

/// Rings of `STAGES` tiles, filled through a tensor map by the first thread of the team.
pub struct Tma<const STAGES: u32>;

/// A ring filled by the copy engine.
pub struct TmaBuffer<'k, C> {
    tiles: Tiles<'k, C>,
    map: Ptr<'k, Param, TensorMap>,
    ring: Ends<'k, C, ByBulk>,
}

impl Tma<0> {
    /// Rows of a box: those of the tile that lie in one page.
    pub fn box_rows(tile_rows: u32, page_tokens: Option<u32>) -> u32 {
        page_tokens.map_or(tile_rows, |page| gcd(tile_rows, page))
    }

    /// A map (depth, rows, planes) of bf16 with strides in elements, in boxes of a panel by
    /// `box_rows` rows. Rows that are [`swizzled`](super::swizzled) already come as they lie: in
    /// shared memory they are then as the copy engine's own swizzle of 128 bytes leaves others,
    /// where a box begins with a token of a multiple of eight.
    ///
    /// ```
    /// use tilewright_codegen::device::TileSwizzle;
    /// use tilewright_kernels::kv::Tma;
    /// let [rows, pool] = [false, true].map(|swizzled| Tma::map(128, [640, 8], [128, 640 * 128], 64, swizzled));
    /// assert_eq!((rows.swizzle, pool.swizzle), (TileSwizzle::Bytes128, TileSwizzle::None));
    /// assert_eq!(pool.tile, [64, 64, 1]);
    /// ```
    pub fn map(depth: u32, [rows, planes]: [u32; 2], strides: [u32; 2], box_rows: u32, swizzled: bool) -> TensorShape {
        let (width, swizzle) = match depth {
            _ if depth.is_multiple_of(64) && swizzled => (64, TileSwizzle::None),
            _ if depth.is_multiple_of(64) => (64, TileSwizzle::Bytes128),
            _ if depth.is_multiple_of(32) => (32, TileSwizzle::Bytes64),
            _ => (16, TileSwizzle::Bytes32),
        };
        TensorShape {
            dims: vec![depth.into(), rows.into(), planes.into()],
            strides: strides.map(|stride| u64::from(stride) * 2).to_vec(),
            tile: vec![width, box_rows, 1],
            promotion: Promotion::Bytes128,
            ..TensorShape::row_major(DType::BF16, [1, 64], [1, 64]).swizzle(swizzle)
        }
    }
}

impl<const STAGES: u32> KvFamily for Tma<STAGES> {
    type Input<'k> = Ptr<'k, Param, TensorMap>;
    type Buffer<'k, C: KvBufferConfig> = TmaBuffer<'k, C>;

    const STAGES: u32 = STAGES;
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
        place: KvView<'k>,
        team: KvThreads,
    ) -> Self::Buffer<'k, C> {
        let filling = Filling { fill: StageFill::Engine, by: ByBulk };
        let opened = TileRing { place, team, form: TileForm::swizzled::<C>(), stages: STAGES, filling };
        let (tiles, ring) = Tiles::open(k, name, opened, &mut || map.prefetch_map());
        TmaBuffer { tiles, map, ring }
    }

    fn begin(k: &Builder) {
        k.fence_mbarrier_init();
        k.barrier();
    }
}

impl<'k, C: KvBufferConfig> TmaBuffer<'k, C> {
    /// Whether other threads fetch tiles than use them.
    fn apart(&self) -> bool {
        matches!(self.tiles.team, KvThreads::Apart { .. })
    }

    /// Fetches one box for each panel and each run of rows.
    fn fetch(&self, stage: Empty<'k, C, KvStage, ByBulk>, place: &KvView<'k>, tile: Val<'k, u32>) {
        let Tiles { k, team, form, .. } = self.tiles;
        // A warp's own tiles are read once: they need not stay in L2.
        let how = match team {
            KvThreads::Warps(_) => Bulk::default().policy(k.policy(Eviction::First)),
            KvThreads::Block(_) | KvThreads::Apart { .. } => Bulk::default(),
        };
        let boxes = in_pieces(k.lit(form.elements() * 2), how, |to| {
            for first in (0..form.rows).step_by(place.run(form.rows) as usize) {
                let token = tile * form.rows + first;
                // Pages beyond the sequence have no entry in the table: the tile's first page
                // stands for them.
                let token = token.lt(place.tokens).select(token, tile * form.rows);
                let row = place.row(token).cast::<i32>();
                for panel in 0..form.panel_count() {
                    let column = k.lit((panel * form.width()) as i32);
                    let to = to.at(2 * (panel * form.rows + first) * form.width());
                    to.bring_box(self.map, &[column, row, place.plane.cast::<i32>()]);
                }
            }
        });
        stage.fill((boxes,)).commit();
    }

    /// Zeroes the rows of a tile that lie beyond the sequence: a value there may be anything, and
    /// 0·NaN is NaN.
    fn clear(&self, base: Ptr<'k, Shared, bf16>, place: &KvView<'k>, tile: Val<'k, u32>) {
        let Tiles { k, team, form, .. } = self.tiles;
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
            if self.apart() {
                // The next reader is wgmma.
                k.fence_proxy_async(ProxyFence::Shared);
            }
            team.sync(k);
        });
    }
}

impl<'k, C: KvBufferConfig> OwnRing<'k> for TmaBuffer<'k, C> {
    type Config = C;

    fn tiles(&self) -> &Tiles<'k, C> {
        &self.tiles
    }

    fn load_at(&self, place: &KvView<'k>, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Issued {
        let Tiles { k, team, .. } = self.tiles;
        let stage = self.ring.acquire();
        // Apart, one thread comes here.
        let one = if self.apart() { wanted } else { wanted & team.thread(k).eq(0) };
        k.moving().when(one, || self.fetch(stage, place, tile));
        Issued { stage: 0 }
    }

    fn copy_at(&self, place: &KvView<'k>, _: Issued, tile: Val<'k, u32>) -> Arrived<'k, C> {
        let arrived = self.ring.wait();
        if !C::TRANSPOSED {
            self.clear(arrived.base(), place, tile);
        }
        arrived
    }
}
