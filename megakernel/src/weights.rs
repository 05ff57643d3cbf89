//! Weights as the virtual machines see them: a name gives an element type, a shape and bytes that
//! are shared, not copied.
//!
//! This module does not read files. A checkpoint provides parts of its memory map,
//! [`RandomWeights`] parts of the heap; both as [`SharedBytes`], which keep their owner alive as
//! long as any of them exists.

mod codes;
mod random;
mod random_codes;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use half::{bf16, f16};
use tilewright_kernels::quant::QuantMatrix;
use tilewright_layout::DType;

pub(crate) use codes::BoundCodes;
pub use random::{RandomWeights, Uniform, random_tensor};
pub use random_codes::{RandomCodes, random_codes};

use crate::model::SpecError;

/// A source of the weights of a model.
pub trait Weights {
    /// The tensor of that name, or `None` where there is no such tensor.
    fn tensor(&self, name: &str) -> Option<WeightTensor>;

    /// The quantised matrix that stands in place of the tensor of that name; a name is of one or of
    /// the other.
    fn quantized(&self, _name: &str) -> Option<Arc<QuantMatrix>> {
        None
    }

    /// The factor of key or value codes in the pool named `layers.N.k` or `layers.N.v`; `None`: 1.
    fn cache_scale(&self, _pool: &str) -> Option<f32> {
        None
    }
}

/// A range of bytes with shared ownership of the memory. Cloning copies no bytes.
///
/// ```
/// use std::sync::Arc;
/// use tilewright_megakernel::weights::SharedBytes;
/// let owner = Arc::new(vec![1u8, 2, 3, 4]);
/// let middle = SharedBytes::new(owner, 1..3).expect("inside the owner");
/// assert_eq!(middle.as_ref(), [2, 3]);
/// ```
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Shares `range` of the owner's bytes; `None` where the range is reversed or passes the
    /// owner's end.
    ///
    /// The owner's `as_ref` must return the same bytes each time; if it later returns fewer, the
    /// share is empty.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Option<SharedBytes> {
        (*owner).as_ref().get(range.clone())?;
        Some(SharedBytes { owner, range })
    }

    /// Copies bytes into memory of their own, aligned for every element type.
    pub fn aligned_copy(bytes: &[u8]) -> SharedBytes {
        let mut copy = AlignedBytes::zeroed(bytes.len());
        copy.as_mut()[..bytes.len()].copy_from_slice(bytes);
        SharedBytes { owner: Arc::new(copy), range: 0..bytes.len() }
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}

/// Heap memory aligned to 16 bytes, rounded up to a multiple of 16.
struct AlignedBytes(Vec<u128>);

impl AlignedBytes {
    fn zeroed(bytes: usize) -> AlignedBytes {
        AlignedBytes(vec![0; bytes.div_ceil(size_of::<u128>())])
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Appends the elements of those ranges; `ranges` and `shape` are of one length, and the ranges
/// inside.
fn gather(bytes: &[u8], ranges: &[Range<usize>], shape: &[usize], copy: &mut Vec<u8>) {
    let (Some((range, ranges)), Some((extent, shape))) = (ranges.split_first(), shape.split_first()) else { return };
    let step = bytes.len() / extent.max(&1);
    let part = &bytes[range.start * step..range.end * step];
    match ranges {
        [] => copy.extend_from_slice(part),
        ranges => part.chunks_exact(step.max(1)).for_each(|inner| gather(inner, ranges, shape, copy)),
    }
}

/// A dense tensor: outermost dimension first, little-endian, aligned for its element type.
///
/// ```
/// use tilewright_layout::DType;
/// use tilewright_megakernel::weights::{SharedBytes, WeightTensor};
/// let bytes = SharedBytes::aligned_copy(bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, 4.0]));
/// let tensor = WeightTensor::new(DType::F32, vec![2, 2], bytes)?;
/// assert_eq!(tensor.as_f32(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// assert_eq!(tensor.as_bf16(), None);
/// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeightTensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: SharedBytes,
}

impl WeightTensor {
    /// Creates a tensor of an element type, a shape and the bytes. Bytes that are not aligned for
    /// the type are copied, once, here.
    ///
    /// # Errors
    /// [`WeightError::Size`] where the bytes are not as many as the shape says,
    /// [`WeightError::Overflow`] where the shape says more than can be counted.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: SharedBytes) -> Result<WeightTensor, WeightError> {
        let found = bytes.as_ref().len();
        match byte_len(dtype, &shape) {
            None => Err(WeightError::Overflow { dtype, shape }),
            Some(expected) if expected != found => Err(WeightError::Size { dtype, shape, expected, found }),
            Some(_) => {
                let aligned = bytes.as_ref().as_ptr().addr().is_multiple_of(dtype.bytes());
                let bytes = if aligned { bytes } else { SharedBytes::aligned_copy(bytes.as_ref()) };
                Ok(WeightTensor { dtype, shape, bytes })
            }
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape, outermost dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements with indexes in these ranges, one for each dimension, as a separate tensor:
    /// `None` where a range is not inside its dimension or their number is another. Whole outer
    /// slices are shared, anything else is copied.
    ///
    /// ```
    /// use tilewright_layout::DType;
    /// use tilewright_megakernel::weights::{SharedBytes, WeightTensor};
    /// let bytes = SharedBytes::aligned_copy(bytemuck::cast_slice(&[0.0f32, 1.0, 2.0, 10.0, 11.0, 12.0]));
    /// let tensor = WeightTensor::new(DType::F32, vec![2, 3], bytes)?;
    /// assert_eq!(tensor.part(&[0..2, 1..3]).unwrap().as_f32(), Some(&[1.0, 2.0, 11.0, 12.0][..]));
    /// assert_eq!(tensor.part(&[1..2, 0..3]).unwrap().as_f32(), Some(&[10.0, 11.0, 12.0][..]));
    /// assert!(tensor.part(&[0..2, 1..4]).is_none());
    /// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
    /// ```
    pub fn part(&self, ranges: &[Range<usize>]) -> Option<WeightTensor> {
        let inside = |(range, extent): (&Range<usize>, &usize)| range.start <= range.end && range.end <= *extent;
        if ranges.len() != self.shape.len() || !ranges.iter().zip(&self.shape).all(inside) {
            return None;
        }
        let (Some(outer), [rows, inner @ ..]) = (ranges.first(), &self.shape[..]) else { return Some(self.clone()) };
        let shape = ranges.iter().map(Range::len).collect();
        let row_bytes = self.bytes.as_ref().len().checked_div(*rows).unwrap_or(0);
        if ranges[1..].iter().zip(inner).all(|(range, extent)| range.len() == *extent) {
            let held = self.bytes.range.start;
            let range = held + outer.start * row_bytes..held + outer.end * row_bytes;
            let bytes = SharedBytes::new(self.bytes.owner.clone(), range)?;
            return WeightTensor::new(self.dtype, shape, bytes).ok();
        }
        let mut copy = Vec::new();
        gather(self.bytes.as_ref(), ranges, &self.shape, &mut copy);
        WeightTensor::new(self.dtype, shape, SharedBytes::aligned_copy(&copy)).ok()
    }

    /// The bytes, little-endian.
    pub fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// The elements, where they are f32.
    pub fn as_f32(&self) -> Option<&[f32]> {
        self.elements(DType::F32)
    }

    /// The elements, where they are bf16.
    pub fn as_bf16(&self) -> Option<&[bf16]> {
        self.elements(DType::BF16)
    }

    /// The elements, where they are f16.
    pub fn as_f16(&self) -> Option<&[f16]> {
        self.elements(DType::F16)
    }

    /// The elements as f32, where they are f32, bf16 or f16; exact.
    ///
    /// ```
    /// use tilewright_layout::DType;
    /// use tilewright_megakernel::weights::{SharedBytes, WeightTensor};
    /// let bytes = SharedBytes::aligned_copy(&[0x80, 0x3f, 0x00, 0xc0]);
    /// let tensor = WeightTensor::new(DType::BF16, vec![2], bytes)?;
    /// assert_eq!(tensor.to_f32_vec(), Some(vec![1.0, -2.0]));
    /// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
    /// ```
    pub fn to_f32_vec(&self) -> Option<Vec<f32>> {
        let floats = self.as_f32().map(<[f32]>::to_vec);
        let floats = floats.or_else(|| Some(self.as_bf16()?.iter().map(|element| element.to_f32()).collect()));
        floats.or_else(|| Some(self.as_f16()?.iter().map(|element| element.to_f32()).collect()))
    }

    fn elements<T: Pod>(&self, dtype: DType) -> Option<&[T]> {
        if self.dtype != dtype {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes.as_ref()).ok()
    }
}

/// Bytes of a dense tensor; `None` where they cannot be counted.
fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.bytes(), |bytes, &dim| bytes.checked_mul(dim))
}

/// Why bytes are not a tensor, or why weights cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// Sizes of a model that do not fit each other.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The bytes are not as many as the shape says.
    #[error("tensor of {dtype} with shape {shape:?} has {found} bytes, {expected} are needed")]
    Size {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// The shape says more bytes than an address can count.
    #[error("tensor of {dtype} with shape {shape:?} has more bytes than fit {} bits", usize::BITS)]
    Overflow {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
    },
    /// Random codes of a shape that no quantised matrix has.
    #[error("tensor `{tensor}` has shape {shape:?}; quantised are matrices of one element at least")]
    Codes {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Random weights of an element type that models do not use.
    #[error("element type of random weights is {found}; use f32, f16 or bf16")]
    RandomDtype {
        /// The type that was asked for.
        found: DType,
    },
}
