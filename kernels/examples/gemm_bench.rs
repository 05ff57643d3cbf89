//! Matrix products on a GPU: each choice of tiles checked against sums in f64 at random places, then timed.
//!
//! `gemm_bench M,N,K:SHAPE:STAGES:CLUSTER:GROUP:SPLITS ...` prints a line per choice: TFLOP/s by the median and by the best
//! of the timings. Factors are random, and rotate so that the second level of cache does not serve them.

use half::bf16;
use std::error::Error;
use tilewright_codegen::device::{Arg, Buffer, Device, Stream, TensorMap, Work, cuda};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm::{self, Argument, Choice, Config, Problem, Shape, Step, hopper_step};
use tilewright_layout::view::Along;

const SETS: usize = 3;
const ROUNDS: usize = 30;
/// Random numbers in device memory.
const POOL: usize = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device = cuda::open(0)?;
    let stream = device.stream()?;
    println!("{}", device.properties().name);
    let mut draw = Draw::new(1);
    // About normal, of variance 1: four uniform numbers added up.
    let normal: Vec<bf16> =
        (0..1 << 22).map(|_| bf16::from_f64((0..4).map(|_| draw.unit()).sum::<f64>() * 0.75f64.sqrt())).collect();
    let numbers: Vec<bf16> = (0..POOL >> 22).flat_map(|lap| rotated(&normal, lap * 7919)).collect();
    let pool = Pool { device: stream.buffer(&numbers)?, host: numbers };
    for line in std::env::args().skip(1) {
        match measure(&device, &stream, &pool, &line) {
            Ok(row) => println!("{line:48} {row}"),
            Err(error) => println!("{line:48} {}", error.to_string().lines().take(2).collect::<Vec<_>>().join(" ")),
        }
    }
    Ok(())
}

fn parse(line: &str) -> Result<(Problem, Choice), Box<dyn Error>> {
    let fields: Vec<&str> = line.split(':').collect();
    let [extents, shape, stages, cluster, group, splits] = fields[..] else { return Err("six fields, please".into()) };
    let extents: Vec<u32> = extents.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let [m, n, k] = extents[..] else { return Err("three extents, please".into()) };
    let shape = *Shape::ALL.iter().find(|s| format!("{s:?}") == shape).ok_or("no such shape")?;
    // `2` is two blocks down the rows, `n2` two across the columns.
    let (along, cluster) = cluster.strip_prefix('n').map_or((Along::Rows, cluster), |count| (Along::Columns, count));
    let config = Config { stages: stages.parse()?, cluster: cluster.parse()?, along, group: group.parse()? };
    Ok((Problem::new(m, n, k), Choice { shape, config, splits: splits.parse()? }))
}

fn rotated(numbers: &[bf16], by: usize) -> impl Iterator<Item = bf16> {
    let (head, tail) = numbers.split_at(by % numbers.len());
    tail.iter().chain(head).copied()
}

/// Random numbers, on the host and on the device. Factors are parts of it.
struct Pool {
    host: Vec<bf16>,
    device: Buffer<bf16>,
}

impl Pool {
    /// Where the factors of a set are: A and B.
    fn parts(set: usize, [a, b, _]: [usize; 3]) -> [std::ops::Range<usize>; 2] {
        let (first, second) = (set * (20 << 20), (((90 + 50 * set) << 20).min(POOL - b)));
        [first..first + a, second..second + b]
    }
}

fn measure(device: &Device, stream: &Stream, pool: &Pool, line: &str) -> Result<String, Box<dyn Error>> {
    let (problem, choice) = parse(line)?;
    let step = hopper_step::<bf16, bf16>(&problem, choice, device.properties().sms)?;
    let kernel = device.load(&verify(step.kernel.clone())?)?;
    let sizes = problem.sizes();
    let c: Buffer<bf16> = device.buffer(sizes[2])?;
    let mut works = Vec::new();
    for set in 0..SETS {
        let [a, b] = Pool::parts(set, sizes);
        works.push(launch(device, &kernel, &step, [&pool.device.slice(a)?, &pool.device.slice(b)?, &c])?);
    }
    stream.poison(&c, 0xff)?;
    stream.submit(&works[0])?;
    let worst = sample(&problem, Pool::parts(0, sizes).map(|part| &pool.host[part]), &stream.read(&c)?);
    let mut times = Vec::new();
    for round in 0..ROUNDS + 5 {
        let start = stream.record()?;
        stream.submit(&works[round % SETS])?;
        times.push((start, stream.record()?));
    }
    stream.wait()?;
    let mut times: Vec<f64> =
        times[5..].iter().map(|(a, b)| Ok(b.since(a)?.as_secs_f64())).collect::<Result<_, Box<dyn Error>>>()?;
    times.sort_by(f64::total_cmp);
    let rate = |time: f64| problem.operations() / time / 1e12;
    let (median, best) = (times[times.len() / 2], times[0]);
    let verdict = if worst <= 1.0 { "right" } else { "WRONG" };
    Ok(format!(
        "{:7.1} TFLOP/s median {:7.1} best {:9.2} us  {verdict} ({worst:.2} of the bound)",
        rate(median),
        rate(best),
        median * 1e6
    ))
}

fn launch(
    device: &Device,
    kernel: &tilewright_codegen::device::Kernel,
    step: &Step,
    [a, b, c]: [&Buffer<bf16>; 3],
) -> Result<Work, Box<dyn Error>> {
    let buffer = |name: &gemm::Buffer| match name {
        gemm::Buffer::A => a,
        gemm::Buffer::B => b,
        _ => c,
    };
    let maps: Vec<Option<TensorMap>> = step
        .arguments
        .iter()
        .map(|argument| match argument {
            Argument::Map(name, shape) => device.tensor_map(buffer(name), shape.clone()).map(Some),
            _ => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    let args: Vec<Arg<'_>> = step
        .arguments
        .iter()
        .zip(&maps)
        .map(|(argument, map)| match (argument, map) {
            (Argument::Number(number), _) => (*number).into(),
            (Argument::Pointer(name), _) => buffer(name).into(),
            (_, Some(map)) => Arg::Map(map),
            (_, None) => 0u32.into(),
        })
        .collect();
    Ok(kernel.work(step.grid, &args)?)
}

/// The largest error at random places, in units of its bound.
fn sample(problem: &Problem, [a, b]: [&[bf16]; 2], c: &[bf16]) -> f64 {
    let (mut draw, mut worst) = (Draw::new(9), 0.0f64);
    let (n, k) = (problem.n as usize, problem.k as usize);
    for _ in 0..2000 {
        let (row, column) = (draw.between(0..=problem.m - 1) as usize, draw.between(0..=problem.n - 1) as usize);
        let products = || a[row * k..][..k].iter().zip(&b[column * k..][..k]).map(|(a, b)| a.to_f64() * b.to_f64());
        let (sum, size): (f64, f64) = (products().sum(), products().map(f64::abs).sum());
        let found = c[row * n + column].to_f64();
        let bound = 2.0 * 2f64.powi(-24) * k as f64 * size + sum.abs() / 256.0 + 2f64.powi(-20);
        let error = (found - sum).abs() / bound;
        worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
    }
    worst
}
