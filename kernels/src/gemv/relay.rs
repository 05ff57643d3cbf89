//! The weights in the order in which the kernel reads them, and back.

use super::tiles::Plan;
use half::bf16;
use tilewright_layout::LayoutError;

/// The weights `w[n, k]`, row-major, as [`Plan::weights`] lays them out; rows and columns that are added hold zeros.
///
/// ```
/// use tilewright_kernels::gemv::{Plan, Tuning, relay, unrelay};
/// let w: Vec<half::bf16> = (0..10 * 50).map(|i| half::bf16::from_f32(i as f32)).collect();
/// let plan = Plan::new(1, 50, 1, Tuning::h100(1)).unwrap();
/// let laid = relay(&w, &plan)?;
/// assert_eq!(laid.len(), 16 * 64);
/// assert_eq!(unrelay(&laid, 10, &plan)?, w);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
///
/// # Errors
/// [`LayoutError`] where the weights are too many to count.
pub fn relay(w: &[bf16], plan: &Plan) -> Result<Vec<bf16>, LayoutError> {
    let n = (w.len() / plan.k as usize) as u32;
    let mut laid = vec![bf16::ZERO; n.div_ceil(8) as usize * plan.tile_elements() as usize];
    runs(n, plan, |row, laid_at, length| laid[laid_at..laid_at + length].copy_from_slice(&w[row..row + length]))?;
    Ok(laid)
}

/// The inverse of [`relay`]: the first `n` rows.
///
/// # Errors
/// [`LayoutError`] where the weights are too many to count.
pub fn unrelay(laid: &[bf16], n: u32, plan: &Plan) -> Result<Vec<bf16>, LayoutError> {
    let mut w = vec![bf16::ZERO; n as usize * plan.k as usize];
    runs(n, plan, |row, laid_at, length| w[row..row + length].copy_from_slice(&laid[laid_at..laid_at + length]))?;
    Ok(w)
}

/// Every contiguous run: where it is in the row-major matrix, where it is laid, its length.
fn runs(n: u32, plan: &Plan, mut each: impl FnMut(usize, usize, usize)) -> Result<(), LayoutError> {
    let layout = plan.weights(n)?;
    let (rows, columns) = (layout.mode(0)?, layout.mode(1)?);
    // Along k the layout's innermost mode is contiguous.
    let run = columns.coalesce().extents()[0] as usize;
    let k = plan.k as usize;
    for row in 0..n as usize {
        let start = rows.at(row as i64) as usize;
        for column in (0..k).step_by(run) {
            let length = run.min(k - column);
            each(row * k + column, start + columns.at(column as i64) as usize, length);
        }
    }
    Ok(())
}
