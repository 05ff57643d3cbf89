//! Cuts of a mode: indices from a start, a step apart.

use crate::Layout;
use crate::view::ViewError;

/// The start of `count` indices of a mode, from `start` on and `step` apart, and their layout from
/// there.
pub(super) fn cut_mode(
    whole: &Layout,
    mode: usize,
    start: usize,
    step: usize,
    count: usize,
) -> Result<(usize, Layout), ViewError> {
    let torn = ViewError::Torn { mode, start, step, count };
    let origin = whole.at(start as i64);
    let part = match count {
        1 => Layout::ONE,
        _ => whole.composition(&Layout::leaf(count as i64, step as i64)?).map_err(|_| torn)?,
    };
    // The composition starts at index 0. A single stride is the same from any index; of a nested
    // mode it need not be.
    let moved = |i: usize| whole.at((start + i * step) as i64) - origin == part.at(i as i64);
    if whole.is_leaf() || (0..count).all(moved) { Ok((origin as usize, part)) } else { Err(torn) }
}
