//! Ops on tensors of a caller: on the simulator, over shapes at random, against the oracles in f64.
//! `python/tests` holds the others, and what is refused.

use half::{bf16, f16};
use proptest::prelude::*;
use tilewright::codegen::device::sim::{self, Options, Simulator};
use tilewright::codegen::device::{Device, Stream};
use tilewright::codegen::ir::Arch;
use tilewright::codegen::trial::Draw;
use tilewright::kernels::activation::Activation;
use tilewright::kernels::attention::prefill::Prefill;
use tilewright::kernels::gemm::grouped::ragged_sizes;
use tilewright::kernels::mma::E4M3;
use tilewright::kernels::naive;
use tilewright::kernels::quant::{Code, QuantMatrix, QuantParts, Rounding, Zeros, nearest};
use tilewright::kernels::route::{GroupedRouter, RouterKind, RouterScore};
use tilewright::layout::DType;
use tilewright::ops::{
    AttentionDecode, AttentionPrefill, Gemm, GroupedGemm, KvCache, Linear, MergeAttention, Moe, OpError, Ops,
    PrefillKv, RmsNorm, Scores, Tensor, WeightForm, pack_codes, pack_linear,
};

/// Results of bf16 are within half of the distance of neighbours, and an error of the sums.
const ROUNDING: f64 = 1.0 / 256.0 + 1e-5;

/// A device whose kernels multiply by `wgmma` (sm_90a), or by `mma.sync`.
fn simulated(seed: u64, arch: Arch) -> Device {
    Simulator::new(Options { seed, arch, ..Options::default() }).device()
}

fn tensor<T: bytemuck::Pod>(stream: &Stream, numbers: &[T], dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::new(stream.buffer(numbers).unwrap().cast().unwrap(), dtype, shape).unwrap()
}

fn read<T: bytemuck::Pod>(stream: &Stream, tensor: &Tensor) -> Vec<T> {
    stream.read(&tensor.buffer().cast().unwrap()).unwrap()
}

fn near(found: impl IntoIterator<Item = f64>, exact: &[f64], relative: f64) {
    let largest = exact.iter().fold(1e-3f64, |most, y| most.max(y.abs()));
    for (at, (found, exact)) in found.into_iter().zip(exact).enumerate() {
        let allowed = relative * (exact.abs() + largest * 1e-2) + 1e-5 * largest;
        assert!((found - exact).abs() <= allowed, "[{at}] = {found}, not {exact}");
    }
}

fn packed_on(stream: &Stream, weight: &[bf16], k: usize, form: WeightForm) -> Tensor {
    let packed = pack_linear(weight, k, form).unwrap();
    tensor(stream, &packed, DType::U8, &[packed.len()])
}

fn wide(numbers: &[bf16]) -> Vec<f64> {
    numbers.iter().map(|x| x.to_f64()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_normalised(seed: u64, rows in 1..5usize, width in 1..400usize) {
        let device = sim::open(seed);
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let [x, weight] = [rows * width, width].map(|count| draw.floats(count, |y| y as f32));
        let of = |numbers: &[f32], shape: &[usize]| tensor(&stream, numbers, DType::F32, shape);
        let (on_device, out) = (of(&x, &[rows, width]), of(&x, &[rows, width]));
        let weight_tensor = of(&weight, &[width]);
        let norm = RmsNorm { x: &on_device, added: None, weight: &weight_tensor, out: &out, eps: 1e-5 };
        Ops::new(&device).unwrap().rms_norm(&stream, &norm).unwrap();
        let [x, weight] = [&x, &weight].map(|of| of.iter().map(|&y| f64::from(y)).collect::<Vec<f64>>());
        let exact: Vec<f64> = x.chunks(width).flat_map(|x| naive::rms_norm(x, &weight, 1e-5)).collect();
        near(read::<f32>(&stream, &out).into_iter().map(f64::from), &exact, 1e-5);
    }

    #[test]
    fn products_agree_with_each_other(seed: u64, m in 1..17usize, n in 1..80usize, tiles in 1..5usize) {
        let k = 64 * tiles;
        let device = sim::open(seed);
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let [a, b, bias] = [m * k, n * k, n].map(|count| draw.floats(count, bf16::from_f64));
        let of = |numbers: &[bf16], shape: &[usize]| tensor(&stream, numbers, DType::BF16, shape);
        let (x, weight, bias_tensor) = (of(&a, &[m, k]), of(&b, &[n, k]), of(&bias, &[n]));
        let packed = packed_on(&stream, &b, k, WeightForm::Bf16);
        let [by_gemm, by_linear] = [0, 1].map(|_| of(&vec![bf16::ZERO; m * n], &[m, n]));
        let ops = Ops::new(&device).unwrap();
        let bias_operand = Some(&bias_tensor);
        let gemm = Gemm { a: &x, b: &weight, scales: None, bias: bias_operand, activation: None, gated: false, residual: None, out: &by_gemm, workspace: None };
        ops.gemm(&stream, &gemm).unwrap();
        let form = WeightForm::Bf16;
        let linear = Linear { x: &x, packed: &packed, form, bias: bias_operand, residual: None, out: &by_linear };
        ops.linear(&stream, &linear).unwrap();
        let (a, b, bias) = (wide(&a), wide(&b), wide(&bias));
        let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum::<f64>();
        let exact: Vec<f64> =
            a.chunks(k).flat_map(|row| b.chunks(k).zip(&bias).map(move |(column, bias)| dot(row, column) + bias)).collect();
        for out in [by_gemm, by_linear] {
            near(wide(&read(&stream, &out)), &exact, ROUNDING);
        }
    }

    #[test]
    fn products_of_fp8_are_scaled_by_rows_or_as_a_whole(
        seed: u64, by_warps: bool, m in 1..40usize, n in 1..70usize, k in 1..300usize, whole_lines: bool, by_rows: bool, has_bias: bool, split: bool,
    ) {
        // Tensor maps need rows of whole 16 bytes; other rows are read element by element.
        let (n, k) = if whole_lines { (n.next_multiple_of(8), k.next_multiple_of(16)) } else { (n, k) };
        let device = simulated(seed, if by_warps { Arch::Sm89 } else { Arch::Sm90a });
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let [a, b] = [m * k, n * k].map(|count| draw.floats(count, |y| E4M3::nearest(448.0 * y.powi(3))));
        let counts = if by_rows { [m, n] } else { [1, 1] };
        let scales = counts.map(|count| draw.floats(count, |y| ((1.5 + 0.5 * y) / 448.0) as f32));
        let bias = draw.floats(n, |y| y as f32);
        let of = |numbers: &[f32]| tensor(&stream, numbers, DType::F32, &[numbers.len()]);
        let [a_tensor, b_tensor] = [(&a, m), (&b, n)].map(|(codes, rows)| tensor(&stream, codes, DType::F8E4M3, &[rows, k]));
        let [a_scale, b_scale, bias_tensor] = [of(&scales[0]), of(&scales[1]), of(&bias)];
        let out = tensor(&stream, &vec![f32::NAN; m * n], DType::F32, &[m, n]);
        let workspace = of(&vec![f32::NAN; Ops::gemm_workspace(m, n)]);
        let gemm = Gemm {
            a: &a_tensor,
            b: &b_tensor,
            scales: Some([&a_scale, &b_scale]),
            bias: has_bias.then_some(&bias_tensor),
            activation: None,
            gated: false,
            residual: None,
            out: &out,
            workspace: split.then_some(&workspace),
        };
        Ops::new(&device).unwrap().gemm(&stream, &gemm).unwrap();
        let found: Vec<f32> = read(&stream, &out);
        for (at, found) in found.into_iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let scale = f64::from(scales[0][row % counts[0]]) * f64::from(scales[1][column % counts[1]]);
            let terms = a[row * k..][..k].iter().zip(&b[column * k..][..k]).map(|(&a, &b)| scale * E4M3::value(a) * E4M3::value(b));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let exact = sum + if has_bias { f64::from(bias[column]) } else { 0.0 };
            // Tensor cores keep 14 bits of a sum of 8-bit floats.
            prop_assert!((f64::from(found) - exact).abs() <= 2f64.powi(-9) * size + 1e-6, "[{at}] = {found}, not {exact}");
        }
    }

    #[test]
    fn gates_multiply_what_follows_them(seed: u64, by_warps: bool, m in 1..40usize, n in 1..70usize, k in 1..300usize, whole_lines: bool, has_bias: bool) {
        let (n, k) = if whole_lines { (n.next_multiple_of(8), k.next_multiple_of(8)) } else { (n, k) };
        let device = simulated(seed, if by_warps { Arch::Sm80 } else { Arch::Sm90a });
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let [a, b] = [m * k, 2 * n * k].map(|count| draw.floats(count, bf16::from_f64));
        let bias = draw.floats(2 * n, |y| y as f32);
        let [a_tensor, b_tensor] = [(&a, m), (&b, 2 * n)].map(|(numbers, rows)| tensor(&stream, numbers, DType::BF16, &[rows, k]));
        let bias_tensor = tensor(&stream, &bias, DType::F32, &[2 * n]);
        let out = tensor(&stream, &vec![f32::NAN; m * n], DType::F32, &[m, n]);
        let elements = Ops::gemm_workspace(m, 2 * n);
        let workspace = tensor(&stream, &vec![f32::NAN; elements], DType::F32, &[elements]);
        let gemm = Gemm {
            a: &a_tensor,
            b: &b_tensor,
            scales: None,
            bias: has_bias.then_some(&bias_tensor),
            activation: Some(Activation::Silu),
            gated: true,
            residual: None,
            out: &out,
            workspace: Some(&workspace),
        };
        Ops::new(&device).unwrap().gemm(&stream, &gemm).unwrap();
        let (a, b) = (wide(&a), wide(&b));
        let exact: Vec<f64> = (0..m * n).map(|at| {
            let sum = |row: usize| {
                let sum: f64 = a[at / n * k..][..k].iter().zip(&b[row * k..][..k]).map(|(a, b)| a * b).sum();
                sum + if has_bias { f64::from(bias[row]) } else { 0.0 }
            };
            naive::activate(Activation::Silu, sum(at % n)) * sum(at % n + n)
        }).collect();
        near(read::<f32>(&stream, &out).into_iter().map(f64::from), &exact, ROUNDING);
    }

    #[test]
    fn products_of_codes_are_those_of_their_numbers(
        seed: u64, m in 1..17usize, n in 1..80usize, tiles in 1..7usize, form in 1..6usize, has_bias: bool,
    ) {
        let form = WeightForm::ALL[form];
        // Groups of 128 columns are whole.
        let k = 64 * if matches!(form, WeightForm::W4A16 | WeightForm::Awq) { tiles.next_multiple_of(2) } else { tiles };
        let device = sim::open(seed);
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let [a, b, bias] = [m * k, n * k, n].map(|count| draw.floats(count, bf16::from_f64));
        let of = |numbers: &[bf16], shape: &[usize]| tensor(&stream, numbers, DType::BF16, shape);
        let (x, bias_tensor, out) = (of(&a, &[m, k]), of(&bias, &[n]), of(&vec![bf16::ZERO; m * n], &[m, n]));
        let packed = packed_on(&stream, &b, k, form);
        let linear =
            Linear { x: &x, packed: &packed, form, bias: has_bias.then_some(&bias_tensor), residual: None, out: &out };
        Ops::new(&device).unwrap().linear(&stream, &linear).unwrap();
        // The numbers that the codes stand for, by the definition of each form, as bf16.
        let store: fn(f32) -> f32 = |scale| bf16::from_f32(scale).to_f32();
        let rounding = match form {
            WeightForm::W4A16 => Rounding { code: Code::U4, zero: 8, group: 128, store },
            WeightForm::W8A16 => Rounding { code: Code::U8, zero: 128, group: k, store },
            WeightForm::Mxfp4 => Rounding { code: Code::E2m1, zero: 0, group: 32, store: |scale| scale.log2().ceil().exp2() },
            WeightForm::Awq => Rounding { code: Code::U4, zero: 8, group: 128, store: |scale| f16::from_f32(scale).to_f32() },
            _ => Rounding { code: Code::E4m3, zero: 0, group: k, store: |scale| scale },
        };
        let numbers: Vec<f32> = b.iter().map(|x| x.to_f32()).collect();
        let matrix = nearest(&numbers, n, k, &rounding).unwrap();
        prop_assert_eq!(pack_codes(&matrix, form).unwrap(), read::<u8>(&stream, &packed));
        let weight = naive::dequantize::<f64>(&matrix);
        let weight: Vec<f64> = weight.into_iter().map(|y| bf16::from_f64(y).to_f64()).collect();
        let (a, bias) = (wide(&a), wide(&bias));
        let exact: Vec<f64> = a.chunks(k).flat_map(|row| {
            let sum = |column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum::<f64>();
            weight.chunks(k).zip(&bias).map(move |(column, bias)| sum(column) + if has_bias { *bias } else { 0.0 })
        }).collect();
        near(wide(&read(&stream, &out)), &exact, 2.0 * ROUNDING);
    }

    #[test]
    fn codes_of_a_checkpoint_are_multiplied_as_they_are(
        seed: u64, m in 1..17usize, n in 1..60usize, tiles in 1..4usize, is_awq: bool,
    ) {
        let k = 128 * tiles;
        let device = sim::open(seed);
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let (form, code, group) = if is_awq { (WeightForm::Awq, Code::U4, 128) } else { (WeightForm::Mxfp4, Code::E2m1, 32) };
        let codes = (0..n * k / 2).map(|_| draw.between(0..=255) as u8).collect();
        // Scales of f16 with zero points, or powers of two.
        let scales = (0..n * k / group).map(|_| match is_awq {
            true => f16::from_f32(draw.between(1..=1000) as f32 / 4096.0).to_f32(),
            false => (draw.between(0..=6) as f32 - 3.0).exp2(),
        }).collect();
        let zeros = if is_awq { Zeros::Each((0..n * k / group).map(|_| draw.between(0..=15) as i16).collect()) } else { Zeros::Same(0) };
        let matrix = QuantMatrix::new(QuantParts { n, k, code, group, codes, scales, zeros, order: None }).unwrap();
        let packed = pack_codes(&matrix, form).unwrap();
        let packed = tensor(&stream, &packed, DType::U8, &[packed.len()]);
        let a = draw.floats(m * k, bf16::from_f64);
        let x = tensor(&stream, &a, DType::BF16, &[m, k]);
        let out = tensor(&stream, &vec![f32::NAN; m * n], DType::F32, &[m, n]);
        let linear = Linear { x: &x, packed: &packed, form, bias: None, residual: None, out: &out };
        Ops::new(&device).unwrap().linear(&stream, &linear).unwrap();
        let weight: Vec<f64> = naive::dequantize::<f64>(&matrix).into_iter().map(|y| bf16::from_f64(y).to_f64()).collect();
        let a = wide(&a);
        let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum::<f64>();
        let exact: Vec<f64> = a.chunks(k).flat_map(|row| weight.chunks(k).map(move |column| dot(row, column))).collect();
        near(read::<f32>(&stream, &out).into_iter().map(f64::from), &exact, 2.0 * ROUNDING);
    }

    #[test]
    fn groups_are_multiplied_by_their_own_weights(
        seed: u64, by_warps: bool, groups in 1..6u32, most in 1..90u32, n in 1..60usize, tiles in 1..12usize, gated: bool, has_bias: bool, has_residual: bool,
    ) {
        let k = 8 * tiles;
        let device = simulated(seed, if by_warps { Arch::Sm80 } else { Arch::Sm90a });
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let sizes = ragged_sizes(&mut draw, groups, most);
        let mut offsets = vec![0];
        offsets.extend(sizes.iter().scan(0, |end, size| { *end += size; Some(*end) }));
        // Rows past the last group stay as they are.
        let (used, spare, groups) = (offsets[offsets.len() - 1] as usize, draw.between(1..=3) as usize, groups as usize);
        let rows = used + spare;
        let b_rows = if gated { 2 * n } else { n };
        let [a, b] = [rows * k, groups * b_rows * k].map(|count| draw.floats(count, bf16::from_f64));
        let [bias, residual] = [groups * b_rows, rows * n].map(|count| draw.floats(count, |y| y as f32));
        let [a_tensor, b_tensor] = [(&a, &[rows, k][..]), (&b, &[groups, b_rows, k])].map(|(numbers, shape)| tensor(&stream, numbers, DType::BF16, shape));
        let [bias_tensor, residual_tensor] = [(&bias, [groups, b_rows]), (&residual, [rows, n])].map(|(numbers, shape)| tensor(&stream, numbers, DType::F32, &shape));
        let offsets_tensor = tensor(&stream, &offsets, DType::U32, &[groups + 1]);
        let out = tensor(&stream, &vec![7.0f32; rows * n], DType::F32, &[rows, n]);
        let grouped = GroupedGemm {
            a: &a_tensor,
            b: &b_tensor,
            offsets: &offsets_tensor,
            scales: None,
            bias: has_bias.then_some(&bias_tensor),
            activation: gated.then_some(Activation::Silu),
            gated,
            residual: has_residual.then_some(&residual_tensor),
            out: &out,
        };
        Ops::new(&device).unwrap().grouped_gemm(&stream, &grouped).unwrap();
        let (a, b) = (wide(&a), wide(&b));
        let exact: Vec<f64> = (0..used).flat_map(|row| {
            let group = offsets.iter().filter(|&&first| first as usize <= row).count() - 1;
            let (a, b, bias, residual) = (&a, &b, &bias, &residual);
            (0..n).map(move |column| {
                let sum = |at: usize| {
                    let weight = &b[(group * b_rows + at) * k..][..k];
                    let sum: f64 = a[row * k..][..k].iter().zip(weight).map(|(a, b)| a * b).sum();
                    sum + if has_bias { f64::from(bias[group * b_rows + at]) } else { 0.0 }
                };
                let y = if gated { naive::activate(Activation::Silu, sum(column)) * sum(column + n) } else { sum(column) };
                y + if has_residual { f64::from(residual[row * n + column]) } else { 0.0 }
            })
        }).collect();
        let found: Vec<f32> = read(&stream, &out);
        near(found[..used * n].iter().map(|&y| f64::from(y)), &exact, ROUNDING);
        prop_assert!(found[used * n..].iter().all(|&y| y == 7.0));
    }

    #[test]
    fn experts_are_chosen_and_weighed(
        seed: u64, by_warps: bool, rows in 1..9usize, experts in 2..7usize, hidden in 1..8usize, inner in 1..6usize, sigmoid: bool, renormalise: bool, has_bias: bool,
    ) {
        let (hidden, inner) = (8 * hidden, 8 * inner);
        let device = simulated(seed, if by_warps { Arch::Sm80 } else { Arch::Sm90a });
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let chosen = draw.between(1..=experts as u32);
        let sizes = [rows * hidden, experts * 2 * inner * hidden, experts * hidden * inner, experts * 2 * inner, experts * hidden];
        let [x, gate_up, down, gate_up_bias, down_bias] = sizes.map(|count| draw.floats(count, bf16::from_f64));
        let [logits, correction, residual] =
            [rows * experts, experts, rows * hidden].map(|count| draw.floats(count, |y| 3.0 * y as f32));
        let halves = |numbers: &[bf16], shape: &[usize]| tensor(&stream, numbers, DType::BF16, shape);
        let floats = |numbers: &[f32], shape: &[usize]| tensor(&stream, numbers, DType::F32, shape);
        let out = floats(&residual, &[rows, hidden]);
        let router = match sigmoid {
            true => RouterKind::Grouped(GroupedRouter {
                score: RouterScore::Sigmoid,
                corrected: true,
                groups: 1,
                kept: 1,
                renormalise,
                scale: 1.5,
            }),
            false => RouterKind::SoftmaxThenTopK { renormalise },
        };
        let (gate_up_biases, down_biases) = (halves(&gate_up_bias, &[experts, 2 * inner]), halves(&down_bias, &[experts, hidden]));
        let corrections = floats(&correction, &[experts]);
        let elements = Ops::moe_workspace(rows, chosen as usize, experts, hidden, inner);
        let moe = Moe {
            x: &halves(&x, &[rows, hidden]),
            logits: &floats(&logits, &[rows, experts]),
            router,
            correction: sigmoid.then_some(&corrections),
            top_k: chosen,
            activation: Activation::GPT_OSS,
            gate_up: &halves(&gate_up, &[experts, 2 * inner, hidden]),
            gate_up_bias: has_bias.then_some(&gate_up_biases),
            down: &halves(&down, &[experts, hidden, inner]),
            down_bias: has_bias.then_some(&down_biases),
            residual: Some(&out),
            out: &out,
            workspace: &floats(&vec![f32::NAN; elements], &[elements]),
        };
        Ops::new(&device).unwrap().moe(&stream, &moe).unwrap();
        let [x, gate_up, down, gate_up_bias, down_bias] = [&x, &gate_up, &down, &gate_up_bias, &down_bias].map(|numbers| wide(numbers));
        let [logits, correction] = [&logits, &correction].map(|numbers| numbers.iter().map(|&y| f64::from(y)).collect::<Vec<f64>>());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let bias = |numbers: &[f64], at: usize| if has_bias { numbers[at] } else { 0.0 };
        let exact: Vec<f64> = (0..rows).flat_map(|row| {
            let (ids, weights) = naive::route(router, &logits[row * experts..][..experts], &correction, chosen as usize);
            let of_expert = |id: u32| -> Vec<f64> {
                let of = |at: usize| {
                    let at = id as usize * 2 * inner + at;
                    dot(&x[row * hidden..][..hidden], &gate_up[at * hidden..][..hidden]) + bias(&gate_up_bias, at)
                };
                let gate = |i: usize| naive::activate(Activation::GPT_OSS, of(i)) * naive::gate_factor(Activation::GPT_OSS, of(inner + i));
                let gates: Vec<f64> = (0..inner).map(gate).collect();
                let at = |i: usize| id as usize * hidden + i;
                (0..hidden).map(|i| dot(&gates, &down[at(i) * inner..][..inner]) + bias(&down_bias, at(i))).collect()
            };
            let results: Vec<Vec<f64>> = ids.into_iter().map(of_expert).collect();
            let results: Vec<Option<&[f64]>> = results.iter().map(|y| Some(&y[..])).collect();
            let before: Vec<f64> = residual[row * hidden..][..hidden].iter().map(|&y| y.into()).collect();
            naive::weighted_sum(&before, &weights, &results)
        }).collect();
        let largest = exact.iter().fold(0f64, |most, y| most.max(y.abs()));
        // Gated rows and experts' results are rounded to bf16.
        for (at, (found, exact)) in read::<f32>(&stream, &out).into_iter().zip(exact).enumerate() {
            prop_assert!((f64::from(found) - exact).abs() <= ROUNDING * 2.0 * largest, "[{at}] = {found}, not {exact}");
        }
    }

    #[test]
    fn queries_attend_to_their_tokens(
        seed: u64, sequences in 1..4usize, kv_heads in 1..3usize, group in 1..5usize, capacity in 1..70usize, is_modified: bool,
        is_paged: bool, arch in 0..3usize,
    ) {
        let arch = [Arch::Sm80, Arch::Sm89, Arch::Sm90a][arch];
        let device = Simulator::new(Options { seed, arch, ..Options::default() }).device();
        let mut draw = Draw::new(seed);
        let dim = [64, 80, 128][draw.between(0..=2) as usize];
        let lengths: Vec<u32> = (0..sequences).map(|_| draw.between(1..=capacity as u32)).collect();
        let counts: Vec<[usize; 2]> = lengths.iter().map(|&tokens| [1, tokens as usize]).collect();
        let shape = Shape { counts, kv_heads, group, dim, causal: true };
        let data = AttentionData::draw(&mut draw, &shape, is_modified, true);
        let held = Held::new(&device, &data, &shape);
        let kv = data.cached(&held.stream, &mut draw, &shape, [capacity.div_ceil(16) * 16, 16], is_paged);
        let tokens = tensor(&held.stream, &lengths, DType::U32, &[sequences]);
        let ops = Ops::new(&device).unwrap();
        let room = ops.attention_workspace(sequences, kv_heads * group, kv_heads, dim, kv.capacity);
        let workspace = tensor(&held.stream, &vec![0.0f32; room], DType::F32, &[room]);
        let attention = AttentionDecode {
            q: &held.q,
            cache: kv.cache(),
            tokens: &tokens,
            scores: held.scores(&data),
            workspace: &workspace,
            out: &held.out,
            lse: Some(&held.lse),
        };
        ops.attention_decode(&held.stream, &attention).unwrap();
        held.is_near(&data, &shape);
    }

    #[test]
    fn newest_queries_attend_to_their_tokens(
        seed: u64, sequences in 1..4usize, kv_heads in 1..3usize, group in 1..4usize, form in 0..3usize, causal: bool,
        is_modified: bool, is_hopper: bool,
    ) {
        let arch = if is_hopper { Arch::Sm90a } else { Arch::Sm80 };
        let device = Simulator::new(Options { seed, arch, ..Options::default() }).device();
        let mut draw = Draw::new(seed);
        let dim = [32, 64, 80, 128][draw.between(0..=3) as usize];
        // Sequences without queries, whose queries are their first tokens, and with fewer tokens.
        let counts = (0..sequences).map(|_| {
            let queries = draw.between(0..=40) as usize;
            let cached = draw.between(0..=90) as usize;
            [queries, if draw.between(0..=3) == 0 { cached } else { queries + cached }]
        });
        let shape = Shape { counts: counts.collect(), kv_heads, group, dim, causal };
        let data = AttentionData::draw(&mut draw, &shape, is_modified, causal);
        let held = Held::new(&device, &data, &shape);
        let longest = shape.counts.iter().map(|count| count[1]).max().unwrap_or(0);
        let kv = data.cached(&held.stream, &mut draw, &shape, [longest + 1, 8], form == 1);
        let [query_starts, token_starts] = [0, 1].map(|which: usize| {
            let counts = shape.counts.iter().map(|count| count[which] as u32);
            let starts: Vec<u32> = [0].into_iter().chain(counts.scan(0, |sum, count| { *sum += count; Some(*sum) })).collect();
            tensor(&held.stream, &starts, DType::U32, &[sequences + 1])
        });
        let ragged = data.ragged(&held.stream, &shape);
        let prefill = AttentionPrefill {
            q: &held.q,
            kv: if form == 2 { PrefillKv::Ragged { keys: &ragged[0], values: &ragged[1] } } else { PrefillKv::Cache(kv.cache()) },
            query_starts: &query_starts,
            token_starts: &token_starts,
            longest: is_modified.then_some(40),
            causal,
            scores: held.scores(&data),
            out: &held.out,
            lse: Some(&held.lse),
        };
        Ops::new(&device).unwrap().attention_prefill(&held.stream, &prefill).unwrap();
        held.is_near(&data, &shape);
    }

    #[test]
    fn results_over_two_sets_of_tokens_merge(seed: u64, rows in 1..20usize, heads in 1..4usize, eighths in 1..33usize) {
        let dim = 8 * eighths;
        let device = sim::open(seed);
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let values = [0, 1].map(|_| draw.floats(rows * heads * dim, bf16::from_f64));
        let logs = [0, 1].map(|_| (0..rows * heads).map(|_| {
            if draw.between(0..=3) == 0 { f32::NEG_INFINITY } else { 20.0 * draw.unit() as f32 }
        }).collect::<Vec<f32>>());
        let [a, b] = [0, 1].map(|which: usize| tensor(&stream, &values[which], DType::BF16, &[rows, heads, dim]));
        let [lse_a, lse_b] = [0, 1].map(|which: usize| tensor(&stream, &logs[which], DType::F32, &[rows, heads]));
        let lse = tensor(&stream, &logs[0], DType::F32, &[rows, heads]);
        // In place of one of them.
        let merge = MergeAttention { a: &a, lse_a: &lse_a, b: &b, lse_b: &lse_b, out: &b, lse: Some(&lse) };
        Ops::new(&device).unwrap().merge_attention(&stream, &merge).unwrap();
        let (found, found_logs) = (wide(&read(&stream, &b)), read::<f32>(&stream, &lse));
        for row in 0..rows * heads {
            let parts = [0, 1].map(|which: usize| naive::SplitPartial {
                max: f64::from(logs[which][row]),
                sum: f64::from(u8::from(logs[which][row].is_finite())),
                acc: wide(&values[which][row * dim..][..dim]),
            });
            near(found[row * dim..][..dim].iter().copied(), &naive::combine(&parts, dim), ROUNDING);
            let (found, exact) = (f64::from(found_logs[row]), naive::log_sum_exp(&parts));
            prop_assert!(found == exact || (found - exact).abs() < 1e-4, "row {row}: {found}, not {exact}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Operands of any shapes and types: an error or a result.
    #[test]
    fn no_shape_panics(seed: u64) {
        let device = sim::open(seed);
        let stream = device.stream().unwrap();
        let mut draw = Draw::new(seed);
        let mut any = |usual: &[usize], of: DType| {
            let mut shape = usual.to_vec();
            for extent in &mut shape {
                if draw.between(0..=7) == 0 {
                    *extent = [0, 1, 3, 8, 1 << 16, 1 << 33, usize::MAX][draw.between(0..=6) as usize];
                }
            }
if draw.between(0..=15) == 0 {
 shape.pop();
 }
            let dtype = if draw.between(0..=15) == 0 { DType::F16 } else { of };
            let bytes = stream.buffer(&vec![1u32; 4096]).unwrap().cast().unwrap();
            // Beyond the memory: one element that stands for all.
            let broadcast = || Tensor::strided(bytes.clone(), dtype, shape.clone(), vec![0; shape.len()]).unwrap();
            Tensor::new(bytes.clone(), dtype, &shape).unwrap_or_else(|_| broadcast())
        };
        let [q, out] = [0, 1].map(|_| any(&[1, 4, 64], DType::BF16));
        let [dense_keys, dense_values] = [0, 1].map(|_| any(&[1, 2, 8, 64], DType::BF16));
        let [keys, values] = [0, 1].map(|_| any(&[2, 2, 64], DType::BF16));
        let [table, tokens, starts, ends] =
            [&[1usize, 1][..], &[1], &[2], &[2]].map(|shape| any(shape, DType::I32));
        let [lse, other, workspace] = [&[1usize, 4][..], &[1, 4], &[4000]].map(|shape| any(shape, DType::F32));
        let ops = Ops::new(&device).unwrap();
        let (scores, lse) = (Scores::scaled(1.0), Some(&lse));
        let (keys_of, values_of) = (&dense_keys, &dense_values);
        for cache in [
            KvCache::Dense { keys: keys_of, values: values_of },
            KvCache::Paged { keys: keys_of, values: values_of, table: &table },
        ] {
            let decode = AttentionDecode { q: &q, cache, tokens: &tokens, scores, workspace: &workspace, out: &out, lse };
            let _ = ops.attention_decode(&stream, &decode);
            for kv in [PrefillKv::Cache(cache), PrefillKv::Ragged { keys: &keys, values: &values }] {
                let prefill = AttentionPrefill {
                    q: &q, kv, query_starts: &starts, token_starts: &ends, longest: None, causal: true, scores, out: &out, lse,
                };
                let _ = ops.attention_prefill(&stream, &prefill);
            }
        }
        let merge = MergeAttention { a: &q, lse_a: &other, b: &q, lse_b: &other, out: &out, lse };
        let _ = ops.merge_attention(&stream, &merge);
    }
}

/// An attention problem.
struct Shape {
    /// Queries and tokens of each sequence.
    counts: Vec<[usize; 2]>,
    kv_heads: usize,
    group: usize,
    dim: usize,
    causal: bool,
}

impl Shape {
    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn rows(&self) -> usize {
        self.counts.iter().map(|count| count[0]).sum()
    }
}

/// The numbers of an attention problem.
struct AttentionData {
    /// `[rows, heads, dim]`.
    q: Vec<bf16>,
    /// Keys and values of each sequence, `[tokens, kv_heads, dim]`.
    kv: [Vec<Vec<bf16>>; 2],
    soft_cap: Option<f32>,
    window: Option<u32>,
    sinks: Option<Vec<f32>>,
}

impl AttentionData {
    const SCALE: f32 = 0.2;

    fn draw(draw: &mut Draw, shape: &Shape, is_modified: bool, may_have_window: bool) -> AttentionData {
        let q = draw.floats(shape.rows() * shape.heads() * shape.dim, bf16::from_f64);
        let row = shape.kv_heads * shape.dim;
        let kv = [0, 1].map(|_| {
            shape
                .counts
                .iter()
                .map(|&[_, tokens]| draw.floats(tokens * row, bf16::from_f64))
                .collect::<Vec<Vec<bf16>>>()
        });
        let sinks = (0..shape.heads()).map(|_| draw.unit() as f32).collect::<Vec<f32>>();
        let window = (is_modified && may_have_window).then(|| draw.between(1..=50));
        AttentionData { q, kv, soft_cap: is_modified.then_some(0.5), window, sinks: is_modified.then_some(sinks) }
    }

    /// Keys and values without a cache.
    fn ragged(&self, stream: &Stream, shape: &Shape) -> [Tensor; 2] {
        self.kv.each_ref().map(|all| {
            let mut all = all.concat();
            // A tensor has a token.
            all.resize(all.len().max(shape.kv_heads * shape.dim), bf16::NAN);
            let tokens = all.len() / (shape.kv_heads * shape.dim);
            tensor(stream, &all, DType::BF16, &[tokens, shape.kv_heads, shape.dim])
        })
    }

    /// Keys and values in a cache of `capacity` tokens for each sequence, or in pages of
    /// `page_tokens`; NaN where no token lies.
    fn cached(
        &self,
        stream: &Stream,
        draw: &mut Draw,
        shape: &Shape,
        [capacity, page_tokens]: [usize; 2],
        is_paged: bool,
    ) -> CachedTensors {
        let &Shape { kv_heads, dim, ref counts, .. } = shape;
        let width = capacity.div_ceil(page_tokens);
        let mut pages: Vec<u32> = (0..(counts.len() * width) as u32).collect();
        for last in (1..pages.len()).rev() {
            pages.swap(last, draw.between(0..=last as u32) as usize);
        }
        let planes = if is_paged { width * page_tokens } else { capacity } * counts.len();
        let memory = self.kv.each_ref().map(|sequences| {
            let mut memory = vec![bf16::NAN; kv_heads * planes * dim];
            for (sequence, tokens) in sequences.iter().enumerate() {
                for (index, row) in tokens.chunks(dim).enumerate() {
                    let (token, head) = (index / kv_heads, index % kv_heads);
                    let page = pages[sequence * width + token / page_tokens] as usize;
                    let at = match is_paged {
                        true => head * planes + page * page_tokens + token % page_tokens,
                        false => (sequence * kv_heads + head) * capacity + token,
                    };
                    memory[at * dim..][..dim].copy_from_slice(row);
                }
            }
            let of_pages = [kv_heads, counts.len() * width, page_tokens, dim];
            let dense = [counts.len(), kv_heads, capacity, dim];
            tensor(stream, &memory, DType::BF16, if is_paged { &of_pages } else { &dense })
        });
        let table = is_paged.then(|| tensor(stream, &pages, DType::U32, &[counts.len(), width]));
        CachedTensors { memory, table, capacity }
    }

    /// Results and log-sum-exps of all rows and heads, by the definition.
    fn exact(&self, shape: &Shape) -> (Vec<f64>, Vec<f64>) {
        let (mut out, mut logs, mut row) = (Vec::new(), Vec::new(), 0);
        for (sequence, &[queries, tokens]) in shape.counts.iter().enumerate() {
            for query in 0..queries {
                let end = if shape.causal { (tokens + query + 1).saturating_sub(queries) } else { tokens };
                let first = self.window.map_or(0, |window| end.saturating_sub(window as usize));
                for head in 0..shape.heads() {
                    let seen = self.kv.each_ref().map(|all| {
                        let line = |token: usize| (token * shape.kv_heads + head / shape.group) * shape.dim;
                        (first..end)
                            .flat_map(|token| wide(&all[sequence][line(token)..][..shape.dim]))
                            .collect::<Vec<f64>>()
                    });
                    let q = wide(&self.q[row * shape.dim..][..shape.dim]);
                    let cap = self.soft_cap.map(f64::from);
                    let part = naive::attention(&q, &seen[0], &seen[1], f64::from(AttentionData::SCALE), cap);
                    let sink =
                        self.sinks.as_ref().map(|sinks| naive::SplitPartial::sink(f64::from(sinks[head]), shape.dim));
                    let parts: Vec<_> = [part].into_iter().chain(sink).collect();
                    out.extend(naive::combine(&parts, shape.dim));
                    logs.push(naive::log_sum_exp(&parts));
                    row += 1;
                }
            }
        }
        (out, logs)
    }
}

/// Keys and values on a device.
struct CachedTensors {
    memory: [Tensor; 2],
    table: Option<Tensor>,
    capacity: usize,
}

impl CachedTensors {
    fn cache(&self) -> KvCache<'_> {
        let [keys, values] = &self.memory;
        match &self.table {
            Some(table) => KvCache::Paged { keys, values, table },
            None => KvCache::Dense { keys, values },
        }
    }
}

/// Queries and results on a device.
struct Held {
    stream: Stream,
    q: Tensor,
    out: Tensor,
    lse: Tensor,
    sinks: Option<Tensor>,
}

impl Held {
    fn new(device: &Device, data: &AttentionData, shape: &Shape) -> Held {
        let stream = device.stream().unwrap();
        let [rows, heads, dim] = [shape.rows(), shape.heads(), shape.dim];
        let q = tensor(&stream, &data.q, DType::BF16, &[rows, heads, dim]);
        let out = tensor(&stream, &vec![bf16::NAN; data.q.len()], DType::BF16, &[rows, heads, dim]);
        let lse = tensor(&stream, &vec![f32::NAN; rows * heads], DType::F32, &[rows, heads]);
        let sinks = data.sinks.as_ref().map(|sinks| tensor(&stream, sinks, DType::F32, &[heads]));
        Held { stream, q, out, lse, sinks }
    }

    fn scores(&self, data: &AttentionData) -> Scores<'_> {
        let &AttentionData { soft_cap, window, .. } = data;
        Scores { soft_cap, window, sinks: self.sinks.as_ref(), ..Scores::scaled(AttentionData::SCALE) }
    }

    fn is_near(&self, data: &AttentionData, shape: &Shape) {
        let (out, logs) = data.exact(shape);
        // Probabilities are rounded to bf16, of values up to 1.
        for (at, (found, exact)) in wide(&read(&self.stream, &self.out)).into_iter().zip(out).enumerate() {
            assert!((found - exact).abs() <= ROUNDING, "[{at}] = {found}, not {exact}");
        }
        for (at, (found, exact)) in read::<f32>(&self.stream, &self.lse).into_iter().zip(logs).enumerate() {
            let found = f64::from(found);
            assert!(found == exact || (found - exact).abs() <= 1e-4, "lse[{at}] = {found}, not {exact}");
        }
    }
}

/// Every depth on every architecture, but for those that have no shared memory for it.
#[test]
fn prefill_runs_wherever_it_has_room() {
    for arch in Arch::ALL {
        for &depth in Prefill::DEPTHS {
            let device = Simulator::new(Options { arch, ..Options::default() }).device();
            let mut draw = Draw::new(u64::from(depth));
            let shape = Shape { counts: vec![[3, 5]], kv_heads: 1, group: 2, dim: depth as usize, causal: true };
            let data = AttentionData::draw(&mut draw, &shape, true, true);
            let held = Held::new(&device, &data, &shape);
            let [keys, values] = &data.ragged(&held.stream, &shape);
            let [query_starts, token_starts] = [3u32, 5].map(|end| tensor(&held.stream, &[0, end], DType::U32, &[2]));
            let prefill = AttentionPrefill {
                q: &held.q,
                kv: PrefillKv::Ragged { keys, values },
                query_starts: &query_starts,
                token_starts: &token_starts,
                longest: None,
                causal: true,
                scores: held.scores(&data),
                out: &held.out,
                lse: Some(&held.lse),
            };
            let result = Ops::new(&device).unwrap().attention_prefill(&held.stream, &prefill);
            if depth == 256 && matches!(arch, Arch::Sm89 | Arch::Sm120) {
                let error = result.unwrap_err().to_string();
                assert!(
                    error.contains("q is [3, 2, 256]; 256 dimensions need 131072 bytes of shared memory"),
                    "{error}"
                );
            } else {
                result.unwrap_or_else(|error| panic!("{depth} on {arch}: {error}"));
                held.is_near(&data, &shape);
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_named_and_not_launched() {
    let device = sim::open(1);
    let stream = device.stream().unwrap();
    let of = |shape: &[usize]| tensor(&stream, &vec![7.0f32; shape.iter().product()], DType::F32, shape);
    let (x, weight, out) = (of(&[2, 8]), of(&[7]), of(&[2, 8]));
    let norm = RmsNorm { x: &x, added: None, weight: &weight, out: &out, eps: 1e-5 };
    let error = Ops::new(&device).unwrap().rms_norm(&stream, &norm).unwrap_err();
    assert!(matches!(error, OpError::Shape { operand: "weight", .. }), "{error}");
    assert_eq!(error.to_string(), "rms_norm: weight is [7]; it must be the last axis of x, [8]");
    assert_eq!(read::<f32>(&stream, &out), vec![7.0; 16]);
}

/// The kernel of a shape is made once.
#[test]
fn a_second_call_makes_no_kernel() {
    let device = sim::open(1);
    let stream = device.stream().unwrap();
    let of = |shape: &[usize]| tensor(&stream, &vec![1.0f32; shape.iter().product()], DType::F32, shape);
    let (x, weight, out) = (of(&[2, 8]), of(&[8]), of(&[2, 8]));
    let ops = Ops::new(&device).unwrap();
    let mut made = Vec::new();
    for _ in 0..3 {
        ops.rms_norm(&stream, &RmsNorm { x: &x, added: None, weight: &weight, out: &out, eps: 1e-5 }).unwrap();
        made.push(format!("{ops:?}").matches("Step {").count());
    }
    assert_eq!(made, [1, 1, 1]);
}

/// A kernel that does not depend on the number of rows is loaded for the first of them alone.
#[test]
fn products_of_other_rows_load_no_kernel() {
    let device = sim::open(1);
    let stream = device.stream().unwrap();
    let of = |shape: &[usize]| tensor(&stream, &vec![bf16::ONE; shape.iter().product()], DType::BF16, shape);
    let ops = Ops::new(&device).unwrap();
    let b = of(&[24, 64]);
    for rows in [1, 7, 30] {
        let (a, out) = (of(&[rows, 64]), of(&[rows, 24]));
        let gemm = Gemm {
            a: &a,
            b: &b,
            scales: None,
            bias: None,
            activation: None,
            gated: false,
            residual: None,
            out: &out,
            workspace: None,
        };
        ops.gemm(&stream, &gemm).unwrap();
        assert_eq!(read::<bf16>(&stream, &out), vec![bf16::from_f32(64.0); rows * 24]);
    }
    // Of recorded kernels alone variables are printed.
    let text = format!("{ops:?}");
    assert_eq!((text.matches("Step {").count(), text.matches("vars: [").count()), (3, 1));
}

/// What a device has no kernel for is refused, not computed in another way.
#[test]
fn products_that_need_a_newer_device_are_refused() {
    let device = simulated(1, Arch::Sm80);
    let stream = device.stream().unwrap();
    let of = |dtype: DType, shape: &[usize]| {
        tensor(&stream, &vec![0u8; shape.iter().product::<usize>() * dtype.bytes()], dtype, shape)
    };
    let ops = Ops::new(&device).unwrap();
    let [a, b, out] = [of(DType::F8E4M3, &[3, 128]), of(DType::F8E4M3, &[8, 128]), of(DType::F32, &[3, 8])];
    let gemm = Gemm {
        a: &a,
        b: &b,
        scales: None,
        bias: None,
        activation: None,
        gated: false,
        residual: None,
        out: &out,
        workspace: None,
    };
    let error = ops.gemm(&stream, &gemm).unwrap_err();
    assert!(matches!(error, OpError::Gemm(_)) && error.to_string().contains("sm_80"), "{error}");
    let (b, offsets) = (of(DType::F8E4M3, &[1, 8, 128]), of(DType::U32, &[2]));
    let [a_scale, b_scale] = [of(DType::F32, &[3, 1]), of(DType::F32, &[1, 1, 1])];
    let grouped = GroupedGemm {
        a: &a,
        b: &b,
        offsets: &offsets,
        scales: Some([&a_scale, &b_scale]),
        bias: None,
        activation: None,
        gated: false,
        residual: None,
        out: &out,
    };
    let error = ops.grouped_gemm(&stream, &grouped).unwrap_err();
    assert_eq!(error.to_string(), "grouped_gemm: a is float8_e4m3fn, which needs compute capability 9.0");
    let x = of(DType::BF16, &[3, 128]);
    let packed = pack_linear(&[bf16::ONE; 8 * 128], 128, WeightForm::Mxfp4).unwrap();
    let packed = tensor(&stream, &packed, DType::U8, &[packed.len()]);
    let linear = Linear { x: &x, packed: &packed, form: WeightForm::Mxfp4, bias: None, residual: None, out: &out };
    let error = ops.linear(&stream, &linear).unwrap_err();
    assert_eq!(error.to_string(), "linear: packed is mxfp4, which needs compute capability 9.0");
}
