//! The recorded kernel: parameters, shared memory, registers, and a tree of statements.

use super::source::{Src, caller};
use super::{Arch, IndexBounds, Inst, Limit, Operand, ParamId, SharedId, StmtId, Ty, ValueId};
use core::fmt;

/// A kernel as recorded, not yet checked.
///
/// It is plain data: tests and the mutation harness change it at will. Only `verify` makes of
/// it what back ends accept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Name of the entry point, an identifier.
    pub name: String,
    /// Architecture that it was recorded for.
    pub arch: Arch,
    /// The launch bounds.
    pub launch: LaunchBounds,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Shared memory, placed: ascending offsets, no overlap.
    pub shared: Vec<SharedAllocation>,
    /// Mutable registers and register arrays.
    pub vars: Vec<Var>,
    /// The type of each value.
    pub values: Vec<Ty>,
    /// The statements.
    pub body: Block,
    /// Refusals of libraries while they recorded, in words, each at its statement. A kernel with
    /// any refusal does not verify.
    pub refused: Vec<(StmtId, String)>,
    /// Bounds of indexes that the simulator checks; nothing on a device.
    pub bounds: IndexBounds,
}

/// The launch bounds of a kernel. The launcher chooses the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchBounds {
    /// Threads of a block by axis. Exact: the launcher accepts no other shape.
    pub threads: [u32; 3],
    /// Blocks of a cluster by axis; `[1, 1, 1]` for none. The grid is a multiple of it.
    pub cluster: [u32; 3],
    /// Blocks per multiprocessor that the registers are to be bounded for.
    pub min_blocks: Option<u32>,
    /// Whether all blocks of the grid must be resident at once: a cooperative launch.
    pub cooperative: bool,
}

impl LaunchBounds {
    /// Threads of a block.
    pub fn threads_per_block(&self) -> u32 {
        self.threads.iter().fold(1, |product: u32, axis| product.saturating_mul(*axis))
    }

    /// Threads of a block, in whole warps: what a barrier of the block counts.
    pub fn threads_in_warps(&self) -> u32 {
        self.threads_per_block().checked_next_multiple_of(32).unwrap_or(u32::MAX)
    }

    /// Blocks of a cluster.
    pub fn blocks_per_cluster(&self) -> u32 {
        self.cluster.iter().fold(1, |product: u32, axis| product.saturating_mul(*axis))
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The author's name for it.
    pub name: String,
    /// The kind of the parameter.
    pub kind: ParamKind,
    /// The types of elements of which a pointer takes an array; empty for other parameters, and for
    /// a pointer that takes an array of anything.
    pub elements: Vec<Ty>,
}

/// Types as a person reads them: `f32 or s32`.
pub(crate) fn one_of(types: &[Ty]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ParamKind::Value(Ty::Ptr(space)) if self.elements.is_empty() => {
                write!(f, "`{}`, a pointer to {space} memory", self.name)
            }
            ParamKind::Value(Ty::Ptr(space)) => {
                write!(f, "`{}`, a pointer to {} in {space} memory", self.name, one_of(&self.elements))
            }
            ParamKind::Value(ty) => write!(f, "`{}`, a scalar of type {ty}", self.name),
            ParamKind::Bytes { bytes, .. } => write!(f, "`{}`, a structure of {bytes} bytes", self.name),
            ParamKind::TensorMap => write!(f, "`{}`, a tensor map", self.name),
        }
    }
}

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A scalar, or a pointer to global memory.
    Value(Ty),
    /// A structure by value; its fields are loaded through `Param` space.
    Bytes {
        /// Size in bytes.
        bytes: u32,
        /// Alignment in bytes, a power of two up to 16.
        align: u32,
    },
    /// A tensor map by value: 128 bytes, aligned to 64, encoded by the host. Copies address it in
    /// place.
    TensorMap,
}

impl ParamKind {
    /// Size and alignment in the parameter block, bytes.
    ///
    /// ```
    /// use tilewright_codegen::ir::{ParamKind, Ty};
    /// assert_eq!(ParamKind::Value(Ty::U64).layout(), (8, 8));
    /// assert_eq!(ParamKind::TensorMap.layout(), (128, 64));
    /// ```
    pub const fn layout(self) -> (u32, u32) {
        match self {
            ParamKind::Value(ty) => (ty.bytes(), ty.bytes()),
            ParamKind::Bytes { bytes, align } => (bytes, align),
            ParamKind::TensorMap => (128, 64),
        }
    }
}

/// An allocation in the shared memory of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAllocation {
    /// The author's name for it.
    pub name: String,
    /// Byte offset from the start of the kernel's shared memory, which is aligned to 1024 bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// The contents.
    pub kind: SharedKind,
}

/// The contents of an allocation in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedKind {
    /// Data. Uninitialised when the block starts.
    Data,
    /// This many mbarriers of 8 bytes each, accessed by mbarrier instructions alone.
    Mbarriers(u32),
}

/// A mutable register, or an array of them with constant indexes. Uninitialised when the thread
/// starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Var {
    /// The author's name for it, or nothing.
    pub name: String,
    /// Type of each register.
    pub ty: Ty,
    /// Number of registers; 1 prints as a plain register.
    pub len: u32,
}

/// Statements in order.
pub type Block = Vec<Stmt>;

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Its number, unique in the kernel; ascending in the order of the text unless the tree was
    /// edited.
    pub id: StmtId,
    /// The author's line.
    pub src: Src,
    /// The operation.
    pub op: StmtKind,
}

/// The operation of a statement.
///
/// A value is visible after the statement that writes it, to the end of the block it stands in and
/// in blocks nested there. Lanes of a warp that took different ways run in any interleaving, each
/// making progress; after an `If` or a loop the lanes that left it run together again where an
/// instruction demands it (a `Warp` or `Warpgroup` flag), and a kernel must not rely on it
/// otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// An instruction.
    Inst(Inst),
    /// `then` where the predicate is true, `otherwise` where it is false.
    If {
        /// A predicate.
        cond: Operand,
        /// Executed where it is true.
        then: Block,
        /// Executed where it is false; may be empty.
        otherwise: Block,
    },
    /// `var = start; while var < end { body; var += step }`, compared in the type of `var`.
    /// `start`, `end` and `step` are read once. `step` is a constant above zero; `end − 1 + step`
    /// must fit the type.
    For {
        /// The counter, a value that is new in each iteration: of an integer type of 32 or 64 bits.
        var: ValueId,
        /// First value.
        start: Operand,
        /// First value that is too large.
        end: Operand,
        /// Distance.
        step: Operand,
        /// The body.
        body: Block,
    },
    /// The body, again and again until a `Break`.
    Loop {
        /// The body.
        body: Block,
    },
    /// Leaves the innermost `For` or `Loop`.
    Break,
}

impl Kernel {
    /// Bytes of shared memory, from the start of the first allocation to the end of the last.
    pub fn shared_bytes(&self) -> u32 {
        self.shared.iter().map(|alloc| alloc.offset.saturating_add(alloc.bytes)).max().unwrap_or(0)
    }

    /// Whether shared memory exceeds what can be declared statically, so that the launcher must
    /// grant it.
    pub fn shared_is_dynamic(&self) -> bool {
        !Limit::StaticShared.allows(self.arch, self.shared_bytes())
    }

    /// Offset of each parameter in the parameter block, and its size, in bytes.
    pub fn param_offsets(&self) -> (Vec<u32>, u32) {
        let mut end = 0u32;
        let mut offsets = Vec::new();
        for param in &self.params {
            let (bytes, align) = param.kind.layout();
            let start = end.checked_next_multiple_of(align.max(1)).unwrap_or(u32::MAX);
            offsets.push(start);
            end = start.saturating_add(bytes);
        }
        (offsets, end)
    }

    /// The type of an operand; `None` for a value that the kernel does not have.
    pub fn type_of(&self, operand: Operand) -> Option<Ty> {
        match operand {
            Operand::Const(value) => Some(value.ty),
            Operand::Value(value) => self.values.get(value.index()).copied(),
        }
    }

    /// The parameter with that id.
    pub fn param(&self, id: ParamId) -> Option<&Param> {
        self.params.get(id.index())
    }

    /// The allocation with that id.
    pub fn alloc(&self, id: SharedId) -> Option<&SharedAllocation> {
        self.shared.get(id.index())
    }

    /// Calls `see` for every statement, outer before inner, in the order of the text.
    pub fn walk<'a>(&'a self, see: &mut dyn FnMut(&'a Stmt)) {
        walk(&self.body, see);
    }

    /// The statement with that id.
    pub fn stmt(&self, id: StmtId) -> Option<&Stmt> {
        let mut found = None;
        self.walk(&mut |stmt| {
            if stmt.id == id {
                found = Some(stmt);
            }
        });
        found
    }

    /// The author's line, where a library recorded the statement inside a loop or branch of its
    /// own.
    pub(crate) fn caller_of(&self, id: StmtId) -> Option<Src> {
        fn find(block: &[Stmt], id: StmtId, around: &mut Vec<Src>) -> Option<Option<Src>> {
            for stmt in block {
                if stmt.id == id {
                    return Some(caller(around, stmt.src));
                }
                around.push(stmt.src);
                let found = match &stmt.op {
                    StmtKind::Inst(_) | StmtKind::Break => None,
                    StmtKind::If { then, otherwise, .. } => {
                        find(then, id, around).or_else(|| find(otherwise, id, around))
                    }
                    StmtKind::For { body, .. } | StmtKind::Loop { body } => find(body, id, around),
                };
                if found.is_some() {
                    return found;
                }
                around.pop();
            }
            None
        }
        find(&self.body, id, &mut Vec::new()).flatten()
    }

    /// Changes every block, inner before outer: how a mutation removes or replaces statements.
    pub fn edit(&mut self, change: &mut dyn FnMut(&mut Block)) {
        edit(&mut self.body, change);
    }
}

fn walk<'a>(block: &'a [Stmt], see: &mut dyn FnMut(&'a Stmt)) {
    for stmt in block {
        see(stmt);
        match &stmt.op {
            StmtKind::Inst(_) | StmtKind::Break => {}
            StmtKind::If { then, otherwise, .. } => {
                walk(then, see);
                walk(otherwise, see);
            }
            StmtKind::For { body, .. } | StmtKind::Loop { body } => walk(body, see),
        }
    }
}

fn edit(block: &mut Block, change: &mut dyn FnMut(&mut Block)) {
    for stmt in block.iter_mut() {
        match &mut stmt.op {
            StmtKind::Inst(_) | StmtKind::Break => {}
            StmtKind::If { then, otherwise, .. } => {
                edit(then, change);
                edit(otherwise, change);
            }
            StmtKind::For { body, .. } | StmtKind::Loop { body } => edit(body, change),
        }
    }
    change(block);
}
