//! Parameters, special registers, mutable registers.

use super::ptr::{Global, Param, Ptr};
use super::val::Raw;
use super::{Builder, Count, IntoVal, Scalar, Val};
use crate::ir::attr::{ClockReg, SpecialReg};
use crate::ir::{ParamKind, Regs, Space, Ty, ValueOp};
use core::marker::PhantomData;

impl Builder {
    /// A scalar parameter.
    #[track_caller]
    pub fn param<T: Scalar>(&self, name: &str) -> Val<'_, T> {
        let param = self.add_param(name, ParamKind::Value(T::TY), &[]);
        Val::new(self, self.value(T::TY, |d| ValueOp::Param { ty: T::TY, d, param }))
    }

    /// Parameters of 32 bits, in that order.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let [rows, columns] = k.u32_params(["rows", "columns"]);
    /// # let _ = rows * columns;
    /// # });
    /// ```
    #[track_caller]
    pub fn u32_params<const N: usize>(&self, names: [&str; N]) -> [Val<'_, u32>; N] {
        names.map(|name| self.param(name))
    }

    /// A parameter that points to elements in global memory.
    #[track_caller]
    pub fn global<T: Scalar>(&self, name: &str) -> Ptr<'_, Global, T> {
        let ty = Ty::Ptr(Space::Global);
        let param = self.add_param(name, ParamKind::Value(ty), &[T::TY]);
        Ptr::new(self, self.value(ty, |d| ValueOp::Param { ty, d, param }), 0)
    }

    /// A parameter that points to elements of one of several types in global memory, as bytes to
    /// [`cast`](Ptr::cast). No types stand for an array of anything: of a parameter that is not
    /// read, or one whose elements the kernel tells apart by itself.
    ///
    /// ```
    /// use tilewright_codegen::{build::{block, record}, ir::{Arch, Ty}};
    /// let kernel = record("fill", Arch::Sm80, block(32), |k| {
    ///     // A launch passes a buffer of `f32` or of `i32`.
    ///     k.global_of("sums", &[Ty::F32, Ty::S32]).cast::<u32>().at(k.tid()).store(0u32);
    /// });
    /// assert_eq!(kernel.params[0].to_string(), "`sums`, a pointer to f32 or s32 in global memory");
    /// ```
    #[track_caller]
    pub fn global_of(&self, name: &str, elements: &[Ty]) -> Ptr<'_, Global, u8> {
        let ty = Ty::Ptr(Space::Global);
        let param = self.add_param(name, ParamKind::Value(ty), elements);
        Ptr::new(self, self.value(ty, |d| ValueOp::Param { ty, d, param }), 0)
    }

    /// A structure passed by value, as bytes to load from.
    #[track_caller]
    pub fn param_bytes(&self, name: &str, bytes: u32, align: u32) -> Ptr<'_, Param, u8> {
        let param = self.add_param(name, ParamKind::Bytes { bytes, align }, &[]);
        Ptr::new(self, self.value(Ty::Ptr(Space::Param), |d| ValueOp::ParamPtr { d, param }), 0)
    }

    /// A tensor map passed by value.
    #[track_caller]
    pub fn tensor_map(&self, name: &str) -> Ptr<'_, Param, TensorMap> {
        let param = self.add_param(name, ParamKind::TensorMap, &[]);
        Ptr::new(self, self.value(Ty::Ptr(Space::Param), |d| ValueOp::ParamPtr { d, param }), 0)
    }

    /// A special register.
    #[track_caller]
    pub fn special(&self, reg: SpecialReg) -> Val<'_, u32> {
        Val::new(self, self.value(Ty::U32, |d| ValueOp::Special { d, reg }))
    }

    /// The thread in its block, over all axes, the first fastest.
    #[track_caller]
    pub fn tid(&self) -> Val<'_, u32> {
        let [x, y, z] = self.launch().threads;
        let mut tid = self.special(SpecialReg::TidX);
        if y > 1 {
            tid += self.special(SpecialReg::TidY) * x;
        }
        if z > 1 {
            tid += self.special(SpecialReg::TidZ) * (x * y);
        }
        tid
    }

    /// The thread in its block by axis: CUDA's `threadIdx`. Along an axis of one thread it is the
    /// constant 0.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block((16, 8)), |k| {
    /// let [x, y, _] = k.thread_idx();
    /// let [bx, by, _] = k.block_idx();
    /// let column = bx * 16 + x;
    /// let row = by * 8 + y;
    /// # let _ = (column, row);
    /// # });
    /// ```
    #[track_caller]
    pub fn thread_idx(&self) -> [Val<'_, u32>; 3] {
        let [x, y, z] = self.launch().threads;
        let along = |threads: u32, reg| if threads == 1 { self.lit(0) } else { self.special(reg) };
        [along(x, SpecialReg::TidX), along(y, SpecialReg::TidY), along(z, SpecialReg::TidZ)]
    }

    /// The block of the grid by axis: CUDA's `blockIdx`.
    #[track_caller]
    pub fn block_idx(&self) -> [Val<'_, u32>; 3] {
        [self.special(SpecialReg::CtaidX), self.special(SpecialReg::CtaidY), self.special(SpecialReg::CtaidZ)]
    }

    /// The blocks of the grid by axis: CUDA's `gridDim`.
    #[track_caller]
    pub fn grid_dim(&self) -> [Val<'_, u32>; 3] {
        [self.special(SpecialReg::NctaidX), self.special(SpecialReg::NctaidY), self.special(SpecialReg::NctaidZ)]
    }

    /// The lane of its warp, 0 to 31.
    #[track_caller]
    pub fn lane(&self) -> Val<'_, u32> {
        self.special(SpecialReg::Laneid)
    }

    /// The warp of its block: `tid / 32`, known to be the same in all lanes.
    #[track_caller]
    pub fn warp(&self) -> Val<'_, u32> {
        self.tid() >> 5
    }

    /// The warpgroup of this thread: its warp / 4.
    ///
    /// Lanes take it from lane 0, so that `ptxas` knows it to be the same in all of them: descriptors
    /// of `wgmma` that depend on it are computed once for a warp, in uniform registers.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
    /// let kernel = record("groups", Arch::Sm90a, block(256), |k| {
    ///     let groups = k.global::<u32>("groups");
    ///     groups.at(k.tid()).store(k.warpgroup());
    /// });
    /// verify(kernel)?;
    /// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
    /// ```
    #[track_caller]
    pub fn warpgroup(&self) -> Val<'_, u32> {
        (self.warp() / 4).shfl_idx(0)
    }

    /// The block of the grid, along the first axis.
    #[track_caller]
    pub fn block_id(&self) -> Val<'_, u32> {
        self.special(SpecialReg::CtaidX)
    }

    /// The number of blocks along the first axis.
    #[track_caller]
    pub fn blocks(&self) -> Val<'_, u32> {
        self.special(SpecialReg::NctaidX)
    }

    /// The number of threads of a block: a constant.
    pub fn threads(&self) -> u32 {
        self.launch().threads_per_block()
    }

    /// The rank of the block in its cluster.
    #[track_caller]
    pub fn cluster_rank(&self) -> Val<'_, u32> {
        self.special(SpecialReg::ClusterCtarank)
    }

    /// The cycle counter of the multiprocessor, low 32 bits.
    #[track_caller]
    pub fn clock(&self) -> Val<'_, u32> {
        self.counter(ClockReg::Clock)
    }

    /// The cycle counter of the multiprocessor.
    #[track_caller]
    pub fn clock64(&self) -> Val<'_, u64> {
        self.counter(ClockReg::Clock64)
    }

    /// The device's clock in nanoseconds.
    #[track_caller]
    pub fn globaltimer(&self) -> Val<'_, u64> {
        self.counter(ClockReg::Globaltimer)
    }

    #[track_caller]
    fn counter<T: Raw>(&self, reg: ClockReg) -> Val<'_, T> {
        Val::new(self, self.value(T::TY, |d| ValueOp::Clock { ty: T::TY, d, reg }))
    }

    /// A mutable register that starts with a value.
    #[track_caller]
    pub fn var<'k, T: Scalar>(&'k self, start: impl IntoVal<'k, T>) -> Var<'k, T> {
        let start = start.val(self);
        let var = Var { array: RegArray { k: self, regs: self.add_regs("", T::TY, 1), of: PhantomData } };
        var.set(start);
        var
    }

    /// An array of mutable registers that all start with a value.
    #[track_caller]
    pub fn regs<'k, T: Scalar>(&'k self, len: impl Count, start: impl IntoVal<'k, T>) -> RegArray<'k, T> {
        let start = start.val(self);
        let array = self.regs_unset(len);
        for i in 0..array.len() {
            array.set(i, start);
        }
        array
    }

    /// An array of mutable registers that must be written before they are read.
    ///
    /// More than 65,536 are refused: no thread has as many.
    #[track_caller]
    pub fn regs_unset<T: Scalar>(&self, len: impl Count) -> RegArray<'_, T> {
        let mut len = len.count();
        if len > MOST_REGISTERS {
            self.refuse(&format_args!(
                "an array of {len} registers is too long: at most {MOST_REGISTERS}; use shared memory"
            ));
            len = MOST_REGISTERS;
        }
        RegArray { k: self, regs: self.add_regs("", T::TY, len), of: PhantomData }
    }
}

/// The longest array of registers.
const MOST_REGISTERS: u32 = 65_536;

/// The element of a pointer to a tensor map. It has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap;

/// An array of mutable registers, with constant indexes, or a run of one.
pub struct RegArray<'k, T> {
    pub(super) k: &'k Builder,
    pub(super) regs: Regs,
    of: PhantomData<T>,
}

impl<T> Clone for RegArray<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RegArray<'_, T> {}

impl<'k, T: Scalar> RegArray<'k, T> {
    /// The recorder that it belongs to.
    pub fn builder(self) -> &'k Builder {
        self.k
    }

    /// Number of registers.
    pub fn len(self) -> u32 {
        self.regs.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.regs.len == 0
    }

    /// `len` of the registers, from `start` on. Past the end is an error of `verify`.
    pub fn run(self, start: impl Count, len: impl Count) -> RegArray<'k, T> {
        let start = self.regs.start.saturating_add(start.count());
        RegArray { regs: Regs { start, len: len.count(), ..self.regs }, ..self }
    }

    /// A register of the array.
    pub fn at(self, index: impl Count) -> Var<'k, T> {
        Var { array: self.run(index, 1u32) }
    }

    /// The value of a register now.
    #[track_caller]
    pub fn get(self, index: impl Count) -> Val<'k, T> {
        self.at(index).get()
    }

    /// Sets a register.
    #[track_caller]
    pub fn set(self, index: impl Count, value: impl IntoVal<'k, T>) {
        self.at(index).set(value);
    }
}

/// A mutable register. As an argument it is read where it stands.
pub struct Var<'k, T> {
    array: RegArray<'k, T>,
}

impl<T> Clone for Var<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Var<'_, T> {}

impl<'k, T: Scalar> Var<'k, T> {
    /// Replaces the value by `f` of it.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let count = k.var(0u32);
    /// k.for_(0, 4u32, |i| count.update(|n| n + i));
    /// # });
    /// ```
    #[track_caller]
    pub fn update(self, f: impl FnOnce(Val<'k, T>) -> Val<'k, T>) {
        self.set(f(self.get()));
    }

    /// The current value.
    #[track_caller]
    pub fn get(self) -> Val<'k, T> {
        let RegArray { k, regs: r, .. } = self.array;
        Val::new(k, k.value(T::TY, |d| ValueOp::Get { ty: T::TY, d, r }))
    }

    /// Sets the value.
    #[track_caller]
    pub fn set(self, value: impl IntoVal<'k, T>) {
        let RegArray { k, regs: r, .. } = self.array;
        let a = value.val(k).op;
        k.emit(ValueOp::Set { ty: T::TY, r, a });
    }
}

impl<'k, T: Scalar> IntoVal<'k, T> for Var<'k, T> {
    #[track_caller]
    fn val(self, _: &'k Builder) -> Val<'k, T> {
        self.get()
    }
}
