//! Prefill attention on a GPU: right where it is looked at, and timed.

use super::{Said, randoms};
use half::bf16;
use tilewright_codegen::device::{Buffer, Device, Promotion, TensorMap, TensorShape, TileSwizzle};
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout, Tuning};
use tilewright_kernels::attention::softmax::Patience;
use tilewright_kernels::naive;
use tilewright_layout::DType;

const HEADS: u32 = 32;

pub fn all(device: &Device) -> Said {
    let mut right = true;
    for depth in [128, 64] {
        for causal in [false, true] {
            let best = prefill(depth, causal).tuning();
            for tokens in [2048, 8192, 16384] {
                right &= time(device, depth, tokens, causal, best)?;
            }
            let others = [
                Tuning { patience: Patience::None, ..best },
                Tuning { patience: Patience::Some, ..best },
                Tuning { keys: 128, ..best },
                Tuning { keys: 128, patience: Patience::None, ..best },
                Tuning { turns: false, ..best },
            ];
            for (i, &other) in others.iter().enumerate() {
                if other != best && !others[..i].contains(&other) {
                    right &= time(device, depth, 8192, causal, other)?;
                }
            }
        }
    }
    if right { Ok(()) } else { Err("wrong numbers".into()) }
}

fn prefill(depth: u32, causal: bool) -> Prefill {
    Prefill { depth, group: 1, causal, queries: QueryLayout::HeadMajor, kv: Kv::HeadMajor }
}

fn time(
    device: &Device,
    depth: u32,
    tokens: u32,
    causal: bool,
    tuning: Tuning,
) -> Result<bool, Box<dyn std::error::Error>> {
    let stream = device.stream()?;
    let (prefill, bunch) = (prefill(depth, causal), if causal { 4 } else { 2u32 });
    let kernel = device.load(&verify(prefill.record_tuned(tuning))?)?;
    let elements = (HEADS * tokens * depth) as usize;
    let data = [randoms(elements, 1), randoms(elements, 2), randoms(elements, 3)];
    let [q, keys, values] = [0, 1, 2].map(|i| stream.buffer(&data[i]));
    let (q, keys, values) = (q?, keys?, values?);
    let starts = stream.buffer(&[0u32, tokens])?;
    let out = device.buffer::<bf16>(elements)?;
    stream.poison(&out, 0xff)?;
    let maps = [(&q, 64), (&keys, tuning.keys), (&values, tuning.keys)]
        .map(|(buffer, rows)| map(device, buffer, [depth, tokens], rows));
    let [q_map, keys, values] = maps;
    let (q_map, keys, values) = (q_map?, keys?, values?);
    let tiles = tokens.div_ceil(prefill.hopper_rows());
    let scale = std::f32::consts::LOG2_E / (depth as f32).sqrt();
    let args = [
        (&q_map).into(),
        (&keys).into(),
        (&values).into(),
        (&starts).into(),
        (&starts).into(),
        (&starts).into(),
        0u32.into(),
        (tokens * depth).into(),
        tiles.into(),
        HEADS.into(),
        bunch.into(),
        scale.into(),
        (&out).into(),
    ];
    let mut times = Vec::new();
    for _ in 0..14 {
        let start = stream.record()?;
        kernel.launch(&stream, [tiles * HEADS, 1], &args)?;
        times.push(stream.record()?.since(&start)?.as_secs_f64());
    }
    let mut times = times.split_off(4);
    times.sort_by(f64::total_cmp);
    let (n, d, h) = (f64::from(tokens), f64::from(depth), f64::from(HEADS));
    let work = 4.0 * h * n * n * d * if causal { 0.5 } else { 1.0 };
    let worst = check(&stream.read(&out)?, &data, [depth, tokens], causal);
    println!(
        "prefill d{depth:<3} {tokens:<6} {} keys {:<3} patience {:<4} turns {:<5} {:8.3} ms {:6.1} TFLOP/s (best {:6.1})  error/bound {worst:.2}",
        if causal { "causal" } else { "full  " },
        tuning.keys,
        format!("{:?}", tuning.patience),
        tuning.turns,
        times[5] * 1e3,
        work / times[5] / 1e12,
        work / times[0] / 1e12
    );
    Ok(worst < 1.0)
}

fn map(
    device: &Device,
    buffer: &Buffer<bf16>,
    [depth, tokens]: [u32; 2],
    rows: u32,
) -> Result<TensorMap, Box<dyn std::error::Error>> {
    let row = u64::from(depth) * 2;
    let shape = TensorShape {
        dims: vec![depth.into(), tokens.into(), HEADS.into()],
        strides: vec![row, row * u64::from(tokens)],
        promotion: Promotion::Bytes256,
        tile: vec![64, rows, 1],
        ..TensorShape::row_major(DType::BF16, [1, 64], [1, 64]).swizzle(TileSwizzle::Bytes128)
    };
    Ok(device.tensor_map(buffer, shape)?)
}

/// Some queries of the first and the last head, against the definition in f64.
fn check(out: &[bf16], data: &[Vec<bf16>; 3], [depth, tokens]: [u32; 2], causal: bool) -> f64 {
    let (depth, tokens) = (depth as usize, tokens as usize);
    let wide = |x: &[bf16]| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let mut worst = 0f64;
    for (head, query) in [(0, 0), (0, 77), (3, tokens / 2 + 13), (HEADS as usize - 1, tokens - 1)] {
        let plane = head * tokens * depth;
        let seen = if causal { query + 1 } else { tokens };
        let [keys, values] = [1, 2].map(|i| wide(&data[i][plane..plane + seen * depth]));
        let q = wide(&data[0][plane + query * depth..plane + (query + 1) * depth]);
        let scale = 1.0 / (depth as f64).sqrt();
        let exact = naive::combine(&[naive::attention(&q, &keys, &values, scale)], depth);
        let sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
        let size = naive::combine(&[naive::attention(&q, &keys, &sizes, scale)], depth);
        for ((got, exact), size) in out[plane + query * depth..].iter().zip(exact).zip(size) {
            let error = (got.to_f64() - exact).abs() / (size * 2f64.powi(-7));
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    worst
}
