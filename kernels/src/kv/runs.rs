//! Runs of dimensions in a token's row.

/// Dimensions of a run.
pub(super) const RUN: u32 = 8;

/// Runs of a line.
pub(super) const LINE: u32 = 8;

/// Dimensions of a run of rows of `dim`, of elements of `bytes` bytes.
pub(super) fn run_of(bytes: u32, dim: u32) -> u32 {
    if bytes == 1 && dim.is_multiple_of(2 * RUN * LINE) { 2 * RUN } else { RUN }
}

/// Whether a pool's rows of that many dimensions are swizzled.
pub fn is_swizzled(dim: u32) -> bool {
    dim.is_multiple_of(RUN * LINE)
}
