//! Checked access to the buffers that an op names: existence, kind, dtype, rank, extents and
//! intervals.
//!
//! Every footprint is computed through [`Operands`], so that no op can reach a buffer without its
//! checks.

use thiserror::Error;
use tilewright_layout::DType;

use crate::program::{Buffer, BufferId, BufferKind, MAX_RANK, Region, Span};

/// An operand that does not fit its op.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum OperandError {
    #[error("operand `{operand}` names missing buffer {buffer}; the program has {count} buffers")]
    MissingBuffer { operand: &'static str, buffer: BufferId, count: usize },
    #[error("operand `{operand}` ({buffer}) has rank {found}, the op wants rank {expected}")]
    Rank { operand: &'static str, buffer: BufferId, found: usize, expected: usize },
    #[error("operand `{operand}` ({buffer}) has extent {found} in dimension {dim}, the op wants {expected}")]
    Extent { operand: &'static str, buffer: BufferId, dim: usize, found: usize, expected: usize },
    #[error("operand `{operand}` ({buffer}) is {found}, the op wants {expected}")]
    DType { operand: &'static str, buffer: BufferId, found: DType, expected: &'static str },
    #[error("operand `{operand}` ({buffer}) is a {found} buffer, the op wants a {expected} buffer")]
    Kind { operand: &'static str, buffer: BufferId, found: BufferKind, expected: BufferKind },
    #[error("`{name}` is {span}, it must be a non-empty part of 0:{extent}")]
    Interval { name: &'static str, span: Span, extent: usize },
    #[error("`{name}` is {found}, it must be below {limit}")]
    Index { name: &'static str, found: usize, limit: usize },
    #[error("`{name}` is {found}, it must be {expected}")]
    Number { name: &'static str, found: f32, expected: &'static str },
    #[error("`{name}` is {found}, it must be a multiple of {of}")]
    Multiple { name: &'static str, found: usize, of: usize },
    #[error("operand `{operand}` ({buffer}) must be {expected}")]
    Aliased { operand: &'static str, buffer: BufferId, expected: &'static str },
    #[error("operand `{operand}`: {problem}")]
    Refused { operand: &'static str, problem: String },
    #[error("operand `{operand}` covers {found:?} elements, `{other}` covers {expected:?}; they must agree")]
    Shapes { operand: &'static str, found: Vec<usize>, other: &'static str, expected: Vec<usize> },
}

/// The buffers of a program, as an op sees them.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    buffers: &'a [Buffer],
}

/// Result of a check.
pub type Check<T = ()> = Result<T, OperandError>;

impl<'a> Operands<'a> {
    /// A view of the program's buffer table.
    pub fn new(buffers: &'a [Buffer]) -> Self {
        Operands { buffers }
    }

    /// The buffer of an operand.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn get(&self, operand: &'static str, buffer: BufferId) -> Check<&'a Buffer> {
        let count = self.buffers.len();
        self.buffers.get(buffer.index()).ok_or(OperandError::MissingBuffer { operand, buffer, count })
    }

    /// The extents of an operand of rank `N`.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn shape<const N: usize>(&self, operand: &'static str, buffer: BufferId) -> Check<[usize; N]> {
        let found = &self.get(operand, buffer)?.shape;
        found[..].try_into().map_err(|_| OperandError::Rank { operand, buffer, found: found.len(), expected: N })
    }

    /// The extents of a floating-point operand of rank `N`.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn floats<const N: usize>(&self, operand: &'static str, buffer: BufferId) -> Check<[usize; N]> {
        let found = self.get(operand, buffer)?.dtype;
        if !matches!(found, DType::F32 | DType::F16 | DType::BF16) {
            return Err(OperandError::DType { operand, buffer, found, expected: "f32, f16 or bf16" });
        }
        self.shape(operand, buffer)
    }

    /// A floating-point operand with exactly these extents.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn floats_of<const N: usize>(
        &self,
        operand: &'static str,
        buffer: BufferId,
        expected: [usize; N],
    ) -> Check<[usize; N]> {
        let shape = self.floats(operand, buffer)?;
        self.extents(operand, buffer, shape, expected)
    }

    /// An operand of exactly these extents, of one dtype.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn exactly<const N: usize>(
        &self,
        operand: &'static str,
        buffer: BufferId,
        dtype: DType,
        expected: [usize; N],
    ) -> Check {
        let found = self.get(operand, buffer)?.dtype;
        if found != dtype {
            return Err(OperandError::DType { operand, buffer, found, expected: dtype.name() });
        }
        let shape = self.shape(operand, buffer)?;
        self.extents(operand, buffer, shape, expected).map(drop)
    }

    /// The extents of a key or value pool, of floating-point numbers or e4m3 codes: `[kv_heads,
    /// pages, page_tokens, head_dim]`.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn pool(&self, operand: &'static str, buffer: BufferId) -> Check<[usize; 4]> {
        let found = self.get(operand, buffer)?.kind;
        if found != BufferKind::KvPool {
            return Err(OperandError::Kind { operand, buffer, found, expected: BufferKind::KvPool });
        }
        let found = self.get(operand, buffer)?.dtype;
        if !matches!(found, DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3) {
            return Err(OperandError::DType { operand, buffer, found, expected: "f32, f16, bf16 or f8e4m3" });
        }
        self.shape(operand, buffer)
    }

    /// A key or value pool with exactly these extents.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn pool_of(&self, operand: &'static str, buffer: BufferId, expected: [usize; 4]) -> Check<[usize; 4]> {
        let shape = self.pool(operand, buffer)?;
        self.extents(operand, buffer, shape, expected)
    }

    /// An index operand: a cell of i32 with exactly these extents. Only the host sets values that
    /// index memory, and it checks them.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn cell<const N: usize>(&self, operand: &'static str, buffer: BufferId, expected: [usize; N]) -> Check {
        let found = self.get(operand, buffer)?.kind;
        if found != BufferKind::Cell {
            return Err(OperandError::Kind { operand, buffer, found, expected: BufferKind::Cell });
        }
        self.exactly(operand, buffer, DType::I32, expected)
    }

    fn extents<const N: usize>(
        &self,
        operand: &'static str,
        buffer: BufferId,
        found: [usize; N],
        expected: [usize; N],
    ) -> Check<[usize; N]> {
        match (0..N).find(|&d| found[d] != expected[d]) {
            None => Ok(found),
            Some(dim) => Err(OperandError::Extent { operand, buffer, dim, found: found[dim], expected: expected[dim] }),
        }
    }

    /// A region given as an operand: of the buffer's rank, inside it, not empty.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn region(&self, operand: &'static str, region: &Region) -> Check<&'a Buffer> {
        let buffer = self.get(operand, region.buffer)?;
        let found = region.spans().len();
        let expected = buffer.shape.len();
        if found != expected || expected > MAX_RANK {
            return Err(OperandError::Rank { operand, buffer: region.buffer, found, expected });
        }
        for (&span, &extent) in region.spans().iter().zip(&buffer.shape) {
            interval(operand, span, extent)?;
        }
        Ok(buffer)
    }

    /// Checks a region as [`Operands::region`] does, and that its elements are floating-point
    /// numbers.
    ///
    /// # Errors
    /// If the operand is invalid.
    pub fn float_region(&self, operand: &'static str, region: &Region) -> Check<&'a Buffer> {
        let buffer = self.region(operand, region)?;
        if !matches!(buffer.dtype, DType::F32 | DType::F16 | DType::BF16) {
            let (buffer, found) = (region.buffer, buffer.dtype);
            return Err(OperandError::DType { operand, buffer, found, expected: "f32, f16 or bf16" });
        }
        Ok(buffer)
    }
}

/// Checks that `span` is a non-empty part of `0..extent`.
///
/// # Errors
/// If it is not so.
pub fn interval(name: &'static str, span: Span, extent: usize) -> Check {
    if span.is_empty() || span.hi > extent {
        return Err(OperandError::Interval { name, span, extent });
    }
    Ok(())
}

/// Checks that an index is below a limit.
///
/// # Errors
/// If it is not so.
pub fn index(name: &'static str, found: usize, limit: usize) -> Check {
    if found >= limit { Err(OperandError::Index { name, found, limit }) } else { Ok(()) }
}

/// Checks that a parameter is a finite number above zero.
///
/// # Errors
/// If it is not so.
pub fn positive(name: &'static str, found: f32) -> Check {
    if found.is_finite() && found > 0.0 {
        Ok(())
    } else {
        Err(OperandError::Number { name, found, expected: "a finite number above 0" })
    }
}

/// Checks that `found` is a multiple of `of` (and neither is 0).
///
/// # Errors
/// If it is not so.
pub fn multiple(name: &'static str, found: usize, of: usize) -> Check {
    if of != 0 && found != 0 && found.is_multiple_of(of) {
        Ok(())
    } else {
        Err(OperandError::Multiple { name, found, of })
    }
}

/// Checks that two regions cover boxes of the same extents.
///
/// # Errors
/// If it is not so.
pub fn same_extents(operand: &'static str, a: &Region, other: &'static str, b: &Region) -> Check {
    let found = a.extents();
    let expected = b.extents();
    if found == expected { Ok(()) } else { Err(OperandError::Shapes { operand, found, other, expected }) }
}
