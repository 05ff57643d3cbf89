//! Tensor maps: a tensor in global memory, and the box of it that copies move.

use crate::ir::Ty;

/// The element type of a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a variant's name is its meaning")]
pub enum TensorElem {
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    S32,
    S64,
    F64,
}

impl TensorElem {
    const ALL: [TensorElem; 10] = [
        TensorElem::U8,
        TensorElem::U16,
        TensorElem::U32,
        TensorElem::U64,
        TensorElem::F16,
        TensorElem::BF16,
        TensorElem::F32,
        TensorElem::S32,
        TensorElem::S64,
        TensorElem::F64,
    ];

    /// The type of an element.
    pub const fn ty(self) -> Ty {
        match self {
            TensorElem::U8 => Ty::U8,
            TensorElem::U16 => Ty::U16,
            TensorElem::U32 => Ty::U32,
            TensorElem::U64 => Ty::U64,
            TensorElem::F16 => Ty::F16,
            TensorElem::BF16 => Ty::BF16,
            TensorElem::F32 => Ty::F32,
            TensorElem::S32 => Ty::S32,
            TensorElem::S64 => Ty::S64,
            TensorElem::F64 => Ty::F64,
        }
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        self.ty().bytes()
    }

    /// The fill value of an element outside the tensor, if it is not zero.
    fn nan(self) -> u64 {
        match self {
            TensorElem::F16 | TensorElem::BF16 => 0x7fff,
            TensorElem::F32 => 0x7fff_ffff,
            TensorElem::F64 => 0x7fff_ffff_ffff_ffff,
            TensorElem::U8
            | TensorElem::U16
            | TensorElem::U32
            | TensorElem::U64
            | TensorElem::S32
            | TensorElem::S64 => 0,
        }
    }
}

/// The swizzle of a box in shared memory: 16-byte units are permuted within rows of `span` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorSwizzle {
    /// No permutation.
    None,
    /// Address bit 4 ^= bit 7.
    B32,
    /// Bits 4 and 5 ^= bits 7 and 8.
    B64,
    /// Bits 4 to 6 ^= bits 7 to 9.
    B128,
}

impl TensorSwizzle {
    const ALL: [TensorSwizzle; 4] = [TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B64, TensorSwizzle::B128];

    /// Bytes of a row, the most that the inner side of a box may have.
    pub const fn span(self) -> u32 {
        match self {
            TensorSwizzle::None => u32::MAX,
            TensorSwizzle::B32 => 32,
            TensorSwizzle::B64 => 64,
            TensorSwizzle::B128 => 128,
        }
    }

    /// The swizzled address of the byte at an address. Pictured for `B128`, with `x` the bits that
    /// change:
    ///
    /// ```text
    /// bit  … 10 | 9 8 7 | 6 5 4 | 3 2 1 0
    ///             y y y   x x x              x ^= y
    /// ```
    ///
    /// ```
    /// use tilewright_codegen::sim::TensorSwizzle;
    /// assert_eq!(TensorSwizzle::B128.apply(0b011_000_0000), 0b011_011_0000);
    /// assert_eq!(TensorSwizzle::B32.apply(0b011_000_0000), 0b011_001_0000);
    /// ```
    pub const fn apply(self, address: u32) -> u32 {
        let mask = match self {
            TensorSwizzle::None => 0,
            TensorSwizzle::B32 => 1,
            TensorSwizzle::B64 => 3,
            TensorSwizzle::B128 => 7,
        };
        address ^ ((address >> 7 & mask) << 4)
    }
}

/// The value of elements outside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfBoundsFill {
    /// Zero.
    Zero,
    /// A NaN; of integer types, zero.
    Nan,
}

/// A tensor in global memory and the box that copies move, as `cuTensorMapEncodeTiled` describes
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapDescriptor {
    /// Address of the first element, a multiple of 16.
    pub address: u64,
    /// Element type.
    pub elem: TensorElem,
    /// Elements along each axis, the contiguous one first; 1 to 5 axes.
    pub dims: Vec<u64>,
    /// Bytes from one element to the next along each axis but the first; multiples of 16.
    pub strides: Vec<u64>,
    /// Elements of the box along each axis, 1 to 256.
    pub extent: Vec<u32>,
    /// The element stride along each axis, 1 to 8.
    pub steps: Vec<u32>,
    /// The swizzle of the box in shared memory.
    pub swizzle: TensorSwizzle,
    /// The value of elements outside the tensor.
    pub fill: OutOfBoundsFill,
}

/// The layout of a box in shared memory: with a swizzle, rows are its span apart, however narrow
/// they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lie {
    /// Bytes of a row.
    pub row: u32,
    /// Bytes from row to row.
    pub pitch: u32,
    pub rows: u32,
    swizzle: TensorSwizzle,
}

impl Lie {
    /// Bytes of shared memory that the box takes, gaps included.
    pub fn bytes(self) -> u32 {
        self.rows.saturating_mul(self.pitch)
    }

    /// The address of a byte of the box, given its number, for a box that begins at `start`.
    pub fn place(self, start: u32, byte: usize) -> u32 {
        let row = byte as u32 / self.row;
        let byte = byte as u32 % self.row;
        self.swizzle.apply(start + row * self.pitch + byte)
    }
}

/// A tensor map that the hardware does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the tensor map is {found}, the limit is {limit}")]
pub struct TensorMapError {
    /// The property that is out of range.
    pub what: &'static str,
    /// The value found.
    pub found: u64,
    /// The bound.
    pub limit: u64,
}

/// The magic number that distinguishes an encoded map from other bytes.
pub(super) const MAGIC: u32 = 0x7e50_12a9;

impl TensorMapDescriptor {
    /// A map of a plain row-major tensor, dimensions from the contiguous one on, with a box of it.
    pub fn plain(
        address: u64,
        elem: TensorElem,
        dims: &[u64],
        extent: &[u32],
        swizzle: TensorSwizzle,
    ) -> TensorMapDescriptor {
        let mut strides = Vec::new();
        let mut stride = u64::from(elem.bytes());
        for dim in dims.iter().take(dims.len().saturating_sub(1)) {
            stride = stride.saturating_mul(*dim);
            strides.push(stride);
        }
        let steps = vec![1; dims.len()];
        TensorMapDescriptor {
            address,
            elem,
            dims: dims.into(),
            strides,
            extent: extent.into(),
            steps,
            swizzle,
            fill: OutOfBoundsFill::Zero,
        }
    }

    /// Bytes of a box, all elements counted: what an mbarrier counts.
    pub fn box_bytes(&self) -> u32 {
        self.taken().iter().fold(self.elem.bytes(), |bytes, &side| bytes.saturating_mul(side))
    }

    /// The layout of the box in shared memory.
    pub(super) fn lie(&self) -> Lie {
        let taken = self.taken();
        let row = taken.first().map_or(0, |count| count * self.elem.bytes());
        let pitch = if self.swizzle == TensorSwizzle::None { row } else { self.swizzle.span() };
        let rows = taken.iter().skip(1).fold(1, |rows: u32, &side| rows.saturating_mul(side));
        Lie { row, pitch, rows, swizzle: self.swizzle }
    }

    /// Elements taken along each axis.
    fn taken(&self) -> Vec<u32> {
        self.extent.iter().zip(&self.steps).map(|(extent, step)| extent.div_ceil((*step).max(1))).collect()
    }

    /// Whether the hardware accepts it.
    ///
    /// # Errors
    /// [`TensorMapError`] for the first rule that it breaks.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let rank = self.dims.len();
        let rule =
            |good: bool, what, found, limit| if good { Ok(()) } else { Err(TensorMapError { what, found, limit }) };
        rule((1..=5).contains(&rank), "the number of axes", rank as u64, 5)?;
        let sides = [self.strides.len() + 1, self.extent.len(), self.steps.len()];
        for len in sides {
            rule(len == rank, "the number of strides, box sides or steps", len as u64, rank as u64)?;
        }
        rule(self.address.is_multiple_of(16), "the address, a multiple of 16,", self.address, 16)?;
        for &dim in &self.dims {
            rule((1..=1 << 32).contains(&dim), "a dimension", dim, 1 << 32)?;
        }
        for &stride in &self.strides {
            rule(stride.is_multiple_of(16) && stride < 1 << 40, "a stride, a multiple of 16,", stride, 1 << 40)?;
        }
        for &side in &self.extent {
            rule((1..=256).contains(&side), "a side of the box", side.into(), 256)?;
        }
        for &step in &self.steps {
            rule((1..=8).contains(&step), "a step", step.into(), 8)?;
        }
        let most = u32::from(u16::MAX) * 4;
        rule(self.box_bytes() <= most, "the size of the box in bytes", self.box_bytes().into(), most.into())?;
        let inner = self.taken()[0] * self.elem.bytes();
        rule(inner.is_multiple_of(16), "the box's inner side in bytes, a multiple of 16,", inner.into(), 16)?;
        rule(inner <= self.swizzle.span(), "the box's inner side in bytes", inner.into(), self.swizzle.span().into())
    }

    /// The 128 bytes that a kernel takes as a parameter. The simulator's own encoding: the
    /// hardware's is not public.
    ///
    /// # Errors
    /// As [`TensorMapDescriptor::check`].
    pub fn encode(&self) -> Result<[u8; 128], TensorMapError> {
        self.check()?;
        let mut bytes = Vec::with_capacity(128);
        let position = |found: Option<usize>| found.unwrap_or(0) as u8;
        bytes.extend(MAGIC.to_le_bytes());
        bytes.push(position(TensorElem::ALL.iter().position(|e| *e == self.elem)));
        bytes.push(position(TensorSwizzle::ALL.iter().position(|s| *s == self.swizzle)));
        bytes.push(u8::from(self.fill == OutOfBoundsFill::Nan));
        bytes.push(self.dims.len() as u8);
        bytes.extend(self.address.to_le_bytes());
        for axis in 0..5 {
            // A dimension of 2^32 is stored as its predecessor.
            let dim = self.dims.get(axis).map_or(0, |dim| dim - 1) as u32;
            bytes.extend(dim.to_le_bytes());
            bytes.extend(self.strides.get(axis).copied().unwrap_or(0).to_le_bytes());
            bytes.extend((self.extent.get(axis).copied().unwrap_or(1) as u16).to_le_bytes());
            bytes.push(self.steps.get(axis).copied().unwrap_or(1) as u8);
        }
        bytes.resize(128, 0);
        Ok(core::array::from_fn(|i| bytes[i]))
    }

    /// The map that 128 bytes encode; nothing for other bytes.
    pub fn decode(bytes: &[u8; 128]) -> Option<TensorMapDescriptor> {
        let word = |at: usize, len: usize| (0..len).fold(0u64, |sum, i| sum | u64::from(bytes[at + i]) << (8 * i));
        if word(0, 4) != u64::from(MAGIC) {
            return None;
        }
        let rank = usize::from(bytes[7]);
        let axis = |axis: usize| 16 + 15 * axis;
        let map = TensorMapDescriptor {
            address: word(8, 8),
            elem: *TensorElem::ALL.get(usize::from(bytes[4]))?,
            dims: (0..rank).map(|i| word(axis(i), 4) + 1).collect(),
            strides: (0..rank.saturating_sub(1)).map(|i| word(axis(i) + 4, 8)).collect(),
            extent: (0..rank).map(|i| word(axis(i) + 12, 2) as u32).collect(),
            steps: (0..rank).map(|i| word(axis(i) + 14, 1) as u32).collect(),
            swizzle: *TensorSwizzle::ALL.get(usize::from(bytes[5]))?,
            fill: if bytes[6] == 1 { OutOfBoundsFill::Nan } else { OutOfBoundsFill::Zero },
        };
        map.check().is_ok().then_some(map)
    }

    /// The parts of the box at these coordinates that lie in the tensor: where each begins in the
    /// box, its address, its bytes. A part is a row of the box, or an element where the inner axis
    /// takes steps. Stores go on to the end of 16 bytes past a row of the tensor, as the hardware
    /// does.
    pub(super) fn parts(&self, at: &[i64], store: bool, mut see: impl FnMut(usize, u64, u32)) {
        let taken = self.taken();
        let size = self.elem.bytes();
        let unit = u64::from(if store { 16 / size } else { 1 });
        let columns = self.dims[0].next_multiple_of(unit) as i64;
        let rows: u32 = taken.iter().skip(1).product();
        for row in 0..rows {
            let Some(address) = self.row(at, &taken, row) else { continue };
            let mut part = |first: u32, count: u32| {
                let coordinate = at[0] + i64::from(first * self.steps[0]);
                let begin = address.wrapping_add((coordinate as u64).wrapping_mul(size.into()));
                see(((row * taken[0] + first) * size) as usize, begin, count * size);
            };
            let inside = |i: u32| (0..columns).contains(&(at[0] + i64::from(i * self.steps[0])));
            if self.steps[0] == 1 {
                let first = (-at[0]).clamp(0, taken[0].into()) as u32;
                let end = columns.saturating_sub(at[0]).clamp(0, taken[0].into()) as u32;
                if first < end {
                    part(first, end - first);
                }
            } else {
                (0..taken[0]).filter(|&i| inside(i)).for_each(|i| part(i, 1));
            }
        }
    }

    /// The address of coordinate 0 of a row of the box; nothing if the row lies outside of the
    /// tensor.
    fn row(&self, at: &[i64], taken: &[u32], row: u32) -> Option<u64> {
        let mut rest = row;
        let mut address = self.address;
        for axis in 1..self.dims.len() {
            let coordinate = at[axis] + i64::from(rest % taken[axis] * self.steps[axis]);
            rest /= taken[axis];
            if coordinate < 0 || coordinate as u64 >= self.dims[axis] {
                return None;
            }
            address = address.wrapping_add((coordinate as u64).wrapping_mul(self.strides[axis - 1]));
        }
        Some(address)
    }

    /// Runs of bytes that lie together in global memory, for the shadow.
    pub(super) fn runs(&self, at: &[i64], store: bool) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        self.parts(at, store, |_, address, bytes| match runs.last_mut() {
            Some((start, len)) if *start + u64::from(*len) == address => *len += bytes,
            _ => runs.push((address, bytes)),
        });
        runs
    }

    /// The bytes of a box that lies outside of the tensor.
    pub(super) fn blank(&self) -> Vec<u8> {
        let size = self.elem.bytes() as usize;
        let nan = match self.fill {
            OutOfBoundsFill::Zero => 0,
            OutOfBoundsFill::Nan => self.elem.nan(),
        };
        nan.to_le_bytes()[..size].repeat(self.box_bytes() as usize / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_encodes_and_decodes_to_itself() {
        let map = TensorMapDescriptor {
            steps: vec![1, 2, 1],
            fill: OutOfBoundsFill::Nan,
            ..TensorMapDescriptor::plain(
                0x1000,
                TensorElem::BF16,
                &[64, 100, 1 << 32],
                &[64, 8, 2],
                TensorSwizzle::B128,
            )
        };
        assert_eq!(TensorMapDescriptor::decode(&map.encode().unwrap()), Some(map.clone()));
        assert_eq!(TensorMapDescriptor::decode(&[0; 128]), None);
        let vast = TensorMapDescriptor {
            extent: vec![256; 5],
            dims: vec![1 << 32; 5],
            strides: vec![1 << 30; 4],
            steps: vec![1; 5],
            ..map.clone()
        };
        insta::assert_snapshot!(vast.encode().unwrap_err(), @"the size of the box in bytes of the tensor map is 4294967295, the limit is 262140");
        let wide = TensorMapDescriptor { extent: vec![128, 8, 2], ..map };
        insta::assert_snapshot!(wide.encode().unwrap_err(), @"the box's inner side in bytes of the tensor map is 256, the limit is 128");
    }

    #[test]
    fn elements_outside_have_no_address() {
        let map = TensorMapDescriptor::plain(0x1000, TensorElem::U32, &[8, 4], &[4, 2], TensorSwizzle::None);
        let parts = |map: &TensorMapDescriptor, at: [i64; 2]| {
            let mut parts = Vec::new();
            map.parts(&at, false, |begin, address, bytes| parts.push((begin, address, bytes)));
            parts
        };
        assert_eq!(parts(&map, [6, -1]), [(16, 0x1018, 8)], "row -1 is outside, two elements of row 0 are inside");
        assert_eq!(parts(&map, [-3, 3]), [(12, 0x1060, 4)]);
        assert_eq!(parts(&map, [8, 0]), []);
        let steps = TensorMapDescriptor { steps: vec![2, 1], ..map.clone() };
        assert_eq!(parts(&steps, [-2, 0]), [(4, 0x1000, 4), (12, 0x1020, 4)], "every second element");
        assert_eq!(map.runs(&[0, 0], false), [(0x1000, 16), (0x1020, 16)]);
    }
}
