//! Accesses: which representations of its operands a device function of an op can read and write.
//!
//! An op states them once. [`edges`](crate::edges) chooses from them how producers hand results to
//! consumers. An operand without an access is read or written as plain rows, with weak loads and
//! stores, and needs a release and an acquire.

use crate::program::{BufferId, Span};

/// The access of a task to one operand: its role, and the representations that the device function
/// supports besides plain rows.
///
/// ```
/// use tilewright_megakernel::ops::{Access, AccessRole};
/// use tilewright_megakernel::program::BufferId;
/// let out = Access::output(BufferId(3)).flagged();
/// assert!(out.role == AccessRole::Output && out.is_flagged && out.is_relaxed);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The operand.
    pub buffer: BufferId,
    /// The purpose of the access.
    pub role: AccessRole,
    /// Whether all its loads and stores are relaxed atomics.
    pub is_relaxed: bool,
    /// Whether it supports flagged words: LL words, as in NCCL's LL protocol, that hold data and a
    /// generation number.
    pub is_flagged: bool,
    /// Split activations that it supports.
    pub split: Option<SplitAccess>,
    /// The part of attention's partial results that it accesses, where the operand belongs to them.
    pub partial: Option<Partial>,
    /// The pools of keys and values that belong to these queries, if the current token may be
    /// handed over as flagged words in addition to the pools.
    pub token: Option<[BufferId; 2]>,
}

/// The purpose of an access to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessRole {
    /// Reads activations.
    Input,
    /// Reads one of several summands, each once.
    Part,
    /// Reads the residual.
    Residual,
    /// Writes results.
    Output,
    /// Reads weights as the checkpoint has them: norms, biases. All others are prepacked.
    Weight,
}

/// An access to split activations: 16-bit terms of the MMA operand instead of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitAccess {
    /// The task can read them for this product.
    Read(SplitRead),
    /// The task can store them for any following product: with a norm in addition to the rows, else
    /// instead of them.
    Stored,
}

/// The product that reads split activations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitRead {
    /// The weight of the norm of the activations, if they are normalised.
    pub norm: Option<BufferId>,
    /// The weights that they are multiplied with, whose rows are streamed together.
    pub weights: Vec<BufferId>,
    /// Columns that the task multiplies, where these are not all.
    pub along: Option<Span>,
    /// Rows of the task.
    pub rows: u32,
}

/// The part of attention's partial results that a task accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Unnormalised sums.
    pub acc: BufferId,
    /// Rows.
    pub rows: Span,
    /// The split that is written; `None`: all splits are read, merged.
    pub written: Option<Written>,
}

/// The split of a row that a task of attention writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The pool whose tokens are split.
    pub pool: BufferId,
    /// The cells that select the tokens: positions, page table.
    pub cells: [BufferId; 2],
}

impl Access {
    /// An access with a role, of plain rows only.
    pub fn new(buffer: BufferId, role: AccessRole) -> Access {
        Access { buffer, role, is_relaxed: false, is_flagged: false, split: None, partial: None, token: None }
    }

    /// Activations that the task reads.
    pub fn input(buffer: BufferId) -> Access {
        Access::new(buffer, AccessRole::Input)
    }

    /// Results that the task writes.
    pub fn output(buffer: BufferId) -> Access {
        Access::new(buffer, AccessRole::Output)
    }

    /// Weights that the task reads as the checkpoint has them.
    pub fn weights(buffers: impl IntoIterator<Item = BufferId>) -> impl Iterator<Item = Access> {
        buffers.into_iter().map(|buffer| Access::new(buffer, AccessRole::Weight))
    }

    /// Adds relaxed loads and stores.
    #[must_use]
    pub fn relaxed(self) -> Access {
        Access { is_relaxed: true, ..self }
    }

    /// Adds flagged words; all its accesses are relaxed.
    #[must_use]
    pub fn flagged(self) -> Access {
        Access { is_flagged: true, is_relaxed: true, ..self }
    }

    /// Adds flagged words under a condition; all its accesses are relaxed.
    #[must_use]
    pub fn flagged_if(self, is_flagged: bool) -> Access {
        Access { is_flagged, is_relaxed: true, ..self }
    }

    /// Adds split activations.
    #[must_use]
    pub fn split(self, split: SplitAccess) -> Access {
        Access { split: Some(split), ..self }
    }

    /// Adds stored split activations under a condition.
    #[must_use]
    pub fn splitting_if(self, can: bool) -> Access {
        Access { split: can.then_some(SplitAccess::Stored), ..self }
    }

    /// States the part of partial results that is accessed.
    #[must_use]
    pub fn of_partial(self, partial: Partial) -> Access {
        Access { partial: Some(partial), ..self }
    }

    /// Adds the current token's keys and values, of these pools, as flagged words.
    #[must_use]
    pub fn with_token(self, pools: [BufferId; 2]) -> Access {
        Access { token: Some(pools), ..self }
    }

    /// The product that reads split activations, if this access can.
    pub fn split_read(&self) -> Option<&SplitRead> {
        match &self.split {
            Some(SplitAccess::Read(read)) => Some(read),
            Some(SplitAccess::Stored) | None => None,
        }
    }

    /// Whether the task writes the operand.
    pub fn is_write(&self) -> bool {
        self.role == AccessRole::Output
    }

    /// Whether the task reads the operand as activations: of the generation that its record calls
    /// the input.
    pub fn is_input(&self) -> bool {
        matches!(self.role, AccessRole::Input | AccessRole::Part)
    }
}

/// A choice of next tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The chosen ids.
    pub out: BufferId,
    /// The ids that it chooses from; what they are below, [`TaskOp::ids`](super::TaskOp::ids) of
    /// their writers says.
    pub index: BufferId,
    /// The logits that it draws from, if it draws.
    pub logits: Option<BufferId>,
    /// The sampling requests of the rows.
    pub request: Option<BufferId>,
}
