//! Each op, in a program of its own, against its oracle.

use proptest::prelude::*;
use tilewright_graph::op::RopePairs;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::naive::{self, PoolShape, Sampling, SplitPartial};
use tilewright_kernels::sample::Request;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{
    Argmax, Attention, Copy, Embed, HeadOutput, Linear, LinearInput, LinearOutput, NormWeight, REQUEST_WORDS, Rope,
    Rotation, Sample,
};
use tilewright_megakernel::program::{BufferKind, Op, Region, Span};
use tilewright_megakernel::testing::{Add, Combine, KvAppend, RmsNorm, SiluMul};

use super::lab::{Lab, close, floats, unit, wide};

/// A random box in a buffer that is larger by up to 3 in every dimension: extents of the buffer,
/// the box.
fn boxed(lab: &mut Lab, extents: &[usize]) -> (Vec<usize>, Vec<Span>) {
    let pads: Vec<[usize; 2]> = extents.iter().map(|_| [lab.random.below(3), lab.random.below(2)]).collect();
    let shape = extents.iter().zip(&pads).map(|(e, [a, b])| e + a + b).collect();
    (shape, extents.iter().zip(&pads).map(|(e, [a, _])| Span::new(*a, a + e)).collect())
}

/// The elements of a box of a row-major array, in order.
fn part(values: &[f32], shape: &[usize], spans: &[Span]) -> Vec<f32> {
    let inside = |mut at: usize| {
        shape.iter().zip(spans).rev().all(|(&extent, span)| {
            let index = at % extent;
            at /= extent;
            span.iter().contains(&index)
        })
    };
    (0..values.len()).filter(|&at| inside(at)).map(|at| values[at]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A box is copied to a box, converted, and what lies around it stays.
    #[test]
    fn copy(extents in prop::collection::vec(1usize..6, 1..=4), from in floats(), to in floats(), seed: u64) {
        let mut lab = Lab::new(seed);
        let (src_shape, src_box) = boxed(&mut lab, &extents);
        let (dst_shape, dst_box) = boxed(&mut lab, &extents);
        let (src, values) = lab.input("src", from, &src_shape);
        let (before, around) = lab.input("before", to, &dst_shape);
        let out = lab.output("out", to, &dst_shape);
        lab.task(Op::from(Copy { src: Region::whole(before, &dst_shape), dst: Region::whole(out, &dst_shape) }));
        lab.task(Op::from(Copy { src: Region::new(src, &src_box), dst: Region::new(out, &dst_box) }));
        let found = lab.run().floats["out"].clone();
        let expected: Vec<f32> =
            part(&values, &src_shape, &src_box).into_iter().map(|x| naive::convert(x, to)).collect();
        prop_assert_eq!(part(&found, &dst_shape, &dst_box), expected);
        let outside = |all: &[f32]| all.iter().sum::<f32>() - part(all, &dst_shape, &dst_box).iter().sum::<f32>();
        prop_assert!((outside(&found) - outside(&around)).abs() < 1e-3);
    }

    /// Sum and silu·mul, also in place, are the oracles bit for bit.
    #[test]
    fn add_and_silu_mul(extents in prop::collection::vec(1usize..6, 1..=3), types in [floats(), floats(), floats()], seed: u64) {
        let mut lab = Lab::new(seed);
        let shapes = [(); 2].map(|()| boxed(&mut lab, &extents));
        let (a, a_values) = lab.input("a", types[0], &shapes[0].0);
        let (b, b_values) = lab.input("b", types[1], &shapes[1].0);
        let a = Region::new(a, &shapes[0].1);
        let b = Region::new(b, &shapes[1].1);
        let [sum, product, twice] = ["sum", "product", "twice"].map(|name| {
            let id = lab.output(name, types[2], &extents);
            Region::whole(id, &extents)
        });
        lab.task(Op::from(Add { a, b, out: sum }));
        lab.task(Op::from(SiluMul { gate: a, up: b, out: product }));
        lab.task(Op::from(Add { a, b, out: twice }));
        lab.task(Op::from(Add { a: twice, b, out: twice }));
        let ran = lab.run();
        let a = part(&a_values, &shapes[0].0, &shapes[0].1);
        let b = part(&b_values, &shapes[1].0, &shapes[1].1);
        let stored = |values: Vec<f32>| values.into_iter().map(|x| naive::convert(x, types[2])).collect::<Vec<_>>();
        let once = stored(naive::add(&a, &b));
        prop_assert_eq!(&ran.floats["sum"], &once);
        prop_assert_eq!(&ran.floats["twice"], &stored(naive::add(&once, &b)));
        prop_assert_eq!(&ran.floats["product"], &stored(naive::gated(Activation::Silu, &a, &b)));
    }

    /// Rows are normed within rounding of the exact norm.
    #[test]
    fn rms_norm(rows in 1usize..5, hidden in 1usize..80, types in [floats(), floats(), floats()], seed: u64) {
        let mut lab = Lab::new(seed);
        let (x, values) = lab.input("x", types[0], &[rows, hidden]);
        let (weight, scale) = lab.weight("weight", types[1], &[hidden]);
        let out = lab.output("out", types[2], &[rows, hidden]);
        let eps = 1e-5;
        let tiles = lab.tiles(rows, 3);
        lab.tasks(tiles.into_iter().map(|rows| Op::from(RmsNorm { x, weight, out, rows, eps })).collect());
        let expected: Vec<f64> = wide(&values)
            .chunks(hidden)
            .flat_map(|row| naive::rms_norm(row, &wide(&scale), f64::from(eps)))
            .collect();
        close(&lab.run().floats["out"], &expected, 20.0 * unit(DType::F32) + unit(types[2]), 1e-7);
    }

    /// The rows of the table, zeros for idle rows, whatever the tiles.
    #[test]
    fn embed(rows in 1usize..6, vocab in 1usize..20, hidden in 1usize..40, types in [floats(), floats()], seed: u64) {
        let mut lab = Lab::new(seed);
        let (table, values) = lab.weight("table", types[0], &[vocab, hidden]);
        let ids = lab.buffer("ids", BufferKind::Cell, DType::I32, &[rows]);
        let position = lab.buffer("position", BufferKind::Cell, DType::I32, &[rows]);
        let out = lab.output("out", types[1], &[rows, hidden]);
        lab.positions = (0..rows).map(|_| lab.random.below(3) as i32 - 1).collect();
        lab.tokens = (0..rows).map(|_| lab.random.below(vocab) as i32).collect();
        let row_tiles = lab.tiles(rows, 3);
        let col_tiles = lab.tiles(hidden, 3);
        let each = |rows: Span| col_tiles.iter().map(move |&cols| Op::from(Embed { ids, position, table, scale: None, out, rows, cols, shard: None, sent: vec![] }));
        lab.tasks(row_tiles.into_iter().flat_map(each).collect());
        let expected: Vec<f32> = (0..rows)
            .flat_map(|r| naive::embed(&values, hidden, (lab.positions[r] >= 0).then_some(lab.tokens[r] as usize), 1.0))
            .map(|x| naive::convert(x, types[1]))
            .collect();
        prop_assert_eq!(&lab.run().floats["out"], &expected);
    }

    /// A linear layer, by tiles, is within rounding of the exact product; bias and every element
    /// type included.
    #[test]
    fn linear(
        rows in 1usize..5,
        n in 1usize..20,
        k in 1usize..70,
        types in [floats(), floats(), floats(), floats()],
        biased: bool,
        seed: u64,
    ) {
        let mut lab = Lab::new(seed);
        let (x, x_values) = lab.input("x", types[0], &[rows, k]);
        let (weight, w_values) = lab.weight("weight", types[1], &[n, k]);
        let (bias, b_values) = lab.weight("bias", types[2], &[n]);
        let out = lab.output("out", types[3], &[rows, n]);
        let tiles = lab.tiles(n, 4);
        let tile = |cols| Op::from(Linear {
            input: LinearInput::Plain { x },
            weight,
            bias: biased.then_some(bias),
            rows: Span::all(rows),
            cols,
            output: LinearOutput::Store { out, sent: vec![] },
        });
        lab.tasks(tiles.into_iter().map(tile).collect());
        let b = wide(&b_values);
        let expected: Vec<f64> = wide(&x_values)
            .chunks(k)
            .flat_map(|row| naive::linear(row, &wide(&w_values), biased.then_some(&b)))
            .collect();
        // All factors are below 1, so the sum of magnitudes is below k + 1.
        let sum_error = (k.div_ceil(16) + 6) as f64 * unit(DType::F32) * (k + 1) as f64;
        close(&lab.run().floats["out"], &expected, unit(types[3]), sum_error);
    }

    /// Logits, the best of each tile and the choice, with ties and NaN.
    #[test]
    fn logits_and_argmax(rows in 1usize..4, n in 1usize..40, seed: u64) {
        let mut lab = Lab::new(seed);
        // Small whole numbers tie often; one row of weights in eight is NaN, but not the first: a
        // row of NaN has no choice.
        let k = 3;
        let x_values: Vec<f32> = (0..rows * k).map(|_| lab.random.below(3) as f32).collect();
        let weights: Vec<f32> = (0..n)
            .flat_map(|feature| {
                let nan = lab.random.below(8) == 0 && feature > 0;
                [(); 3].map(|()| if nan { f32::NAN } else { lab.random.below(3) as f32 })
            })
            .collect();
        let x = lab.input_of("x", DType::F32, &[rows, k], &x_values);
        let weight = lab.weight_of("weight", DType::F32, &[n, k], &weights);
        let tiles = lab.tiles(n, 6);
        let out = lab.output("logits", DType::F32, &[rows, n]);
        let best_value = lab.activation("best.value", DType::F32, &[rows, tiles.len()]);
        let best_index = lab.activation("best.index", DType::I32, &[rows, tiles.len()]);
        let next = lab.output("next", DType::I32, &[rows]);
        let mut ops: Vec<Op> = tiles
            .into_iter()
            .enumerate()
            .map(|(tile, cols)| {
                let output = LinearOutput::Logits { soft_cap: None, out, shard: None, best_value, best_index, tile };
                Op::from(Linear { input: LinearInput::Plain { x }, weight, bias: None, rows: Span::all(rows), cols, output })
            })
            .collect();
        ops.reverse();
        lab.tasks(ops);
        lab.task(Op::from(Argmax { value: best_value, index: best_index, out: next, rows: Span::all(rows) }));
        let ran = lab.run();
        for r in 0..rows {
            let logits = naive::linear(&x_values[r * k..][..k], &weights, None);
            let found = &ran.floats["logits"][r * n..][..n];
            prop_assert!(logits.iter().zip(found).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));
            prop_assert_eq!(Some(ran.ints["next"][r] as usize), naive::argmax(&logits));
        }
    }

    /// Choices that rows ask for, on logits that tie; an idle row chooses nothing.
    #[test]
    fn sample(
        rows in prop::collection::vec((-1i32..9, 0usize..4, any::<u64>(), any::<u32>()), 1..5),
        n in 1usize..40,
        seed: u64,
    ) {
        let mut lab = Lab::new(seed);
        let count = rows.len();
        let values: Vec<f32> = (0..count * n).map(|_| lab.random.below(12) as f32 / 2.0).collect();
        let logits = lab.input_of("logits", DType::F32, &[count, n], &values);
        let tiles = lab.tiles(n, 6);
        let best = |row: usize, tile: &Span| {
            let at = naive::argmax(&values[row * n..][tile.lo..tile.hi]).unwrap() + tile.lo;
            (values[row * n + at], at as i32)
        };
        let bests: Vec<(f32, i32)> = (0..count).flat_map(|row| tiles.iter().map(move |tile| (row, tile)))
            .map(|(row, tile)| best(row, tile)).collect();
        let (most, at): (Vec<f32>, Vec<i32>) = bests.into_iter().unzip();
        let value = lab.input_of("value", DType::F32, &[count, tiles.len()], &most);
        let index = lab.input_i32_of("index", &[count, tiles.len()], &at);
        lab.positions = rows.iter().map(|row| row.0).collect();
        let position = lab.buffer("position", BufferKind::Cell, DType::I32, &[count]);
        let request = lab.buffer("request", BufferKind::Cell, DType::I32, &[count, REQUEST_WORDS]);
        let out = lab.output("next", DType::I32, &[count]);
        let ways = [(0.0, None, 1.0), (1.0, None, 0.8), (0.5, Some(3), 1.0), (2.0, Some(7), 0.5)];
        lab.requests = rows.iter().map(|&(_, way, step, row)| {
            let (temperature, top_k, top_p) = ways[way];
            Request::new(&Sampling::new(temperature, top_k, top_p, seed).unwrap(), step, row)
        }).collect();
        for part in lab.tiles(count, 3) {
            lab.task(Op::from(Sample { logits, value, index, position, request, out, rows: part }));
        }
        let ran = lab.run();
        for (row, &(position, _, step, counter)) in rows.iter().enumerate() {
            let sampling = lab.requests[row].sampling().unwrap();
            let expected = naive::sample(&values[row * n..][..n], &sampling, step, counter).unwrap() as i32;
            prop_assert_eq!(ran.ints["next"][row], if position < 0 { -1 } else { expected });
        }
    }

    /// Norm, rotation and append of heads; idle rows store zeros and append nothing.
    #[test]
    fn rope_and_append(
        heads in 1usize..4,
        half in 1usize..20,
        positions in prop::collection::vec(-1i32..60, 1..4),
        types in [floats(), floats()],
        normed: bool,
        seed: u64,
    ) {
        let mut lab = Lab::new(seed);
        let dim = 2 * half;
        let rows = positions.len();
        let shape = PoolShape { kv_heads: heads, pages: 13, page_tokens: 16, head_dim: dim };
        let (x, values) = lab.input("x", types[0], &[rows, heads, dim]);
        let (weight, scale) = lab.weight("norm", DType::F32, &[dim]);
        let (inv_freq, freq) = lab.inv_freq(dim);
        let out = lab.output("out", DType::F32, &[rows, heads, dim]);
        let extents = [heads, 13, 16, dim];
        let (rotated, mut rotated_values) = lab.pool("rotated", types[1], extents);
        let (plain, mut plain_values) = lab.pool("plain", types[1], extents);
        let at = lab.place(&positions, 16, 13);
        let rope = Rotation { inv_freq, scale: 1.5 };
        let op = |norm: bool, heads: Span, output| Op::from(Rope {
            x,
            norm: norm.then_some(NormWeight { weight, eps: 1e-6 }),
            columns: None,
            rope: Some(rope.clone()),
            pairs: RopePairs::Halves,
            heads,
            rows: Span::all(rows),
            at: at.clone(),
            output,
        });
        let tiles = lab.tiles(heads, 3);
        let all = Span::all(heads);
        lab.tasks(tiles.iter().map(|&heads| op(normed, heads, HeadOutput::Store { out })).collect());
        lab.task(op(false, all, HeadOutput::Append { pool: rotated }));
        lab.task(Op::from(KvAppend { x, heads: all, rows: Span::all(rows), at: at.clone(), pool: plain }));
        let ran = lab.run();
        let mut expected = Vec::new();
        for (r, &position) in positions.iter().enumerate() {
            let row = &values[r * heads * dim..][..heads * dim];
            let position = usize::try_from(position).ok();
            let stored = |x: Vec<f32>| x.into_iter().map(|x| naive::convert(x, types[1])).collect::<Vec<_>>();
            let turned: Vec<f32> =
                row.chunks(dim).flat_map(|head| naive::rope(head, &freq, position.unwrap_or(0), 1.5)).collect();
            naive::append(&mut rotated_values, shape, &stored(turned), &lab.table(r), position);
            naive::append(&mut plain_values, shape, &stored(row.to_vec()), &lab.table(r), position);
            for head in row.chunks(dim) {
                let head = if normed { naive::rms_norm(&wide(head), &wide(&scale), f64::from(1e-6f32)) } else { wide(head) };
                expected.extend(match position {
                    // The angle is f32 by definition; its sine and cosine are then exact to f32.
                    Some(position) => exact_rope(&head, &freq, position),
                    None => vec![0.0; dim],
                });
            }
        }
        close(&ran.floats["out"], &expected, 30.0 * unit(DType::F32), 1e-5);
        prop_assert_eq!(ran.kv.read("rotated").unwrap(), rotated_values);
        prop_assert_eq!(ran.kv.read("plain").unwrap(), plain_values);
    }

    /// The merge is the oracle bit for bit, with splits that have no tokens.
    #[test]
    fn combine(rows in 1usize..3, heads in 1usize..4, splits in 1usize..6, dim in 1usize..30, to in floats(), seed: u64) {
        let mut lab = Lab::new(seed);
        let (acc, acc_values) = lab.input("acc", DType::F32, &[rows, heads, splits, dim]);
        let stats_values: Vec<f32> = (0..rows * heads * splits)
            .flat_map(|_| match lab.random.below(4) {
                0 => [f32::NEG_INFINITY, 0.0],
                _ => [lab.random.values(1)[0] * 9.0, 1.0 + lab.random.below(9) as f32],
            })
            .collect();
        let stats = lab.input_of("stats", DType::F32, &[rows, heads, splits, 2], &stats_values);
        let out = lab.output("out", to, &[rows, heads, dim]);
        let tiles = lab.tiles(heads, 2);
        lab.tasks(tiles.into_iter().map(|heads| Op::from(Combine { acc, stats, out, rows: Span::all(rows), heads })).collect());
        let expected: Vec<f32> = (0..rows * heads)
            .flat_map(|at| {
                let parts: Vec<SplitPartial<f32>> = (at * splits..(at + 1) * splits)
                    .map(|s| {
                        let [max, sum] = [stats_values[2 * s], stats_values[2 * s + 1]];
                        // A split without tokens has no sums.
                        let acc = if sum == 0.0 { vec![0.0; dim] } else { acc_values[s * dim..][..dim].to_vec() };
                        SplitPartial { max, sum, acc }
                    })
                    .collect();
                naive::combine(&parts, dim)
            })
            .map(|x| naive::convert(x, to))
            .collect();
        prop_assert_eq!(&lab.run().floats["out"], &expected);
    }

    /// However the tokens are split and paged: softmax(scale · qKᵀ)·V of the row's own tokens, for
    /// every group and odd head sizes.
    #[test]
    fn attention_and_combine(
        kv_heads in 1usize..3,
        group in prop::sample::select(vec![1usize, 2, 3, 5, 7]),
        dim in prop::sample::select(vec![2usize, 16, 20, 36, 64, 96]),
        positions in prop::collection::vec(-1i32..90, 1..3),
        page_tokens in prop::sample::select(vec![1usize, 16, 17, 64]),
        splits in 1usize..=8,
        types in [floats(), floats()],
        seed: u64,
    ) {
        let mut lab = Lab::new(seed);
        let rows = positions.len();
        let heads = kv_heads * group;
        let pages = rows * (90 / page_tokens + 1);
        let shape = PoolShape { kv_heads, pages, page_tokens, head_dim: dim };
        let (q, q_values) = lab.input("q", types[0], &[rows, heads, dim]);
        let (k_pool, keys) = lab.pool("k", types[1], [kv_heads, pages, page_tokens, dim]);
        let (v_pool, values) = lab.pool("v", types[1], [kv_heads, pages, page_tokens, dim]);
        let at = lab.place(&positions, page_tokens, pages);
        let acc = lab.activation("acc", DType::F32, &[rows, heads, splits, dim]);
        let stats = lab.activation("stats", DType::F32, &[rows, heads, splits, 2]);
        let out = lab.output("out", DType::F32, &[rows, heads, dim]);
        let scale = (dim as f32).powf(-0.5);
        let part = |kv_head, split| Op::from(Attention {
            q, k_pool, v_pool, at: at.clone(), kv_head, rows: Span::all(rows), split, scale, soft_cap: None, window: None, sinks: None, acc, stats, selection: None,
        });
        lab.tasks((0..kv_heads).flat_map(|h| (0..splits).map(move |s| (h, s))).map(|(h, s)| part(h, s)).collect());
        lab.task(Op::from(Combine { acc, stats, out, rows: Span::all(rows), heads: Span::all(heads) }));
        let found = lab.run().floats["out"].clone();
        for (r, &position) in positions.iter().enumerate() {
            let table = lab.table(r);
            for head in 0..heads {
                let q = wide(&q_values[(r * heads + head) * dim..][..dim]);
                let gather = |pool: &[f32]| -> Vec<f64> {
                    let vector = |t: usize| wide(&pool[shape.offset(head / group, &table, t)..][..dim]);
                    (0..(position + 1) as usize).flat_map(vector).collect()
                };
                let keys = gather(&keys);
                let values = gather(&values);
                let scores: Vec<f64> = keys
                    .chunks(dim)
                    .map(|k| f64::from(scale) * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>())
                    .collect();
                let weights = naive::softmax(&scores);
                let expected: Vec<f64> =
                    (0..dim).map(|d| weights.iter().zip(values.chunks(dim)).map(|(w, v)| w * v[d]).sum()).collect();
                // Values are below 1, weights sum to 1; a token's weight is off by its score's
                // error and a rounding.
                close(&found[(r * heads + head) * dim..][..dim], &expected, 0.0, 3e-5);
            }
        }
    }
}

/// The rotation with the f32 angle and everything else exact.
fn exact_rope(x: &[f64], freq: &[f32], position: usize) -> Vec<f64> {
    let half = freq.len();
    let mut y = vec![0.0; 2 * half];
    for i in 0..half {
        let (s, c) = f64::from(position as f32 * freq[i]).sin_cos();
        y[i] = 1.5 * (x[i] * c - x[i + half] * s);
        y[i + half] = 1.5 * (x[i + half] * c + x[i] * s);
    }
    y
}
