//! Which offsets a layout reaches, and how often.

use super::{Counterexample, MAX_ENUMERATION};
use crate::Layout;
use crate::flat::Flat;

/// No two coordinates share an offset.
///
/// Layouts whose strides nest are decided by their strides; others by a search over pairs, up to a size of
/// [`MAX_ENUMERATION`] (beyond it, the answer is "not injective" with `at: -1`).
///
/// # Errors
/// A flat index that shares its offset with an earlier one, which is `expected`.
pub const fn injective(layout: &Layout) -> Result<(), Counterexample> {
    let law = "no two coordinates share an offset";
    let mut modes = Flat::EMPTY;
    let mut leaf = 0;
    while leaf < layout.profile.leaves() {
        if layout.shape[leaf] > 1 {
            modes.shape[modes.len] = layout.shape[leaf];
            modes.stride[modes.len] = layout.stride[leaf].abs();
            modes.len += 1;
        }
        leaf += 1;
    }
    modes.sort_by_stride();
    let (mut reach, mut i) = (0, 0);
    // Each stride larger than everything below it: no two sums coincide.
    while i < modes.len && modes.stride[i] > reach {
        reach += (modes.shape[i] - 1) * modes.stride[i];
        i += 1;
    }
    if i == modes.len {
        return Ok(());
    }
    if layout.size() > MAX_ENUMERATION {
        return Err(Counterexample { law, at: -1, found: layout.size(), expected: MAX_ENUMERATION });
    }
    let mut i = 1;
    while i < layout.size() {
        let mut j = 0;
        while j < i {
            if layout.at(i) == layout.at(j) {
                return Err(Counterexample { law, at: i, found: layout.at(i), expected: j });
            }
            j += 1;
        }
        i += 1;
    }
    Ok(())
}

/// Every offset below the size is reached once.
///
/// # Errors
/// As [`injective`]; or the cosize, where it is not the size, or a negative stride.
pub const fn bijective(layout: &Layout) -> Result<(), Counterexample> {
    let law = "every offset below the size is reached";
    let mut leaf = 0;
    while leaf < layout.profile.leaves() {
        if layout.stride[leaf] < 0 && layout.shape[leaf] > 1 {
            return Err(Counterexample { law, at: -1, found: layout.stride[leaf], expected: 0 });
        }
        leaf += 1;
    }
    if layout.cosize() != layout.size() {
        return Err(Counterexample { law, at: -1, found: layout.cosize(), expected: layout.size() });
    }
    injective(layout)
}
