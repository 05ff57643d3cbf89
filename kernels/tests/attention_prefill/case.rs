//! A prefill problem: its data, its launch on the simulator, its result by definition.

use half::bf16;
use tilewright_codegen::build::Scalar;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome, Swizzle, TensorElem, TensorMap};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout, warps};
use tilewright_kernels::kv::{KvFamily, Tma};
use tilewright_kernels::naive;

/// A prefill problem: sequences of (queries, tokens).
#[derive(Clone, Debug)]
pub struct Case {
    pub prefill: Prefill,
    pub kv_heads: u32,
    pub sequences: Vec<(u32, u32)>,
    pub data: u64,
}

/// How the kernel is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Hopper,
    Warps { tensor_map: bool },
}

struct Data {
    /// `[sequence][head][query][column]`.
    q: Vec<Vec<Vec<bf16>>>,
    /// Keys and values, `[sequence][head][token][column]`.
    kv: [Vec<Vec<Vec<bf16>>>; 2],
    table: Vec<u32>,
    width: u32,
    planes: u64,
    rows: u64,
}

/// A tensor `[planes, rows, D]` by the offset of plane and row.
struct Shape {
    planes: u64,
    rows: u64,
    strides: [u64; 2],
}

impl Case {
    pub fn hopper(&self) -> Verified {
        verify(self.prefill.record_hopper()).unwrap_or_else(|errors| panic!("{errors}"))
    }

    pub fn warps<F: KvFamily>(&self, arch: Arch) -> (Verified, Way) {
        let kernel = verify(self.prefill.record::<F>(arch)).unwrap_or_else(|errors| panic!("{errors}"));
        (kernel, Way::Warps { tensor_map: F::TENSOR_MAP })
    }

    pub fn boxes_fit(&self) -> bool {
        match self.prefill.kv {
            Kv::HeadMajor | Kv::Ragged => true,
            Kv::Paged { page_tokens } => Tma::box_rows(64, Some(page_tokens)) >= 8,
        }
    }

    fn starts(&self, of: impl Fn(&(u32, u32)) -> u32) -> Vec<u32> {
        let mut starts = vec![0];
        for sequence in &self.sequences {
            starts.push(starts[starts.len() - 1] + of(sequence));
        }
        starts
    }

    fn data(&self) -> Data {
        let mut draw = Draw::new(self.data);
        let depth = self.prefill.depth as usize;
        let mut block = |rows: u32, heads: u32| -> Vec<Vec<bf16>> {
            (0..heads).map(|_| draw.floats(rows as usize * depth, |v| bf16::from_f64(2.0 * v))).collect()
        };
        let heads = self.kv_heads * self.prefill.group;
        let q = self.sequences.iter().map(|s| block(s.0, heads)).collect();
        let kv = [0, 1].map(|_| self.sequences.iter().map(|s| block(s.1, self.kv_heads)).collect());
        let most = self.sequences.iter().map(|s| s.1).max().unwrap_or(0).max(1);
        let count = self.sequences.len() as u32;
        let (width, planes, rows) = match self.prefill.kv {
            Kv::HeadMajor => (1, count * self.kv_heads, most + 5),
            Kv::Ragged => (1, self.kv_heads, self.sequences.iter().map(|s| s.1).sum::<u32>().max(1)),
            Kv::Paged { page_tokens } => {
                let width = most.div_ceil(page_tokens);
                (width, self.kv_heads, (width * count + 1) * page_tokens)
            }
        };
        // Pages of the sequences interleave, the last first; page 0 belongs to nobody.
        let all = width * count;
        let table = (0..all).map(|i| all - (i % width * count + i / width)).collect();
        Data { q, kv, table, width, planes: planes.into(), rows: rows.into() }
    }

    fn kv_shape(&self, data: &Data) -> Shape {
        let depth = u64::from(self.prefill.depth);
        let strides = match self.prefill.kv {
            Kv::Ragged => [u64::from(self.kv_heads) * depth, depth],
            Kv::HeadMajor | Kv::Paged { .. } => [depth, data.rows * depth],
        };
        Shape { planes: data.planes, rows: data.rows, strides }
    }

    fn q_shape(&self) -> Shape {
        let (depth, heads) = (u64::from(self.prefill.depth), u64::from(self.kv_heads * self.prefill.group));
        let first = u64::from(self.sequences[0].0);
        let all: u64 = self.sequences.iter().map(|s| u64::from(s.0)).sum();
        match self.prefill.queries {
            QueryLayout::HeadMajor => {
                Shape { planes: heads * self.sequences.len() as u64, rows: first, strides: [depth, first * depth] }
            }
            QueryLayout::Ragged => Shape { planes: heads, rows: all, strides: [heads * depth, depth] },
        }
    }

    /// The offset of a query.
    fn query(&self, sequence: usize, head: usize, query: usize) -> usize {
        let shape = self.q_shape();
        let heads = (self.kv_heads * self.prefill.group) as usize;
        let (row, plane) = match self.prefill.queries {
            QueryLayout::HeadMajor => (query, sequence * heads + head),
            QueryLayout::Ragged => (self.starts(|s| s.0)[sequence] as usize + query, head),
        };
        row * shape.strides[0] as usize + plane * shape.strides[1] as usize
    }

    fn queries(&self, data: &Data) -> Vec<bf16> {
        let depth = self.prefill.depth as usize;
        let shape = self.q_shape();
        let mut all = vec![bf16::NAN; (shape.planes * shape.rows) as usize * depth];
        for (sequence, heads) in data.q.iter().enumerate() {
            for (head, rows) in heads.iter().enumerate() {
                for (query, columns) in rows.chunks(depth).enumerate() {
                    let at = self.query(sequence, head, query);
                    all[at..at + depth].copy_from_slice(columns);
                }
            }
        }
        all
    }

    /// The cache as it lies in memory: what belongs to no token is NaN.
    fn pool(&self, data: &Data, which: usize) -> Vec<bf16> {
        let depth = self.prefill.depth as usize;
        let shape = self.kv_shape(data);
        let mut pool = vec![bf16::NAN; (shape.planes * shape.rows) as usize * depth];
        let starts = self.starts(|s| s.1);
        for (sequence, heads) in data.kv[which].iter().enumerate() {
            for (head, tokens) in heads.iter().enumerate() {
                for (token, columns) in tokens.chunks(depth).enumerate() {
                    let (plane, row) = match self.prefill.kv {
                        Kv::HeadMajor => (sequence * self.kv_heads as usize + head, token),
                        Kv::Ragged => (head, starts[sequence] as usize + token),
                        Kv::Paged { page_tokens } => {
                            let page = page_tokens as usize;
                            let entry = data.table[sequence * data.width as usize + token / page];
                            (head, entry as usize * page + token % page)
                        }
                    };
                    let at = plane * shape.strides[1] as usize + row * shape.strides[0] as usize;
                    pool[at..at + depth].copy_from_slice(columns);
                }
            }
        }
        pool
    }

    fn map(&self, address: u64, shape: &Shape, box_rows: u32) -> TensorMap {
        let depth = self.prefill.depth;
        let width = if depth.is_multiple_of(64) { 64 } else { 32 };
        let swizzle = if width == 64 { Swizzle::B128 } else { Swizzle::B64 };
        let dims = [depth.into(), shape.rows, shape.planes];
        let plain = TensorMap::plain(address, TensorElem::BF16, &dims, &[width, box_rows, 1], swizzle);
        TensorMap { strides: shape.strides.iter().map(|s| s * 2).collect(), ..plain }
    }

    /// Runs a kernel under a seed; how it ended, and whether the result is right.
    pub fn run(&self, kernel: &Verified, way: Way, seed: u64) -> (Outcome, Result<(), String>) {
        let data = self.data();
        let mut memory = Memory::new();
        let q = self.queries(&data);
        let q_at = memory.upload_read_only("q", &q);
        let page = match self.prefill.kv {
            Kv::HeadMajor | Kv::Ragged => None,
            Kv::Paged { page_tokens } => Some(page_tokens),
        };
        let (block_rows, keys, mapped) = match way {
            Way::Hopper => (self.prefill.hopper_rows(), self.prefill.tuning().keys, true),
            Way::Warps { tensor_map } => (warps::BLOCK_ROWS, warps::TILE, tensor_map),
        };
        let shape = self.kv_shape(&data);
        let pools = [0, 1].map(|which| {
            let pool = memory.upload_read_only(["keys", "values"][which], &self.pool(&data, which));
            if mapped { Arg::TensorMap(self.map(pool, &shape, Tma::box_rows(keys, page))) } else { Arg::Ptr(pool) }
        });
        let (query_starts, token_starts) = (self.starts(|s| s.0), self.starts(|s| s.1));
        let query_starts = memory.upload_read_only("query_starts", &query_starts);
        let token_starts = memory.upload_read_only("token_starts", &token_starts);
        let table = memory.upload_read_only("table", &data.table);
        let out = memory.alloc("out", q.len() * 2);
        let tiles = self.sequences.iter().map(|s| s.0.div_ceil(block_rows)).max().unwrap_or(0);
        let heads = self.kv_heads * self.prefill.group;
        let number = |n: u32| Arg::Scalar(n.constant());
        let [keys, values] = pools;
        let q_arg =
            if way == Way::Hopper { Arg::TensorMap(self.map(q_at, &self.q_shape(), 64)) } else { Arg::Ptr(q_at) };
        let args = vec![
            q_arg,
            keys,
            values,
            Arg::Ptr(query_starts),
            Arg::Ptr(token_starts),
            Arg::Ptr(table),
            number(data.width),
            number(shape.strides[1] as u32),
            number(tiles),
            number(heads),
            number(2.min(heads)),
            Arg::Scalar(((self.scale() * std::f64::consts::LOG2_E) as f32).constant()),
            Arg::Ptr(out),
        ];
        let launch = Launch::new([tiles * heads, self.sequences.len() as u32, 1], args);
        let outcome = sim::run(kernel, &launch, &mut memory, seed).expect("the launch fits the kernel");
        if outcome.fault().is_some() {
            return (outcome, Ok(()));
        }
        let found = memory.download::<bf16>(out, q.len()).map_err(|error| error.to_string());
        (outcome, found.and_then(|out| self.compare(&data, &out)))
    }

    fn scale(&self) -> f64 {
        1.0 / f64::from(self.prefill.depth).sqrt()
    }

    fn compare(&self, data: &Data, out: &[bf16]) -> Result<(), String> {
        let depth = self.prefill.depth as usize;
        let wide = |x: &[bf16]| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
        for (sequence, &(queries, tokens)) in self.sequences.iter().enumerate() {
            for head in 0..(self.kv_heads * self.prefill.group) as usize {
                let of = |which: usize| wide(&data.kv[which][sequence][head / self.prefill.group as usize]);
                let (keys, values) = (of(0), of(1));
                let sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
                for query in 0..queries as usize {
                    let q = wide(&data.q[sequence][head][query * depth..(query + 1) * depth]);
                    let seen = if self.prefill.causal {
                        (query as i64 + 1 + i64::from(tokens) - i64::from(queries)).max(0) as usize
                    } else {
                        tokens as usize
                    };
                    let part = |of: &[f64]| {
                        let end = seen * depth;
                        naive::combine(&[naive::attention(&q, &keys[..end], &of[..end], self.scale())], depth)
                    };
                    let (exact, size) = (part(&values), part(&sizes));
                    let at = self.query(sequence, head, query);
                    for (column, ((&got, exact), size)) in out[at..].iter().zip(exact).zip(size).enumerate() {
                        let off = (got.to_f64() - exact).abs();
                        // As for decode: a weight and the result are rounded to bf16; the rest is an eighth of that.
                        if off.is_nan() || off > 2f64.powi(-7) * 1.125 * size {
                            let place = format!("sequence {sequence} head {head} query {query} column {column}");
                            return Err(format!("{place}: {got} instead of {exact}"));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
