//! A decode problem: its data, its launch on the simulator, its result by definition.

use half::bf16;
use proptest::prelude::*;
use tilewright_codegen::build::Scalar;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome, Swizzle, TensorElem, TensorMap};
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::kv::{KvFamily, Tma};
use tilewright_kernels::naive;

/// A decode problem.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub depth: u32,
    pub group: u32,
    pub kv_heads: u32,
    pub layout: Layout,
    pub splits: u32,
    pub lengths: [u32; 3],
    pub sequences: usize,
    pub data: u64,
}

pub fn seeds() -> impl Strategy<Value = u64> {
    0u64..1000
}

/// Numbers of bf16 in −2 to 2 that repeat with the seed.
pub struct Draw(u64);

impl Draw {
    pub fn number(&mut self) -> bf16 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bf16::from_f32(((self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 4.0)
    }
    pub fn numbers(&mut self, count: usize) -> Vec<bf16> {
        (0..count).map(|_| self.number()).collect()
    }
}

struct Data {
    q: Vec<bf16>,
    /// Keys and values, `[sequence][head][token][column]`, tokens of the sequence only.
    kv: [Vec<Vec<Vec<bf16>>>; 2],
    tokens: Vec<u32>,
    table: Vec<u32>,
    width: u32,
    planes: u64,
    rows: u64,
}

impl Case {
    fn decode(&self) -> Decode {
        Decode { depth: self.depth, group: self.group, layout: self.layout }
    }

    pub fn kernel<F: KvFamily>(&self, arch: Arch) -> Verified {
        verify(self.decode().record::<F>(arch)).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// Whether the rows of a page are whole groups of eight, as boxes in the swizzle want it.
    pub fn boxes_fit(&self) -> bool {
        match self.layout {
            Layout::Dense => true,
            Layout::Paged { page_tokens } => Tma::box_rows(16, Some(page_tokens)) >= 8,
        }
    }

    fn data(&self) -> Data {
        let mut draw = Draw(self.data);
        let (depth, heads) = (self.depth as usize, self.kv_heads as usize);
        let tokens = self.lengths[..self.sequences].to_vec();
        let most = tokens.iter().copied().max().unwrap_or(0).max(1);
        let q = draw.numbers(self.sequences * heads * self.group as usize * depth);
        let mut cache = || -> Vec<Vec<Vec<bf16>>> {
            tokens.iter().map(|&n| (0..heads).map(|_| draw.numbers(n as usize * depth)).collect()).collect()
        };
        let kv = [cache(), cache()];
        let (width, rows) = match self.layout {
            Layout::Dense => (1, u64::from(most) + 3),
            Layout::Paged { page_tokens } => {
                let width = most.div_ceil(page_tokens);
                (width, u64::from(width * page_tokens) * self.sequences as u64 + u64::from(page_tokens))
            }
        };
        let planes = match self.layout {
            Layout::Dense => (self.sequences * heads) as u64,
            Layout::Paged { .. } => heads as u64,
        };
        // Pages of the sequences interleave, the last first; page 0 belongs to nobody.
        let all = width * self.sequences as u32;
        let table = (0..all).map(|i| all - (i % width * self.sequences as u32 + i / width)).collect();
        Data { q, kv, tokens, table, width, planes, rows }
    }

    /// The cache as it lies in memory: what belongs to no token is NaN.
    fn pool(&self, data: &Data, which: usize) -> Vec<bf16> {
        let (depth, heads) = (self.depth as usize, self.kv_heads as usize);
        let mut pool = vec![bf16::NAN; data.planes as usize * data.rows as usize * depth];
        for (sequence, of_heads) in data.kv[which].iter().enumerate() {
            for (head, tokens) in of_heads.iter().enumerate() {
                for (token, columns) in tokens.chunks(depth).enumerate() {
                    let (plane, row) = match self.layout {
                        Layout::Dense => (sequence * heads + head, token),
                        Layout::Paged { page_tokens } => {
                            let page = page_tokens as usize;
                            let entry = data.table[sequence * data.width as usize + token / page];
                            (head, entry as usize * page + token % page)
                        }
                    };
                    let at = (plane * data.rows as usize + row) * depth;
                    pool[at..at + depth].copy_from_slice(columns);
                }
            }
        }
        pool
    }

    /// Runs the kernel under a seed; how it ended, and whether the result is right.
    pub fn run<F: KvFamily>(&self, kernel: &Verified, seed: u64) -> (Outcome, Result<(), String>) {
        let data = self.data();
        let mut memory = Memory::new();
        let (heads, lines) = (self.kv_heads, self.sequences * self.kv_heads as usize);
        let q = memory.upload_read_only("q", &data.q);
        let pools = [0, 1].map(|which| {
            let pool = memory.upload_read_only(["keys", "values"][which], &self.pool(&data, which));
            if F::TENSOR_MAP { Arg::TensorMap(self.map(pool, &data)) } else { Arg::Ptr(pool) }
        });
        let tokens = memory.upload_read_only("tokens", &data.tokens);
        let table = memory.upload_read_only("table", &data.table);
        let rows = lines * self.group as usize * self.depth as usize;
        let acc = memory.alloc("acc", rows * self.splits as usize * 4);
        let stats = memory.alloc("stats", lines * self.splits as usize * self.group as usize * 8);
        let done = memory.zeros("done", lines * 4);
        let out = memory.alloc("out", rows * 2);
        let [keys, values] = pools;
        let number = |n: u32| Arg::Scalar(n.constant());
        let args = vec![
            Arg::Ptr(q),
            keys,
            values,
            Arg::Ptr(tokens),
            Arg::Ptr(table),
            number(data.width),
            number((data.rows * u64::from(self.depth)) as u32),
            Arg::Scalar((self.scale() * std::f64::consts::LOG2_E).constant_f32()),
            Arg::Ptr(acc),
            Arg::Ptr(stats),
            Arg::Ptr(done),
            Arg::Ptr(out),
        ];
        let launch = Launch::new([self.splits, heads, self.sequences as u32], args);
        let outcome = sim::run(kernel, &launch, &mut memory, seed).expect("the launch fits the kernel");
        if outcome.fault().is_some() {
            return (outcome, Ok(()));
        }
        let right = memory.download::<bf16>(out, rows).map_err(|error| error.to_string()).and_then(|out| {
            let done: Vec<u32> = memory.download(done, lines).map_err(|error| error.to_string())?;
            if done.iter().any(|&n| n != 0) {
                return Err(format!("the counters are not zero again: {done:?}"));
            }
            self.compare(&data, &out)
        });
        (outcome, right)
    }

    fn scale(&self) -> f64 {
        1.0 / f64::from(self.depth).sqrt()
    }

    fn map(&self, address: u64, data: &Data) -> TensorMap {
        let width = if self.depth.is_multiple_of(64) { 64 } else { 32 };
        let page = match self.layout {
            Layout::Dense => None,
            Layout::Paged { page_tokens } => Some(page_tokens),
        };
        let dims = [u64::from(self.depth), data.rows, data.planes];
        let swizzle = if width == 64 { Swizzle::B128 } else { Swizzle::B64 };
        TensorMap::plain(address, TensorElem::BF16, &dims, &[width, Tma::box_rows(16, page), 1], swizzle)
    }

    fn compare(&self, data: &Data, out: &[bf16]) -> Result<(), String> {
        let (depth, group) = (self.depth as usize, self.group as usize);
        for (number, (q, out)) in data.q.chunks(depth).zip(out.chunks(depth)).enumerate() {
            let (sequence, head) = (number / group / self.kv_heads as usize, number / group % self.kv_heads as usize);
            let wide = |x: &[bf16]| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
            let (q, keys, values) = (wide(q), wide(&data.kv[0][sequence][head]), wide(&data.kv[1][sequence][head]));
            let exact = naive::combine(&[naive::attention(&q, &keys, &values, self.scale())], depth);
            let sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
            let size = naive::combine(&[naive::attention(&q, &keys, &sizes, self.scale())], depth);
            let bound = relative_bound(&q, &keys, self.scale());
            for (column, ((&got, exact), size)) in out.iter().zip(exact).zip(size).enumerate() {
                let off = (got.to_f64() - exact).abs();
                if off.is_nan() || off > bound * size + 1e-30 {
                    return Err(format!("head {number} column {column}: {got} instead of {exact}, off by {off:e}"));
                }
            }
        }
        Ok(())
    }
}

/// How far a column may be off, relative to `Σ w·|v| / Σ w`: a weight is rounded to bf16 (2⁻⁸), and the result (2⁻⁸);
/// a score of `d` products of f32 is off by `d·2⁻²⁴·Σ|q·k|`, which enters weights and their sum; `ex2`, the fused
/// multiply-add before it and sums of f32 stay below 2⁻¹⁴ for the lengths of these tests.
pub fn relative_bound(q: &[f64], keys: &[f64], scale: f64) -> f64 {
    let largest = keys
        .chunks(q.len())
        .map(|k| q.iter().zip(k).map(|(q, k)| (q * k).abs()).sum::<f64>() * scale)
        .fold(0.0, f64::max);
    2f64.powi(-7) + 2.0 * (q.len() as f64 * largest * 2f64.powi(-24)) + 2f64.powi(-14)
}

/// An f64 as a constant of f32.
trait Single {
    fn constant_f32(self) -> tilewright_codegen::ir::Const;
}

impl Single for f64 {
    fn constant_f32(self) -> tilewright_codegen::ir::Const {
        (self as f32).constant()
    }
}
