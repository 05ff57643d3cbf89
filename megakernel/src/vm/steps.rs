//! Limits of a launch of many steps, and the tokens that end its rows.

use tilewright_kernels::sample::NO_TOKEN;

use super::LaunchError;

/// Most steps of one launch.
pub const MAX_STEPS: usize = 4096;

/// Refuses a launch of no steps, or of too many.
pub(in crate::vm) fn check_count(steps: usize) -> Result<(), LaunchError> {
    if (1..=MAX_STEPS).contains(&steps) { Ok(()) } else { Err(LaunchError::Steps { found: steps, most: MAX_STEPS }) }
}

/// Most tokens that end a row.
pub const MAX_ENDS: usize = 8;

/// Whether a row ends with a token: it is one of the row's ends, or none was chosen.
pub(in crate::vm) fn is_last(token: u32, mut ends: impl Iterator<Item = u32>) -> bool {
    token == NO_TOKEN || ends.any(|end| end == token)
}

/// The tokens that end each of `rows` rows, in lines of [`MAX_ENDS`]; none of any row where `ends`
/// is empty.
pub(in crate::vm) fn end_ids(ends: &[&[u32]], rows: usize) -> Result<Vec<i32>, LaunchError> {
    if !ends.is_empty() && ends.len() != rows {
        return Err(LaunchError::EndRows { found: ends.len(), rows });
    }
    let mut ids = vec![-1; rows * MAX_ENDS];
    for (row, (ends, ids)) in ends.iter().zip(ids.chunks_exact_mut(MAX_ENDS)).enumerate() {
        if ends.len() > MAX_ENDS {
            return Err(LaunchError::Ends { row, found: ends.len(), most: MAX_ENDS });
        }
        // No token is larger than an i32: the vocabulary is smaller.
        ids.iter_mut().zip(*ends).for_each(|(id, &end)| *id = i32::try_from(end).unwrap_or(-1));
    }
    Ok(ids)
}
