//! Rings of stages in shared memory, whose steps are types: a stage is not read before it is full,
//! and not filled before it is empty, because the value that allows it does not exist earlier.
//!
//! | file | what it holds |
//! |---|---|
//! | `operand` | [`StageTile`]: what a stage holds, by layout; a stage is a tuple of tiles |
//! | `error` | [`RingError`]: what is refused while recording |
//! | `shape` | [`Shape`]: stages, bytes in flight, consumers, cluster |
//! | `setup` | [`Ring`]: memory and mbarriers; [`start`] makes them known to the block; the producer may begin earlier |
//! | `producer`, `source` | acquire → fill → commit; where a tile comes from |
//! | `counted` | [`Counted`]: a producer whose cap changes while it runs, and which can abort |
//! | `consumer` | wait → read → release, immediately or one stage later |
//! | `stages` | [`Stages`]: the consumer's steps of any ring, as a trait object |
//! | `threads` | [`RingThreads`]: threads that free a stage by a barrier; one ring, or one for each warp |
//! | `cursor` | stage and parity, in registers |
//! | `group` | [`GroupRing`]: the same threads copy by `cp.async` groups and read, turn by turn |
//!
//! ```text
//!            acquire            fill                commit
//! Producer ──────────▶ Empty ──────────▶ Filled ──────────▶ ()      the stage is on its way
//!            wait               release
//! Consumer ──────────▶ Full ───────────▶ ()                         the stage is free again
//! ```
//!
//! A token is moved by the step that uses it up, and carries its ring's brand: a type of the
//! author's that names the ring. Use a brand for one ring of a kernel. Producer and consumers each
//! own a cursor, which lives in registers, so that a ring goes on through loops and tasks.
//!
//! ```
//! # use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
//! use tilewright_kernels::ring::{Consumers, BulkSource, Ring, Shape, StageTile, start};
//! use tilewright_kernels::tile::Index;
//! use tilewright_layout::typed::Contiguous as Line;
//!
//! /// Names the ring.
//! enum Rows {}
//!
//! // out[c] = Σₜ x[t, c] for 128 columns: one warp fetches rows, four add them up.
//! let kernel = record("sum", Arch::Sm90a, block(160), |k| {
//!     let rows = k.param::<u32>("rows");
//!     let x = k.global::<f32>("x");
//!     let out = k.global::<f32>("out");
//!     let tiles = (StageTile::<f32, Line<128>>::typed(),);
//!     let ring = start(k, Ring::bulk::<Rows>(k, tiles, Shape::stages(4).consumers(Consumers::Warps(4))));
//!     let (mut producer, mut consumer) = ring.split();
//!     let consume = || {
//!         let sum = k.var(0.0f32);
//!         k.moving().for_(0, rows, |_| {
//!             let full = consumer.wait();
//!             let (row,) = full.tiles();
//!             sum.set(sum.get() + row.at([Index::thread(k)]).load());
//!             full.release();
//!         });
//!         out.at(k.tid()).store(sum);
//!     };
//!     let produce = || {
//!         k.moving().for_(0, rows, |row| producer.acquire().fill((BulkSource::from(x.at(row * 128)),)).commit());
//!     };
//!     k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.lane().eq(0), produce));
//! });
//! verify(kernel)?;
//! # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
//! ```
//!
//! Types cannot express everything: a token that a recorded loop's body captures from outside is
//! used once per round, and a stage's pointers are `Copy` and may be kept after its release. The
//! simulator finds both errors.

mod consumer;
mod counted;
mod cursor;
mod error;
mod group;
mod operand;
mod parts;
mod producer;
mod setup;
mod shape;
mod source;
mod stages;
mod threads;

pub use consumer::{Consumer, Deferred, DeferredFull, Full};
pub use counted::Counted;
pub use error::RingError;
pub use group::{Claimed, Current, Free, GroupRing};
pub use operand::{Operands, StageTile, StageView};
pub use producer::{ByBulk, ByPieces, ByThreads, Empty, Filled, Producer};
pub use setup::{Ring, Rings, Unready, start};
pub use shape::{Consumers, Shape};
pub(crate) use shape::{Filling, StageFill};
pub use source::{BulkSource, By, InPieces, Pieces, Source, Sources, by, in_pieces};
pub use stages::{AnyStage, Stages};
pub use threads::RingThreads;
