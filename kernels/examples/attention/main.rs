//! Attention on a GPU: `attention decode|prefill [ORDINAL]`.

mod decode;
mod prefill;

use half::bf16;
use std::process::ExitCode;
use tilewright_codegen::device::{Device, Stream, Work, cuda};

type Said = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let device = match cuda::open(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for what in std::env::args().skip(1) {
        let said = match what.as_str() {
            "decode" => decode::all(&device),
            "prefill" => prefill::all(&device),
            _ => Err(format!("{what}: decode or prefill").into()),
        };
        if let Err(error) = said {
            eprintln!("{what}: {error}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Median and best of 20 replays of a graph of the launches, for one launch, in microseconds.
fn graph_micros(device: &Device, stream: &Stream, works: &[Work]) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let graph = device.graph(works)?;
    let mut times = Vec::new();
    for _ in 0..25 {
        let start = stream.record()?;
        graph.launch(stream)?;
        times.push(stream.record()?.since(&start)?.as_secs_f64() * 1e6 / works.len() as f64);
    }
    let mut times = times.split_off(5);
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[0]))
}

/// Numbers from −1 to 1; they repeat after a million.
fn randoms(count: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed;
    let period = count.min(1_000_003);
    let mut all: Vec<bf16> = (0..period)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            bf16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        })
        .collect();
    all.reserve(count);
    while all.len() < count {
        all.extend_from_within(..period.min(count - all.len()));
    }
    all
}
