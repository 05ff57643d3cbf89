//! Fused ops are the plain ones composed, bit for bit.

use proptest::prelude::*;
use tilewright_graph::op::RopePairs;
use tilewright_kernels::activation::Activation;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{
    GroupShape, HeadOutput, KeyOutput, Linear, LinearInput, LinearOutput, NormWeight, Projection, Qkv, Rope, Rotation,
    RowCells,
};
use tilewright_megakernel::program::{BufferId, Op, Region, Span};
use tilewright_megakernel::testing::{Add, Combine, KvAppend, RmsNorm, SiluMul};

use super::lab::{Lab, Ran, floats};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Norm input, residual output and silu·mul output against the ops on their own.
    #[test]
    fn linear_is_norm_product_sum_and_silu_mul(
        rows in 1usize..4,
        n in 1usize..16,
        k in 1usize..50,
        types in [floats(), floats(), floats()],
        biased: bool,
        seed: u64,
    ) {
        let mut lab = Lab::new(seed);
        let (x, _) = lab.input("x", types[0], &[rows, k]);
        let (norm, _) = lab.weight("norm", types[1], &[k]);
        let (gate, _) = lab.weight("gate", types[1], &[n, k]);
        let (up, _) = lab.weight("up", types[1], &[n, k]);
        let (bias, _) = lab.weight("bias", types[1], &[n]);
        let (residual, _) = lab.input("residual", types[2], &[rows, n]);
        let bias = biased.then_some(bias);
        let normed = lab.activation("normed", DType::F32, &[rows, k]);
        let [y, u] = ["y", "u"].map(|name| lab.activation(name, DType::F32, &[rows, n]));
        let outputs = ["sum", "sum.fused", "gated", "gated.fused"];
        let [sum, sum_fused, gated, gated_fused] = outputs.map(|name| lab.output(name, types[2], &[rows, n]));
        let all = Span::all(rows);
        let fused = LinearInput::RmsNorm { x, weight: norm, eps: 1e-5 };
        let plain = LinearInput::Plain { x: normed };
        let layer = |input: &LinearInput, weight, cols, output| {
            Op::from(Linear { input: input.clone(), weight, bias, rows: all, cols, output })
        };
        let whole = |buffer| Region::whole(buffer, &[rows, n]);
        lab.task(Op::from(RmsNorm { x, weight: norm, out: normed, rows: all, eps: 1e-5 }));
        lab.task(layer(&plain, gate, Span::all(n), LinearOutput::Store { out: y, sent: vec![] }));
        lab.task(layer(&plain, up, Span::all(n), LinearOutput::Store { out: u, sent: vec![] }));
        lab.task(Op::from(Add { a: whole(residual), b: whole(y), out: whole(sum) }));
        lab.task(Op::from(SiluMul { gate: whole(y), up: whole(u), out: whole(gated) }));
        let tiles = lab.tiles(n, 3);
        let add = LinearOutput::Add { residual, out: sum_fused };
        lab.tasks(tiles.iter().map(|&cols| layer(&fused, gate, cols, add.clone())).collect());
        let silu = LinearOutput::Gated { activation: Activation::default(), up: Some(up), up_bias: bias, out: gated_fused };
        lab.tasks(tiles.iter().map(|&cols| layer(&fused, gate, cols, silu.clone())).collect());
        let ran = lab.run();
        prop_assert_eq!(ran.bits("sum"), ran.bits("sum.fused"));
        prop_assert_eq!(ran.bits("gated"), ran.bits("gated.fused"));
        prop_assert!(ran.floats["sum"].iter().chain(&ran.floats["gated"]).all(|x| x.is_finite()));
    }

    /// Combine input against combine and then linear.
    #[test]
    fn linear_is_combine_and_product(rows in 1usize..4, heads in 1usize..4, splits in 1usize..5, dim in 1usize..20, seed: u64) {
        let mut lab = Lab::new(seed);
        let n = 9;
        let all = Span::all(rows);
        let layer = |input, weight, out| {
            let output = LinearOutput::Store { out, sent: vec![] };
            Op::from(Linear { input, weight, bias: None, rows: all, cols: Span::all(n), output })
        };
        let (acc, _) = lab.input("acc", DType::F32, &[rows, heads, splits, dim]);
        let stats: Vec<f32> = lab.random.values(rows * heads * splits).into_iter().flat_map(|m| [m, 1.5 + m]).collect();
        let stats = lab.input_of("stats", DType::F32, &[rows, heads, splits, 2], &stats);
        let (weight, values) = lab.weight("weight", DType::BF16, &[n, heads * dim]);
        let merged = lab.output("merged", DType::F32, &[rows, heads, dim]);
        let fused = lab.output("out", DType::F32, &[rows, n]);
        lab.task(Op::from(Combine { acc, stats, out: merged, rows: all, heads: Span::all(heads) }));
        lab.task(layer(LinearInput::Combine { acc, stats }, weight, fused));
        let fused = lab.run();
        // The merged heads as rows of heads · dim.
        let mut lab = Lab::new(seed);
        let x = lab.input_of("x", DType::F32, &[rows, heads * dim], &fused.floats["merged"]);
        let weight = lab.weight_of("weight", DType::BF16, &[n, heads * dim], &values);
        let out = lab.output("out", DType::F32, &[rows, n]);
        lab.task(layer(LinearInput::Plain { x }, weight, out));
        prop_assert_eq!(lab.run().bits("out"), fused.bits("out"));
    }

    /// Projections by strips, with rotation and append, against plain layers, rope and append; and
    /// the same in two levels, as models with norms over heads need it.
    #[test]
    fn qkv_is_three_layers_rope_and_append(
        kv_heads in 1usize..3,
        group in prop::sample::select(vec![1usize, 2, 3, 5, 7]),
        dim in prop::sample::select(vec![2usize, 6, 16, 20, 36]),
        positions in prop::collection::vec(-1i32..40, 1..4),
        types in [floats(), floats()],
        biased: bool,
        normed: bool,
        seed: u64,
    ) {
        let case = QkvCase { kv_heads, group, dim, positions, types, biased, normed, seed };
        let fused = case.fused();
        let plain = case.plain();
        prop_assert_eq!(fused.bits("q"), plain.bits("q"));
        for pool in ["k", "v"] {
            prop_assert_eq!(fused.kv.read(pool), plain.kv.read(pool));
        }
    }
}

struct QkvCase {
    kv_heads: usize,
    group: usize,
    dim: usize,
    positions: Vec<i32>,
    types: [DType; 2],
    biased: bool,
    normed: bool,
    seed: u64,
}

/// The common start of both paths.
struct QkvLab {
    lab: Lab,
    input: LinearInput,
    parts: [Projection; 3],
    norm: NormWeight,
    rope: Rotation,
    pools: [BufferId; 2],
    at: RowCells,
}

impl QkvCase {
    const WIDTH: usize = 24;

    fn rows(&self) -> Span {
        Span::all(self.positions.len())
    }

    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn lab(&self) -> QkvLab {
        let mut lab = Lab::new(self.seed);
        let dim = self.dim;
        let k = Self::WIDTH;
        let (x, _) = lab.input("x", self.types[0], &[self.positions.len(), k]);
        let (weight, _) = lab.weight("norm", DType::F32, &[k]);
        let input = LinearInput::RmsNorm { x, weight, eps: 1e-5 };
        let counts = [("wq", self.heads()), ("wk", self.kv_heads), ("wv", self.kv_heads)];
        let parts = counts.map(|(name, heads)| {
            let (weight, _) = lab.weight(name, self.types[1], &[heads * dim, k]);
            let (bias, _) = lab.weight(&format!("{name}.bias"), self.types[1], &[heads * dim]);
            Projection { weight, bias: self.biased.then_some(bias) }
        });
        let (weight, _) = lab.weight("head norm", DType::F32, &[dim]);
        let norm = NormWeight { weight, eps: 1e-6 };
        let rope = Rotation { inv_freq: lab.inv_freq(dim).0, scale: 0.75 };
        let pools = ["k", "v"].map(|name| lab.pool(name, self.types[0], [self.kv_heads, 9, 16, dim]).0);
        let at = lab.place(&self.positions, 16, 9);
        QkvLab { lab, input, parts, norm, rope, pools, at }
    }

    fn fused(&self) -> Ran {
        let QkvLab { mut lab, input, parts: [wq, wk, wv], norm, rope, pools: [k_pool, v_pool], at } = self.lab();
        let rows = self.rows();
        let dim = self.dim;
        let out = lab.output("q", DType::F32, &[rows.len(), self.heads(), dim]);
        let (q, k, raw) = if self.normed {
            let q = lab.activation("q.raw", DType::F32, &[rows.len(), self.heads(), dim]);
            let k = lab.activation("k.raw", DType::F32, &[rows.len(), self.kv_heads, dim]);
            (q, KeyOutput::Raw { out: k }, Some((q, k)))
        } else {
            (out, KeyOutput::RopeAppend { rope: rope.clone(), pool: k_pool }, None)
        };
        let strips = GroupShape { group: self.group, head_dim: dim }.strips();
        let mut ops = Vec::new();
        for kv_head in 0..self.kv_heads {
            for strips in lab.tiles(strips, 4) {
                let input = input.clone();
                let wq = wq.clone();
                let wk = wk.clone();
                let wv = wv.clone();
                let k = k.clone();
                let at = at.clone();
                ops.push(Op::from(Qkv { input, wq, wk, wv, kv_head, strips, rows, q, k, v_pool, at }));
            }
        }
        lab.tasks(ops);
        if let Some((q, k)) = raw {
            let finish = |x, heads, output| {
                let norm = Some(norm);
                let rope = Some(rope.clone());
                let at = at.clone();
                let pairs = RopePairs::Halves;
                Op::from(Rope { x, columns: None, norm, rope, pairs, heads: Span::all(heads), rows, at, output })
            };
            let queries = finish(q, self.heads(), HeadOutput::Store { out });
            lab.tasks(vec![queries, finish(k, self.kv_heads, HeadOutput::Append { pool: k_pool })]);
        }
        lab.run()
    }

    fn plain(&self) -> Ran {
        let QkvLab { mut lab, input, parts, .. } = self.lab();
        let rows = self.rows();
        let counts = [("q.flat", self.heads()), ("k.flat", self.kv_heads), ("v.flat", self.kv_heads)];
        for ((name, heads), part) in counts.into_iter().zip(parts) {
            let n = heads * self.dim;
            let output = LinearOutput::Store { out: lab.output(name, DType::F32, &[rows.len(), n]), sent: vec![] };
            let input = input.clone();
            let weight = part.weight;
            let bias = part.bias;
            lab.task(Op::from(Linear { input, weight, bias, rows, cols: Span::all(n), output }));
        }
        // No op here reads the cells.
        (lab.positions, lab.page_table) = (vec![], vec![]);
        let flat = lab.run().floats;
        // The rows as heads.
        let QkvLab { mut lab, norm, rope, pools: [k_pool, v_pool], at, .. } = self.lab();
        let out = lab.output("q", DType::F32, &[rows.len(), self.heads(), self.dim]);
        let [q, k, v] =
            counts.map(|(name, heads)| lab.input_of(name, DType::F32, &[rows.len(), heads, self.dim], &flat[name]));
        let finish = |x, heads, output| {
            let norm = self.normed.then_some(norm);
            let rope = Some(rope.clone());
            let at = at.clone();
            let pairs = RopePairs::Halves;
            Op::from(Rope { x, columns: None, norm, rope, pairs, heads: Span::all(heads), rows, at, output })
        };
        lab.task(finish(q, self.heads(), HeadOutput::Store { out }));
        lab.task(finish(k, self.kv_heads, HeadOutput::Append { pool: k_pool }));
        lab.task(Op::from(KvAppend { x: v, heads: Span::all(self.kv_heads), rows, at, pool: v_pool }));
        lab.run()
    }
}
