//! The mutation harness for kernels that have trials.

use super::Trial;
use crate::device::{DeviceError, sim};
use crate::sim::mutate::{Equivalent, Survey, under_seeds};
use std::ops::Range;

/// Judges the kernel of these trials and every mutant of it by all trials on the simulator, under
/// seeds until one fails: by a fault, or a wrong result.
///
/// ```
/// use tilewright_codegen::trial::{Shipped, survey};
/// use tilewright_codegen::{gallery, ir::Arch};
/// let trial = gallery::named("block_sum").unwrap().draw(Arch::Sm90a, 3)?;
/// survey(&[trial], 0..10, &[])?.expect_no_holes();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When a mutant cannot be launched as the kernel can.
///
/// # Panics
/// Where there is no trial, or they are of more than one kernel: a mistake in the test.
pub fn survey(trials: &[Trial], seeds: Range<u64>, ledger: &[Equivalent]) -> Result<Survey, DeviceError> {
    let kernel = trials[0].kernel().kernel();
    assert!(trials.iter().all(|trial| trial.kernel().kernel() == kernel), "trials of more than one kernel");
    let judge = under_seeds(seeds, |kernel, seed| {
        let found = |trial: &Trial| match trial.clone().with_kernel(kernel.clone()).run(&sim::open(seed)) {
            Ok(outcome) => Ok(outcome.first_wrong().map(|_| "wrong result".to_owned())),
            // The kind of the fault comes first.
            Err(DeviceError::Fault { report, .. }) => Ok(report.split(" in kernel ").next().map(str::to_owned)),
            Err(error) => Err(error),
        };
        trials.iter().map(found).find(|found| !matches!(found, Ok(None))).unwrap_or(Ok(None))
    });
    Survey::of(kernel, ledger, judge)
}
