//! Sums and running sums of 2²⁸ f32 by one launch each; peers are `benches/peers/scan.cu` and
//! `scan.py`. Prints one JSON row per line.
//!
//! ```sh
//! cargo run --release -p tilewright-kernels --features testing --example device_wide -- cuda:0
//! ```
//!
//! Without an argument a small buffer runs on the simulator.

use std::error::Error;

use tilewright_codegen::device::{self, Arg, Device, Event, Stream, Work, sim};
use tilewright_codegen::verify::verify;
use tilewright_kernels::collective::DeviceWide;

const SUM: DeviceWide<'static, f32> = DeviceWide { name: "device_sum", op: &|a, b| a + b, identity: 0.0 };
/// Launches before the clock runs, and timed launches.
const WARM_UP: usize = 3;
const TIMED: usize = 20;

/// Microseconds of each launch, sorted; launches follow one another without a pause.
fn time(stream: &Stream, work: &Work, timed: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    for _ in 0..if timed > 1 { WARM_UP } else { 0 } {
        stream.submit(work)?;
    }
    let mut events: Vec<Event> = vec![stream.record()?];
    for _ in 0..timed {
        stream.submit(work)?;
        events.push(stream.record()?);
    }
    events[timed].wait()?;
    let pairs = events.windows(2);
    let mut times = pairs.map(|pair| Ok(pair[1].since(&pair[0])?.as_secs_f64() * 1e6)).collect::<Result<Vec<_>, _>>();
    if let Ok(times) = &mut times {
        times.sort_unstable_by(f64::total_cmp);
    }
    times.map_err(|error: device::DeviceError| error.into())
}

fn print(suite: &str, n: u32, times: &[f64], bytes: u64) {
    let samples: Vec<String> = times.iter().map(|time| format!("{time:.3}")).collect();
    println!(
        "{{\"suite\": \"{suite}\", \"who\": \"tilewright\", \"shape\": {{\"n\": {n}}}, \"us\": {:.3}, \
         \"best_us\": {:.3}, \"samples_us\": [{}], \"bytes\": {bytes}, \"flops\": {n}, \"error\": 0}}",
        times[times.len() / 2],
        times[0],
        samples.join(", ")
    );
}

fn run(device: &Device, n: u32, timed: usize) -> Result<(), Box<dyn Error>> {
    let stream = device.stream()?;
    let properties = device.properties();
    let arch = properties.arch().ok_or("no kernels for this GPU")?;
    // Small integers, whose sums f32 holds exactly.
    let host: Vec<f32> = (0..u64::from(n)).map(|i| ((i * 7 + i / 1000) % 3) as f32 - 1.0).collect();
    let x = stream.buffer(&host)?;
    let out = device.buffer::<f32>(n as usize)?;

    let reduce = device.load(&verify(SUM.reduce(arch))?)?;
    let blocks = u32::try_from(reduce.resident_blocks())?;
    let partials = device.buffer::<f32>(blocks as usize)?;
    let done = stream.buffer(&[0u32])?;
    let args: [Arg<'_>; 5] = [n.into(), (&x).into(), (&partials).into(), (&done).into(), (&out).into()];
    let reduce = reduce.work(blocks, &args)?;
    let times = time(&stream, &reduce, timed)?;
    let total = stream.read(&out.slice(0..1)?)?[0];
    assert_eq!(total, host.iter().map(|&x| f64::from(x)).sum::<f64>() as f32, "the sum");
    print("reduce", n, &times, 4 * u64::from(n));

    let tiles = DeviceWide::<f32>::tiles(n);
    let state = stream.buffer(&vec![0u64; tiles as usize])?;
    let turns = stream.buffer(&[0u32; 3])?;
    let args: [Arg<'_>; 5] = [n.into(), (&x).into(), (&state).into(), (&turns).into(), (&out).into()];
    let scan = device.load(&verify(SUM.inclusive_scan(arch))?)?.work(tiles, &args)?;
    let times = time(&stream, &scan, timed)?;
    let mut sum = 0.0;
    for (at, (x, found)) in host.iter().zip(stream.read(&out)?).enumerate() {
        sum += x;
        assert_eq!(found, sum, "running sum {at}");
    }
    print("scan", n, &times, 8 * u64::from(n));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(name) => run(&device::open(&name)?, 1 << 28, TIMED),
        None => run(&sim::open(0), 10_000, 2),
    }
}
