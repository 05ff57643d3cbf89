//! The codes of a weight buffer: all of a matrix, or the part of it that a device has.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tilewright_kernels::quant::{PartError, QuantMatrix};

/// Codes that a buffer requires. A part is cut out of the packed codes when it is first read: a
/// machine whose weights are on their device already copies nothing.
#[derive(Debug)]
pub struct BoundCodes {
    whole: Arc<QuantMatrix>,
    /// Rows and columns, where they are not all.
    part: Option<[Range<usize>; 2]>,
    cut: OnceLock<Arc<QuantMatrix>>,
}

impl BoundCodes {
    /// All of a matrix.
    pub fn all(whole: Arc<QuantMatrix>) -> BoundCodes {
        BoundCodes { whole, part: None, cut: OnceLock::new() }
    }

    /// The part of a matrix with these rows and columns.
    ///
    /// # Errors
    /// If the matrix has no such part.
    pub fn part(whole: Arc<QuantMatrix>, part: [Range<usize>; 2]) -> Result<BoundCodes, PartError> {
        whole.check_part(&part[0], &part[1])?;
        Ok(BoundCodes { whole, part: Some(part), cut: OnceLock::new() })
    }

    /// The whole matrix of the codes.
    pub fn whole(&self) -> &QuantMatrix {
        &self.whole
    }

    /// The codes as a separate matrix.
    pub fn matrix(&self) -> &Arc<QuantMatrix> {
        let Some([rows, columns]) = &self.part else { return &self.whole };
        self.cut.get_or_init(|| {
            let part = self.whole.part(rows.clone(), columns.clone());
            Arc::new(part.unwrap_or_else(|_| unreachable!("the part was checked")))
        })
    }
}
