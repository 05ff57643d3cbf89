//! The buffer of sm_80: `cp.async` into a ring of stages.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};

use super::{Fetched, Fragments, KvBuffer, KvBufferConfig, KvFamily, Landed, MmaTile, Place, Team, TileForm};

/// Rings of `STAGES` tiles, filled by `cp.async`. Two buffers that a loop uses in turn count each other's groups:
/// [`stream`](super::stream()) is such a loop.
pub struct CpAsync<const STAGES: u32>;

/// A ring filled by `cp.async`.
pub struct CpAsyncBuffer<'k, C> {
    k: &'k Builder,
    source: Ptr<'k, Global, bf16>,
    place: Place<'k>,
    team: Team,
    form: TileForm,
    memory: Ptr<'k, Shared, bf16>,
    ring: Ptr<'k, Shared, bf16>,
    stages: u32,
    head: Var<'k, u32>,
    tail: Var<'k, u32>,
    fragments: Fragments<'k>,
    config: core::marker::PhantomData<C>,
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
        team: Team,
    ) -> Self::Buffer<'k, C> {
        const { assert!(STAGES >= 2, "a ring of one stage has nothing to fetch ahead") };
        let form = TileForm::panels::<C>();
        let memory = k.shared_aligned::<bf16>(name, team.count() * STAGES * form.elements(), form.align());
        let ring = memory.at(team.index(k) * (STAGES * form.elements()));
        let (head, tail) = (k.var(0u32), k.var(0u32));
        let (fragments, config) = (Fragments::new::<C>(k, form), core::marker::PhantomData);
        CpAsyncBuffer { k, source, place, team, form, memory, ring, stages: STAGES, head, tail, fragments, config }
    }

    fn begin(_: &Builder) {}

    fn tile_bytes<C: KvBufferConfig>() -> u32 {
        STAGES * TileForm::panels::<C>().elements() * 2
    }
}

impl<'k, C> CpAsyncBuffer<'k, C> {
    fn stage(&self, cursor: Var<'k, u32>) -> (Val<'k, u32>, Ptr<'k, Shared, bf16>) {
        let stage = cursor.get();
        let next = stage + 1;
        cursor.set(next.eq(self.stages).select::<u32>(0u32, next));
        (stage, self.ring.at(stage * self.form.elements()))
    }
}

impl<'k, C: KvBufferConfig> KvBuffer<'k> for CpAsyncBuffer<'k, C> {
    type Config = C;

    fn ahead(&self) -> u32 {
        self.stages - 1
    }

    fn unroll(&self) -> u32 {
        1
    }

    fn load_from_dram(&self, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Fetched {
        let (k, threads) = (self.k, self.team.threads());
        let (_, stage) = self.stage(self.head);
        k.when(wanted, || {
            for index in 0..self.form.shares(threads) {
                let share = self.form.share(self.team.thread(k), threads, index);
                let token = tile * C::BTILE0 + share.row;
                let inside = token.lt(self.place.tokens);
                let row = self.place.pointer(self.source, inside.select(token, tile * C::BTILE0));
                let filled = inside.select::<u32>(16u32, 0u32);
                let to = self.form.place(stage, &share);
                to.cp_async_as(row.at(share.column()), CpBytes::B16, CpCache::Cg, Some(filled));
            }
        });
        k.cp_async_commit();
        Fetched { stage: 0 }
    }

    fn copy_to_shared(&self, _: Fetched, _: Val<'k, u32>) -> Landed<'k> {
        self.k.cp_async_wait(STREAMS * self.ahead() - 1);
        self.team.sync(self.k);
        let (stage, base) = self.stage(self.tail);
        Landed { base, stage }
    }

    fn load_from_shared(&self, landed: &Landed<'k>, k_mma: u32) {
        self.fragments.load(landed.base, k_mma);
    }

    fn get_mma_tile(&self) -> MmaTile<'k> {
        self.fragments.tile()
    }

    /// Nothing: the barrier of the next `copy_to_shared` comes before the stage is filled again.
    fn release(&self, _: Landed<'k>) {}

    fn memory(&self) -> Ptr<'k, Shared, bf16> {
        self.memory
    }
}
