//! Tensor cores.

use super::ptr::{Ptr, Shared};
use super::value::RegArray;
use super::{Builder, IntoVal, Scalar, Val};
use crate::ir::attr::{Major, Matrices, Pending, Sign, Trans};
use crate::ir::{MmaAtom, MmaOp, Ty, WgmmaAtom};

/// The swizzle of a shared-memory tile's rows, as tensor maps and `wgmma` descriptors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwizzleMode {
    /// Not at all.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

/// The strides of a `wgmma` operand in shared memory, bytes. Their meaning depends on swizzle and
/// major-ness: PTX ISA, "Strides" under wgmma; K-major with a swizzle: `stride` is the distance of
/// 8-row groups, `leading` is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The pattern.
    pub swizzle: SwizzleMode,
    /// Leading dimension byte offset, a multiple of 16.
    pub leading: u32,
    /// Stride dimension byte offset, a multiple of 16.
    pub stride: u32,
}

impl Descriptor {
    /// The bits of the descriptor without the address.
    ///
    /// ```
    /// use tilewright_codegen::build::{Descriptor, SwizzleMode};
    /// let tile = Descriptor { swizzle: SwizzleMode::B128, leading: 16, stride: 1024 };
    /// assert_eq!(tile.bits(), 1 << 62 | 64 << 32 | 1 << 16);
    /// ```
    pub const fn bits(self) -> u64 {
        let mode: u64 = match self.swizzle {
            SwizzleMode::None => 0,
            SwizzleMode::B128 => 1,
            SwizzleMode::B64 => 2,
            SwizzleMode::B32 => 3,
        };
        let leading = self.leading as u64 >> 4;
        let stride = self.stride as u64 >> 4;
        mode << 62 | (stride & 0x3fff) << 32 | (leading & 0x3fff) << 16
    }
}

/// Signs and major-ness of a `wgmma`'s operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WgmmaOperands {
    /// Sign of A.
    pub sign_a: Sign,
    /// Sign of B.
    pub sign_b: Sign,
    /// Major-ness of A, where A is in shared memory.
    pub major_a: Major,
    /// Major-ness of B.
    pub major_b: Major,
}

impl WgmmaOperands {
    /// Operands without negation, both K-major.
    pub const K_MAJOR: WgmmaOperands =
        WgmmaOperands { sign_a: Sign::Plus, sign_b: Sign::Plus, major_a: Major::K, major_b: Major::K };
}

impl<'k, T> Ptr<'k, Shared, T> {
    /// `N` 8×8 matrices of 16-bit elements: this lane's address is that of row `lane % 8` of matrix
    /// `lane / 8`.
    #[track_caller]
    pub fn ldmatrix<const N: usize>(self, trans: Trans) -> [Val<'k, u32>; N] {
        let at = self.addr();
        let count = matrices(N);
        let values = self.k.values(&[Ty::U32; N], |d| MmaOp::LdMatrix { d, at, count, trans });
        core::array::from_fn(|i| Val::new(self.k, values[i]))
    }

    /// The inverse of [`Ptr::ldmatrix`].
    #[track_caller]
    pub fn stmatrix<const N: usize>(self, values: [Val<'k, u32>; N], trans: Trans) {
        let at = self.addr();
        let count = matrices(N);
        let v = values.iter().map(|v| v.op).collect();
        self.k.emit(MmaOp::StMatrix { at, v, count, trans });
    }

    /// The descriptor of a `wgmma` operand that begins at this address.
    #[track_caller]
    pub fn descriptor(self, how: Descriptor) -> Val<'k, u64> {
        let start = (self.address32() & 0x3ffff) >> 4;
        start.cast::<u64>() | how.bits()
    }
}

/// The number as a choice. If it is not 1, 2 or 4, `verify` reports it, since the list of registers
/// has another length.
fn matrices(count: usize) -> Matrices {
    match count {
        1 => Matrices::X1,
        2 => Matrices::X2,
        _ => Matrices::X4,
    }
}

impl<'k, T: Scalar> RegArray<'k, T> {
    /// Adds A·B to this fragment: the registers are the atom's.
    #[track_caller]
    pub fn mma<A: Scalar, B: Scalar>(self, atom: MmaAtom, a: &[Val<'k, A>], b: &[Val<'k, B>]) {
        let a = a.iter().map(|v| v.op).collect();
        let b = b.iter().map(|v| v.op).collect();
        self.k.emit(MmaOp::MmaSync { acc: self.regs, a, b, atom });
    }

    /// Adds A·B to this fragment (`scale` false: replaces it), A and B in shared memory,
    /// asynchronously.
    #[track_caller]
    pub fn wgmma(
        self,
        atom: WgmmaAtom,
        a: Val<'k, u64>,
        b: Val<'k, u64>,
        scale: impl IntoVal<'k, bool>,
        operands: WgmmaOperands,
    ) {
        let WgmmaOperands { sign_a, sign_b, major_a, major_b } = operands;
        let acc = self.regs;
        let a = a.op;
        let b = b.op;
        let scale = scale.val(self.k).op;
        self.k.emit(MmaOp::WgmmaSs { acc, a, b, scale, atom, sign_a, sign_b, major_a, major_b });
    }

    /// Multiplies as [`RegArray::wgmma`] does, with A in four registers.
    #[track_caller]
    pub fn wgmma_rs<A: Scalar>(
        self,
        atom: WgmmaAtom,
        a: &[Val<'k, A>],
        b: Val<'k, u64>,
        scale: impl IntoVal<'k, bool>,
        operands: WgmmaOperands,
    ) {
        let WgmmaOperands { sign_a, sign_b, major_b, .. } = operands;
        let acc = self.regs;
        let b = b.op;
        let scale = scale.val(self.k).op;
        let a = a.iter().map(|v| v.op).collect();
        self.k.emit(MmaOp::WgmmaRs { acc, a, b, scale, atom, sign_a, sign_b, major_b });
    }
}

impl Builder {
    /// Orders earlier accesses to registers with the `wgmma`s that follow.
    #[track_caller]
    pub fn wgmma_fence(&self) {
        self.emit(MmaOp::WgmmaFence {});
    }

    /// Closes the current wgmma group.
    #[track_caller]
    pub fn wgmma_commit(&self) {
        self.emit(MmaOp::WgmmaCommit {});
    }

    /// Waits until at most `pending` wgmma groups are unfinished.
    #[track_caller]
    pub fn wgmma_wait(&self, pending: u32) {
        self.emit(MmaOp::WgmmaWait { pending: Pending(pending) });
    }
}
