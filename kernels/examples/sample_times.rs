//! How long one block takes to choose a token on a GPU: `sample_times [DEVICE]`, by events, the median of 30 launches
//! after three; every choice is compared with the oracle's. Exits with 1 if one differs.

use std::process::ExitCode;
use std::time::Duration;

use tilewright_codegen::device;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::naive::{self, Sampling};
use tilewright_kernels::sample::{Request, sample_rows};

/// Logits as a language model gives them, roughly: a bell, and a few that stand out.
fn logits(draw: &mut Draw, count: u32) -> Vec<f32> {
    let bell = |draw: &mut Draw| (0..6).map(|_| draw.unit()).sum::<f64>() * 2.0;
    (0..count).map(|i| (bell(draw) + if i % 4001 == 17 { 9.0 + 2.0 * draw.unit() } else { 0.0 }) as f32).collect()
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let device = device::open(&std::env::args().nth(1).unwrap_or_else(|| "cuda:0".into()))?;
    let (stream, mut draw) = (device.stream()?, Draw::new(7));
    let loaded = device.load(&verify(sample_rows(Arch::Sm90a, 32))?)?;
    let ways = [
        ("greedy", (0.0, None, 1.0)),
        ("temperature 0.8", (0.8, None, 1.0)),
        ("0.8, top-k 50", (0.8, Some(50), 1.0)),
        ("0.8, top-k 50, top-p 0.9", (0.8, Some(50), 0.9)),
        ("0.8, top-p 0.9", (0.8, None, 0.9)),
        ("5.0, top-p 0.9 (thousands kept)", (5.0, None, 0.9)),
        ("5.0, top-k 20000", (5.0, Some(20_000), 1.0)),
    ];
    println!("{:>8} {:>5} {:32} {:>10}", "tokens", "rows", "way", "us");
    let mut all_right = true;
    for (count, rows) in [(32_000, 1), (128_256, 1), (128_256, 16), (262_144, 1)] {
        let logits: Vec<f32> = (0..rows).flat_map(|_| logits(&mut draw, count)).collect();
        for (name, (temperature, top_k, top_p)) in ways {
            let sampling = Sampling::new(temperature, top_k, top_p, 42)?;
            let choose = |(row, logits): (u32, &[f32])| naive::sample(logits, &sampling, 3, row).unwrap_or(0) as u32;
            let chosen: Vec<u32> = (0..).zip(logits.chunks(count as usize)).map(choose).collect();
            let requests = vec![Request::new(&sampling, 3, 0); rows as usize];
            let mut trial = Trial::new(verify(sample_rows(Arch::Sm90a, 32))?, rows);
            let given = trial.input("logits", &logits);
            let requests = trial.input::<u32>("requests", bytemuck::cast_slice(&requests));
            let tokens = trial.output("tokens", Expected::exact(&chosen));
            let trial = trial.pass(count).pass(count).pass(given).pass(requests).pass(tokens);
            let mut times = Vec::new();
            for round in 0..33 {
                let outcome = trial.run_loaded(&loaded, &stream)?;
                all_right &= outcome.is_right();
                if round >= 3 {
                    times.push(outcome.time);
                }
            }
            times.sort();
            let median: Duration = times[times.len() / 2];
            println!("{count:>8} {rows:>5} {name:32} {:>10.1}", median.as_secs_f64() * 1e6);
        }
    }
    println!("{}", if all_right { "every choice is the oracle's" } else { "WRONG choices" });
    Ok(ExitCode::from(u8::from(!all_right)))
}
