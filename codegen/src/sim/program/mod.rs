//! The program that a machine runs: a kernel flattened into a line of steps.
//!
//! Structured control flow becomes jumps, with a [`WarpStep::Join`] wherever ways of lanes meet
//! again. Values get places in a dense register file, shared by values whose lives do not overlap;
//! constants stand in a pool of rows. Pure instructions are resolved to functions of whole warps;
//! the others stay as they are and are run by family.

mod error;
mod flatten;
mod live;
mod place;

pub use error::DecodeError;
pub(crate) use flatten::decode;

use super::number::{Alu, LaneValues};
use crate::ir::attr::{LdCache, LdOrder, StOrder};
use crate::ir::{BoundId, IndexBounds, Inst, LaunchBounds, Operand, Param, Space, Src, StmtId, Ty, ValueId};

/// A row to read: of the warp's registers, or of the pool of constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref(u32);

const POOLED: u32 = 1 << 31;

impl Ref {
    /// A register row, or a row of the pool.
    pub(crate) fn split(self) -> Result<usize, usize> {
        if self.0 & POOLED == 0 { Ok(self.0 as usize) } else { Err((self.0 & !POOLED) as usize) }
    }
}

/// The check of a pure step's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandCheck {
    Nothing,
    /// The second is not zero.
    Divisor,
    /// The first is not these bits: the least integer, which has no negative.
    Least(u64),
}

/// A step of a warp.
#[derive(Debug)]
pub(crate) enum WarpStep {
    /// A pure function of rows; divisions are checked first.
    Pure {
        run: Alu,
        dest: u32,
        reads: [Ref; 3],
        check: OperandCheck,
    },
    /// Reads a register (`var` counts the registers of the kernel), or writes it.
    Get {
        var: u32,
        dest: u32,
    },
    Set {
        var: u32,
        value: Ref,
    },
    /// Copies a row: the first value of a loop's counter.
    Copy {
        dest: u32,
        value: Ref,
    },
    Load(DecodedLoad),
    Store(DecodedStore),
    /// Any other instruction.
    Inst(Box<Inst>),
    Jump {
        to: u32,
    },
    /// Lanes where the predicate is false jump.
    Unless {
        cond: Ref,
        to: u32,
    },
    /// Ways meet here.
    Join,
    /// Values that are operands of `wgmma` from registers were written: a fence is due.
    Touch {
        rows: Vec<u32>,
    },
    /// The index of an access is below its extent.
    Bound {
        index: Ref,
        constant: u32,
        extent: u32,
        id: BoundId,
    },
    /// The end of the kernel.
    End,
}

/// A load, decoded.
#[derive(Debug)]
pub(crate) struct DecodedLoad {
    pub base: Ref,
    pub offset: i32,
    pub space: Space,
    pub dests: Vec<u32>,
    pub bytes: u32,
    pub order: LdOrder,
    pub read_only: bool,
}

/// A store, decoded.
#[derive(Debug)]
pub(crate) struct DecodedStore {
    pub base: Ref,
    pub offset: i32,
    pub space: Space,
    pub values: Vec<Ref>,
    pub bytes: u32,
    pub order: StOrder,
}

/// The origin of a step.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub stmt: StmtId,
    pub text: String,
    pub src: Src,
    /// The line that called the library which recorded it.
    pub caller: Option<Src>,
    /// The class of the instruction, if the step counts as one: jumps and joins do not.
    pub class: Option<&'static str>,
}

/// Address and size of a shared allocation.
#[derive(Clone, Debug)]
pub(crate) struct Alloc {
    pub name: String,
    pub start: u32,
    pub bytes: u32,
    /// Number of mbarriers, if it holds them, and the index of the first among the block's.
    pub mbarriers: Option<(u32, u32)>,
}

/// A kernel, ready to run.
#[derive(Debug)]
pub(crate) struct Program {
    pub name: String,
    pub launch: LaunchBounds,
    pub params: Vec<Param>,
    pub param_offsets: Vec<u32>,
    pub param_bytes: u32,
    pub shared: Vec<Alloc>,
    pub shared_bytes: u32,
    pub mbarriers: u32,
    pub steps: Vec<WarpStep>,
    /// The site of each step.
    pub at: Vec<u32>,
    pub sites: Vec<Site>,
    pub pool: Vec<LaneValues>,
    /// Rows of the register file: values first, then the kernel's registers.
    pub rows: u32,
    /// Row of the first register, and of each register array.
    pub first_var: u32,
    pub var_rows: Vec<u32>,
    pub types: Vec<Ty>,
    pub value_rows: Vec<u32>,
    /// Bytes of one cell of shadow memory in global and in shared space.
    pub cell: [u32; 2],
    /// The bounds of indexes.
    pub bounds: IndexBounds,
}

/// Shared memory begins at this address, so that address zero is invalid.
pub(crate) const SHARED_BASE: u32 = 1024;

impl Program {
    /// The row of a value.
    pub(crate) fn row(&self, value: ValueId) -> usize {
        self.value_rows[value.index()] as usize
    }

    /// The type of an operand.
    pub(crate) fn type_of(&self, operand: Operand) -> Ty {
        match operand {
            Operand::Const(c) => c.ty,
            Operand::Value(v) => self.types[v.index()],
        }
    }

    /// The site of a step.
    pub(crate) fn site(&self, pc: u32) -> &Site {
        &self.sites[self.at[pc as usize] as usize]
    }

    /// The mbarrier at an address: its index in the block.
    pub(crate) fn mbarrier_at(&self, address: u32) -> Option<u32> {
        self.shared.iter().find_map(|alloc| {
            let (count, first) = alloc.mbarriers?;
            let within = address.checked_sub(alloc.start)?;
            (within % 8 == 0 && within / 8 < count).then_some(first + within / 8)
        })
    }

    /// The allocation that holds an address, and the offset in it.
    pub(crate) fn shared_at(&self, address: u32) -> Option<(&Alloc, u32)> {
        self.shared.iter().find_map(|alloc| {
            let within = address.checked_sub(alloc.start)?;
            (within < alloc.bytes).then_some((alloc, within))
        })
    }
}

/// Whether a load goes through the path that requires memory that is not written.
pub(crate) fn is_read_only(cache: LdCache) -> bool {
    matches!(cache, LdCache::Nc | LdCache::NcNoAllocate)
}
