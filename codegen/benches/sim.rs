//! Lane instructions a second of the simulator, on one core, with checks and without.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::{self, Arg, Checks, Launch, Memory, Outcome};
use tilewright_codegen::verify::{Verified, verify};

/// A loop of integer and floating-point arithmetic.
fn arithmetic(k: &Builder) {
    let (n, out) = (k.param::<u32>("n"), k.global::<f32>("out"));
    let (sum, bits) = (k.var(0.0f32), k.var(k.tid()));
    k.for_(0, n, |i| {
        bits.set((bits.get() ^ i) * 3 + (i & 7));
        sum.set(sum.get().fma(0.5f32, bits.get().cast::<f32>()));
    });
    out.at(k.block_id() * k.threads() + k.tid()).store(sum.get());
}

/// A loop of loads from global memory, stores to and loads from shared memory, and barriers.
fn memory(k: &Builder) {
    let (n, x, out) = (k.param::<u32>("n"), k.global::<f32>("x"), k.global::<f32>("out"));
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

fn launch(kernel: &str, checks: Checks) -> (Memory, Launch) {
    let mut memory = Memory::new();
    let n = Arg::Scalar(Const::u32(200));
    let x = Arg::Ptr(memory.upload("x", &vec![1.0f32; 1024]));
    let out = Arg::Ptr(memory.alloc("out", 4 * 256 * 4));
    let args = if kernel == "memory" { vec![n, x, out] } else { vec![n, out] };
    (memory, Launch { checks, ..Launch::new([4, 1, 1], args) })
}

fn run(kernel: &Verified, checks: Checks, seed: u64) -> u64 {
    let (mut memory, launch) = launch(&kernel.kernel().name, checks);
    match sim::run(kernel, &launch, &mut memory, seed).expect("the launch is sound") {
        Outcome::Finished(counters) => counters.lane_instructions(),
        Outcome::Fault(fault) => panic!("{fault}"),
    }
}

fn lane_instructions(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane_instructions");
    group.sample_size(20);
    for (name, build) in [("arithmetic", arithmetic as fn(&Builder)), ("memory", memory)] {
        let kernel = verify(record(name, Arch::Sm90a, block(256), build)).expect("it verifies");
        for checks in [Checks::On, Checks::Off] {
            let mut seed = 0;
            group.throughput(Throughput::Elements(run(&kernel, checks, 0)));
            group.bench_function(format!("{name}, checks {checks:?}"), |bencher| {
                bencher.iter(|| {
                    seed += 1;
                    run(&kernel, checks, seed)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, lane_instructions);
criterion_main!(benches);
