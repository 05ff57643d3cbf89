//! Tensor maps: boxes of a tensor in global memory, swizzled in shared memory.

use super::bulk::Load;
use crate::ir::{Addr, CopyOp, Operand, Space};
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Cur, Home, Machine, Next, Target, Trouble, Try, Work, lanes};
use crate::sim::number::signed;
use crate::sim::program::SHARED_BASE;

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
}

impl TensorElem {
    const ALL: [TensorElem; 7] = [
        TensorElem::U8,
        TensorElem::U16,
        TensorElem::U32,
        TensorElem::U64,
        TensorElem::F16,
        TensorElem::BF16,
        TensorElem::F32,
    ];

    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        match self {
            TensorElem::U8 => 1,
            TensorElem::U16 | TensorElem::F16 | TensorElem::BF16 => 2,
            TensorElem::U32 | TensorElem::F32 => 4,
            TensorElem::U64 => 8,
        }
    }

    /// What an element outside the tensor is filled with, if not with zero.
    fn nan(self) -> u64 {
        match self {
            TensorElem::F16 | TensorElem::BF16 => 0x7fff,
            TensorElem::F32 => 0x7fff_ffff,
            TensorElem::U8 | TensorElem::U16 | TensorElem::U32 | TensorElem::U64 => 0,
        }
    }
}

/// How a box lies in shared memory: 16-byte units are permuted within rows of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// As it comes.
    None,
    /// Address bit 4 ^= bit 7.
    B32,
    /// Bits 4 and 5 ^= bits 7 and 8.
    B64,
    /// Bits 4 to 6 ^= bits 7 to 9.
    B128,
}

impl Swizzle {
    const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// Bytes of a row, the most that the inner side of a box may have.
    pub const fn span(self) -> u32 {
        match self {
            Swizzle::None => u32::MAX,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Where the byte that would lie at an address lies. Pictured for `B128`, with `x` the bits that change:
    ///
    /// ```text
    /// bit  … 10 | 9 8 7 | 6 5 4 | 3 2 1 0
    ///             y y y   x x x              x ^= y
    /// ```
    ///
    /// ```
    /// use tilewright_codegen::sim::Swizzle;
    /// assert_eq!(Swizzle::B128.apply(0b011_000_0000), 0b011_011_0000);
    /// assert_eq!(Swizzle::B32.apply(0b011_000_0000), 0b011_001_0000);
    /// ```
    pub const fn apply(self, address: u32) -> u32 {
        let mask = match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 3,
            Swizzle::B128 => 7,
        };
        address ^ ((address >> 7 & mask) << 4)
    }
}

/// What elements outside the tensor read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zero.
    Zero,
    /// A NaN; of integer types, zero.
    Nan,
}

/// A tensor in global memory and the box that copies move, as `cuTensorMapEncodeTiled` describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
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
    /// Every how many-th element is taken along each axis, 1 to 8.
    pub steps: Vec<u32>,
    /// How the box lies in shared memory.
    pub swizzle: Swizzle,
    /// What lies outside the tensor reads as.
    pub fill: Fill,
}

/// A tensor map that the hardware does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the tensor map is {found}, the limit is {limit}")]
pub struct TensorMapError {
    /// What is wrong.
    pub what: &'static str,
    /// The value found.
    pub found: u64,
    /// The bound.
    pub limit: u64,
}

/// Tells an encoded map from other bytes.
const MAGIC: u32 = 0x7e50_12a9;

impl TensorMap {
    /// A map of a plain row-major tensor, dimensions from the contiguous one on, with a box of it.
    pub fn plain(address: u64, elem: TensorElem, dims: &[u64], extent: &[u32], swizzle: Swizzle) -> TensorMap {
        let mut strides = Vec::new();
        let mut stride = u64::from(elem.bytes());
        for dim in dims.iter().take(dims.len().saturating_sub(1)) {
            stride = stride.saturating_mul(*dim);
            strides.push(stride);
        }
        let steps = vec![1; dims.len()];
        TensorMap { address, elem, dims: dims.into(), strides, extent: extent.into(), steps, swizzle, fill: Fill::Zero }
    }

    /// Bytes of a box in shared memory, all elements counted.
    pub fn box_bytes(&self) -> u32 {
        self.taken().iter().fold(self.elem.bytes(), |bytes, &side| bytes.saturating_mul(side))
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
        rule(inner <= self.swizzle.span(), "the box's inner side in bytes", inner.into(), self.swizzle.span().into())?;
        let whole = self.swizzle == Swizzle::None || self.box_bytes().is_multiple_of(128);
        rule(whole, "the size of a swizzled box in bytes, a multiple of 128,", self.box_bytes().into(), 128)
    }

    /// The 128 bytes that a kernel takes as a parameter. The simulator's own encoding: the hardware's is not public.
    ///
    /// # Errors
    /// As [`TensorMap::check`].
    pub fn encode(&self) -> Result<[u8; 128], TensorMapError> {
        self.check()?;
        let mut bytes = Vec::with_capacity(128);
        let position = |found: Option<usize>| found.unwrap_or(0) as u8;
        bytes.extend(MAGIC.to_le_bytes());
        bytes.push(position(TensorElem::ALL.iter().position(|e| *e == self.elem)));
        bytes.push(position(Swizzle::ALL.iter().position(|s| *s == self.swizzle)));
        bytes.push(u8::from(self.fill == Fill::Nan));
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
    pub fn decode(bytes: &[u8; 128]) -> Option<TensorMap> {
        let word = |at: usize, len: usize| (0..len).fold(0u64, |sum, i| sum | u64::from(bytes[at + i]) << (8 * i));
        if word(0, 4) != u64::from(MAGIC) {
            return None;
        }
        let rank = usize::from(bytes[7]);
        let axis = |axis: usize| 16 + 15 * axis;
        let map = TensorMap {
            address: word(8, 8),
            elem: *TensorElem::ALL.get(usize::from(bytes[4]))?,
            dims: (0..rank).map(|i| word(axis(i), 4) + 1).collect(),
            strides: (0..rank.saturating_sub(1)).map(|i| word(axis(i) + 4, 8)).collect(),
            extent: (0..rank).map(|i| word(axis(i) + 12, 2) as u32).collect(),
            steps: (0..rank).map(|i| word(axis(i) + 14, 1) as u32).collect(),
            swizzle: *Swizzle::ALL.get(usize::from(bytes[5]))?,
            fill: if bytes[6] == 1 { Fill::Nan } else { Fill::Zero },
        };
        map.check().is_ok().then_some(map)
    }

    /// Each element of the box at these coordinates: its place in the box, and its address if it lies in the tensor.
    fn each(&self, at: &[i64], mut see: impl FnMut(u32, Option<u64>)) {
        let taken = self.taken();
        let count: u32 = taken.iter().product();
        for index in 0..count {
            let mut rest = index;
            let mut address = Some(self.address);
            for axis in 0..self.dims.len() {
                let within = rest % taken[axis] * self.steps[axis];
                rest /= taken[axis];
                let coordinate = at[axis] + i64::from(within);
                let stride = if axis == 0 { u64::from(self.elem.bytes()) } else { self.strides[axis - 1] };
                let inside = coordinate >= 0 && (coordinate as u64) < self.dims[axis];
                address = if inside {
                    address.map(|a| a.wrapping_add((coordinate as u64).wrapping_mul(stride)))
                } else {
                    None
                };
            }
            see(index, address);
        }
    }

    /// Runs of bytes that lie together in global memory, for the shadow.
    fn runs(&self, at: &[i64]) -> Vec<(u64, u32)> {
        let size = self.elem.bytes();
        let mut runs: Vec<(u64, u32)> = Vec::new();
        self.each(at, |_, address| {
            let Some(address) = address else { return };
            match runs.last_mut() {
                Some((start, len)) if *start + u64::from(*len) == address => *len += size,
                _ => runs.push((address, size)),
            }
        });
        runs
    }
}

/// A box on its way.
#[derive(Debug)]
pub(crate) struct TensorCopy {
    pub map: TensorMap,
    pub at: Vec<i64>,
}

impl TensorCopy {
    pub(crate) fn bytes(&self) -> usize {
        self.map.box_bytes() as usize
    }
}

impl Machine<'_> {
    fn tensor_map(&self, cur: Cur, lane: usize, map: Addr) -> Try<TensorMap> {
        let (space, addresses) = self.lane_addresses(cur.warp, map);
        let (home, offset) = self.locate(space, self.block_of(cur.warp), addresses[lane], 128)?;
        let bytes = self.read_bytes((home, offset), 128)?;
        let found = u64::from(bytes[0]);
        let array: [u8; 128] = core::array::from_fn(|i| bytes[i]);
        TensorMap::decode(&array).ok_or_else(|| {
            let what = "tensor map: 128 bytes that do not encode one; the first byte";
            Trouble::lane(FaultKind::BadOperand { what, found, limit: u64::from(MAGIC & 0xff) }, lane)
        })
    }

    fn coordinates(&self, cur: Cur, lane: usize, at: &[Operand], map: &TensorMap) -> Try<Vec<i64>> {
        if at.len() != map.dims.len() {
            let what = "number of coordinates of a tensor copy";
            let kind = FaultKind::BadOperand { what, found: at.len() as u64, limit: map.dims.len() as u64 };
            return Err(Trouble::lane(kind, lane));
        }
        Ok(at.iter().map(|&operand| signed(crate::ir::Ty::S32, self.value(cur.warp, operand)[lane])).collect())
    }

    pub(super) fn tensor(&mut self, cur: Cur, op: &CopyOp) -> Try<Next> {
        match op {
            CopyOp::TensorLoad { dst, map, at, bar, multicast, .. } => {
                for lane in lanes(cur.mask) {
                    self.tensor_load(cur, lane, (*dst, *bar), *map, at, *multicast)?;
                }
            }
            CopyOp::TensorStore { map, at, src, .. } => {
                for lane in lanes(cur.mask) {
                    self.tensor_store(cur, lane, *map, at, *src)?;
                }
            }
            _ => {}
        }
        Ok(Next::Go)
    }

    fn tensor_load(
        &mut self,
        cur: Cur,
        lane: usize,
        (dst, bar): (Addr, Addr),
        map: Addr,
        at: &[Operand],
        multicast: Option<Operand>,
    ) -> Try<()> {
        let map = self.tensor_map(cur, lane, map)?;
        let at = self.coordinates(cur, lane, at, &map)?;
        let (to_space, to) = self.lane_addresses(cur.warp, dst);
        let (bar_space, bars) = self.lane_addresses(cur.warp, bar);
        let bytes = map.box_bytes();
        let multicast = multicast.map(|operand| self.value(cur.warp, operand)[lane]);
        let load = Load { to: (to_space, to[lane]), bar: (bar_space, bars[lane]), bytes, multicast, align: 128 };
        let reads = self.new_op(cur.warp, lane, false);
        self.touch_runs(cur, lane, (reads, false), &map, &at)?;
        let targets = self.targets(cur, lane, &load)?;
        for target in &targets {
            self.touch_box(cur, lane, (target.op, true), (Home::Shared(target.block), target.offset), &map)?;
        }
        let copy = TensorCopy { map, at };
        self.fly(cur, lane, Work::LoadBox { targets, copy }, reads);
        Ok(())
    }

    fn tensor_store(&mut self, cur: Cur, lane: usize, map: Addr, at: &[Operand], src: Addr) -> Try<()> {
        let map = self.tensor_map(cur, lane, map)?;
        let at = self.coordinates(cur, lane, at, &map)?;
        let (space, from) = self.lane_addresses(cur.warp, src);
        let bytes = map.box_bytes();
        if !from[lane].is_multiple_of(128) {
            let place = self.bytes(space, from[lane], bytes);
            return Err(Trouble::lane(FaultKind::Misaligned { at: place, align: 128 }, lane));
        }
        let from = self.locate(space, self.block_of(cur.warp), from[lane], bytes)?;
        let (reads, writes) = (self.new_op(cur.warp, lane, false), self.new_op(cur.warp, lane, false));
        self.touch_box(cur, lane, (reads, false), from, &map)?;
        self.touch_runs(cur, lane, (writes, true), &map, &at)?;
        self.fly_in_group(cur, lane, Work::StoreBox { from, copy: TensorCopy { map, at } }, reads, writes);
        Ok(())
    }

    /// The box in shared memory: the swizzle permutes bytes of whole rows, so a box of whole periods is a range.
    fn touch_box(
        &mut self,
        cur: Cur,
        lane: usize,
        (op, write): (u32, bool),
        at: (Home, usize),
        map: &TensorMap,
    ) -> Try<()> {
        self.touch_by(cur, lane, op, write, at, map.box_bytes())
    }

    fn touch_runs(&mut self, cur: Cur, lane: usize, (op, write): (u32, bool), map: &TensorMap, at: &[i64]) -> Try<()> {
        for (address, bytes) in map.runs(at) {
            let place = self.locate(Space::Global, 0, address, bytes).map_err(|mut trouble| {
                trouble.lane = Some(lane as u32);
                trouble
            })?;
            self.touch_by(cur, lane, op, write, place, bytes)?;
        }
        Ok(())
    }

    /// The elements of a box, in the box's order, not swizzled.
    pub(crate) fn read_box(&self, copy: &TensorCopy) -> Try<Vec<u8>> {
        let size = copy.map.elem.bytes() as usize;
        let mut data = vec![0; copy.bytes()];
        let mut result = Ok(());
        let nan = copy.map.elem.nan().to_le_bytes();
        copy.map.each(&copy.at, |index, address| {
            let slot = &mut data[index as usize * size..][..size];
            match address {
                None if copy.map.fill == Fill::Nan => slot.copy_from_slice(&nan[..size]),
                None => {}
                Some(address) => {
                    let read = self
                        .locate(Space::Global, 0, address, size as u32)
                        .and_then(|place| self.read_bytes(place, size));
                    match read {
                        Ok(bytes) => slot.copy_from_slice(&bytes),
                        Err(trouble) => result = Err(trouble),
                    }
                }
            }
        });
        result.map(|()| data)
    }

    /// Puts a box into shared memory, swizzled by the bits of the address.
    pub(crate) fn write_box(&mut self, copy: &TensorCopy, target: &Target, data: &[u8]) {
        for (unit, bytes) in data.chunks(16).enumerate() {
            let plain = SHARED_BASE + (target.offset + unit * 16) as u32;
            let to = copy.map.swizzle.apply(plain) - SHARED_BASE;
            self.write_bytes((Home::Shared(target.block), to as usize), bytes);
        }
    }

    /// Puts a box from shared memory, which lies swizzled, into the tensor.
    pub(crate) fn store_box(&mut self, copy: &TensorCopy, (_, from): (Home, usize), data: &[u8]) {
        let size = copy.map.elem.bytes() as usize;
        let mut writes = Vec::new();
        copy.map.each(&copy.at, |index, address| {
            let Some(address) = address else { return };
            let plain = SHARED_BASE + (from + index as usize * size) as u32;
            let lies = copy.map.swizzle.apply(plain) as usize - SHARED_BASE as usize - from;
            writes.push((address, data[lies..lies + size].to_vec()));
        });
        for (address, bytes) in writes {
            if let Ok(place) = self.locate(Space::Global, 0, address, size as u32) {
                self.write_bytes(place, &bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_encodes_and_decodes_to_itself() {
        let map = TensorMap {
            steps: vec![1, 2, 1],
            fill: Fill::Nan,
            ..TensorMap::plain(0x1000, TensorElem::BF16, &[64, 100, 1 << 32], &[64, 8, 2], Swizzle::B128)
        };
        assert_eq!(TensorMap::decode(&map.encode().unwrap()), Some(map.clone()));
        assert_eq!(TensorMap::decode(&[0; 128]), None);
        let vast = TensorMap {
            extent: vec![256; 5],
            dims: vec![1 << 32; 5],
            strides: vec![1 << 30; 4],
            steps: vec![1; 5],
            ..map.clone()
        };
        insta::assert_snapshot!(vast.encode().unwrap_err(), @"the size of the box in bytes of the tensor map is 4294967295, the limit is 262140");
        let wide = TensorMap { extent: vec![128, 8, 2], ..map };
        insta::assert_snapshot!(wide.encode().unwrap_err(), @"the box's inner side in bytes of the tensor map is 256, the limit is 128");
    }

    #[test]
    fn elements_outside_have_no_address() {
        let map = TensorMap::plain(0x1000, TensorElem::U32, &[8, 4], &[4, 2], Swizzle::None);
        let mut seen = Vec::new();
        map.each(&[6, -1], |index, address| seen.push((index, address)));
        assert_eq!(seen[..4].iter().filter(|(_, a)| a.is_some()).count(), 0);
        assert_eq!(seen[4..], [(4, Some(0x1018)), (5, Some(0x101c)), (6, None), (7, None)]);
        assert_eq!(map.runs(&[0, 0]), [(0x1000, 16), (0x1020, 16)]);
    }
}
