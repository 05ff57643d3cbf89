//! Linear layers: every input, every output, rows, lengths and groups at random.

use half::bf16;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, BufferId, Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::{Activation, SoftCap};
use tilewright_kernels::epilogue::{ResultFunctions, ResultPlace};
use tilewright_kernels::gemv::activations::{AOperand, Ordered, Packing, Prologue, Reordering, columns};
use tilewright_kernels::gemv::task::{ArgmaxCandidates, Bias, LinearEpilogue, LinearTask, linear};
use tilewright_kernels::naive;
use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts};
use tilewright_kernels::sample::tiles::TileBests;
use tilewright_kernels::tile::{Array, Float};
use tilewright_kernels::warps::ConsumerWarps;
use tilewright_kernels::weights::{Codes, Strip};

use crate::quantised::{every_block, every_code, pack_codes, quantised};
use crate::stored::{self, UNIT};
use crate::supply::{Supply, a_operand, pack, reading, scratch, sums};
use crate::{conflicts, right, surveyed};

#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Plain,
    RmsNorm,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    Store,
    Add,
    Gated(Activation),
    Logits,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    from: From,
    to: To,
    rows: u32,
    k: u32,
    n: u32,
    /// Strips of a block's tile.
    tile: u32,
    bias: bool,
    x: Float,
    out: Float,
    warps: u32,
    stage_bytes: u32,
    /// Strips of a group.
    group: u32,
    /// The storage of the A operand.
    a_operand: AOperand,
    /// The form of quantised weights, if they are quantised.
    codes: Option<Codes>,
    /// Whether their codes have an act-order.
    ordered: bool,
    /// Whether logits are capped.
    capped: bool,
    /// Whether the function [`doubled`] is the last step of stored results and logits.
    custom: bool,
}

/// An epilogue of one's own: twice the result, less its row and its column.
fn doubled<'k>(at: ResultPlace<'k>, result: Val<'k, f32>) -> Val<'k, f32> {
    result * 2.0 - (at.row + at.column).cast::<f32>()
}

const EPS: f32 = 1e-5;

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let gated = Activation::ALL.map(To::Gated);
        let to = [To::Store, To::Add, To::Logits, gated[0], gated[1], gated[2]][draw.between(0..=5) as usize];
        // The best of a tile is looked for among sums that are exact.
        let kind = if to == To::Logits { 0 } else { draw.between(0..=1) };
        let from = [From::Plain, From::RmsNorm][kind as usize];
        let most = [8, 60, 300][draw.between(0..=2) as usize];
        let k = 4 * draw.between(1..=most / 4);
        let warps = draw.between(1..=6);
        let case = Case {
            from,
            to,
            rows: draw.between(1..=16),
            k,
            n: draw.between(1..=45),
            tile: draw.between(1..=4),
            bias: draw.between(0..=1) == 0,
            x: stored::float(draw),
            out: stored::float(draw),
            warps,
            stage_bytes: warps * 512 * draw.between(1..=3),
            group: draw.between(2..=5),
            a_operand: AOperand::Shared,
            codes: None,
            ordered: false,
            capped: to == To::Logits && draw.between(0..=1) == 0,
            custom: false,
        };
        let case = case.with_a_operand(draw);
        let may = matches!(case.to, To::Store | To::Logits) && !case.capped;
        Case { custom: may && draw.between(0..=2) == 0, ..case }
    }

    /// A way for the activations; often one by phases, which take rows that end with a stage. Sums
    /// of logits may wait where these will be.
    fn with_a_operand(self, draw: &mut Draw) -> Case {
        let in_logits = self.to == To::Logits && self.out == Float::F32 && draw.between(0..=1) == 0;
        let waiting = if in_logits { 0 } else { self.tile * self.streams() };
        let whole = in_logits || draw.between(0..=1) == 0;
        let case = if whole { Case { k: self.strip().padded_k(), ..self } } else { self };
        Case { a_operand: a_operand(draw, case.strip(), case.packing(), waiting), ..case }
    }

    /// Draws a case with quantised weights: codes, groups, zeros and scales at random. Logits are
    /// whole numbers.
    fn draw_quantised(draw: &mut Draw) -> Case {
        let case = Case::draw(draw);
        let code = [Code::U4, Code::I4, Code::U8, Code::I8, Code::E4m3, Code::E2m1][draw.between(0..=5) as usize];
        let code = if case.to == To::Logits { Code::U4 } else { code };
        let group = [None, Some(16), Some(32), Some(48), Some(64), Some(96), Some(128)][draw.between(0..=6) as usize];
        let zeros = code.is_integer() && draw.between(0..=1) == 0;
        let scale = [Float::F32, Float::F16, Float::Bf16][draw.between(0..=2) as usize];
        let codes = Codes { code, group, zeros, scale, blocks: false };
        // Of few rows codes are the other operand.
        let rows = if draw.between(0..=1) == 0 { draw.between(1..=4) } else { case.rows };
        // Halves of a step are groups in whole steps.
        let of_step = if group.is_some_and(|group| group % 32 > 0) { 32 } else { 4 };
        let k = of_step * draw.between(1..=600 / of_step);
        let case = Case { k, codes: Some(codes), rows, ordered: draw.between(0..=2) == 0, ..case };
        let case = match code == Code::E2m1 && k > 16 && draw.between(0..=1) == 0 {
            true => Case { codes: Some(Codes::of_blocks()), ordered: false, ..case },
            false => case,
        };
        case.with_a_operand(draw)
    }

    fn strip(self) -> Strip {
        match self.codes {
            None => Strip::new(self.k, self.warps, self.stage_bytes).expect("a strip"),
            Some(codes @ Codes { blocks: true, .. }) => {
                Strip::of_codes(self.k, self.warps, self.stage_bytes, codes).expect("a strip")
            }
            Some(Codes { code, group, zeros, scale, blocks: false }) => {
                let codes = Codes::new(code, group.map(|group| group as usize), zeros, scale).expect("a form");
                Strip::of_codes(self.k, self.warps, self.stage_bytes, codes).expect("a strip")
            }
        }
    }

    /// Whether activations come in an order of their own.
    fn reorders(self) -> bool {
        self.ordered || self.strip().is_halved()
    }

    /// Strips of the ring that make one of features.
    fn streams(self) -> u32 {
        if matches!(self.to, To::Gated(_)) { 2 } else { 1 }
    }

    /// The cap of logits: above most of them, so that no two that differ are capped to the same.
    fn soft_cap(self) -> Option<SoftCap> {
        self.capped.then(|| SoftCap::new((64 + 16 * self.k) as f32).expect("a cap"))
    }

    fn packing(self) -> Packing {
        Packing::of(self.rows, if self.from == From::Plain { self.x } else { Float::F32 })
    }

    fn operand_bytes(self) -> u32 {
        // No more than is needed: sums would take the rest, and fewer groups have fewer meetings.
        self.a_operand.operand_bytes(self.strip(), self.packing())
    }

    fn tiles(self) -> u32 {
        self.n.div_ceil(8).div_ceil(self.tile)
    }

    fn record(self, k: &Builder) {
        let team = ConsumerWarps::new(k, self.warps);
        let strip = self.strip();
        let streams = self.streams();
        let weights = k.global::<u32>("weights").at(k.block_id() * (self.tile * streams * strip.bytes() / 4));
        let [x, weight] = ["x", "weight"].map(|name| k.global::<u8>(name));
        let [bias, up_bias, residual, out] = ["bias", "up_bias", "residual", "out"].map(|name| k.global::<u8>(name));
        let value = k.global::<f32>("value");
        let index = k.global::<i32>("index");
        let x = Array::new(x, self.x);
        let f32s = |at| Array::new(at, Float::F32);
        let indexes = k.global::<u32>("indexes");
        let norm = (self.from == From::RmsNorm).then_some((f32s(weight), EPS));
        let input = match self.from {
            From::Plain | From::RmsNorm if self.reorders() => Prologue::Ordered(Ordered { x, indexes, norm }),
            From::Plain => Prologue::Plain(x),
            From::RmsNorm => Prologue::RmsNorm { x, weight: f32s(weight), eps: EPS },
        };
        let out = Array::new(out, self.out);
        let bias = self.bias.then_some(f32s(bias));
        let plain =
            LinearEpilogue { bias: [bias.map(Bias::from), None], ..LinearEpilogue::to(Some(out.into()), self.n) };
        let epilogue = match self.to {
            To::Store => plain,
            To::Add => LinearEpilogue { residual: Some(f32s(residual)), ..plain },
            To::Gated(activation) => {
                let functions = ResultFunctions { activation: Some(activation), soft_cap: None };
                let bias = [bias, self.bias.then_some(f32s(up_bias))].map(|bias| bias.map(Bias::from));
                LinearEpilogue { gated: true, functions, bias, ..plain }
            }
            To::Logits => {
                let bests = TileBests { value, index, tiles: self.tiles() };
                let functions = ResultFunctions { activation: None, soft_cap: self.soft_cap() };
                let candidates = Some(ArgmaxCandidates { bests, tile: k.block_id() });
                LinearEpilogue { functions, candidates, ..plain }
            }
        };
        let epilogue = LinearEpilogue { custom: self.custom.then_some(&doubled), ..epilogue };
        let first = k.block_id() * (self.tile * 8);
        let tile = LinearTask {
            strip,
            pitch: strip.k(),
            rows: self.rows,
            first_row: k.lit(0),
            first,
            end: (first + self.tile * 8).min(self.n),
            stride: Strip::ROWS,
            slots: None,
            input,
            a_operand: self.a_operand,
            epilogue,
        };
        let scratch = scratch(team, self.operand_bytes(), self.rows, sums(self.a_operand, self.group));
        let strips = (tile.end - first + 7) / 8 * streams;
        let supply = Supply::new(team, strip, weights, strips, self.tile * streams, self.a_operand);
        linear(team, scratch, &supply, tile, None);
    }

    /// Numbers; for logits whole ones.
    fn numbers(self, draw: &mut Draw, float: Float, count: u32) -> Vec<f64> {
        let numbers = stored::numbers(draw, float, count, if self.to == To::Logits { 3.0 } else { 1.0 });
        if self.to == To::Logits { numbers.into_iter().map(f64::round).collect() } else { numbers }
    }

    /// The relative error of activations, as they are multiplied, and of a sum of a number of
    /// products.
    fn accuracy(self) -> f64 {
        // In two parts, bf16 as it is, or one f16.
        let exact = self.packing().meeting(self.strip()).parts() == self.packing().parts();
        let operand = if exact { 2f64.powi(-16) } else { 2f64.powi(-11) };
        let products = f64::from(self.k.div_ceil(16) * 4 + self.warps + 8) * UNIT;
        let made = if self.from == From::Plain { 0.0 } else { f64::from(self.k / 32 + 60) * UNIT };
        operand + products + made
    }
}

/// The activations, as rows, and the buffers from which they are computed.
struct Given {
    x: Vec<f64>,
    weight: Vec<f64>,
    rows: Vec<Vec<f64>>,
}

fn given(case: Case, draw: &mut Draw) -> Given {
    let x = case.numbers(draw, case.x, case.rows * case.k);
    let weight = case.numbers(draw, Float::F32, case.k);
    let mut given = Given { x, weight, rows: Vec::new() };
    for row in given.x.chunks(case.k as usize) {
        given.rows.push(match case.from {
            From::Plain => row.to_vec(),
            From::RmsNorm => naive::rms_norm(row, &given.weight, f64::from(EPS)),
        });
    }
    given
}

/// The numbers below `count`, shuffled.
fn permutation(draw: &mut Draw, count: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).collect();
    (1..all.len()).for_each(|at| all.swap(at, draw.between(0..=at as u32) as usize));
    all
}

/// A product with a bias, and the largest sum of its terms' sizes.
fn product(rows: &[Vec<f64>], weight: &[f64], bias: Option<&[f64]>) -> (Vec<f64>, f64) {
    let sizes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<f64>>();
    let size_of_weight = sizes(weight);
    let size_of_bias = bias.map(sizes);
    let of = |row: &Vec<f64>| naive::linear(&sizes(row), &size_of_weight, size_of_bias.as_deref());
    let largest = rows.iter().flat_map(of).fold(0.0, f64::max);
    (rows.iter().flat_map(|row| naive::linear(row, weight, bias)).collect(), largest)
}

/// A matrix, and how it lies in strips.
fn weights(case: Case, draw: &mut Draw, columns: Option<&[u32]>) -> (Vec<f64>, Vec<bf16>) {
    let order: Vec<[Option<usize>; 8]> = (0..(case.n as usize).div_ceil(8))
        .map(|strip| std::array::from_fn(|i| Some(strip * 8 + i).filter(|&row| row < case.n as usize)))
        .collect();
    let Some(codes) = case.codes else {
        let weights = case.numbers(draw, Float::Bf16, case.n * case.k);
        let brain: Vec<bf16> = weights.iter().map(|&v| bf16::from_f64(v)).collect();
        let laid = pack(case.strip(), &brain, &order);
        return (weights, laid);
    };
    let matrix = quantised(draw, [case.n as usize, case.k as usize], codes, case.to == To::Logits);
    let of_order = |columns: &[u32]| {
        let parts = QuantParts { order: Some(columns.to_vec()), ..matrix.parts().clone() };
        QuantMatrix::new(parts).expect("sound")
    };
    let matrix = columns.map_or_else(|| matrix.clone(), of_order);
    (naive::dequantize(&matrix), pack_codes(case.strip(), &matrix, &order))
}

fn trial(case: Case, draw: &mut Draw) -> Trial {
    let given = given(case, draw);
    let order = case.ordered.then(|| permutation(draw, case.k));
    let [(weights, laid), (ups, laid_ups)] = [0, 1].map(|_| weights(case, draw, order.as_deref()));
    let bias: [Vec<f64>; 2] = [0, 1].map(|_| case.numbers(draw, Float::F32, case.n));
    let residual = case.numbers(draw, Float::F32, case.rows * case.n);
    let biased = |at: usize| case.bias.then_some(bias[at].as_slice());

    let (mut y, mut largest) = product(&given.rows, &weights, biased(0));
    if case.custom {
        let of = |(at, y): (usize, &f64)| 2.0 * y - (at / case.n as usize + at % case.n as usize) as f64;
        y = y.iter().enumerate().map(of).collect();
        largest = 2.0 * largest + f64::from(case.n + case.rows);
    }
    let error = largest * case.accuracy();
    let (out, bound) = match case.to {
        To::Store | To::Logits => (y.iter().map(|&y| capped(case, y)).collect(), error),
        To::Add => (naive::add(&residual, &y), error + (1.0 + largest) * UNIT),
        To::Gated(activation) => {
            let (up, most) = product(&given.rows, &ups, biased(1));
            let up_error = most * case.accuracy();
            let gate_error = activation.slope() * error;
            let rounded = y.iter().map(|&y| activation.error(y)).fold(8.0 * UNIT * largest, f64::max);
            let bound = (gate_error + rounded) * (most + up_error) + largest * up_error;
            (naive::gated(activation, &y, &up), bound)
        }
    };
    let bound = match case.to {
        To::Logits => of_logits(case),
        _ => Bound { absolute: bound, relative: 0.0 },
    };

    let mut laid = laid;
    if matches!(case.to, To::Gated(_)) {
        let bytes = case.strip().bytes() as usize / 2;
        laid = laid.chunks(bytes).zip(laid_ups.chunks(bytes)).flat_map(|(y, up)| [y, up].concat()).collect();
    }
    // Codes of `e4m3` become f16 by an instruction that the first of them lacks.
    let arch = [Arch::Sm80, Arch::Sm89][draw.between(0..=1) as usize];
    let kernel = record("linear", arch, block(case.warps * 32), |k| case.record(k));
    let mut trial =
        Trial::new(verify(kernel).unwrap_or_else(|e| panic!("{e}")), case.tiles()).note(format!("{case:?}"));
    let weights = trial.input("weights", &laid);
    let x = stored::input(&mut trial, "x", case.x, &given.x);
    let mut f32s = |name: &str, values: &[f64]| stored::input(&mut trial, name, Float::F32, values);
    // The table, and the norm's weights in its order.
    let reordering = Reordering::of(case.a_operand);
    let columns = columns(case.strip(), order.as_deref());
    let column = |at: usize| columns.as_ref().map_or(at, |columns| reordering.column(columns, at));
    let in_order: Vec<f64> = (0..given.weight.len()).map(|at| given.weight[column(at)]).collect();
    let weight = f32s("weight", &in_order);
    let [bias, up_bias] = [("bias", &bias[0]), ("up_bias", &bias[1])].map(|(name, v)| f32s(name, v));
    let residual = f32s("residual", &residual);
    let out = stored::output(&mut trial, "out", case.out, &out, bound);
    let (value, index) = best(&mut trial, case, &y);
    let indexes = trial.input("indexes", &columns.map_or(vec![0], |columns| reordering.indexes(&columns)));
    [weights, x, weight, bias, up_bias, residual, out, value, index, indexes].into_iter().fold(trial, Trial::pass)
}

/// A logit, capped where the case says so.
fn capped(case: Case, y: f64) -> f64 {
    case.soft_cap().map_or(y, |cap| naive::soft_cap(y, f64::from(cap.get())))
}

/// The error bound of logits: sums of whole numbers are exact, capped ones within 2⁻¹⁹.
fn of_logits(case: Case) -> Bound {
    Bound { absolute: 0.0, relative: if case.capped { 2f64.powi(-19) } else { 0.0 } }
}

/// The buffers of each tile's argmax candidate: value and index.
fn best(trial: &mut Trial, case: Case, y: &[f64]) -> (BufferId, BufferId) {
    if case.to != To::Logits {
        return (trial.scratch::<f32>("value", 1), trial.scratch::<i32>("index", 1));
    }
    let mut values = Vec::new();
    let mut indexes = Vec::new();
    for row in y.chunks(case.n as usize) {
        for (tile, y) in row.chunks(8 * case.tile as usize).enumerate() {
            let y: Vec<f32> = y.iter().map(|&y| y as f32).collect();
            let at = naive::argmax(&y).expect("a feature");
            values.push(capped(case, f64::from(y[at])));
            indexes.push((tile * 8 * case.tile as usize + at) as i32);
        }
    }
    (
        trial.output("value", Expected::near::<f32>(&values, of_logits(case))),
        trial.output("index", Expected::exact(&indexes)),
    )
}

#[test]
fn random_layers_of_codes() {
    for seed in 0..120 {
        let mut draw = Draw::new(seed);
        let case = Case::draw_quantised(&mut draw);
        let counters = right(&trial(case, &mut draw), seed);
        let extra = conflicts(&counters, reading(case.a_operand));
        assert_eq!(extra, 0, "bank conflicts: {case:?}");
    }
}

/// Rows of one-hot activations bring weights out as they are: every code at every place of a lane's
/// word, bit for bit; by codes as either operand of the instruction.
#[test]
fn every_code_is_exact() {
    for (rows, a_operand, float) in [
        (16, AOperand::Registers, Float::Bf16),
        (16, AOperand::Registers, Float::F32),
        (4, AOperand::Shared, Float::Bf16),
        (2, AOperand::Shared, Float::F32),
    ] {
        let one_hot = OneHotRows { rows, a_operand, float };
        [Arch::Sm80, Arch::Sm89].into_iter().for_each(|arch| every_code_comes_out(arch, one_hot));
    }
}

/// Activations of which each row has a single 1.
#[derive(Clone, Copy)]
struct OneHotRows {
    /// Rows of a product.
    rows: usize,
    /// The storage of the A operand.
    a_operand: AOperand,
    /// Type of the activations.
    float: Float,
}

fn every_code_comes_out(arch: Arch, one_hot: OneHotRows) {
    for (code, zeros) in [
        (Code::U4, false),
        (Code::U4, true),
        (Code::I4, true),
        (Code::U8, false),
        (Code::U8, true),
        (Code::I8, false),
        (Code::E4m3, false),
        (Code::E2m1, false),
    ] {
        let [n, k] = [code.count(), 512 / code.bits()];
        let codes = Codes { code, group: Some(k as u32), zeros, scale: Float::F32, blocks: false };
        let columns: Vec<usize> = (0..k).collect();
        columns_come_out(arch, one_hot, codes, &every_code(codes, [n, k]), &columns);
    }
    // Every code with every scale of a block, at another place of each.
    let codes = Codes::of_blocks();
    let columns: Vec<usize> = (0..127).map(|block| 16 * block + block % 16).collect();
    columns_come_out(arch, one_hot, codes, &every_block(16 * 127), &columns);
}

/// Products with one-hot rows are these columns of the matrix, to the bit.
fn columns_come_out(
    arch: Arch,
    OneHotRows { rows, a_operand, float }: OneHotRows,
    codes: Codes,
    matrix: &QuantMatrix,
    columns: &[usize],
) {
    let [n, k] = [matrix.n(), matrix.k()];
    let expected: Vec<f64> = naive::dequantize(matrix);
    let case = Case {
        from: From::Plain,
        to: To::Store,
        rows: rows as u32,
        k: k as u32,
        n: n as u32,
        tile: (n / 8) as u32,
        bias: false,
        x: float,
        out: Float::F32,
        warps: 1,
        stage_bytes: 512,
        group: 4,
        a_operand,
        codes: Some(codes),
        ordered: false,
        capped: false,
        custom: false,
    };
    let order: Vec<_> = (0..n / 8).map(|strip| std::array::from_fn(|i| Some(strip * 8 + i))).collect();
    for columns in columns.chunks(rows) {
        let column = |row: usize| columns.get(row).copied().unwrap_or(0);
        let kernel = record("linear", arch, block(32), |b| case.record(b));
        let mut trial = Trial::new(verify(kernel).unwrap_or_else(|e| panic!("{e}")), 1).note(format!("{case:?}"));
        let one_hot = |at: usize| f64::from(u8::from(at % k == column(at / k)));
        let x: Vec<f64> = (0..rows * k).map(one_hot).collect();
        let y: Vec<f64> = (0..rows * n).map(|at| expected[at % n * k + column(at / n)]).collect();
        let weights = trial.input("weights", &pack_codes(case.strip(), matrix, &order));
        let x = stored::input(&mut trial, "x", float, &x);
        let [weight, bias, up_bias, residual] =
            ["weight", "bias", "up_bias", "residual"].map(|name| trial.scratch::<f32>(name, 1));
        let none = Bound { absolute: 0.0, relative: 0.0 };
        let out = stored::output(&mut trial, "out", Float::F32, &y, none);
        let value = trial.scratch::<f32>("value", 1);
        let index = trial.scratch::<i32>("index", 1);
        let indexes = trial.input("indexes", &[0u32]);
        let given = [weights, x, weight, bias, up_bias, residual, out, value, index, indexes];
        right(&given.into_iter().fold(trial, Trial::pass), columns[0] as u64);
    }
}

#[test]
fn random_layers() {
    for seed in 0..150 {
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        let counters = right(&trial(case, &mut draw), seed);
        let extra = conflicts(&counters, reading(case.a_operand));
        assert_eq!(extra, 0, "bank conflicts: {case:?}");
    }
}

#[test]
fn mutants_are_found_out() {
    let streamed = |a_operand| a_operand == AOperand::Reloaded { group: 2 };
    let by_phases = |a_operand| matches!(a_operand, AOperand::Phases { waiting: 1.., .. });
    let ways: [fn(AOperand) -> bool; 4] =
        [|a_operand| a_operand == AOperand::Shared, |a_operand| a_operand == AOperand::Registers, streamed, by_phases];
    let layers = [
        (From::RmsNorm, To::Gated(Activation::Silu)),
        (From::Plain, To::Logits),
        (From::RmsNorm, To::Add),
        (From::RmsNorm, To::Gated(Activation::Silu)),
    ];
    for ((from, to), is_way) in layers.into_iter().zip(ways) {
        // Several warps, rows and groups of strips.
        let several = |case: &Case| {
            (case.from, case.to) == (from, to)
                && is_way(case.a_operand)
                && case.warps > 1
                && case.tile > case.group
                && case.n > 8 * case.tile
        };
        let seed = (0..10_000).find(|&seed| several(&Case::draw(&mut Draw::new(seed)))).expect("a case");
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        surveyed(&trial(case, &mut draw), &[]);
    }
}
