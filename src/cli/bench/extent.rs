//! Extents of a bench's shapes, and memory for its operands.

use crate::cli::bench::error::BenchError;

/// Reserves host memory for `len` elements.
pub(super) fn room<T>(len: usize) -> Result<Vec<T>, BenchError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| BenchError::Memory { bytes: len.saturating_mul(size_of::<T>()) })?;
    Ok(all)
}

pub(super) fn parse_extent(text: &str) -> Result<(String, u64), BenchError> {
    let extent = text.split_once('=').and_then(|(name, extent)| Some((name.to_owned(), extent.parse().ok()?)));
    extent.ok_or_else(|| BenchError::Extent { found: text.to_owned() })
}
