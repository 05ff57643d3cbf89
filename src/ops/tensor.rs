//! Tensors of a caller: device memory, a type, a shape and strides.

use tilewright_codegen::device::Buffer;
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::OpError;

/// A tensor in device memory: elements of a type, with a shape and a stride for each axis, in
/// elements.
///
/// ```
/// use tilewright::codegen::device;
/// use tilewright::layout::DType;
/// use tilewright::ops::Tensor;
/// let memory = device::open("sim")?.buffer(24)?;
/// let tensor = Tensor::new(memory.clone(), DType::F32, &[2, 3])?;
/// assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[3, 1][..]));
/// assert!(Tensor::new(memory, DType::F32, &[2, 4]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tensor {
    buffer: Buffer<u8>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// A tensor as rows: all axes but the last one are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// How many.
    pub rows: u32,
    /// Elements of a row, one after the other.
    pub width: u32,
    /// Elements from a row to the next.
    pub stride: u32,
}

impl Tensor {
    /// A tensor whose last axis is the fastest, without gaps.
    ///
    /// # Errors
    /// [`OpError::Outside`] where the memory has fewer elements.
    pub fn new(buffer: Buffer<u8>, dtype: DType, shape: &[usize]) -> Result<Tensor, OpError> {
        Tensor::strided(buffer, dtype, shape, contiguous_strides(shape))
    }

    /// A tensor with a stride for each axis.
    ///
    /// # Errors
    /// [`OpError::Outside`] where an element lies outside of the memory, or axes and strides differ
    /// in number.
    pub fn strided(
        buffer: Buffer<u8>,
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        strides: impl Into<Vec<usize>>,
    ) -> Result<Tensor, OpError> {
        let (shape, strides) = (shape.into(), strides.into());
        let elements = buffer.len() * 8 / dtype.bits();
        if shape.len() != strides.len() || spanned(&shape, &strides).is_none_or(|spanned| spanned > elements) {
            return Err(OpError::Outside { shape, strides, elements });
        }
        // Strides of a tensor without elements mean nothing, and numpy has zeros.
        let strides = if shape.contains(&0) { contiguous_strides(&shape) } else { strides };
        Ok(Tensor { buffer, dtype, shape, strides })
    }

    /// Its memory.
    pub fn buffer(&self) -> &Buffer<u8> {
        &self.buffer
    }

    /// Type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extent of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements from an index to the next, of each axis.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().fold(1, |elements, &extent| elements.saturating_mul(extent))
    }

    /// Elements that addresses and strides of rows are a multiple of: 4, or 1.
    pub(super) fn vector(&self) -> u32 {
        if self.buffer.address().is_multiple_of(4 * self.dtype.bits() as u64 / 8) { 4 } else { 1 }
    }
}

/// The strides of a tensor whose last axis is the fastest, without gaps.
fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = shape[axis].saturating_mul(strides[axis]);
    }
    strides
}

/// Elements of memory from the first of a tensor to its last; `None` where they are more than a
/// number counts.
///
/// ```
/// use tilewright::ops::spanned;
/// assert_eq!((spanned(&[2, 3], &[8, 1]), spanned(&[2, 0], &[8, 1])), (Some(11), Some(0)));
/// ```
pub fn spanned(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1usize, |spanned, (&extent, &stride)| {
        (extent - 1).checked_mul(stride).and_then(|step| spanned.checked_add(step))
    })
}

/// An operand of an op, for its checks.
#[derive(Clone, Copy)]
pub(super) struct Operand<'t> {
    pub op: &'static str,
    pub name: &'static str,
    pub tensor: &'t Tensor,
}

impl<'t> Operand<'t> {
    pub fn new(op: &'static str, name: &'static str, tensor: &'t Tensor) -> Operand<'t> {
        Operand { op, name, tensor }
    }

    /// A refusal of its shape.
    pub fn shape(self, expected: impl Into<String>) -> OpError {
        let Operand { op, name: operand, tensor } = self;
        OpError::Shape { op, operand, found: tensor.shape.clone(), expected: expected.into() }
    }

    fn strides(self, expected: &'static str) -> OpError {
        let Operand { op, name: operand, tensor } = self;
        OpError::Strides { op, operand, found: tensor.strides.clone(), shape: tensor.shape.clone(), expected }
    }

    /// Its type, if it is a float that is stored in 16 or 32 bits.
    pub fn float(self) -> Result<Float, OpError> {
        match self.tensor.dtype {
            DType::F32 => Ok(Float::F32),
            DType::F16 => Ok(Float::F16),
            DType::BF16 => Ok(Float::Bf16),
            _ => Err(self.wrong("float32, float16 or bfloat16")),
        }
    }

    fn wrong(self, expected: &'static str) -> OpError {
        OpError::Type { op: self.op, operand: self.name, found: self.tensor.dtype, expected }
    }

    /// Refuses other types than these.
    pub fn is(self, types: &[DType], expected: &'static str) -> Result<(), OpError> {
        if types.contains(&self.tensor.dtype) { Ok(()) } else { Err(self.wrong(expected)) }
    }

    /// Refuses other shapes than this.
    pub fn has(self, shape: &[usize], expected: &str) -> Result<(), OpError> {
        if self.tensor.shape == shape { Ok(()) } else { Err(self.shape(format!("{expected} {shape:?}"))) }
    }

    /// Refuses an address that is no multiple of 16 bytes.
    pub fn aligned(self) -> Result<(), OpError> {
        const MULTIPLE: u64 = 16;
        let fits = self.tensor.buffer.address().is_multiple_of(MULTIPLE);
        let Operand { op, name: operand, .. } = self;
        if fits { Ok(()) } else { Err(OpError::Address { op, operand, multiple: MULTIPLE }) }
    }

    /// Refuses memory that another operand uses.
    pub fn apart(self, other: Operand<'_>) -> Result<(), OpError> {
        let range = |of: &Tensor| {
            let bytes = spanned(&of.shape, &of.strides).map_or(0, |elements| (elements * of.dtype.bits()).div_ceil(8));
            of.buffer.address()..of.buffer.address().saturating_add(bytes as u64)
        };
        let [own, others] = [self.tensor, other.tensor].map(range);
        if own.is_empty() || others.is_empty() || own.end <= others.start || others.end <= own.start {
            return Ok(());
        }
        Err(OpError::Shared { op: self.op, operand: self.name, other: other.name })
    }

    /// Refuses gaps between elements.
    pub fn contiguous(self) -> Result<(), OpError> {
        let rows = self.rows()?;
        if rows.rows > 1 && rows.stride != rows.width {
            return Err(self.strides("it must be contiguous"));
        }
        Ok(())
    }

    /// The tensor as rows of its last axis.
    pub fn rows(self) -> Result<Rows, OpError> {
        let Tensor { shape, strides, .. } = self.tensor;
        let ([leading @ .., width], [gaps @ .., last]) = (&shape[..], &strides[..]) else {
            return Err(self.shape("it must have an axis"));
        };
        if *width > 1 && *last != 1 {
            return Err(self.strides("elements of the last axis must lie side by side"));
        }
        let (mut rows, mut stride, mut next) = (1usize, *width, None);
        // From the fastest axis to the slowest; an axis of one index has no stride.
        for (&extent, &gap) in leading.iter().zip(gaps).rev().filter(|(extent, _)| **extent != 1) {
            match next {
                None => stride = gap,
                Some(expected) if expected == gap => {}
                Some(_) => return Err(self.strides("all axes but the last must be one axis of one stride")),
            }
            next = Some(gap.saturating_mul(extent));
            rows = rows.saturating_mul(extent);
        }
        if rows > 1 && stride < *width {
            return Err(self.strides("rows must not overlap"));
        }
        let number = |n: usize| u32::try_from(n).ok().filter(|&n| n < 1 << 31);
        match (number(rows), number(*width), number(stride)) {
            (Some(rows), Some(width), Some(stride)) => Ok(Rows { rows, width, stride }),
            _ => Err(self.shape("axes and strides must be below 2^31")),
        }
    }
}
