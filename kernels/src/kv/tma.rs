//! The buffer of sm_90: tensor maps into a ring of stages, completing on mbarriers.

use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Mbarrier, Param, Ptr, Shared, TensorMap, Val, Var};
use tilewright_codegen::ir::attr::{Eviction, ProxyFence};

use super::place::gcd;
use super::{Fetched, Fragments, KvBuffer, KvBufferConfig, KvFamily, Landed, MmaTile, Place, Team, TileForm};

/// Rings of `STAGES` tiles, filled through a tensor map by the first thread of the team.
pub struct Tma<const STAGES: u32>;

/// A ring filled by the copy engine.
pub struct TmaBuffer<'k, C> {
    k: &'k Builder,
    map: Ptr<'k, Param, TensorMap>,
    place: Place<'k>,
    team: Team,
    form: TileForm,
    memory: Ptr<'k, Shared, bf16>,
    ring: Ptr<'k, Shared, bf16>,
    full: Mbarrier<'k, Shared>,
    /// Where who fetches and who uses are apart: stages that were read.
    empty: Option<Mbarrier<'k, Shared>>,
    stages: u32,
    head: Var<'k, u32>,
    tail: Var<'k, u32>,
    parity: Var<'k, u32>,
    fragments: Fragments<'k>,
    config: core::marker::PhantomData<C>,
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
        team: Team,
    ) -> Self::Buffer<'k, C> {
        const { assert!(STAGES >= 2, "a ring of one stage has nothing to fetch ahead") };
        let form = TileForm::panels::<C>();
        let memory = k.shared_aligned::<bf16>(name, team.count() * STAGES * form.elements(), form.align());
        let ring = memory.at(team.index(k) * (STAGES * form.elements()));
        let bars = k.mbarriers(&format!("{name}_full"), team.count() * STAGES);
        let full = bars.at(team.index(k) * STAGES);
        let (one, empty) = match team {
            Team::Apart { users, .. } => (k.tid(), Some((k.mbarriers(&format!("{name}_empty"), STAGES), users))),
            Team::Block(_) | Team::Warps(_) => (team.thread(k), None),
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
        let [head, tail, parity] = [k.var(0u32), k.var(0u32), k.var(0u32)];
        let (fragments, config) = (Fragments::new::<C>(k, form), core::marker::PhantomData);
        let stages = STAGES;
        TmaBuffer {
            k,
            map,
            place,
            team,
            form,
            memory,
            ring,
            full,
            empty,
            stages,
            head,
            tail,
            parity,
            fragments,
            config,
        }
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
        let (form, full) = (self.form, self.full.at(stage));
        let (to, run) = (self.ring.at(stage * form.elements()), self.place.run(form.rows));
        // A warp's own tiles are read once: they need not stay in level two.
        let how = match self.team {
            Team::Warps(_) => Bulk::default().policy(self.k.policy(Eviction::First)),
            Team::Block(_) | Team::Apart { .. } => Bulk::default(),
        };
        full.arrive_expect_tx(form.elements() * 2);
        for first in (0..form.rows).step_by(run as usize) {
            let token = tile * form.rows + first;
            // Pages behind the sequence have no entry in the table: the tile's first page stands for them.
            let token = token.lt(self.place.tokens).select(token, tile * form.rows);
            let row = self.place.row(token).cast::<i32>();
            for panel in 0..form.panel_count() {
                let column = self.k.lit((panel * form.width()) as i32);
                let to = to.at((panel * form.rows + first) * form.width());
                to.tensor_load(self.map, &[column, row, self.place.plane.cast::<i32>()], full, how);
            }
        }
    }

    /// Zeroes the rows of a tile that lie behind the sequence: a value there may be anything, and 0·NaN is NaN.
    fn clear(&self, base: Ptr<'k, Shared, bf16>, tile: Val<'k, u32>) {
        // As many threads as divide the tile: three warpgroups do not.
        let (k, threads) = (self.k, 1 << self.team.threads().ilog2());
        let inside = self.place.tokens - tile * C::BTILE0;
        k.when(inside.lt(C::BTILE0), || {
            let thread = self.team.thread(k);
            for index in 0..self.form.shares(threads) {
                let share = self.form.share(thread, threads, index);
                k.when(share.row.ge(inside) & thread.lt(threads), || {
                    self.form.place(base, &share).cast::<u32>().store_vec::<4>([k.lit(0u32); 4]);
                });
            }
            if self.empty.is_some() {
                // Who reads them next is wgmma.
                k.fence_proxy_async(ProxyFence::Shared);
            }
            self.team.sync(k);
        });
    }
}

impl<'k, C: KvBufferConfig> KvBuffer<'k> for TmaBuffer<'k, C> {
    type Config = C;

    fn ahead(&self) -> u32 {
        self.stages - 1
    }

    fn unroll(&self) -> u32 {
        1
    }

    fn load_from_dram(&self, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Fetched {
        let stage = self.head.get();
        let (next, wraps) = (stage + 1, (stage + 1).eq(self.stages));
        self.head.set(wraps.select::<u32>(0u32, next));
        if let Some(empty) = self.empty {
            // The first round passes at once: it waits for the phase before the first.
            empty.at(stage).wait(self.parity.get() ^ 1);
            self.parity.set(self.parity.get() ^ wraps.select::<u32>(1u32, 0u32));
            self.k.when(wanted, || self.fetch(stage, tile));
        } else {
            self.k.when(wanted & self.team.thread(self.k).eq(0), || self.fetch(stage, tile));
        }
        Fetched { stage: 0 }
    }

    fn copy_to_shared(&self, _: Fetched, tile: Val<'k, u32>) -> Landed<'k> {
        let stage = self.tail.get();
        let base = self.ring.at(stage * self.form.elements());
        self.full.at(stage).wait(self.parity.get());
        if self.empty.is_none() {
            self.team.sync(self.k);
        }
        let (next, wraps) = (stage + 1, (stage + 1).eq(self.stages));
        self.tail.set(wraps.select::<u32>(0u32, next));
        self.parity.set(self.parity.get() ^ wraps.select::<u32>(1u32, 0u32));
        if !C::TRANSPOSED {
            self.clear(base, tile);
        }
        Landed { base, stage }
    }

    fn load_from_shared(&self, landed: &Landed<'k>, k_mma: u32) {
        self.fragments.load(landed.base, k_mma);
    }

    fn get_mma_tile(&self) -> MmaTile<'k> {
        self.fragments.tile()
    }

    /// Nothing where the team fetches for itself: it meets in the next `copy_to_shared` before the stage is filled again.
    fn release(&self, landed: Landed<'k>) {
        if let Some(empty) = self.empty {
            self.k.when(self.k.lane().eq(0), || empty.at(landed.stage).arrive());
        }
    }

    fn memory(&self) -> Ptr<'k, Shared, bf16> {
        self.memory
    }
}
