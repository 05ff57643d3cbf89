//! Lane instructions a second of the simulator, on one core, with checks and without; of kernels of
//! matrices also the multiply-adds a second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val, block, record};
use tilewright_codegen::gallery;
use tilewright_codegen::ir::attr::Trans;
use tilewright_codegen::ir::{Arch, Const, Kernel, MmaAtom};
use tilewright_codegen::sim::{
    self, Arg, Checks, Launch, Memory, Outcome, TensorElem, TensorMapDescriptor, TensorSwizzle,
};
use tilewright_codegen::verify::{Verified, verify};

/// A loop of integer and floating-point arithmetic.
fn arithmetic(k: &Builder) {
    let (n, _, out) = (k.param::<u32>("n"), k.global::<f32>("x"), k.global::<f32>("out"));
    let sum = k.var(0.0f32);
    let bits = k.var(k.tid());
    k.for_(0, n, |i| {
        bits.set((bits.get() ^ i) * 3 + (i & 7));
        sum.set(sum.get().fma(0.5f32, bits.get().cast::<f32>()));
    });
    out.at(k.block_id() * k.threads() + k.tid()).store(sum.get());
}

/// A loop of loads from global memory, stores to and loads from shared memory, and barriers.
fn memory(k: &Builder) {
    let n = k.param::<u32>("n");
    let x = k.global::<f32>("x");
    let out = k.global::<f32>("out");
    let tile = k.shared::<f32>("tile", 256);
    let sum = k.var(0.0f32);
    k.for_(0, n, |i| {
        tile.at(k.tid()).store(x.at((i * 32 + k.tid()) & 1023).load());
        k.barrier();
        sum.set(sum.get() + tile.at(k.tid() ^ 33).load());
        k.barrier();
    });
    out.at(k.block_id() * k.threads() + k.tid()).store(sum.get());
}

/// The address of a chunk of eight elements of a row of 64.
fn chunk<'k>(tile: Ptr<'k, Shared, bf16>, row: Val<'k, u32>, chunk: Val<'k, u32>) -> Ptr<'k, Shared, bf16> {
    tile.at(row * 64 + (chunk ^ (row & 7)) * 8)
}

/// Tiles of 64 × 64 × 64 by `cp.async`, `ldmatrix` and `mma.sync`: four warps of 16 rows each.
fn mma(k: &Builder) {
    let n = k.param::<u32>("n");
    let x = k.global::<bf16>("x");
    let out = k.global::<f32>("out");
    let a = k.shared_aligned::<bf16>("a", 64 * 64, 128);
    let b = k.shared_aligned::<bf16>("b", 64 * 64, 128);
    let acc: Vec<_> = (0..8).map(|_| k.regs(4, 0.0f32)).collect();
    let lane = k.lane();
    k.for_(0, n, |_| {
        for part in 0..4 {
            let row = k.tid() / 8 + part * 16;
            let column = k.tid() % 8;
            chunk(a, row, column).cp_async(x.at(row * 64 + column * 8));
            chunk(b, row, column).cp_async(x.at(row * 64 + column * 8));
        }
        k.cp_async_commit();
        k.cp_async_wait(0);
        k.barrier();
        for step in 0..4 {
            let rows = chunk(a, k.warp() * 16 + lane % 16, lane / 16 + 2 * step).ldmatrix::<4>(Trans::No);
            for (pair, acc) in (0u32..).zip(acc.chunks(2)) {
                let columns = lane % 8 + lane / 16 * 8 + pair * 16;
                let columns = chunk(b, columns, lane / 8 % 2 + 2 * step).ldmatrix::<4>(Trans::No);
                acc[0].mma(MmaAtom::M16N8K16_F32_BF16_BF16, &rows, &columns[..2]);
                acc[1].mma(MmaAtom::M16N8K16_F32_BF16_BF16, &rows, &columns[2..]);
            }
        }
        k.barrier();
    });
    let mine = out.at(k.tid() * 32);
    for (i, acc) in (0u32..).zip(&acc) {
        mine.at(i * 4).store_vec([0, 1, 2, 3].map(|j| acc.get(j)));
    }
}

/// A kernel, how it is launched, and its multiply-adds.
struct Bench {
    name: &'static str,
    kernel: Verified,
    multiplies: u64,
    launch: fn() -> (Memory, Launch),
}

fn bench(name: &'static str, kernel: Kernel, multiplies: u64, launch: fn() -> (Memory, Launch)) -> Bench {
    Bench { name, kernel: verify(kernel).expect("it verifies"), multiplies, launch }
}

fn numbers(grid: u32, n: u32) -> (Memory, Launch) {
    let mut memory = Memory::new();
    let n = Arg::Scalar(Const::u32(n));
    let x = Arg::Ptr(memory.upload("x", &vec![1.0f32; 4096]));
    let out = Arg::Ptr(memory.alloc("out", 4 * 4096));
    (memory, Launch::new([grid, 1, 1], vec![n, x, out]))
}

const STEPS: u32 = 16;

/// c[64, 128] = a·bᵀ by tensor maps, mbarriers and `wgmma`.
fn specialised() -> (Memory, Launch) {
    let mut memory = Memory::new();
    let k = 64 * u64::from(STEPS);
    let mut map = |name, rows: u64| {
        let at = memory.upload(name, &vec![bf16::ONE; (rows * k) as usize]);
        Arg::TensorMap(TensorMapDescriptor::plain(
            at,
            TensorElem::BF16,
            &[k, rows],
            &[64, rows as u32],
            TensorSwizzle::B128,
        ))
    };
    let a = map("a", 64);
    let b = map("b", 128);
    let c = Arg::Ptr(memory.alloc("c", 64 * 128 * 4));
    (memory, Launch::new([1, 1, 1], vec![Arg::Scalar(Const::u32(STEPS)), a, b, c]))
}

/// Tiles of 4 KiB by bulk copies, summed.
fn bulk_ring() -> (Memory, Launch) {
    let mut memory = Memory::new();
    let x = Arg::Ptr(memory.upload("x", &vec![1.0f32; 1024 * 32]));
    let out = Arg::Ptr(memory.alloc("out", 1024 * 4));
    (memory, Launch::new([1, 1, 1], vec![Arg::Scalar(Const::u32(32)), x, out]))
}

fn all() -> Vec<Bench> {
    let own = |name, threads, build: fn(&Builder)| record(name, Arch::Sm90a, block(threads), build);
    let shown = |name| gallery::named(name).expect("the gallery has it").record(Arch::Sm90a);
    vec![
        bench("arithmetic", own("arithmetic", 256, arithmetic), 0, || numbers(4, 200)),
        bench("memory", own("memory", 256, memory), 0, || numbers(4, 200)),
        bench("bulk_ring", shown("bulk_ring"), 0, bulk_ring),
        bench("mma", own("mma", 128, mma), 16 * 64 * 64 * 64, || numbers(1, 16)),
        bench("specialised", shown("specialised"), u64::from(STEPS) * 64 * 64 * 128, specialised),
    ]
}

fn run(bench: &Bench, checks: Checks, seed: u64) -> u64 {
    let (mut memory, launch) = (bench.launch)();
    let launch = Launch { checks, ..launch };
    match sim::run(&bench.kernel, &launch, &mut memory, seed).expect("the launch is sound") {
        Outcome::Finished(counters) => counters.lane_instructions(),
        Outcome::Fault(fault) => panic!("{fault}"),
    }
}

fn rates(c: &mut Criterion) {
    let mut group = c.benchmark_group("sim");
    group.sample_size(20);
    for bench in all() {
        for checks in [Checks::On, Checks::Off] {
            let mut seed = 0;
            let lanes = run(&bench, checks, 0);
            let work = if bench.multiplies > 0 {
                format!("{lanes} lane instructions, {} multiply-adds", bench.multiplies)
            } else {
                format!("{lanes} lane instructions")
            };
            println!("{}: {work} a seed", bench.name);
            group.throughput(Throughput::Elements(lanes));
            group.bench_function(format!("{}, checks {checks:?}", bench.name), |bencher| {
                bencher.iter(|| {
                    seed += 1;
                    run(&bench, checks, seed)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, rates);
criterion_main!(benches);
