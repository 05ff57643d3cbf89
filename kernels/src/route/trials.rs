//! Random rows of logits, ids and results against the oracles.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{
    GroupedRouter, NO_PLACE, RouterKind, RouterScore, RouterShape, SortShape, SumShape, route_rows, sort_choices,
    weighted_sum_rows,
};
use crate::naive;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The sizes that the kernels are shown with: Qwen3-30B-A3B.
const ROUTER: RouterShape =
    RouterShape { experts: 128, chosen: 8, kind: RouterKind::SoftmaxThenTopK { renormalise: true }, warps: 4 };
const SORT: SortShape = SortShape { experts: 128, first: 0, inverse: true };
const SUM: SumShape =
    SumShape { width: 2048, chosen: 8, y: Float::Bf16, out: Float::F32, residual: true, inverse: false, warps: 8 };

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let entry =
        |name, record, draw| Box::new(ShippedEntry { name, needs: Needs::Sm80, record, draw }) as Box<dyn Shipped>;
    vec![
        entry("route", |arch| route_rows(arch, ROUTER), route_trial),
        entry("sort_choices", |arch| sort_choices(arch, SORT), sort_trial),
        entry("weighted_sum", |arch| weighted_sum_rows(arch, SUM), sum_trial),
    ]
}

/// A kind, with experts that it divides into groups.
fn kind(draw: &mut Draw, experts: u32) -> (RouterKind, u32) {
    match draw.between(0..=3) {
        0 => (RouterKind::TopKThenSoftmax, experts),
        1 => (RouterKind::SoftmaxThenTopK { renormalise: true }, experts),
        2 => (RouterKind::SoftmaxThenTopK { renormalise: false }, experts),
        _ => {
            let groups = 1 << draw.between(0..=3);
            let experts = (experts.div_ceil(groups).max(2) * groups).min(1024);
            let kept = draw.between(1..=groups);
            let mut flag = || draw.between(0..=1) == 1;
            let score = if flag() { RouterScore::Sigmoid } else { RouterScore::Softmax };
            let router = GroupedRouter { score, corrected: flag(), groups, kept, renormalise: flag(), scale: 2.5 };
            (RouterKind::Grouped(router), experts)
        }
    }
}

/// Logits of a row: of any size, or few different ones so that many are equal.
fn row(draw: &mut Draw, experts: u32, size: f64, ties: bool) -> Vec<f32> {
    let logit = |draw: &mut Draw| {
        let x = draw.unit() * size;
        (if ties { (x * 2.0 / size).round() } else { x }) as f32
    };
    (0..experts).map(|_| logit(draw)).collect()
}

fn route_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [4, 40, 128, 300][draw.between(0..=3) as usize];
    let experts = draw.between(2..=most);
    let (kind, experts) = kind(draw, experts);
    let available = match kind {
        RouterKind::Grouped(router) => experts / router.groups * router.kept,
        RouterKind::SoftmaxThenTopK { .. } | RouterKind::TopKThenSoftmax => experts,
    };
    let chosen = draw.between(1..=available.min(8));
    let shape = RouterShape { experts, chosen, kind, warps: [1, 4][draw.between(0..=1) as usize] };
    let rows = draw.between(1..=9);
    let size = [0.01, 3.0, 20.0][draw.between(0..=2) as usize];
    let is_grouped = matches!(kind, RouterKind::Grouped(_));
    let ties = !is_grouped && draw.between(0..=2) == 0;
    let size = if is_grouped { 3.0 } else { size };
    let correction: Vec<f32> = (0..experts).map(|_| draw.unit() as f32).collect();
    let bias: Vec<f64> = correction.iter().map(|&x| x.into()).collect();
    let of =
        |row: &[f32]| naive::route(kind, &row.iter().map(|&x| x.into()).collect::<Vec<_>>(), &bias, chosen as usize);
    let mut logits = Vec::new();
    for _ in 0..rows {
        // Scores come by an exponential in f32: none may be so close to another that it matters.
        let next = loop {
            let next = row(draw, experts, size, ties);
            let ids = of(&next).0;
            let near = |draw: &mut Draw| -> Vec<f32> { next.iter().map(|x| x + 1e-4 * draw.unit() as f32).collect() };
            if !is_grouped || (0..6).all(|_| of(&near(draw)).0 == ids) {
                break next;
            }
        };
        logits.extend(next);
    }
    let expected: Vec<_> = logits.chunks(experts as usize).map(of).collect();
    let ids: Vec<u32> = expected.iter().flat_map(|(ids, _)| ids.clone()).collect();
    let weights: Vec<f64> = expected.into_iter().flat_map(|(_, weights)| weights).collect();
    // As of `expert_weights`: an exponent of at most 2·size is rounded twice, powers are off by four
    // units; a lane adds its numbers, then five sums of lanes.
    let sums = f64::from(experts.div_ceil(32)) + 6.0;
    let bound = Bound { absolute: 1e-37, relative: (2.0 * (4.0 * size + 4.0) + sums + 8.0) * UNIT };
    let note = format!("{rows} rows, {shape:?}, up to {size}, ties {ties}");
    let mut trial = Trial::new(verify(route_rows(arch, shape))?, rows.div_ceil(shape.warps)).note(note);
    let logits = trial.input("logits", &logits);
    trial = trial.pass(rows).pass(logits);
    if matches!(kind, RouterKind::Grouped(router) if router.corrected) {
        let correction = trial.input("correction", &correction);
        trial = trial.pass(correction);
    }
    let ids = trial.output("ids", Expected::exact(&ids));
    let weights = trial.output("weights", Expected::near::<f32>(&weights, bound));
    Ok(trial.pass(ids).pass(weights))
}

fn sort_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [2, 40, 128, 300][draw.between(0..=3) as usize];
    let experts = draw.between(1..=most);
    let first = [0, draw.between(0..=5)][draw.between(0..=1) as usize];
    let shape = SortShape { experts, first, inverse: draw.between(0..=3) > 0 };
    let most = [1, 100, 5000][draw.between(0..=2) as usize];
    let count = draw.between(1..=most);
    let beyond = draw.between(0..=3);
    // Of all experts, of few, or all of one.
    let hot = draw.between(0..=first + experts - 1);
    let kind = draw.between(0..=2);
    let id = |draw: &mut Draw| match kind {
        0 => hot,
        1 if draw.between(0..=3) > 0 => hot,
        _ => draw.between(0..=first + experts - 1 + beyond),
    };
    let ids: Vec<u32> = (0..count).map(|_| id(draw)).collect();
    let sorted = naive::sort_choices(&ids, first, experts);
    let note = format!("{count} choices, {shape:?}");
    let mut trial = Trial::new(verify(sort_choices(arch, shape))?, 1).note(note);
    // Places without a choice are left alone.
    let mut order = sorted.order;
    order.resize(count as usize, NO_PLACE);
    let ids = trial.input("ids", &ids);
    let offsets = trial.output("offsets", Expected::exact(&sorted.offsets));
    let places = trial.changed("order", &vec![NO_PLACE; count as usize], Expected::exact(&order));
    trial = trial.pass(count).pass(ids).pass(offsets).pass(places);
    if shape.inverse {
        let inverse = trial.output("inverse", Expected::exact(&sorted.inverse));
        trial = trial.pass(inverse);
    }
    Ok(trial)
}

fn sum_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = draw.between(1..=5);
    let chosen = draw.between(1..=8);
    let width = [draw.between(1..=70), 4 * draw.between(1..=100)][draw.between(0..=1) as usize];
    let inverse = draw.between(0..=1) == 1;
    let (y, out) = (stored::float(draw), stored::float(draw));
    let added = draw.between(0..=3) > 0;
    let warps = [1, 2][draw.between(0..=1) as usize];
    let shape = SumShape { width, chosen, y, out, residual: added, inverse, warps };
    let count = rows * chosen;
    let results = stored::numbers(draw, y, count * width, 2.0);
    let residual = match added {
        true => stored::numbers(draw, out, rows * width, 4.0),
        false => vec![0.0; (rows * width) as usize],
    };
    let weights: Vec<f32> = draw.floats(count as usize, |v| v as f32);
    // Each choice at a place of its own, or at none.
    let mut places: Vec<u32> = (0..count).collect();
    for i in (1..count).rev() {
        places.swap(i as usize, draw.between(0..=i) as usize);
    }
    places.iter_mut().for_each(|place| *place = if draw.between(0..=5) == 0 { NO_PLACE } else { *place });
    let of = |choice: u32| {
        let place = if inverse { places[choice as usize] } else { choice };
        (place != NO_PLACE).then(|| &results[(place * width) as usize..][..width as usize])
    };
    let sum = |row: u32| {
        let y: Vec<_> = (row * chosen..(row + 1) * chosen).map(of).collect();
        let weights: Vec<f64> =
            weights[(row * chosen) as usize..][..chosen as usize].iter().map(|&w| w.into()).collect();
        naive::weighted_sum(&residual[(row * width) as usize..][..width as usize], &weights, &y)
    };
    let sums: Vec<f64> = (0..rows).flat_map(sum).collect();
    // Each of the terms, at most 2 in size, is added once; so is the residual, at most 4.
    let chosen = f64::from(chosen);
    let bound = Bound { absolute: (chosen * 2.0 * chosen + 2.0 * chosen + 4.0) * UNIT, relative: 0.0 };
    let mut trial = Trial::new(verify(weighted_sum_rows(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let results = stored::input(&mut trial, "y", y, &results);
    let weights = trial.input("weights", &weights);
    trial = trial.pass(results).pass(weights);
    if inverse {
        let inverse = trial.input("inverse", &places);
        trial = trial.pass(inverse);
    }
    if added {
        let residual = stored::input(&mut trial, "residual", out, &residual);
        trial = trial.pass(residual);
    }
    let out = stored::output(&mut trial, "out", out, &sums, bound);
    Ok(trial.pass(out))
}
