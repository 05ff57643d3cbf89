//! The kernel as data: what a recorded kernel holds, and exactly what each part means.
//!
//! | file | what it holds |
//! |---|---|
//! | `id` | typed indexes: `v7` a value, `r3` a register array, `s0` shared memory, `p1` a parameter, `#12` a statement |
//! | `ty` | types, address spaces, classes of types |
//! | `operand` | constants, operands, addresses, register runs |
//! | [`attr`] | the fixed choices of instructions: scopes, orders, hints, modes |
//! | `arch` | architectures and their limits |
//! | `atom` | the atoms of matrix multiply |
//! | `bound` | bounds of indexes, which the simulator checks |
//! | `inst` | instructions, one row each, by family |
//! | `kernel` | the kernel, its statements, how it is launched |
//! | `known` | what is known of values while they are recorded |
//! | `source` | where a kernel was recorded |
//! | `text` | the text form |
//!
//! # What a kernel is
//! A tree of statements. A **value** (`v7`) is written once and visible from there to the end of
//! its block. A **register** (`r3`) is mutable and read and written by `get` and `set`, and in
//! place by matrix instructions, which name runs of a register array (`r3[4..8]`); the index is a
//! constant. Values of pure rows are merged and folded while they are recorded. Everything a
//! statement does happens for one thread, except where its row says that a warp, a warpgroup or a
//! block takes part.
//!
//! # The machine that the rows speak of
//! *Blocks* of at most 1024 threads, a whole number of *warps* of 32 lanes; four consecutive warps,
//! the first a multiple of four, form a *warpgroup*. Blocks may be grouped in *clusters*. Threads
//! make progress independently. Accesses are ordered by the PTX memory model: program order within
//! a thread and proxy, and happens-before by the instructions flagged `Orders`. Two accesses to the
//! same byte from different threads, one a write, at least one `Weak`, that happens-before does not
//! order, are a data race and a fault of the program, as is reading memory that was never written,
//! an address outside its allocation and a misaligned address. The *async proxy* (bulk copies,
//! tensor copies, operands of `wgmma`) sees the same memory, but is ordered with the generic proxy
//! only by completion mechanisms and by `fence.proxy.async`.
//!
//! Formulas and semantics: PTX ISA 8.x, the section of the instruction named by the row's mnemonic.
//!
//! This module imports nothing of the crate but the device table, in tests.

mod arch;
mod atom;
pub mod attr;
mod bound;
mod id;
mod inst;
mod kernel;
mod known;
mod operand;
mod source;
pub(crate) mod text;
mod ty;

pub use arch::{Arch, Limit, Needs};
pub use atom::{Elem, MmaAtom, WgmmaAtom, WgmmaKind};
pub use bound::{BoundId, IndexBound, IndexBounds};
pub use id::{ParamId, SharedId, StmtId, ValueId, VarId};
pub use inst::{
    Access, ArithOp, BitsOp, ChoiceSource, ControlOp, ConvertOp, CopyOp, Flag, Inst, InstRow, MemOp, MmaOp,
    OperandSlot, OperandSpec, Role, Rule, SyncOp, ValueOp, WarpOp, rows,
};
pub(crate) use kernel::one_of;
pub use kernel::{Block, Kernel, LaunchBounds, Param, ParamKind, SharedAllocation, SharedKind, Stmt, StmtKind, Var};
pub(crate) use known::{Knowledge, KnownBits};
pub use operand::{Addr, Const, Operand, Regs};
pub use source::Src;
pub(crate) use source::caller;
pub use ty::{Space, Ty, TyClass};
