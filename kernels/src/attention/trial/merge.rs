//! Two results of attention, and their merge.

use half::bf16;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::attention::MergeRows;
use crate::naive;

/// Rounding of a result to bf16, and the largest error of weights and sums, of values up to 1 and
/// logarithms up to 20: those are rounded a few times in f32.
const BOUND: Bound = Bound { absolute: 1e-5, relative: 1.0 / 256.0 };
const LOGS: Bound = Bound { absolute: 2e-5, relative: 0.0 };

/// Draws a random merge.
pub(super) fn draw(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let mut draw = Draw::new(seed);
    let depth = 8 * draw.between(1..=32);
    let merge = MergeRows { depth, lse: draw.between(0..=1) == 1 };
    let rows = draw.between(1..=60);
    let values = [0, 1].map(|_| draw.floats((rows * depth) as usize, bf16::from_f64));
    let logs = [0, 1].map(|_| {
        let log =
            |draw: &mut Draw| if draw.between(0..=4) == 0 { f32::NEG_INFINITY } else { 20.0 * draw.unit() as f32 };
        (0..rows).map(|_| log(&mut draw)).collect::<Vec<f32>>()
    });
    let (mut exact, mut exact_logs) = (Vec::new(), Vec::new());
    for row in 0..rows as usize {
        let parts = [0, 1].map(|which: usize| naive::SplitPartial {
            max: f64::from(logs[which][row]),
            sum: f64::from(u8::from(logs[which][row].is_finite())),
            acc: values[which][row * depth as usize..][..depth as usize].iter().map(|x| x.to_f64()).collect(),
        });
        exact.extend(naive::combine(&parts, depth as usize));
        exact_logs.push(naive::log_sum_exp(&parts));
    }
    let blocks = merge.blocks(rows).unwrap_or_default();
    let mut trial = Trial::new(verify(merge.record(arch))?, blocks).note(format!("{rows} rows, {merge:?}"));
    let names = [["a", "lse_a"], ["b", "lse_b"]];
    let operands = [0, 1]
        .map(|which: usize| [trial.input(names[which][0], &values[which]), trial.input(names[which][1], &logs[which])]);
    let out = trial.output("out", Expected::near::<bf16>(&exact, BOUND));
    let lse = merge.lse.then(|| trial.output("lse", Expected::near::<f32>(&exact_logs, LOGS)));
    let trial = operands.into_iter().flatten().fold(trial, Trial::pass);
    Ok(lse.into_iter().fold(trial.pass(rows).pass(out), Trial::pass))
}
