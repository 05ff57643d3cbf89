//! Compares decode on CPU threads with memory bandwidth: a step of a Llama-3.2-1B of random bf16
//! weights, at one row, against a plain sum over the same bytes by as many threads.
//!
//! `cargo bench -p tilewright-megakernel --bench vm`. It needs 3 GB of memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::{RandomWeights, WeightTensor, Weights};

const CONTEXT: usize = 256;
const POSITION: i32 = 100;

/// The peer: every thread adds its share of every tensor, eight bytes at a time, in enough sums to
/// vectorise.
fn plain_sum(threads: &ThreadPool, tensors: &[WeightTensor]) -> u64 {
    let sums = threads.broadcast(|thread| {
        let mut sums = [0u64; 32];
        for tensor in tensors {
            let words: &[u64] = bytemuck::cast_slice(tensor.bytes().as_ref());
            let share = words.len().div_ceil(thread.num_threads());
            let words = words.chunks(share).nth(thread.index()).unwrap_or_default();
            let (chunks, tail) = words.as_chunks::<32>();
            for chunk in chunks {
                for (sum, word) in sums.iter_mut().zip(chunk) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            sums[0] = tail.iter().fold(sums[0], |sum, word| sum.wrapping_add(*word));
        }
        sums.into_iter().fold(0, u64::wrapping_add)
    });
    sums.into_iter().fold(0, u64::wrapping_add)
}

fn machine(spec: &ModelSpec, weights: &RandomWeights, target: Target, workers: usize) -> (Machine, KvState) {
    let program = lower(spec, &|_| DType::BF16, target, &LowerOptions::for_context(CONTEXT)).expect("lowers");
    let placed = schedule(program, CONTEXT).expect("schedules");
    let kv = KvState::new(&placed).expect("fits");
    (Machine::new(placed, weights, workers).expect("binds"), kv)
}

fn step(machine: &mut Machine, kv: &mut KvState) {
    let pages: Vec<i32> = (0..CONTEXT as i32 / 64).collect();
    let cells = StepCells { tokens: &[1], positions: &[POSITION], page_table: &pages };
    black_box(machine.step(kv, &cells).expect("steps"));
}

/// Median seconds of some runs.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn decode(c: &mut Criterion) {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let spec = ModelSpec::named("llama-3.2-1b").expect("a known model");
    let weights = RandomWeights::new(&spec, DType::BF16, 1).expect("fits");
    let tensors: Vec<WeightTensor> =
        spec.model().unwrap().tensors().iter().filter_map(|t| weights.tensor(&t.name)).collect();
    let bytes: usize = tensors.iter().map(|t| t.bytes().as_ref().len()).sum();
    let threads = ThreadPoolBuilder::new().num_threads(workers).build().expect("threads");
    let mut group = c.benchmark_group("llama-3.2-1b, one row");
    group.sample_size(10).throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("plain sum", |b| b.iter(|| plain_sum(&threads, black_box(&tensors))));
    for (name, target) in [("host", Target::host(workers)), ("h100", Target::named("h100").expect("known"))] {
        let (mut machine, mut kv) = machine(&spec, &weights, target, workers);
        group.bench_function(format!("step, program for {name}"), |b| b.iter(|| step(&mut machine, &mut kv)));
        // Turn by turn, so that both see the same neighbours.
        let mut sums = Vec::new();
        let mut steps = Vec::new();
        for _ in 0..10 {
            let start = Instant::now();
            black_box(plain_sum(&threads, black_box(&tensors)));
            let between = Instant::now();
            step(&mut machine, &mut kv);
            sums.push(between - start);
            steps.push(between.elapsed());
        }
        let sum = median(sums);
        let step = median(steps);
        let rate = |seconds| bytes as f64 / 1e9 / seconds;
        println!(
            "{name}, {workers} workers: step {:.1} GB/s, plain sum {:.1} GB/s: {:.0} %",
            rate(step),
            rate(sum),
            100.0 * sum / step
        );
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
