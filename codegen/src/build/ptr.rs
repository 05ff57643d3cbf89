//! Typed pointers: space and element in the type, arithmetic by elements, constant offsets folded
//! into addresses.

use super::val::Wide;
use super::{Builder, Count, IntoVal, Scalar, Val};
use crate::ir::{Addr, BoundId, Operand, SharedAllocation as Placed, SharedKind, Space, Ty, ValueOp};
use core::marker::PhantomData;

/// An address space as a type.
pub trait SpaceOf: Copy + 'static {
    /// The space.
    const SPACE: Space;
}

macro_rules! spaces {
    ($($(#[$doc:meta])+ $Name:ident;)+) => { $(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug)]
        pub enum $Name {}

        impl SpaceOf for $Name {
            const SPACE: Space = Space::$Name;
        }
    )+ };
}

spaces! {
    /// Device memory.
    Global;
    /// The block's shared memory.
    Shared;
    /// Shared memory of the cluster.
    Cluster;
    /// Kernel parameters.
    Param;
}

/// Shared memory of the block or of the cluster.
pub trait OnChip: SpaceOf {}
impl OnChip for Shared {}
impl OnChip for Cluster {}

/// Memory that can be written.
pub trait Writable: SpaceOf {}
impl Writable for Global {}
impl Writable for Shared {}
impl Writable for Cluster {}

/// A pointer to elements `T` in the space `S`.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let x = k.global::<f32>("x");
/// let [a, b] = x.at(k.tid() * 2).load_vec();
/// x.at(k.tid()).at(64).store(a + b);
/// # });
/// ```
pub struct Ptr<'k, S, T> {
    pub(super) k: &'k Builder,
    base: Operand,
    offset: i32,
    /// The bound that the simulator checks at every access.
    bound: Option<BoundId>,
    of: PhantomData<(S, T)>,
}

impl<S, T> Clone for Ptr<'_, S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for Ptr<'_, S, T> {}

/// The allocation in shared memory that a pointer is known to point into while it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The author's name for it.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u32,
    /// The alignment of its address.
    pub align: u32,
    /// The distance of the pointer from its start.
    pub offset: Offset,
}

/// Bytes from the start of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// This many.
    Exactly(i64),
    /// A number known at run time, a multiple of this power of two.
    MultipleOf(u32),
}

impl Allocation {
    /// Bytes from the pointer to the end of the allocation; all of it where the offset is known at
    /// run time only.
    pub fn left(&self) -> i64 {
        match self.offset {
            Offset::Exactly(offset) => i64::from(self.bytes) - offset,
            Offset::MultipleOf(_) => i64::from(self.bytes),
        }
    }

    /// The alignment of the pointer, from the alignment of the allocation and the offset.
    pub fn alignment(&self) -> u32 {
        match self.offset {
            Offset::Exactly(0) => self.align,
            Offset::Exactly(offset) => self.align.min(1 << offset.trailing_zeros().min(31)),
            Offset::MultipleOf(step) => self.align.min(step),
        }
    }
}

/// A number of elements: a value or a constant.
pub trait Index<'k> {
    /// The distance in bytes for elements of `size` bytes: what is constant, and what is not, as a
    /// 64-bit or (for `narrow` spaces) 32-bit integer.
    fn bytes(self, _: &'k Builder, size: u32, narrow: bool) -> (i32, Option<(Ty, Operand)>);
}

macro_rules! constant_indexes {
    ($($Int:ty),+) => { $(
        impl<'k> Index<'k> for $Int {
            #[track_caller]
            fn bytes(self, _: &'k Builder, size: u32, narrow: bool) -> (i32, Option<(Ty, Operand)>) {
                constant_bytes(self as i128 * i128::from(size), narrow)
            }
        }
    )+ };
}

constant_indexes!(i32, u32, usize);

/// A distance in bytes that is known: part of the address where 32 bits hold it, else added to the
/// pointer.
fn constant_bytes(bytes: i128, narrow: bool) -> (i32, Option<(Ty, Operand)>) {
    match (i32::try_from(bytes), i64::try_from(bytes)) {
        (Ok(bytes), _) => (bytes, None),
        (_, Ok(bytes)) if !narrow => (0, Some((Ty::S64, bytes.constant().into()))),
        // An address of 32 bits wraps as its distances do.
        _ => (bytes as i32, None),
    }
}

impl<'k> Index<'k> for Val<'k, u32> {
    #[track_caller]
    fn bytes(self, _: &'k Builder, size: u32, narrow: bool) -> (i32, Option<(Ty, Operand)>) {
        match self.op.as_const() {
            Some(index) => constant_bytes(i128::from(index.as_i64() as u32) * i128::from(size), narrow),
            None if narrow => (0, Some((Ty::U32, (self * size).op))),
            None => (0, Some((Ty::U64, self.mul_wide(size).op))),
        }
    }
}

impl<'k> Index<'k> for Val<'k, i32> {
    #[track_caller]
    fn bytes(self, _: &'k Builder, size: u32, narrow: bool) -> (i32, Option<(Ty, Operand)>) {
        match self.op.as_const() {
            Some(index) => constant_bytes(i128::from(index.as_i64()) * i128::from(size), narrow),
            None if narrow => (0, Some((Ty::S32, (self * size as i32).op))),
            None => (0, Some((Ty::S64, self.mul_wide(size as i32).op))),
        }
    }
}

impl<'k> Index<'k> for Val<'k, u64> {
    #[track_caller]
    fn bytes(self, _: &'k Builder, size: u32, narrow: bool) -> (i32, Option<(Ty, Operand)>) {
        if narrow {
            self.cast::<u32>().bytes(self.k, size, true)
        } else {
            (0, Some((Ty::U64, (self * u64::from(size)).op)))
        }
    }
}

impl<'k, S: SpaceOf, T> Ptr<'k, S, T> {
    pub(super) fn new(k: &'k Builder, base: Operand, offset: i32) -> Ptr<'k, S, T> {
        Ptr { k, base, offset, bound: None, of: PhantomData }
    }

    /// The pointer, whose accesses the simulator checks against a bound of an index and those that
    /// it names as its next.
    pub fn bounded(self, bound: Option<BoundId>) -> Ptr<'k, S, T> {
        Ptr { bound: bound.or(self.bound), ..self }
    }

    /// The bound that the simulator checks at every access through the pointer.
    pub fn bound(self) -> Option<BoundId> {
        self.bound
    }

    /// The address as instructions name it.
    pub fn addr(self) -> Addr {
        if let Some(bound) = self.bound {
            self.k.attach(bound);
        }
        Addr { base: self.base, offset: self.offset }
    }

    /// The pointer advanced by `bytes` bytes.
    #[track_caller]
    pub fn at_byte(self, bytes: impl Index<'k>) -> Ptr<'k, S, T> {
        self.step(bytes, 1)
    }

    #[track_caller]
    fn step(self, index: impl Index<'k>, size: u32) -> Ptr<'k, S, T> {
        let narrow = S::SPACE.address() == Ty::U32;
        let (constant, rest) = index.bytes(self.k, size, narrow);
        let Some(offset) = self.offset.checked_add(constant) else {
            // Two distances of nearly 2 GiB: the first becomes part of the pointer.
            return Ptr { base: self.plain(), offset: constant, ..self };
        };
        let base = match rest {
            None => self.base,
            Some((from, bytes)) => {
                let ty = Ty::Ptr(S::SPACE);
                let p = self.base;
                self.k.value(ty, |d| ValueOp::PtrAdd { ty, from, d, p, bytes })
            }
        };
        Ptr { base, offset, ..self }
    }

    /// The allocation that it points into, if that is known: a pointer from [`Builder::shared`],
    /// moved on by numbers of elements, on another block of the cluster, or as bits and back.
    /// `None` for a pointer to other memory, or a pointer that was loaded.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{Offset, block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let tile = k.shared_aligned::<f32>("tile", 1024, 128);
    /// let of = tile.at(k.tid() * 16).at(2).allocation().unwrap();
    /// assert_eq!((of.name.as_str(), of.bytes, of.align), ("tile", 4096, 128));
    /// assert_eq!((of.offset, of.left(), of.alignment()), (Offset::MultipleOf(8), 4096, 8));
    /// let of = tile.at(1000).allocation().unwrap();
    /// assert_eq!((of.offset, of.left(), of.alignment()), (Offset::Exactly(4000), 96, 32));
    /// assert_eq!(k.global::<f32>("x").allocation(), None);
    /// # });
    /// ```
    pub fn allocation(self) -> Option<Allocation> {
        let known = self.k.known(self.base);
        let place = known.place?;
        let Placed { name, bytes, align, offset: start, .. } = self.k.alloc(place.alloc)?;
        let offset = match place.offset {
            Some(offset) => Offset::Exactly(offset + i64::from(self.offset)),
            None => Offset::MultipleOf(known.moved(i64::from(self.offset) - i64::from(start)).multiple() as u32),
        };
        Some(Allocation { name, bytes, align, offset })
    }

    /// Reinterprets the pointer: its address, with elements of another type.
    pub fn cast<U>(self) -> Ptr<'k, S, U> {
        Ptr::new(self.k, self.base, self.offset).bounded(self.bound)
    }

    /// The pointer with its constant offset added.
    #[track_caller]
    pub(super) fn plain(self) -> Operand {
        let ty = Ty::Ptr(S::SPACE);
        let (from, bytes) = if S::SPACE.address() == Ty::U32 {
            (Ty::S32, self.offset.constant().into())
        } else {
            (Ty::S64, i64::from(self.offset).constant().into())
        };
        self.k.value(ty, |d| ValueOp::PtrAdd { ty, from, d, p: self.base, bytes })
    }

    /// The address as 64 bits.
    #[track_caller]
    pub fn address(self) -> Val<'k, u64> {
        let ty = S::SPACE.address();
        let from = Ty::Ptr(S::SPACE);
        let p = self.plain();
        let bits = self.k.value(ty, |d| ValueOp::PtrBits { ty, from, d, p });
        if ty == Ty::U64 { Val::new(self.k, bits) } else { Val::<u32>::new(self.k, bits).cast() }
    }
}

impl<'k, S: SpaceOf, T: Scalar> Ptr<'k, S, T> {
    /// The pointer advanced by `index` elements.
    #[track_caller]
    pub fn at(self, index: impl Index<'k>) -> Ptr<'k, S, T> {
        self.step(index, T::TY.bytes())
    }
}

impl<'k, T> Ptr<'k, Shared, T> {
    /// The corresponding place in the shared memory of the block with that rank in the cluster.
    #[track_caller]
    pub fn on(self, rank: impl IntoVal<'k, u32>) -> Ptr<'k, Cluster, T> {
        let k = self.k;
        let p = self.base;
        let rank = rank.val(k).op;
        Ptr::new(k, k.value(Ty::Ptr(Space::Cluster), |d| ValueOp::MapA { d, p, rank }), self.offset)
    }

    /// The address as 32 bits.
    #[track_caller]
    pub fn address32(self) -> Val<'k, u32> {
        let ty = Ty::U32;
        let from = Ty::Ptr(Space::Shared);
        let p = self.plain();
        Val::new(self.k, self.k.value(ty, |d| ValueOp::PtrBits { ty, from, d, p }))
    }
}

impl<'k> Val<'k, u64> {
    /// The number as an address in global memory.
    #[track_caller]
    pub fn to_global<T>(self) -> Ptr<'k, Global, T> {
        let ty = Ty::Ptr(Space::Global);
        let from = Ty::U64;
        let bits = self.op;
        Ptr::new(self.k, self.k.value(ty, |d| ValueOp::PtrFrom { ty, from, d, bits }), 0)
    }
}

impl<'k> Val<'k, u32> {
    /// The number as an address in the block's shared memory.
    #[track_caller]
    pub fn to_shared<T>(self) -> Ptr<'k, Shared, T> {
        let ty = Ty::Ptr(Space::Shared);
        let from = Ty::U32;
        let bits = self.op;
        Ptr::new(self.k, self.k.value(ty, |d| ValueOp::PtrFrom { ty, from, d, bits }), 0)
    }
}

impl Builder {
    /// An allocation of `len` elements in shared memory, aligned to 16 bytes.
    #[track_caller]
    pub fn shared<T: Scalar>(&self, name: &str, len: impl Count) -> Ptr<'_, Shared, T> {
        self.shared_aligned(name, len, 16)
    }

    /// An allocation of `len` elements in shared memory, aligned to `align` bytes.
    #[track_caller]
    pub fn shared_aligned<T: Scalar>(&self, name: &str, len: impl Count, align: u32) -> Ptr<'_, Shared, T> {
        let alloc = self.add_shared(name, len.count().saturating_mul(T::TY.bytes()), align, SharedKind::Data);
        Ptr::new(self, self.value(Ty::Ptr(Space::Shared), |d| ValueOp::Shared { d, alloc }), 0)
    }
}

/// Counters of loops.
pub trait Counter: Wide {
    /// The number one.
    const ONE: Self;
}

macro_rules! counters {
    ($($Int:ty),+) => { $(impl Counter for $Int { const ONE: Self = 1; })+ };
}

counters!(u32, i32, u64, i64);

impl<'k, S, T> Ptr<'k, S, T> {
    /// The recorder that it belongs to.
    pub fn builder(self) -> &'k Builder {
        self.k
    }
}
