//! Decode attention on a GPU: right on small cases, then timed.

use super::{Said, graph_micros, randoms};
use half::bf16;
use tilewright_codegen::device::{Arg, Buffer, Device, Promotion, Stream, TensorShape, TileSwizzle};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::kv::{CpAsync, KvFamily, Tma};
use tilewright_kernels::naive;
use tilewright_layout::DType;

const DEPTH: u32 = 128;
const GROUP: u32 = 4;
const HEADS: u32 = 8;

pub fn all(device: &Device) -> Said {
    let mut right = true;
    for (batch, tokens) in [(1, 1024), (1, 8192), (1, 65536), (8, 8192), (32, 4096)] {
        right &= time::<Tma<2>>(device, batch, tokens, 132)?;
        right &= time::<Tma<3>>(device, batch, tokens, 132)?;
        right &= time::<Tma<4>>(device, batch, tokens, 132)?;
        right &= time::<CpAsync<3>>(device, batch, tokens, 132)?;
    }
    if right { Ok(()) } else { Err("wrong numbers".into()) }
}

fn time<F: KvFamily>(
    device: &Device,
    batch: u32,
    tokens: u32,
    resident: u32,
) -> Result<bool, Box<dyn std::error::Error>> {
    let stream = device.stream()?;
    let decode = Decode { depth: DEPTH, group: GROUP, layout: Layout::Dense };
    let kernel = device.load(&verify(decode.record::<F>(Arch::Sm90a))?)?;
    let elements = (batch * HEADS * tokens * DEPTH) as usize;
    let bytes = 4 * elements;
    let reps = (1_000_000_000 / bytes).clamp(2, 16);
    let data = [randoms(elements, 1), randoms(elements, 2)];
    let first: Vec<Buffer<bf16>> = data.iter().map(|d| stream.buffer(d)).collect::<Result<_, _>>()?;
    let splits = decode.splits(batch * HEADS, tokens, resident);
    let rows = (batch * HEADS * GROUP * DEPTH) as usize;
    let query = randoms(rows, 3);
    let q = stream.buffer(&query)?;
    let lengths = stream.buffer(&vec![tokens; batch as usize])?;
    let acc = device.buffer::<f32>(rows * splits as usize)?;
    let stats = device.buffer::<f32>((batch * HEADS * GROUP * splits * 2) as usize)?;
    let done = stream.buffer(&vec![0u32; (batch * HEADS) as usize])?;
    let out = device.buffer::<bf16>(rows)?;
    stream.poison(&out, 0xff)?;
    let mut works = Vec::new();
    for rep in 0..reps {
        let pools = if rep == 0 { first.clone() } else { copies(&stream, &first)? };
        let maps = pools.iter().map(|pool| map(device, pool, batch, tokens)).collect::<Result<Vec<_>, _>>()?;
        let kv: Vec<Arg<'_>> =
            if F::TENSOR_MAP { maps.iter().map(Arg::Map).collect() } else { pools.iter().map(Arg::from).collect() };
        let scale = std::f32::consts::LOG2_E / (DEPTH as f32).sqrt();
        let args = [
            (&q).into(),
            kv[0].clone(),
            kv[1].clone(),
            (&lengths).into(),
            (&lengths).into(),
            1u32.into(),
            (tokens * DEPTH).into(),
            scale.into(),
            (&acc).into(),
            (&stats).into(),
            (&done).into(),
            (&out).into(),
        ];
        works.push(kernel.work([splits, HEADS, batch], &args)?);
    }
    let (median, best) = graph_micros(device, &stream, &works)?;
    let worst = check(&stream.read(&out)?, &query, &data, batch, tokens);
    let resources = kernel.facts();
    println!(
        "decode {:10} b{batch:<3} {tokens:<6} splits {splits:<3} {median:8.2} us (best {best:8.2}) {:6.3} TB/s  error/bound {worst:.2}  blocks/SM {}",
        F::name(),
        bytes as f64 / median / 1e6,
        resources.blocks_per_sm
    );
    Ok(worst < 1.0)
}

fn copies(stream: &Stream, first: &[Buffer<bf16>]) -> Result<Vec<Buffer<bf16>>, Box<dyn std::error::Error>> {
    first
        .iter()
        .map(|from| {
            let to = stream.device().buffer::<bf16>(from.len())?;
            stream.copy(from, &to)?;
            Ok(to)
        })
        .collect()
}

fn map(
    device: &Device,
    pool: &Buffer<bf16>,
    batch: u32,
    tokens: u32,
) -> Result<tilewright_codegen::device::TensorMap, Box<dyn std::error::Error>> {
    let row = u64::from(DEPTH) * 2;
    let shape = TensorShape {
        dims: vec![DEPTH.into(), tokens.into(), (batch * HEADS).into()],
        strides: vec![row, row * u64::from(tokens)],
        promotion: Promotion::Bytes256,
        tile: vec![64, 16, 1],
        ..TensorShape::row_major(DType::BF16, [1, 64], [1, 64]).swizzle(TileSwizzle::Bytes128)
    };
    Ok(device.tensor_map(pool, shape)?)
}

/// The first and the last query, against the definition in f64.
fn check(out: &[bf16], query: &[bf16], data: &[Vec<bf16>; 2], batch: u32, tokens: u32) -> f64 {
    let depth = DEPTH as usize;
    let wide = |x: &[bf16]| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let mut worst = 0f64;
    for head in [0, (batch * HEADS * GROUP - 1) as usize] {
        let plane = head / GROUP as usize * tokens as usize * depth;
        let [keys, values] = [0, 1].map(|i| wide(&data[i][plane..plane + tokens as usize * depth]));
        let q = wide(&query[head * depth..(head + 1) * depth]);
        let scale = 1.0 / f64::from(DEPTH).sqrt();
        let exact = naive::combine(&[naive::attention(&q, &keys, &values, scale)], depth);
        let sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
        let size = naive::combine(&[naive::attention(&q, &keys, &sizes, scale)], depth);
        for ((got, exact), size) in out[head * depth..].iter().zip(exact).zip(size) {
            let error = (got.to_f64() - exact).abs() / (size * 2f64.powi(-7));
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    worst
}
