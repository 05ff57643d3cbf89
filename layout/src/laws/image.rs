//! The offsets that a layout reaches, and how often.

use super::Counterexample;
use crate::{Layout, MAX_LEAVES};

/// Steps that the search for two coordinates of one offset may take.
const MAX_STEPS: u32 = 1 << 20;

/// Checks that no two coordinates share an offset.
///
/// Two coordinates share one where their difference has offset 0. The search for such a difference
/// goes from the largest stride down and leaves a branch that the smaller strides cannot bring back
/// to 0, so layouts whose strides nest cost a step per mode. Should it not end within a million
/// steps, the answer is "not injective" with `at: -1`.
///
/// # Errors
/// A flat index that shares its offset (`found`) with another one (`expected`).
pub const fn injective(layout: &Layout) -> Result<(), Counterexample> {
    let law = "no two coordinates share an offset";
    let mut search = ImageSearch::new(layout, true);
    if !search.descend(layout, 0, 0, false) {
        return Ok(());
    }
    if search.steps >= MAX_STEPS {
        return Err(Counterexample { law, at: -1, found: layout.size(), expected: layout.size() });
    }
    // The positive and the negative part of the difference are two coordinates.
    let mut one = 0;
    let mut other = 0;
    let mut offset = 0;
    let mut place = 1;
    let mut leaf = 0;
    while leaf < layout.profile.leaves() {
        let step = search.difference[leaf];
        if step > 0 {
            one += step * place;
            offset += step * layout.stride[leaf];
        } else {
            other -= step * place;
        }
        place *= layout.shape[leaf];
        leaf += 1;
    }
    Err(Counterexample { law, at: one, found: offset, expected: other })
}

/// A coordinate whose offset is `offset`: one number per integer of the shape.
///
/// `None` where there is no such coordinate, or none was found within a million steps.
pub(crate) const fn coordinate_of(layout: &Layout, offset: i64) -> Option<[i64; MAX_LEAVES]> {
    let mut search = ImageSearch::new(layout, false);
    // The span of a layout has at most 60 bits.
    if offset.unsigned_abs() > search.reach[0].unsigned_abs() || !search.descend(layout, 0, -offset, true) {
        return None;
    }
    if search.steps >= MAX_STEPS { None } else { Some(search.difference) }
}

/// The search for a difference of two coordinates whose offset is 0, or for a coordinate.
struct ImageSearch {
    /// Whether integers may be negative, as in a difference.
    signed: bool,
    /// The integers with more than one element, largest stride first.
    order: [usize; MAX_LEAVES],
    count: usize,
    /// The largest change of an offset by the integers from a place in the order on.
    reach: [i64; MAX_LEAVES + 1],
    difference: [i64; MAX_LEAVES],
    steps: u32,
}

impl ImageSearch {
    const fn new(layout: &Layout, signed: bool) -> ImageSearch {
        let order = [0; MAX_LEAVES];
        let reach = [0; MAX_LEAVES + 1];
        let mut search = ImageSearch { signed, order, count: 0, reach, difference: [0; MAX_LEAVES], steps: 0 };
        let mut leaf = 0;
        while leaf < layout.profile.leaves() {
            if layout.shape[leaf] > 1 {
                let mut place = search.count;
                while place > 0 && layout.stride[search.order[place - 1]].abs() < layout.stride[leaf].abs() {
                    search.order[place] = search.order[place - 1];
                    place -= 1;
                }
                search.order[place] = leaf;
                search.count += 1;
            }
            leaf += 1;
        }
        let mut place = search.count;
        while place > 0 {
            place -= 1;
            let leaf = search.order[place];
            search.reach[place] = search.reach[place + 1] + (layout.shape[leaf] - 1) * layout.stride[leaf].abs();
        }
        search
    }

    /// Whether integers from `place` on can bring `sum` back to 0 with a difference that is not 0
    /// everywhere.
    const fn descend(&mut self, layout: &Layout, place: usize, sum: i64, moved: bool) -> bool {
        self.steps += 1;
        if self.steps >= MAX_STEPS {
            return true;
        }
        if place == self.count {
            return moved && sum == 0;
        }
        let leaf = self.order[place];
        let stride = layout.stride[leaf];
        let rest = self.reach[place + 1];
        // A difference and its negative are the same pair: the first step up is enough.
        let most = layout.shape[leaf] - 1;
        let mut low = if moved && self.signed { -most } else { 0 };
        let mut high = most;
        if stride != 0 {
            // Only steps that leave |sum| within the reach of the smaller strides.
            let toward = -sum / stride;
            let around = rest / stride.abs() + 1;
            low = if toward - around > low { toward - around } else { low };
            high = if toward + around < high { toward + around } else { high };
        }
        let mut step = low;
        while step <= high {
            let next = sum + step * stride;
            if next.abs() <= rest {
                self.difference[leaf] = step;
                if self.descend(layout, place + 1, next, moved || step != 0) {
                    return true;
                }
            }
            step += 1;
        }
        self.difference[leaf] = 0;
        false
    }
}

/// Checks that every offset below the size is reached once.
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
