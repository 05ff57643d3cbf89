//! `KvBuffer`: keys and values on their way from device memory to the matrix instructions.
//!
//! An attention kernel says which tile comes next and what to multiply; how tiles travel is the
//! buffer's business:
//!
//! | buffer | way | runs on |
//! |---|---|---|
//! | [`Staged`] | loads into registers, stores into shared memory a tile later | sm_80 |
//! | [`CpAsync`] | `cp.async` into a ring of stages | sm_80 |
//! | [`Tma`] | tensor maps into a ring of stages, completing on mbarriers | sm_90 |
//! | [`StageTiles`] | stages of a ring that is filled for a persistent kernel's tasks, keys and values together | sm_80 |
//!
//! Of the first three K and V are the same buffer with another [`KvBufferConfig`], a ring of its
//! own ([`OwnRing`]). A standalone kernel is generic over the [`KvFamily`] and takes any.
//!
//! | file | what it holds |
//! |---|---|
//! | `config` | the numbers in which K and V differ |
//! | `shared` | the tile in shared memory: layout, addresses, `ldmatrix` |
//! | `tiles` | what every buffer has: the register tile, the ends of a [`ring`](crate::ring) |
//! | `pool` | pools of pages, and the cells of a step: [`PagedPool`] |
//! | `newest` | the newest token's keys and values as packets: [`CurrentToken`] |
//! | `element` | how a pool stores its numbers: [`PoolType`], [`PoolArray`] |
//! | `widen` | pages of codes as pages of bf16, a kernel |
//! | `token_row` | how a token's row lies in a pool |
//! | `place` | where the rows of a sequence lie: strided, or in pages |
//! | `staged`, `cp_async`, `tma` | the buffers |
//! | `stream` | the loop over tiles: prologue, prefetch, end |
//! | `token_stage` | what a stage of a ring of tasks holds, and which tokens come so: [`TokenStage`], [`Streamed`] |
//! | `stage_tiles` | the buffer of such stages: [`StageTiles`] |
//! | `block`, `lanes` | a block of 16 tokens in registers, as operands: [`TokenBlock`] |
//!
//! # What cannot go wrong
//! A tile is a token that moves from step to step: [`OwnRing::load_from_dram`] makes an [`Issued`],
//! [`KvBuffer::copy_to_shared`] takes it and makes an [`Arrived`], reading borrows that,
//! [`KvBuffer::release`] takes it. So nothing is read before it was loaded, and nothing is loaded
//! into a stage that is being read. Stages are those of a [`ring`](crate::ring) for each team,
//! whose tokens these are; [`stream`] leaves a loop with the tokens that it came with, or panics
//! while recording.
//!
//! Rows beyond the sequence read as zero. The bound is one of rows; columns have none, since a tile
//! has all of them.
//!
//! This module knows tiles of keys and values. It knows no softmax and no mask.

mod arrived;
mod block;
mod config;
mod cp_async;
mod element;
mod lanes;
mod newest;
mod place;
mod pool;
mod runs;
mod shared;
mod stage_tiles;
mod staged;
mod stream;
mod tiles;
mod tma;
mod token_row;
mod token_stage;
mod widen;

pub use arrived::{Arrived, Issued};
pub(crate) use block::BLOCK;
pub use block::TokenBlock;
pub use config::{KConfig, KvBufferConfig, VConfig};
pub use cp_async::{CpAsync, CpAsyncBuffer};
pub use element::{PoolArray, PoolType};
pub(crate) use lanes::KvLanes;
pub use newest::CurrentToken;
pub use place::{KvView, Pages};
pub use pool::{PageTable, PagedPool, SplitPages, StepScalars};
pub use runs::is_swizzled;
pub use shared::{Fragments, MmaTile, RowArrangement, Share, TileForm, VECTOR};
pub use stage_tiles::{KeysAndValues, StageTiles};
pub use staged::{Staged, StagedBuffer};
pub use stream::{FoundTiles, IssuedAhead, KvRings, TileSpan, stream, stream_found, stream_issuing};
pub use tiles::Tiles;
pub use tma::{Tma, TmaBuffer};
pub(crate) use token_row::TokenRow;
pub use token_row::swizzled;
pub use token_stage::{PageRun, Streamed, TokenStage, immutable_prefix};
pub use widen::WidenPages;

pub use crate::ring::RingThreads as KvThreads;

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

/// Keys or values of one sequence and head, or both, tile by tile, independent of which threads
/// issue tiles and where they lie.
pub trait KvBuffer<'k> {
    /// The configuration of its tiles.
    type Config;
    /// A part of a tile that a warp reads at a time: a step of the contraction, or a block of
    /// tokens.
    type Part;
    /// A part in registers, as operands of the matrix instruction.
    type MmaTile;

    /// Waits until the tile, number `tile`, is in shared memory, for the whole team, and until the
    /// team has read the tile before.
    fn copy_to_shared(&self, issued: Issued, tile: Val<'k, u32>) -> Arrived<'k, Self::Config>;

    /// Reads a part of a tile into the register tile.
    fn load_from_shared(&self, arrived: &Arrived<'k, Self::Config>, part: Self::Part);

    /// The register tile.
    fn get_mma_tile(&self) -> Self::MmaTile;

    /// Ends this thread's reads of the tile.
    ///
    /// Nothing has to be done if the team that fetches a tile also reads it: it synchronises in
    /// `copy_to_shared` before the tile's memory is written again.
    fn release(&self, arrived: Arrived<'k, Self::Config>) {
        arrived.stage.release();
    }
}

/// A buffer of keys, or of values, with a separate ring, whose threads issue tiles: a step of the
/// contraction is a part.
pub trait OwnRing<'k> {
    /// The tile.
    type Config: KvBufferConfig;

    /// Tiles that are issued before the first is used.
    fn ahead(&self) -> u32 {
        self.tiles().turns[0]
    }

    /// Tiles after which registers repeat: a loop over tiles is unrolled so often.
    fn unroll(&self) -> u32 {
        self.tiles().turns[1]
    }

    /// Issues tile number `tile`, unless `wanted` is false: then the token stands for nothing that
    /// is ever read.
    fn load_from_dram(&self, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Issued {
        self.load_at(&self.tiles().place, tile, wanted)
    }

    /// Issues a tile of another sequence or head.
    fn load_at(&self, place: &KvView<'k>, tile: Val<'k, u32>, wanted: Val<'k, bool>) -> Issued;

    /// [`KvBuffer::copy_to_shared`] of a tile that was issued by [`load_at`](OwnRing::load_at)
    /// there.
    fn copy_at(&self, place: &KvView<'k>, issued: Issued, tile: Val<'k, u32>) -> Arrived<'k, Self::Config>;

    /// The tiles, which every such buffer has.
    fn tiles(&self) -> &Tiles<'k, Self::Config>;

    /// The start of the tiles of all teams: memory that may be reused once all tiles are read.
    fn memory(&self) -> Ptr<'k, Shared, bf16> {
        self.tiles().memory
    }
}

impl<'k, T: OwnRing<'k>> KvBuffer<'k> for T {
    type Config = T::Config;
    type Part = u32;
    type MmaTile = MmaTile<'k>;

    fn copy_to_shared(&self, issued: Issued, tile: Val<'k, u32>) -> Arrived<'k, T::Config> {
        self.copy_at(&self.tiles().place, issued, tile)
    }

    /// Reads the B fragments of a step of the contraction.
    fn load_from_shared(&self, arrived: &Arrived<'k, T::Config>, k_mma: u32) {
        self.tiles().fragments.load(arrived.base(), k_mma);
    }

    fn get_mma_tile(&self) -> MmaTile<'k> {
        self.tiles().fragments.tile()
    }
}

/// A kind of buffer: what the kernel takes as a parameter, and how a buffer is made of it.
pub trait KvFamily: 'static {
    /// The parameter that names keys or values.
    type Input<'k>: Copy;
    /// The buffer.
    type Buffer<'k, C: KvBufferConfig>: OwnRing<'k, Config = C>;

    /// Tiles of a team in shared memory.
    const STAGES: u32;

    /// Whether the parameter is a tensor map of boxes of [`Tma::box_rows`] rows, or a pointer.
    const TENSOR_MAP: bool;

    /// A word for names of kernels.
    fn name() -> String;

    /// Adds the parameter.
    fn input<'k>(k: &'k Builder, name: &str) -> Self::Input<'k>;

    /// A buffer for each team of the block. `name` names its shared memory.
    fn open<'k, C: KvBufferConfig>(
        k: &'k Builder,
        name: &str,
        input: Self::Input<'k>,
        place: KvView<'k>,
        team: KvThreads,
    ) -> Self::Buffer<'k, C>;

    /// Code that all threads of the block run once after all buffers are open and before the first
    /// is used.
    fn begin(_: &Builder) {}

    /// Bytes of shared memory that the tiles of one team take.
    fn tile_bytes<C: KvBufferConfig>() -> u32 {
        Self::STAGES * TileForm::swizzled::<C>().elements() * 2
    }
}
