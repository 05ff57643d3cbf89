//! Which operand of the instructions codes are.

use crate::gemv::activations::{AOperand, Packing, Quads};
use crate::weights::{Strip, WeightSide};

/// Most stages of a strip that wait in registers for those of the next: of eight rows, and of more.
const MOST_STAGES: [u32; 2] = [2, 1];

/// Which operand codes are: A, where activations are in shared memory and the parts of all rows are
/// four columns at most; two strips together, where activations are in registers, eight columns or
/// two times eight, and strips have few stages. B where an instruction has a group of its own.
pub(super) fn side(strip: Strip, packing: Packing, a_operand: AOperand) -> WeightSide {
    let columns = packing.rows() * packing.parts();
    let most = MOST_STAGES[usize::from(packing.rows() > 8)];
    match (strip.codes(), a_operand) {
        (None, _) => WeightSide::B,
        (Some(_), _) if strip.is_halved() => WeightSide::B,
        (Some(_), AOperand::Shared) if columns <= 4 => WeightSide::A,
        (Some(_), AOperand::Registers) if packing.quads() != Quads::Both && strip.stages() <= most => WeightSide::Pair,
        (Some(_), _) if packing.is_half() => WeightSide::Half,
        (Some(_), _) => WeightSide::B,
    }
}
