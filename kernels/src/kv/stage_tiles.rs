//! A buffer on a ring that another component owns: a row's keys and values arrive in stages among
//! those of other tasks, and warps take the blocks of a stage in turns.

use core::cell::RefCell;

use tilewright_codegen::build::{Builder, Val};

use super::{Arrived, Issued, KvBuffer, KvLanes, PagedPool, TokenBlock, TokenRow, TokenStage};
use crate::ring::Stages;

/// Names tiles that have keys and values of the same tokens.
pub enum KeysAndValues {}

/// Stages of keys and values of a ring that has others too.
pub struct StageTiles<'k, 'w> {
    k: &'k Builder,
    ring: &'w dyn Stages<'k>,
    stage: TokenStage,
    lanes: KvLanes,
    block: RefCell<TokenBlock<'k>>,
}

impl<'k, 'w> StageTiles<'k, 'w> {
    /// The next stages of a ring, which hold tokens of that pool.
    pub fn new(k: &'k Builder, ring: &'w dyn Stages<'k>, stage: TokenStage, pool: PagedPool<'k>) -> StageTiles<'k, 'w> {
        let lanes = KvLanes::of(pool);
        StageTiles { k, ring, stage, lanes, block: RefCell::new(TokenBlock::none(lanes)) }
    }
}

impl<'k> KvBuffer<'k> for StageTiles<'k, '_> {
    type Config = KeysAndValues;
    type Part = Val<'k, u32>;
    type MmaTile = TokenBlock<'k>;

    /// The producer of the ring has issued it ([`Streamed::bring`](super::Streamed::bring)): stages
    /// come in their order.
    fn copy_to_shared(&self, _: Issued, _: Val<'k, u32>) -> Arrived<'k, KeysAndValues> {
        Arrived::of(self.ring.wait())
    }

    fn load_from_shared(&self, arrived: &Arrived<'k, KeysAndValues>, block: Val<'k, u32>) {
        let there = arrived.base().cast();
        let zero = self.k.lit(0u32);
        let row = |token: Val<'k, u32>| TokenRow::of_block(zero, self.lanes, token);
        let loaded = TokenBlock::new(self.k, self.lanes);
        loaded.load([self.stage.keys(there, block), self.stage.values(there, block)], &row);
        self.block.replace(loaded);
    }

    fn get_mma_tile(&self) -> TokenBlock<'k> {
        self.block.borrow().clone()
    }
}
