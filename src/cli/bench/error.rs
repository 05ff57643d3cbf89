//! Why a bench cannot run.

use thiserror::Error;

/// Why a suite cannot run.
#[derive(Debug, Error)]
pub(super) enum BenchError {
    #[error("kernels are timed on cuda:N or sim:SEED, not on {found}")]
    Device { found: String },
    #[error("`{found}` is not NAME=EXTENT, such as n=4096")]
    Extent { found: String },
    #[error("{found} is not a shape of this suite, which has {wanted}, each from 1 to 2147483647; give each once")]
    Shape { found: String, wanted: String },
    #[error("{shape} has an operand of {elements} elements; at most {MOST_ELEMENTS} are timed: take a smaller shape")]
    Elements { shape: String, elements: u128 },
    #[error("operands of {bytes} bytes do not fit the host's memory; take a smaller shape")]
    Memory { bytes: usize },
    #[error("neither $TILEWRIGHT_TUNED nor $HOME names a folder for tuned settings; give --out FILE")]
    NoFile,
    #[error("a measured kernel has no time; measure it again")]
    NoTime,
    #[error("{row}: relative error {error:.1e} exceeds the limit {limit:.1e}; the kernel is wrong on this device")]
    Wrong { row: String, error: f64, limit: f64 },
}

/// Most elements of an operand, a little more than the largest shape of a suite has.
pub(super) const MOST_ELEMENTS: u128 = 1 << 30;
