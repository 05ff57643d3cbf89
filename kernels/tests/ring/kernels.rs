//! A kernel for each way of using a ring. All compute sums of rows of 128 floats.

use tilewright_codegen::build::{Builder, Bulk, Ptr, Shared, Val, block, record};
use tilewright_codegen::ir::attr::{Eviction, Scope};
use tilewright_codegen::ir::{Arch, Kernel, LaunchBounds};
use tilewright_kernels::ring::{BulkSource, Consumers, GroupRing, Ring, Shape, StageTile, by, start};
use tilewright_kernels::tile::Index;
use tilewright_layout::typed::Contiguous as Line;

/// Elements of a row, one for each consuming thread.
pub const ROW: u32 = 128;

enum Rows {}

/// A kernel of this page, its launch, and what it computes: out\[block, c\] from x\[block, t, c\].
pub struct Case {
    pub name: &'static str,
    pub arch: Arch,
    pub launch: LaunchBounds,
    pub blocks: u32,
    /// Blocks that read the same rows.
    pub shared_by: u32,
    /// The fewest rows that it takes.
    pub least: usize,
    pub build: fn(&Builder),
    pub oracle: fn(&[Vec<f32>], usize) -> f32,
}

impl Case {
    pub fn record(&self) -> Kernel {
        record(self.name, self.arch, self.launch.clone(), self.build)
    }
}

fn plain(rows: &[Vec<f32>], c: usize) -> f32 {
    rows.iter().map(|row| row[c]).sum()
}

pub fn all() -> Vec<Case> {
    let case = |name, threads, blocks, build, oracle| Case {
        name,
        arch: Arch::Sm90a,
        launch: block(threads),
        blocks,
        shared_by: 1,
        least: 0,
        build,
        oracle,
    };
    vec![
        case("bulk", 160, 2, bulk as fn(&Builder), plain as fn(&[Vec<f32>], usize) -> f32),
        case("capped", 160, 2, capped, plain),
        case("counted", 160, 2, counted, plain),
        case("abandoned", 160, 1, abandoned, |rows, c| plain(&rows[..rows.len() / 2], c)),
        Case { arch: Arch::Sm80, ..case("counted_by_lanes", 160, 2, counted, plain) },
        Case {
            arch: Arch::Sm80,
            ..case("abandoned_by_lanes", 160, 1, abandoned, |rows, c| plain(&rows[..rows.len() / 2], c))
        },
        case("two_operands", 160, 1, two_operands, |rows, c| 3.0 * plain(rows, c)),
        case("two_loops", 160, 1, two_loops, |rows, c| plain(rows, c) + plain(&rows[..rows.len() / 2], c)),
        case("delayed", 160, 1, delayed, |rows, c| {
            plain(rows, c) + rows.windows(2).map(|pair| 10.0 * pair[0][c]).sum::<f32>()
        }),
        case("by_threads", 256, 1, by_threads, |rows, c| rows.iter().map(|row| row[127 - c]).sum()),
        case("groups", 128, 1, groups, |rows, c| rows.iter().map(|row| row[127 - c]).sum()),
        Case { shared_by: 2, launch: block(160).cluster(2), ..case("multicast", 160, 2, multicast, plain) },
        Case { least: 2, ..case("begun", 160, 2, begun, plain) },
        Case { least: 3, ..case("begun_full", 160, 2, begun_full, plain) },
    ]
}

/// Parameters of all kernels: rows, x\[blocks, rows, 128\], out\[blocks, 128\].
macro_rules! params {
    ($k:ident, $rows:ident, $x:ident, $out:ident, $shared:expr) => {
        let $rows = $k.param::<u32>("rows");
        let $x = $k.global::<f32>("x").at($k.block_id() / $shared * ($rows * ROW));
        let $out = $k.global::<f32>("out").at($k.block_id() * ROW);
    };
}

fn line() -> StageTile<f32, Line<ROW_EXTENT>> {
    StageTile::typed()
}
const ROW_EXTENT: usize = ROW as usize;

fn through<'k>(k: &'k Builder, shape: Shape, first: u32) {
    params!(k, rows, x, out, 1);
    let shape = shape.consumers(Consumers::Warps(4));
    let row_of = |row: Val<'k, u32>| (BulkSource::from(x.at(row * ROW)),);
    let ring = match first {
        0 => Ring::bulk::<Rows>(k, (line(),), shape),
        _ => Ring::begun::<Rows>(k, (line(),), shape, [128, first], |row, to| to.fill(row_of(k.lit(row)))),
    };
    let (mut producer, mut consumer) = start(k, ring).split();
    let consume = || {
        let sum = k.var(0.0f32);
        k.moving().for_(0, rows, |_| {
            let full = consumer.wait();
            let (row,) = full.tiles();
            sum.set(sum.get() + row.at([Index::thread(k)]).load());
            full.release();
        });
        out.at(k.tid()).store(sum);
    };
    let produce = || k.moving().for_(first, rows, |row| producer.acquire().fill(row_of(row)).commit());
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.lane().eq(0), produce));
}

fn bulk(k: &Builder) {
    through(k, Shape::stages(3), 0);
}

fn capped(k: &Builder) {
    through(k, Shape::stages(4).in_flight(2), 0);
}

/// Two rows are on their way before the block meets.
fn begun(k: &Builder) {
    through(k, Shape::stages(4).in_flight(2), 2);
}

/// A through-copy with as many stages in flight as the ring has.
fn begun_full(k: &Builder) {
    through(k, Shape::stages(3), 3);
}

/// The cap changes from row to row, and a row comes in two pieces.
fn counted(k: &Builder) {
    fed_by_count(k, None);
}

/// Half of the rows are read, then the producer is told that the consumers stop.
fn abandoned(k: &Builder) {
    let stop = k.shared::<u32>("stop", 1);
    k.when(k.tid().eq(0), || stop.store_relaxed(0u32, Scope::Cta));
    fed_by_count(k, Some(stop));
}

fn fed_by_count<'k>(k: &'k Builder, stop: Option<Ptr<'k, Shared, u32>>) {
    params!(k, rows, x, out, 1);
    let shape = Shape::stages(3).consumers(Consumers::Warps(4));
    let (producer, mut consumer) = start(k, Ring::pieces::<Rows>(k, (line(),), shape)).split();
    let who = if producer.by_warp() { k.lit(true) } else { k.lane().eq(0) };
    let consume = || {
        let sum = k.var(0.0f32);
        k.moving().for_(0, if stop.is_some() { rows / 2 } else { rows }, |_| {
            let full = consumer.wait();
            let (row,) = full.tiles();
            sum.set(sum.get() + row.at([Index::thread(k)]).load());
            full.release();
        });
        out.at(k.tid()).store(sum);
        if let Some(stop) = stop {
            k.when(k.tid().eq(0), || stop.store_relaxed(1u32, Scope::Cta));
        }
    };
    let produce = || {
        let producer = producer.counted();
        let how = Bulk::default().policy(k.policy(Eviction::First));
        let gave_up = k.var(false);
        k.for_(0, rows, |row| {
            producer.wait_below(row % 3 + 1);
            let from = x.at(row * ROW).cast::<u8>();
            let listen = || stop.map_or(k.lit(false), |stop| stop.load_relaxed(Scope::Cta).ne(0));
            producer.acquire_unless(gave_up, listen, |empty| {
                empty.fill(k.lit(ROW * 4), how, |to| {
                    to.bring(from, k.lit(ROW));
                    to.at(ROW).bring(from.at(ROW), k.lit(ROW * 3));
                })
            });
            k.break_if(gave_up.get());
        });
        producer.drain();
    };
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(who, produce));
}

/// A stage holds a row twice, the second time brought in two copies; the second counts double.
fn two_operands(k: &Builder) {
    params!(k, rows, x, out, 1);
    let shape = Shape::stages(2).consumers(Consumers::Warps(4));
    let ring = start(k, Ring::bulk::<Rows>(k, (line(), line()), shape));
    let (mut producer, mut consumer) = ring.split();
    let consume = || {
        let sum = k.var(0.0f32);
        k.moving().for_(0, rows, |_| {
            let full = consumer.wait();
            let (once, twice) = full.tiles();
            let at = [Index::thread(k)];
            sum.set(sum.get() + once.at(at).load() + twice.at(at).load() * 2.0);
            full.release();
        });
        out.at(k.tid()).store(sum);
    };
    let produce = || {
        k.moving().for_(0, rows, |row| {
            let from = x.at(row * ROW);
            let halves = by(|to: tilewright_kernels::ring::StageView<'_, f32, _>, bar| {
                to.base().bulk_load(from, ROW * 2, bar, Bulk::default());
                to.base().at(ROW / 2).bulk_load(from.at(ROW / 2), ROW * 2, bar, Bulk::default());
            });
            producer.acquire().fill((BulkSource::from(from), halves)).commit();
        });
    };
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.lane().eq(0), produce));
}

/// The ring goes on from one loop to the next: all rows, then the first half of them again.
fn two_loops(k: &Builder) {
    params!(k, rows, x, out, 1);
    let shape = Shape::stages(3).in_flight(2).consumers(Consumers::Warps(4));
    let (mut producer, mut consumer) = start(k, Ring::bulk::<Rows>(k, (line(),), shape)).split();
    let consume = || {
        let sum = k.var(0.0f32);
        for end in [rows, rows / 2] {
            k.moving().for_(0, end, |_| {
                let full = consumer.wait();
                let (row,) = full.tiles();
                sum.set(sum.get() + row.at([Index::thread(k)]).load());
                full.release();
            });
        }
        out.at(k.tid()).store(sum);
    };
    let produce = || {
        for end in [rows, rows / 2] {
            k.moving().for_(0, end, |row| producer.acquire().fill((BulkSource::from(x.at(row * ROW)),)).commit());
        }
    };
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.lane().eq(0), produce));
}

/// A stage is used until the next one was read: each row but the last counts ten times more in the
/// round after.
fn delayed(k: &Builder) {
    params!(k, rows, x, out, 1);
    let shape = Shape::stages(3).consumers(Consumers::Warps(4));
    let (mut producer, consumer) = start(k, Ring::bulk::<Rows>(k, (line(),), shape)).split();
    let consume = || {
        let sum = k.var(0.0f32);
        let at = [Index::thread(k)];
        let mut consumer = consumer.deferred();
        let before = k.var(0u32);
        k.moving().for_(0, rows, |number| {
            let held = consumer.wait();
            let (row,) = held.tiles();
            let mine = row.at(at);
            k.when(number.gt(0), || {
                sum.set(sum.get() + before.get().to_shared::<f32>().load() * 10.0);
            });
            sum.set(sum.get() + mine.load());
            before.set(mine.address32());
            held.release_previous();
        });
        consumer.release_last();
        out.at(k.tid()).store(sum);
    };
    let produce =
        || k.moving().for_(0, rows, |row| producer.acquire().fill((BulkSource::from(x.at(row * ROW)),)).commit());
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.lane().eq(0), produce));
}

/// Warps 4 to 7 copy by `cp.async`; a consumer reads what another lane's copy brought.
fn by_threads(k: &Builder) {
    params!(k, rows, x, out, 1);
    let shape = Shape::stages(3).consumers(Consumers::Warps(4));
    let (mut producer, mut consumer) = start(k, Ring::threads::<Rows>(k, (line(),), shape, 32)).split();
    let consume = || {
        let sum = k.var(0.0f32);
        k.moving().for_(0, rows, |_| {
            let full = consumer.wait();
            let (row,) = full.tiles();
            sum.set(sum.get() + row.base().at(k.lit(127u32) - k.tid()).load());
            full.release();
        });
        out.at(k.tid()).store(sum);
    };
    let produce = || {
        let mine = Index::lane(k) * 4;
        k.moving().for_(0, rows, |row| {
            let empty = producer.acquire();
            empty.fill(|(to,)| to.at([mine]).cp_async(x.at(row * ROW + mine.get(k)))).commit();
        });
    };
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.warp().lt(5), produce));
}

/// All threads copy and read.
fn groups(k: &Builder) {
    params!(k, rows, x, out, 1);
    let mut ring = GroupRing::new::<Rows, _>(k, (line(),), 3, |number, (to,)| {
        let mine = Index::thread(k) * 4;
        k.when(number.lt(rows) & k.tid().lt(32), || to.at([mine]).cp_async(x.at(number * ROW + mine.get(k))));
    });
    let sum = k.var(0.0f32);
    k.moving().for_(0, rows, |_| {
        let (current, free) = ring.turn();
        let (row,) = current.tiles();
        let claimed = free.fill();
        sum.set(sum.get() + row.base().at(k.lit(127u32) - k.tid()).load());
        current.done(claimed);
    });
    ring.finish();
    out.at(k.tid()).store(sum);
}

/// Each block of a cluster of two fetches half a row for both.
fn multicast(k: &Builder) {
    params!(k, rows, x, out, 2);
    let shape = Shape::stages(2).consumers(Consumers::Warps(4)).cluster(2);
    let (mut producer, mut consumer) = start(k, Ring::bulk::<Rows>(k, (line(),), shape)).split();
    let consume = || {
        let sum = k.var(0.0f32);
        k.moving().for_(0, rows, |_| {
            let full = consumer.wait();
            let (row,) = full.tiles();
            sum.set(sum.get() + row.at([Index::thread(k)]).load());
            full.release();
        });
        out.at(k.tid()).store(sum);
    };
    let produce = || {
        let half = k.cluster_rank() * (ROW / 2);
        let both = k.lit(0b11u16);
        k.moving().for_(0, rows, |row| {
            let source = by(|to: tilewright_kernels::ring::StageView<'_, f32, _>, bar| {
                let how = Bulk::default().multicast(both);
                to.base().at(half).bulk_load(x.at(row * ROW + half), ROW * 2, bar, how);
            });
            producer.acquire().fill((source,)).commit();
        });
    };
    k.moving().if_else(k.warp().lt(4), consume, || k.moving().when(k.lane().eq(0), produce));
    // No block exits while the other may still arrive at its barriers.
    k.cluster_sync();
}
