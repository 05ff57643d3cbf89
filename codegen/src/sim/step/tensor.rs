//! Copies of boxes of a tensor: from global to shared memory and back, swizzled on the way.

use super::bulk::{BulkEnd, LaneAddress, SharedCopy};
use super::tensor_map::{Lie, MAGIC, TensorMapDescriptor};
use crate::ir::attr::AtomOp;
use crate::ir::{Addr, Operand, Space};
use crate::sim::fault::FaultKind;
use crate::sim::machine::Reduction;
use crate::sim::machine::TensorCopy;
use crate::sim::machine::{Address, BulkDestination, Cur, EngineWork, Home, Simulation, Trouble, Try};
use crate::sim::number::signed;
use crate::sim::program::SHARED_BASE;

/// Bytes that a swizzle leaves together.
const UNIT: usize = 16;

/// The operands of a copy of a box to shared memory.
#[derive(Clone, Copy)]
pub(super) struct TensorLoad<'a> {
    pub dst: Addr,
    pub map: Addr,
    pub at: &'a [Operand],
    pub bar: Addr,
    /// The blocks of the cluster that receive the box, one bit each.
    pub multicast: Option<Operand>,
}

/// The operands of a copy or a reduction of a box to global memory.
#[derive(Clone, Copy)]
pub(super) struct TensorStore<'a> {
    pub map: Addr,
    pub at: &'a [Operand],
    pub src: Addr,
    /// The reduction; without one the box overwrites the tensor's elements.
    pub op: Option<AtomOp>,
}

/// The bytes of a box, in steps of what a swizzle leaves together.
fn units(lie: Lie) -> impl Iterator<Item = usize> {
    (0..(lie.rows * lie.row) as usize).step_by(UNIT)
}

/// The offset in shared memory of a byte of a box that begins at an offset.
fn place(lie: Lie, start: usize, byte: usize) -> usize {
    (lie.place(SHARED_BASE + start as u32, byte) - SHARED_BASE) as usize
}

impl Simulation<'_> {
    fn tensor_map(&self, cur: Cur, lane: usize, map: Addr) -> Try<TensorMapDescriptor> {
        let (space, addresses) = self.lane_addresses(cur.warp, map);
        let at = self.locate(space, self.block_of(cur.warp), addresses[lane], 128)?;
        let bytes = self.read_bytes(at, 128)?;
        let found = u64::from(bytes[0]);
        let array: [u8; 128] = core::array::from_fn(|i| bytes[i]);
        TensorMapDescriptor::decode(&array).ok_or_else(|| {
            let what = "tensor map: 128 bytes that do not encode one; the first byte";
            Trouble::lane(FaultKind::BadOperand { what, found, limit: u64::from(MAGIC & 0xff) }, lane)
        })
    }

    fn coordinates(&self, cur: Cur, lane: usize, at: &[Operand], map: &TensorMapDescriptor) -> Try<Vec<i64>> {
        if at.len() != map.dims.len() {
            let what = "number of coordinates of a tensor copy";
            let kind = FaultKind::BadOperand { what, found: at.len() as u64, limit: map.dims.len() as u64 };
            return Err(Trouble::lane(kind, lane));
        }
        let at: Vec<i64> =
            at.iter().map(|&operand| signed(crate::ir::Ty::S32, self.value(cur.warp, operand)[lane])).collect();
        // The hardware ends the kernel with an illegal instruction.
        let bytes = at[0] * i64::from(map.elem.bytes());
        if bytes % UNIT as i64 != 0 {
            let what = "bytes from the tensor's first column to the box's, a multiple of 16";
            return Err(Trouble::lane(FaultKind::BadOperand { what, found: bytes as u64, limit: UNIT as u64 }, lane));
        }
        Ok(at)
    }

    pub(super) fn tensor_load(&mut self, cur: Cur, lane: usize, load: TensorLoad<'_>) -> Try<()> {
        let TensorLoad { dst, map, at, bar, multicast } = load;
        let map = self.tensor_map(cur, lane, map)?;
        let at = self.coordinates(cur, lane, at, &map)?;
        let (to_space, to) = self.lane_addresses(cur.warp, dst);
        let (bar_space, bars) = self.lane_addresses(cur.warp, bar);
        let bytes = map.lie().bytes();
        let multicast = multicast.map(|operand| self.value(cur.warp, operand)[lane]);
        let to = LaneAddress { space: to_space, address: to[lane] };
        let bar = LaneAddress { space: bar_space, address: bars[lane] };
        let load = SharedCopy { to, bar, bytes, multicast, align: 128 };
        let reads = self.new_op(cur.warp, lane, false);
        self.touch_runs(cur, lane, BulkEnd::reads(reads), &map, &at)?;
        let targets = self.targets(cur, lane, &load)?;
        for target in &targets {
            let side = BulkEnd::writes(target.op, None);
            self.touch_box(cur, lane, side, target.address(), &map)?;
        }
        let copy = Box::new(TensorCopy { map, at, reduction: None });
        self.fly(cur, lane, EngineWork::LoadBox { targets, copy }, reads);
        Ok(())
    }

    pub(super) fn tensor_store(&mut self, cur: Cur, lane: usize, store: TensorStore<'_>) -> Try<()> {
        let TensorStore { map, at, src, op } = store;
        let map = self.tensor_map(cur, lane, map)?;
        let reduction = op.map(|op| Reduction { op, ty: map.elem.ty() });
        if let Some(Reduction { op, ty }) = reduction
            && !op.reduces(ty, false)
        {
            let what = "bits of an element of a tensor map whose type the reduction does not have";
            let kind = FaultKind::BadOperand { what, found: ty.bits().into(), limit: 0 };
            return Err(Trouble::lane(kind, lane));
        }
        let at = self.coordinates(cur, lane, at, &map)?;
        // Loads may begin before the tensor, stores may not: an illegal instruction too.
        if let Some(&below) = at.iter().find(|&&coordinate| coordinate < 0) {
            let what = "coordinate of a tensor store, which is not below zero";
            return Err(Trouble::lane(FaultKind::BadOperand { what, found: below as u64, limit: 0 }, lane));
        }
        let (space, from) = self.lane_addresses(cur.warp, src);
        let bytes = map.lie().bytes();
        if !from[lane].is_multiple_of(128) {
            let place = self.bytes(space, from[lane], bytes);
            return Err(Trouble::lane(FaultKind::Misaligned { at: place, align: 128 }, lane));
        }
        let from = self.locate(space, self.block_of(cur.warp), from[lane], bytes)?;
        let reads = self.new_op(cur.warp, lane, false);
        let writes = self.new_op(cur.warp, lane, false);
        self.touch_box(cur, lane, BulkEnd::reads(reads), from, &map)?;
        self.touch_runs(cur, lane, BulkEnd::writes(writes, reduction), &map, &at)?;
        let copy = Box::new(TensorCopy { map, at, reduction });
        self.fly_in_group(cur, lane, EngineWork::StoreBox { from, copy }, reads, writes);
        Ok(())
    }

    /// The box in shared memory. Where rows lie close it is a range, since the swizzle permutes
    /// bytes within rows.
    fn touch_box(&mut self, cur: Cur, lane: usize, side: BulkEnd, at: Address, map: &TensorMapDescriptor) -> Try<()> {
        let lie = map.lie();
        if lie.row == lie.pitch {
            return self.touch_by(cur, lane, side, at, lie.bytes());
        }
        for unit in units(lie) {
            self.touch_by(cur, lane, side, Address { offset: place(lie, at.offset, unit), ..at }, UNIT as u32)?;
        }
        Ok(())
    }

    fn touch_runs(&mut self, cur: Cur, lane: usize, side: BulkEnd, map: &TensorMapDescriptor, at: &[i64]) -> Try<()> {
        for (address, bytes) in map.runs(at, side.copies()) {
            let place = self.locate(Space::Global, 0, address, bytes).map_err(|mut trouble| {
                trouble.lane = Some(lane as u32);
                trouble
            })?;
            self.touch_by(cur, lane, side, place, bytes)?;
        }
        Ok(())
    }

    /// The elements of a box, in the box's order, not swizzled.
    pub(crate) fn read_box(&self, copy: &TensorCopy) -> Try<Vec<u8>> {
        let mut data = copy.map.blank();
        let mut result = Ok(());
        copy.map.parts(&copy.at, false, |to, address, bytes| {
            let len = bytes as usize;
            let read = self.locate(Space::Global, 0, address, bytes).and_then(|from| {
                self.check_written(from, len)?;
                if let Some(region) = self.region(from.home) {
                    data[to..to + len].copy_from_slice(&region.data[from.offset..from.offset + len]);
                }
                Ok(())
            });
            if result.is_ok() {
                result = read;
            }
        });
        result.map(|()| data)
    }

    /// Puts a box into shared memory, swizzled by the bits of the address.
    pub(crate) fn write_box(&mut self, copy: &TensorCopy, target: &BulkDestination, data: &[u8]) {
        let Some(region) = self.region_mut(Home::Shared(target.block)) else { return };
        let lie = copy.map.lie();
        for (unit, bytes) in units(lie).zip(data.chunks(UNIT)) {
            let to = place(lie, target.offset, unit);
            region.data[to..to + bytes.len()].copy_from_slice(bytes);
            region.written.set(to, bytes.len());
        }
    }

    /// The bytes of a box in shared memory, as they lie there.
    pub(crate) fn read_rows(&self, copy: &TensorCopy, from: Address) -> Try<Vec<u8>> {
        let lie = copy.map.lie();
        let bytes = lie.bytes() as usize;
        if lie.row == lie.pitch {
            return self.read_bytes(from, bytes);
        }
        let mut data = vec![0; bytes];
        for unit in units(lie) {
            let at = Address { offset: place(lie, from.offset, unit), ..from };
            let start = at.offset - from.offset;
            data[start..start + UNIT].copy_from_slice(&self.read_bytes(at, UNIT)?);
        }
        Ok(data)
    }

    /// Puts a box from shared memory, which lies swizzled, into the tensor, or combines its
    /// elements with it.
    pub(crate) fn store_box(&mut self, copy: &TensorCopy, from: Address, data: &[u8]) -> Try<()> {
        let lie = copy.map.lie();
        let mut result = Ok(());
        copy.map.parts(&copy.at, copy.reduction.is_none(), |at, address, bytes| {
            // Coordinates were checked at the issue.
            let Ok(to) = self.locate(Space::Global, 0, address, bytes) else { return };
            let mut done = 0;
            let len = bytes as usize;
            while done < len && result.is_ok() {
                // Up to the next unit: within one, bytes keep their order.
                let count = (UNIT - (at + done) % UNIT).min(len - done);
                let byte = place(lie, from.offset, at + done) - from.offset;
                let to = Address { offset: to.offset + done, ..to };
                result = self.put(to, &data[byte..byte + count], copy.reduction);
                done += count;
            }
        });
        result
    }
}
