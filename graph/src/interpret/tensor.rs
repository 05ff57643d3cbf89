//! What values hold.

/// Numbers along axes, outermost first. Ids are whole numbers.
///
/// ```
/// use tilewright_graph::interpret::Tensor;
/// let tensor = Tensor { shape: vec![2, 3], data: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0] };
/// assert_eq!(tensor.row(1), [3.0, 4.0, 5.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Extents.
    pub shape: Vec<usize>,
    /// The elements; the last axis is contiguous.
    pub data: Vec<f64>,
}

impl Tensor {
    /// How many elements an index of the first axis has.
    pub(super) fn width(&self) -> usize {
        self.shape[1.min(self.shape.len())..].iter().product()
    }

    /// The elements of an index of the first axis.
    pub fn row(&self, row: usize) -> &[f64] {
        let width = self.width();
        &self.data[row * width..(row + 1) * width]
    }

    /// The elements along the first axis.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks_exact(self.width().max(1))
    }
}
