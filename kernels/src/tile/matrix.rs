//! A matrix in global memory whose extents and stride are known at run time, and its tiles with their edges.

use super::Index;
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, Val};

/// A matrix of `T` in global memory.
///
/// One mode is contiguous, the other has a stride. The kernel's author promises `vector`: base, stride and contiguous
/// extent are multiples of that many elements, so that a vector lies inside the matrix as a whole or not at all.
pub struct Matrix<'k, T> {
    base: Ptr<'k, Global, T>,
    extents: [Val<'k, u32>; 2],
    stride: Val<'k, u32>,
    contiguous: usize,
    vector: u32,
}

impl<T> Clone for Matrix<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Matrix<'_, T> {}

impl<'k, T: Scalar> Matrix<'k, T> {
    /// A matrix whose columns are contiguous within a row; rows are `stride` elements apart.
    pub fn row_major(base: Ptr<'k, Global, T>, extents: [Val<'k, u32>; 2], stride: Val<'k, u32>) -> Matrix<'k, T> {
        Matrix { base, extents, stride, contiguous: 1, vector: 1 }
    }

    /// A matrix whose rows are contiguous within a column; columns are `stride` elements apart.
    pub fn col_major(base: Ptr<'k, Global, T>, extents: [Val<'k, u32>; 2], stride: Val<'k, u32>) -> Matrix<'k, T> {
        Matrix { contiguous: 0, ..Matrix::row_major(base, extents, stride) }
    }

    /// The same with the promise of vectors of so many elements.
    pub fn vectors(self, vector: u32) -> Matrix<'k, T> {
        Matrix { vector, ..self }
    }

    /// Elements of a vector that lies inside or outside as a whole.
    pub fn vector(self) -> u32 {
        self.vector
    }

    /// The mode whose elements are contiguous.
    pub fn contiguous(self) -> usize {
        self.contiguous
    }

    /// Rows and columns.
    pub fn extents(self) -> [Val<'k, u32>; 2] {
        self.extents
    }

    /// The tile of `extents` that begins at (`row`, `column`); it may run over the edges.
    pub fn tile(self, extents: [u32; 2], [row, column]: [Val<'k, u32>; 2]) -> MatrixTile<'k, T> {
        MatrixTile { matrix: self, extents, origin: [row, column] }
    }
}

/// A tile of a [`Matrix`].
pub struct MatrixTile<'k, T> {
    matrix: Matrix<'k, T>,
    extents: [u32; 2],
    origin: [Val<'k, u32>; 2],
}

impl<T> Clone for MatrixTile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MatrixTile<'_, T> {}

impl<'k, T: Scalar> MatrixTile<'k, T> {
    /// The matrix.
    pub fn matrix(self) -> Matrix<'k, T> {
        self.matrix
    }

    /// Extents of a whole tile.
    pub fn extents(self) -> [u32; 2] {
        self.extents
    }

    /// Whether a coordinate of the tile lies inside the matrix, along one mode.
    #[track_caller]
    pub fn inside_along(self, k: &'k Builder, mode: usize, at: Index<'k>) -> Val<'k, bool> {
        (self.origin[mode] + at.get(k)).lt(self.matrix.extents[mode])
    }

    /// Whether a coordinate of the tile lies inside the matrix.
    #[track_caller]
    pub fn inside(self, k: &'k Builder, [row, column]: [Index<'k>; 2]) -> Val<'k, bool> {
        self.inside_along(k, 0, row) & self.inside_along(k, 1, column)
    }

    /// The element at a coordinate of the tile; 64-bit arithmetic, so that a matrix may be as large as memory.
    #[track_caller]
    pub fn at(self, k: &'k Builder, coordinate: [Index<'k>; 2]) -> Ptr<'k, Global, T> {
        let (along, across) = (self.matrix.contiguous, 1 - self.matrix.contiguous);
        let line = (self.origin[across] + coordinate[across].variable().get(k)).mul_wide(self.matrix.stride);
        let start = self.matrix.base.at(line).at(self.origin[along] + coordinate[along].variable().get(k));
        let further = k.lit(coordinate[across].constant()).mul_wide(self.matrix.stride);
        start.at(further).at(coordinate[along].constant())
    }
}
