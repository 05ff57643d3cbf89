//! Activations as fragments of the MMA's operand.

use tilewright_codegen::build::{Ptr, Shared};

use super::operand::Lane;
use super::source::ActivationSource;
use crate::gemv::product::Fragment;

/// Activations as the MMA's operand.
pub(super) enum ActivationFragments<'k> {
    /// In shared memory.
    Shared(Lane<'k>),
    /// In shared memory, read two steps at a time.
    TwoSteps(Ptr<'k, Shared, u32>),
    /// In registers: the fragments of this warp's tiles, stage by stage.
    Registers(Vec<Vec<Fragment<'k>>>),
    /// Where they lie.
    Reloaded(Box<ActivationSource<'k>>),
}
