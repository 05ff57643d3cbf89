//! Numbers that are half known: a run-time value plus a constant, and the bits that the value may
//! have.
//!
//! Index arithmetic of a kernel is done on these. Constants are kept separate and become offsets in
//! addresses. A quotient or remainder whose constant part provably adds without a carry is split. A
//! number smaller than its divisor needs no instruction. So a layout can be evaluated at (lane,
//! constant) and costs what a person would have written.

use core::ops::{Add, Div, Mul, Rem};
use tilewright_codegen::build::{Builder, Val};
use tilewright_layout::Layout;
use tilewright_layout::swizzle::{add_bits, times_bits};

/// `value + constant`, where `value` is known while the kernel runs, and has no bits outside
/// `bits`.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::Index;
/// # record("sample", Arch::Sm80, block(128), |k| {
/// let thread = Index::below(k.tid(), 128);
/// // Vector 3 of the thread: row and column of a tile of 16 vectors a row.
/// let column = (thread + 3 * 128) % 16;
/// let row = (thread + 3 * 128) / 16;
/// assert_eq!((column.constant(), row.constant()), (0, 24));
/// # });
/// ```
#[derive(Clone, Copy)]
pub struct Index<'k> {
    value: Option<Val<'k, u32>>,
    bits: u32,
    constant: u32,
}

impl<'k> Index<'k> {
    /// The constant 0.
    pub const ZERO: Index<'static> = Index { value: None, bits: 0, constant: 0 };

    /// An index of which nothing is known.
    pub fn any(value: Val<'k, u32>) -> Index<'k> {
        Index::with_bits(value, u32::MAX)
    }

    /// An index that the caller promises to be below `bound`. The simulator compares what it
    /// indexes with its extent.
    pub fn below(value: Val<'k, u32>, bound: u32) -> Index<'k> {
        let most = bound.saturating_sub(1);
        Index::with_bits(value, u32::MAX.checked_shr(most.leading_zeros()).unwrap_or(0))
    }

    /// An index that the caller promises to have no bits outside `bits`.
    pub fn with_bits(value: Val<'k, u32>, bits: u32) -> Index<'k> {
        match value.operand().as_const() {
            Some(known) => Index::from(known.bits as u32),
            None if bits == 0 => Index::from(0),
            None => Index { value: Some(value), bits, constant: 0 },
        }
    }

    /// The values of several, recorded in that order.
    #[track_caller]
    pub(crate) fn values<const N: usize>(k: &'k Builder, indexes: [Index<'k>; N]) -> [Val<'k, u32>; N] {
        indexes.map(|index| index.get(k))
    }

    /// The lane of its warp.
    pub fn lane(k: &'k Builder) -> Index<'k> {
        Index::below(k.lane(), 32)
    }

    /// The thread of its block.
    pub fn thread(k: &'k Builder) -> Index<'k> {
        Index::below(k.tid(), k.threads())
    }

    /// The number, where all of it is known while recording.
    pub fn known(self) -> Option<u32> {
        self.value.is_none().then_some(self.constant)
    }

    /// Whether both are the same value and constant.
    pub fn is_same(self, other: Index<'k>) -> bool {
        let operand = |index: Index<'k>| index.value.map(Val::operand);
        self.constant == other.constant && operand(self) == operand(other)
    }

    /// The part that is known while recording.
    pub fn constant(self) -> u32 {
        self.constant
    }

    /// The part that is known while the kernel runs.
    pub fn value(self) -> Option<Val<'k, u32>> {
        self.value
    }

    /// The bits that the run-time part may have.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// The run-time part alone.
    pub fn variable(self) -> Index<'k> {
        Index { constant: 0, ..self }
    }

    /// The sum as one value.
    #[track_caller]
    pub fn get(self, k: &'k Builder) -> Val<'k, u32> {
        match self.value {
            Some(value) => value + self.constant,
            None => k.lit(self.constant),
        }
    }

    /// The largest power of two, up to 2³¹, that it is known to be a multiple of.
    pub fn multiple(self) -> u32 {
        1 << (self.bits | self.constant).trailing_zeros().min(31)
    }

    /// The product with another half-known number, in 32 bits: a multiple of what both are
    /// multiples of.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::tile::Index;
    /// # record("sample", Arch::Sm80, block(128), |k| {
    /// let [part, units] = ["part", "units"].map(|name| Index::any(k.param(name)));
    /// assert_eq!(part.times(k, units * 4).multiple(), 4);
    /// # });
    /// ```
    #[track_caller]
    pub fn times(self, k: &'k Builder, other: Index<'k>) -> Index<'k> {
        match (self.known(), other.known()) {
            (_, Some(factor)) => self * factor,
            (Some(factor), None) => other * factor,
            (None, None) => {
                let multiple = self.multiple().saturating_mul(other.multiple()).min(1 << 31);
                Index::with_bits(self.get(k) * other.get(k), !(multiple - 1))
            }
        }
    }

    /// The constant moved into the value, where there is one.
    #[track_caller]
    fn merged(self) -> Index<'k> {
        match self.value {
            Some(value) if self.constant > 0 => {
                let bits = add_bits(self.bits.into(), self.constant.into());
                Index { value: Some(value + self.constant), bits: clip(bits), constant: 0 }
            }
            _ => self,
        }
    }

    /// Whether quotients and rests by `divisor` of the parts add up without a carry.
    fn splits(self, divisor: u32) -> bool {
        let low = divisor - 1;
        let disjoint = divisor.is_power_of_two() && self.bits & low & self.constant == 0;
        self.constant.is_multiple_of(divisor) || disjoint
    }
}

/// The offset of a coordinate in a mode, as [`Layout::at`], of non-negative strides.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, place};
/// use tilewright_layout::Layout;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let fragment = Layout::parse("((4,8),(2,2)):((32,1),(16,8))").unwrap();
/// let thread = place(&fragment.mode(0).unwrap(), Index::lane(k));
/// let value = place(&fragment.mode(1).unwrap(), Index::from(3));
/// assert_eq!((thread.bits(), value.constant()), (0b110_0111, 24));
/// # });
/// ```
#[track_caller]
pub fn place<'k>(mode: &Layout, coordinate: Index<'k>) -> Index<'k> {
    let flat = mode.coalesce();
    let last = flat.extents().len() - 1;
    let mut rest = coordinate;
    let mut offset = Index::from(0);
    for (i, (&extent, &stride)) in flat.extents().iter().zip(flat.strides()).enumerate() {
        let digit = if i == last { rest } else { rest % extent as u32 };
        offset = offset + digit * stride as u32;
        if i != last {
            rest = rest / extent as u32;
        }
    }
    offset
}

/// The bits of a number of 32 bits: sums and products wrap, and so do the bits that they may have.
fn clip(bits: i64) -> u32 {
    bits as u32
}

impl From<u32> for Index<'_> {
    fn from(constant: u32) -> Self {
        Index { constant, ..Index::ZERO }
    }
}

impl<'k> From<Val<'k, u32>> for Index<'k> {
    fn from(value: Val<'k, u32>) -> Index<'k> {
        Index::any(value)
    }
}

impl<'k, C: Into<Index<'k>>> Add<C> for Index<'k> {
    type Output = Index<'k>;

    #[track_caller]
    fn add(self, other: C) -> Index<'k> {
        let other = other.into();
        let value = match (self.value, other.value) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        let bits = clip(add_bits(self.bits.into(), other.bits.into()));
        Index { value, bits, constant: self.constant.wrapping_add(other.constant) }
    }
}

impl<'k> Mul<u32> for Index<'k> {
    type Output = Index<'k>;

    #[track_caller]
    fn mul(self, factor: u32) -> Index<'k> {
        let bits = clip(times_bits(self.bits.into(), factor.into()));
        let constant = self.constant.wrapping_mul(factor);
        match self.value {
            Some(value) if bits != 0 => Index { value: Some(value * factor), bits, constant },
            _ => Index::from(constant),
        }
    }
}

impl<'k> Div<u32> for Index<'k> {
    type Output = Index<'k>;

    #[track_caller]
    fn div(self, divisor: u32) -> Index<'k> {
        let Some(value) = self.value else { return Index::from(self.constant / divisor) };
        if !self.splits(divisor) {
            return self.merged() / divisor;
        }
        let constant = self.constant / divisor;
        if self.bits < divisor {
            return Index::from(constant);
        }
        let (value, bits) = if divisor.is_power_of_two() {
            (value >> divisor.trailing_zeros(), self.bits >> divisor.trailing_zeros())
        } else {
            (value / divisor, u32::MAX >> (self.bits / divisor).leading_zeros())
        };
        Index { value: Some(value), bits, constant }
    }
}

impl<'k> Rem<u32> for Index<'k> {
    type Output = Index<'k>;

    #[track_caller]
    fn rem(self, divisor: u32) -> Index<'k> {
        let Some(value) = self.value else { return Index::from(self.constant % divisor) };
        if !self.splits(divisor) {
            return self.merged() % divisor;
        }
        let constant = self.constant % divisor;
        if self.bits < divisor {
            return Index { constant, ..self };
        }
        if divisor.is_power_of_two() {
            let bits = self.bits & (divisor - 1);
            return if bits == 0 {
                Index::from(constant)
            } else {
                Index { value: Some(value & (divisor - 1)), bits, constant }
            };
        }
        Index { value: Some(value % divisor), bits: u32::MAX >> (divisor - 1).leading_zeros(), constant }
    }
}
