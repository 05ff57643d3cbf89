//! How rows lie in the lanes of atoms, and the registers that products of many blocks take.

use super::linear::LinearValue;
use super::spread::{Spread, VECTOR};

/// Lanes that share a row of an atom.
pub(super) const LANES: u32 = 4;
/// Weights whose columns an atom has.
pub(super) const WEIGHTS: u32 = 4;
/// Rounds of groups whose blocks are the rows of an atom.
pub(super) const ROUNDS: usize = 2;
/// Most registers of weights.
pub(super) const MOST_WEIGHTS: u32 = 64;
/// Registers of weights and of blocks on their way, together.
pub(super) const REGISTERS: u32 = 96;

/// How rows lie in the lanes of atoms, where heads have whole steps of all lanes.
pub(super) fn spread(dim: u32) -> Option<Spread> {
    dim.is_multiple_of(LANES * VECTOR).then(|| Spread::new(dim, LANES))
}

/// Atoms across: of weights.
pub(super) fn atoms(linear: &LinearValue) -> u32 {
    linear.count.div_ceil(WEIGHTS)
}

/// Registers that the weights take.
pub(super) fn weights_registers(linear: &LinearValue, spread: Spread) -> u32 {
    linear.terms.len() as u32 * atoms(linear) * spread.held(spread.dim as usize) / 2
}

/// Registers of a field of an atom's blocks.
fn field_registers(spread: Spread) -> u32 {
    ROUNDS as u32 * spread.held(spread.dim as usize) / 2
}

/// How many atoms of blocks are in flight together.
pub(super) fn tiles(linear: &[LinearValue], spread: Spread) -> usize {
    let most = linear.iter().map(|linear| linear.fields.len() as u32 * field_registers(spread)).max();
    let weights = linear.iter().map(|linear| weights_registers(linear, spread)).sum::<u32>();
    ((REGISTERS.saturating_sub(weights) / most.unwrap_or(1).max(1)) as usize).clamp(1, 2)
}

/// Whether blocks are loaded a round ahead: where one value is computed, and there are registers
/// for its weights and its blocks.
pub(super) fn is_ahead(linear: &[LinearValue], spread: Spread) -> bool {
    let [one] = linear else { return false };
    let blocks = tiles(linear, spread) as u32 * one.fields.len() as u32 * field_registers(spread);
    blocks + weights_registers(one, spread) <= REGISTERS
}
