//! The metadata of a tensor.

use core::fmt;

use crate::DType;
use crate::tensor::{AnyFormat, Format};

/// The most dimensions of a [`VTensor`].
pub const MAX_DIMS: usize = 8;

/// The extents of a tensor, at most [`MAX_DIMS`]. An extent of 0 stands for one not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dims {
    extents: [usize; MAX_DIMS],
    rank: usize,
}

/// The place of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorPlace {
    /// Memory of the host.
    Host,
    /// The device of that number.
    Device(u32),
}

/// A number that tells the tensors of one trace apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub u32);

/// Why a shape was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// More than [`MAX_DIMS`] dimensions.
    Rank {
        /// The number of dimensions given.
        given: usize,
    },
    /// An extent whose power of two does not fit.
    Extent {
        /// The dimension.
        dim: usize,
        /// Its extent.
        extent: usize,
    },
}

/// A tensor without elements: shape, padded shape, element type, place, format, id.
///
/// Kernels work on tiles whose sides are powers of two, so dimensions 1 and 2 have a padded extent;
/// strides, offsets and means use the true one. A `VTensor` is a value: to change its format is to
/// make another.
///
/// ```
/// use tilewright_layout::{DType, tensor::{Format, TensorPlace, TensorId, VTensor}};
/// let q = VTensor::new(&[8, 5, 128], DType::BF16, TensorPlace::Host, Format::Batched, TensorId(0)).unwrap();
/// assert_eq!(q.padded_shape().extents(), [8, 8, 128]);
/// assert!(q.needs_padding());
///
/// let o = q.retagged(Format::Ragged, TensorId(1));
/// assert_eq!((q.format(), o.format()), (Format::Batched, Format::Ragged));
/// assert_eq!(o.padded_shape(), q.padded_shape());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VTensor {
    shape: Dims,
    padded_shape: Dims,
    dtype: DType,
    place: TensorPlace,
    format: Format,
    id: TensorId,
}

impl Dims {
    /// The extents as given.
    ///
    /// # Errors
    /// [`ShapeError::Rank`].
    pub fn new(extents: &[usize]) -> Result<Dims, ShapeError> {
        let mut dims = Dims { extents: [0; MAX_DIMS], rank: extents.len() };
        match dims.extents.get_mut(..extents.len()) {
            Some(place) => place.copy_from_slice(extents),
            None => return Err(ShapeError::Rank { given: extents.len() }),
        }
        Ok(dims)
    }

    /// The extents.
    pub fn extents(&self) -> &[usize] {
        &self.extents[..self.rank]
    }

    /// The number of elements, or `None` where it does not fit.
    pub fn elements(&self) -> Option<usize> {
        self.extents().iter().try_fold(1usize, |product, extent| product.checked_mul(*extent))
    }

    /// Dimensions 1 and 2 rounded up to powers of two, 0 to 1; the others as they are.
    ///
    /// # Errors
    /// [`ShapeError::Extent`] above the largest power of two.
    pub fn padded(&self) -> Result<Dims, ShapeError> {
        let mut padded = *self;
        for dim in 1..self.rank.min(3) {
            let extent = self.extents[dim];
            padded.extents[dim] = extent.checked_next_power_of_two().ok_or(ShapeError::Extent { dim, extent })?;
        }
        Ok(padded)
    }
}

impl VTensor {
    /// A tensor from its parts; the padded shape follows from the shape.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn new(
        shape: &[usize],
        dtype: DType,
        place: TensorPlace,
        format: Format,
        id: TensorId,
    ) -> Result<VTensor, ShapeError> {
        let shape = Dims::new(shape)?;
        Ok(VTensor { shape, padded_shape: shape.padded()?, dtype, place, format, id })
    }

    /// The metadata of a tensor that exists: the shape, element type and place that it reports. The
    /// tensor is not kept.
    ///
    /// ```
    /// use tilewright_layout::{DType, typed::RowMajor, view::{Host, TensorView}};
    /// use tilewright_layout::tensor::{Format, TensorPlace, TensorId, VTensor};
    /// let data = [0u16; 40];
    /// let view = TensorView::<u16, RowMajor<8, 5>>::from_slice(&data).unwrap();
    /// let tensor = VTensor::of_view(&view, DType::BF16, TensorPlace::Host, Format::Paged, TensorId(7)).unwrap();
    /// assert_eq!((tensor.shape().extents(), tensor.padded_shape().extents()), (&[8, 5][..], &[8, 8][..]));
    /// ```
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn of_view<T, L: crate::view::OffsetMap, S: crate::view::Space>(
        view: &crate::view::TensorView<'_, T, L, S>,
        dtype: DType,
        place: TensorPlace,
        format: Format,
        id: TensorId,
    ) -> Result<VTensor, ShapeError> {
        let rank = view.rank();
        if rank > MAX_DIMS {
            return Err(ShapeError::Rank { given: rank });
        }
        let mut extents = [0; MAX_DIMS];
        for (mode, extent) in extents.iter_mut().take(rank).enumerate() {
            *extent = view.extent(mode);
        }
        VTensor::new(&extents[..rank], dtype, place, format, id)
    }

    /// A new tensor with another format and id. Shape and padded shape stay.
    pub const fn retagged(&self, format: Format, id: TensorId) -> VTensor {
        VTensor { format, id, ..*self }
    }

    /// Form of [`VTensor::retagged`] with the format as a type.
    pub const fn retagged_as<F: AnyFormat>(&self, id: TensorId) -> VTensor {
        self.retagged(F::FORMAT, id)
    }

    /// Replaces the padded shape, for tiles that pad more.
    ///
    /// # Errors
    /// [`ShapeError::Rank`] where the ranks differ; [`ShapeError::Extent`] where a padded extent is
    /// below the true one.
    pub fn with_padded_shape(&self, padded: &[usize]) -> Result<VTensor, ShapeError> {
        let padded_shape = Dims::new(padded)?;
        if padded_shape.rank != self.shape.rank {
            return Err(ShapeError::Rank { given: padded.len() });
        }
        for (dim, (&extent, &least)) in padded.iter().zip(self.shape.extents()).enumerate() {
            if extent < least {
                return Err(ShapeError::Extent { dim, extent });
            }
        }
        Ok(VTensor { padded_shape, ..*self })
    }

    /// The extents.
    pub const fn shape(&self) -> Dims {
        self.shape
    }

    /// The extents with dimensions 1 and 2 as powers of two.
    pub const fn padded_shape(&self) -> Dims {
        self.padded_shape
    }

    /// Returns whether the padded shape differs from the shape.
    pub fn needs_padding(&self) -> bool {
        self.padded_shape != self.shape
    }

    /// The element type.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The place of the tensor.
    pub const fn place(&self) -> TensorPlace {
        self.place
    }

    /// The format.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The id.
    pub const fn id(&self) -> TensorId {
        self.id
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.extents(), f)
    }
}

impl fmt::Display for TensorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorPlace::Host => f.write_str("host"),
            TensorPlace::Device(number) => write!(f, "device {number}"),
        }
    }
}

impl fmt::Debug for VTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} {:?} {} on {}", self.id.0, self.format, self.shape, self.dtype, self.place)?;
        if self.needs_padding() { write!(f, ", padded to {:?}", self.padded_shape) } else { Ok(()) }
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ShapeError::Rank { given } => {
                write!(
                    f,
                    "tensor shape: {given} dimensions do not fit; give as many as the tensor has, at most {MAX_DIMS}"
                )
            }
            ShapeError::Extent { dim, extent } => {
                write!(f, "tensor shape: extent {extent} of dimension {dim} cannot be its padded extent, or be padded")
            }
        }
    }
}

impl core::error::Error for ShapeError {}
