//! The recorder: open blocks, fresh values, hash-consing of pure values.

use super::fold::fold;
use super::padding::Padding;
use crate::ir::{
    Arch, Block, BoundId, Flag, IndexBound, IndexBounds, Inst, Kernel, Knowledge, KnownBits, LaunchBounds, Operand,
    Param, ParamId, ParamKind, Regs, SharedAllocation, SharedId, SharedKind, Src, Stmt, StmtId, StmtKind, Ty, ValueId,
    Var, VarId,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;

/// A closure that records a block. As a trait object: a function that is generic over closures
/// would be compiled anew for each of them.
pub(super) type Body<'b> = &'b mut dyn FnMut();

/// The recorder of a kernel: methods append instructions and return values that record what is done
/// with them.
///
/// [`record`] makes one and passes it to the kernel function, by convention as `k`.
///
/// | to get | call |
/// |---|---|
/// | parameters | [`params`](Builder::params), [`param`](Builder::param), [`global`](Builder::global), [`tensor_map`](Builder::tensor_map) |
/// | the thread and the block | [`tid`](Builder::tid), [`thread_idx`](Builder::thread_idx), [`block_id`](Builder::block_id), [`lane`](Builder::lane), [`warp`](Builder::warp) |
/// | values that change | [`var`](Builder::var), [`regs`](Builder::regs), [`carry`](Builder::carry) |
/// | branches and loops | [`when`](Builder::when), [`if_else`](Builder::if_else), [`for_`](Builder::for_), [`while_`](Builder::while_), [`loop_`](Builder::loop_) |
/// | shared memory | [`shared`](Builder::shared), [`mbarriers`](Builder::mbarriers), [`barrier`](Builder::barrier) |
///
/// The function runs once, while it records. A Rust `if` or `for` in it decides what is recorded: a
/// Rust `for` unrolls. A decision at run time is one of the methods above. Pure values are folded
/// and merged, and every statement keeps the line of Rust that recorded it: errors and simulator
/// reports name it.
///
/// ```
/// use tilewright_codegen::build::{Builder, block, record};
/// use tilewright_codegen::ir::Arch;
///
/// fn row_sums(k: &Builder) {
///     let columns = k.param::<u32>("columns");
///     let x = k.global::<f32>("x");
///     let out = k.global::<f32>("out");
///     let row = x.at(k.block_id() * columns);
///     let sum = k.var(0.0f32);
///     k.for_step(0, columns, 32, |first| { // a loop at run time
///         let column = first + k.lane();
///         k.when(column.lt(columns), || sum.update(|s| s + row.at(column).load()));
///     });
///     let mut total = sum.get();
///     for bits in [16u32, 8, 4, 2, 1] { // unrolled: five shuffles
///         total += total.shfl_bfly(bits);
///     }
///     k.when(k.lane().eq(0), || out.at(k.block_id()).store(total));
/// }
///
/// let kernel = record("row_sums", Arch::Sm80, block(32), row_sums);
/// assert_eq!(kernel.to_string().matches("shfl").count(), 5);
/// ```
#[derive(Debug)]
pub struct Builder {
    state: RefCell<RecorderState>,
}

#[derive(Debug)]
struct RecorderState {
    kernel: Kernel,
    /// Blocks being recorded, innermost last, each with the pure values that it made.
    open: Vec<Scope>,
    next: u32,
    known: Knowledge,
    padding: Padding,
    /// The line that stands for all that is recorded now, where a method records several statements
    /// for its caller.
    src: Option<Src>,
}

#[derive(Debug, Default)]
struct Scope {
    block: Block,
    pure: HashMap<Inst, ValueId>,
}

/// Stands for the value that a pure instruction would write, while an equal one is looked for.
const UNKNOWN: ValueId = ValueId(u32::MAX);

/// Records a kernel: calls `body` once with a recorder, and returns what it recorded.
///
/// `name` is the entry point in PTX and in reports. `arch` decides which instructions are
/// available. `launch` is the shape of a block, see [`block`]: it is part of the kernel, and a
/// launch chooses only the grid. Recording never fails; mistakes are errors of
/// [`verify`](crate::verify::verify), with the line of Rust that made them.
///
/// ```
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::ir::Arch;
/// let kernel = record("copy", Arch::Sm80, block(128), |k| {
///     let x = k.global::<f32>("x");
///     let y = k.global::<f32>("y");
///     let i = k.block_id() * 128 + k.tid();
///     y.at(i).store(x.at(i).load());
/// });
/// assert_eq!(kernel.params.len(), 2);
/// ```
pub fn record(name: &str, arch: Arch, launch: LaunchBounds, body: impl FnOnce(&Builder)) -> Kernel {
    let builder = Builder::new(name, arch, launch);
    body(&builder);
    builder.finish()
}

/// A launch of blocks of `threads` threads, 1 to 1024: a number, or numbers by axis, the first
/// fastest.
///
/// ```
/// use tilewright_codegen::build::block;
/// assert_eq!(block(100).threads, [100, 1, 1]);
/// assert_eq!(block((16, 16)).threads, [16, 16, 1]);
/// assert_eq!(block((8, 8, 4)).threads_per_block(), 256);
/// ```
pub fn block(threads: impl Into<BlockShape>) -> LaunchBounds {
    let BlockShape(threads) = threads.into();
    LaunchBounds { threads, cluster: [1, 1, 1], min_blocks: None, cooperative: false }
}

/// Threads of a block by axis: a number, a pair or a triple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape(pub [u32; 3]);

impl From<u32> for BlockShape {
    fn from(x: u32) -> BlockShape {
        BlockShape([x, 1, 1])
    }
}

impl From<(u32, u32)> for BlockShape {
    fn from((x, y): (u32, u32)) -> BlockShape {
        BlockShape([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for BlockShape {
    fn from((x, y, z): (u32, u32, u32)) -> BlockShape {
        BlockShape([x, y, z])
    }
}

impl From<[u32; 3]> for BlockShape {
    fn from(threads: [u32; 3]) -> BlockShape {
        BlockShape(threads)
    }
}

impl LaunchBounds {
    /// Groups blocks into clusters of `blocks` along the first axis.
    pub const fn cluster(self, blocks: u32) -> LaunchBounds {
        LaunchBounds { cluster: [blocks, 1, 1], ..self }
    }

    /// Bounds the registers so that `blocks` blocks fit a multiprocessor. `setmaxnreg` needs it.
    pub const fn min_blocks(self, blocks: u32) -> LaunchBounds {
        LaunchBounds { min_blocks: Some(blocks), ..self }
    }

    /// Makes the launch cooperative: all blocks of the grid are resident at once.
    pub const fn cooperative(self) -> LaunchBounds {
        LaunchBounds { cooperative: true, ..self }
    }
}

impl Builder {
    fn new(name: &str, arch: Arch, launch: LaunchBounds) -> Builder {
        let kernel = Kernel {
            name: name.into(),
            arch,
            launch,
            params: Vec::new(),
            shared: Vec::new(),
            vars: Vec::new(),
            values: Vec::new(),
            body: Block::new(),
            refused: Vec::new(),
            bounds: IndexBounds::default(),
        };
        let state = RecorderState {
            kernel,
            open: vec![Scope::default()],
            next: 0,
            known: Knowledge::default(),
            padding: Padding::default(),
            src: None,
        };
        Builder { state: RefCell::new(state) }
    }

    fn finish(self) -> Kernel {
        let RecorderState { mut kernel, open, .. } = self.state.into_inner();
        kernel.body = open.into_iter().next().unwrap_or_default().block;
        kernel
    }

    /// The architecture that the kernel is recorded for.
    pub fn arch(&self) -> Arch {
        self.state.borrow().kernel.arch
    }

    /// The launch bounds of the kernel.
    pub fn launch(&self) -> LaunchBounds {
        self.state.borrow().kernel.launch.clone()
    }

    /// Appends an instruction as it is.
    #[track_caller]
    pub(super) fn emit(&self, inst: impl Into<Inst>) {
        self.state.borrow_mut().push(StmtKind::Inst(inst.into()), Location::caller());
    }

    /// Appends an instruction that writes one new value of type `ty`, merged with an equal one if
    /// it is pure.
    #[track_caller]
    pub(super) fn value<I: Into<Inst>>(&self, ty: Ty, make: impl Fn(ValueId) -> I) -> Operand {
        let state = &mut *self.state.borrow_mut();
        let shape = make(UNKNOWN).into();
        if shape.is(Flag::Pure) {
            if let Some(known) = fold(&shape) {
                return known;
            }
            if let Some(&value) = state.open.iter().rev().find_map(|scope| scope.pure.get(&shape)) {
                return value.into();
            }
        }
        let value = state.fresh(ty);
        state.push(StmtKind::Inst(make(value).into()), Location::caller());
        if shape.is(Flag::Pure)
            && let Some(scope) = state.open.last_mut()
        {
            scope.pure.insert(shape, value);
        }
        value.into()
    }

    /// Appends an instruction that writes several new values.
    #[track_caller]
    pub(super) fn values<I: Into<Inst>>(&self, tys: &[Ty], make: impl FnOnce(Vec<ValueId>) -> I) -> Vec<Operand> {
        let state = &mut *self.state.borrow_mut();
        let values: Vec<ValueId> = tys.iter().map(|&ty| state.fresh(ty)).collect();
        state.push(StmtKind::Inst(make(values.clone()).into()), Location::caller());
        values.into_iter().map(Operand::from).collect()
    }

    /// Records a block that stands inside a statement.
    pub(super) fn inside(&self, body: Body<'_>) -> Block {
        self.state.borrow_mut().open.push(Scope::default());
        body();
        self.state.borrow_mut().open.pop().unwrap_or_default().block
    }

    /// Reserves a number and appends the statement with it once its blocks are recorded.
    #[track_caller]
    pub(super) fn nest(&self, make: impl FnOnce() -> StmtKind) {
        let src = self.state.borrow().src.unwrap_or(Location::caller());
        let id = self.state.borrow_mut().number();
        let op = make();
        self.state.borrow_mut().append(Stmt { id, src, op });
    }

    /// Records on behalf of a line: a closure has none of its caller's. For libraries that record
    /// within one. Where calls are nested, the outermost line stands, which is the author's.
    pub fn on_behalf<R>(&self, src: Src, record: impl FnOnce() -> R) -> R {
        let before = self.state.borrow().src;
        self.state.borrow_mut().src = Some(before.unwrap_or(src));
        let result = record();
        self.state.borrow_mut().src = before;
        result
    }

    /// Refuses the kernel at this place, in words: noun, value, bound, remedy. Recording goes on,
    /// and [`verify`] reports it.
    ///
    /// For libraries that check what their callers ask for: the caller's line is named where their
    /// functions are `#[track_caller]`.
    ///
    /// ```
    /// use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
    /// let kernel = record("hasty", Arch::Sm80, block(32), |k| k.refuse(&"the width is 3: vectors have 4; take a multiple"));
    /// assert!(verify(kernel).unwrap_err().to_string().contains("error: the width is 3: vectors have 4; take a multiple"));
    /// ```
    ///
    /// [`verify`]: crate::verify::verify
    #[track_caller]
    pub fn refuse(&self, what: &dyn core::fmt::Display) {
        let id = StmtId(self.state.borrow().next);
        self.comment("refused");
        self.state.borrow_mut().kernel.refused.push((id, what.to_string()));
    }

    /// Whether the bits that are known of an index prove that it stays below an extent, after a
    /// constant is added.
    pub fn is_below(&self, index: Operand, constant: u32, extent: u32) -> bool {
        let known = self.state.borrow().known.operand(index);
        let most = (known.value | !known.mask) & u64::from(u32::MAX);
        most + u64::from(constant) < u64::from(extent)
    }

    /// States a bound of an index, for pointers that [`Ptr::bounded`](super::Ptr::bounded) marks
    /// with it.
    ///
    /// For libraries whose tensors have extents: the simulator checks the bound at every access
    /// through such a pointer, and a device spends nothing on it.
    pub fn bound(&self, bound: IndexBound) -> BoundId {
        self.state.borrow_mut().kernel.bounds.add(bound)
    }

    /// Notes that an operand is padded.
    pub(super) fn mark_padded(&self, operand: Operand) {
        self.state.borrow_mut().padding.mark(operand);
    }

    /// States that the bound holds of the access that is recorded next.
    pub(super) fn attach(&self, bound: BoundId) {
        let state = &mut *self.state.borrow_mut();
        state.kernel.bounds.attach(StmtId(state.next), bound);
    }

    /// Appends a `break`.
    #[track_caller]
    pub(super) fn leave(&self) {
        self.state.borrow_mut().push(StmtKind::Break, Location::caller());
    }

    /// A new value that a statement other than an instruction writes.
    pub(super) fn fresh(&self, ty: Ty) -> ValueId {
        self.state.borrow_mut().fresh(ty)
    }

    /// A new parameter.
    pub(super) fn add_param(&self, name: &str, kind: ParamKind, elements: &[Ty]) -> ParamId {
        let params = &mut self.state.borrow_mut().kernel.params;
        params.push(Param { name: name.into(), kind, elements: elements.to_vec() });
        ParamId(params.len() as u32 - 1)
    }

    /// A new allocation after the last.
    pub(super) fn add_shared(&self, name: &str, bytes: u32, align: u32, kind: SharedKind) -> SharedId {
        let kernel = &mut self.state.borrow_mut().kernel;
        let offset = kernel.shared_bytes().checked_next_multiple_of(align.max(1)).unwrap_or(u32::MAX);
        kernel.shared.push(SharedAllocation { name: name.into(), offset, bytes, align, kind });
        SharedId(kernel.shared.len() as u32 - 1)
    }

    /// The known bits of an operand.
    pub(super) fn known(&self, operand: Operand) -> KnownBits {
        self.state.borrow().known.operand(operand)
    }

    /// An allocation.
    pub(super) fn alloc(&self, id: SharedId) -> Option<SharedAllocation> {
        self.state.borrow().kernel.alloc(id).cloned()
    }

    /// New registers, all of them.
    pub(super) fn add_regs(&self, name: &str, ty: Ty, len: u32) -> Regs {
        let vars = &mut self.state.borrow_mut().kernel.vars;
        vars.push(Var { name: name.into(), ty, len });
        Regs { var: VarId(vars.len() as u32 - 1), start: 0, len }
    }
}

impl RecorderState {
    fn number(&mut self) -> StmtId {
        self.next += 1;
        StmtId(self.next - 1)
    }

    fn fresh(&mut self, ty: Ty) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn push(&mut self, op: StmtKind, src: Src) {
        let id = self.number();
        let src = self.src.unwrap_or(src);
        if let StmtKind::Inst(inst) = &op {
            self.known.learn(inst, &self.kernel.shared);
            if self.padding.falsifies(inst) {
                self.kernel.refused.push((id, Padding::REFUSAL.into()));
            }
            self.padding.learn(inst);
        }
        self.append(Stmt { id, src, op });
    }

    fn append(&mut self, stmt: Stmt) {
        if let Some(scope) = self.open.last_mut() {
            scope.block.push(stmt);
        }
    }
}
