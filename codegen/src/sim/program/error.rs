//! Kernels that cannot be decoded.

use crate::ir::{StmtId, ValueId};

/// A kernel that cannot be run as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A statement uses a value that no statement before it writes, or that the kernel does not
    /// have.
    #[error("{stmt} `{text}` uses {value}, which nothing before it writes; write it first")]
    NoValue {
        /// The statement.
        stmt: StmtId,
        /// Its text.
        text: String,
        /// The value.
        value: ValueId,
    },
    /// An instruction has a type that its row does not have.
    #[error("{stmt} `{text}` has no meaning for its types; see the row of the instruction")]
    Type {
        /// The statement.
        stmt: StmtId,
        /// Its text.
        text: String,
    },
    /// A `break` outside of a loop.
    #[error("{stmt} `break` stands outside of every loop; put it in one")]
    Break {
        /// The statement.
        stmt: StmtId,
    },
    /// A register run beyond its array, a parameter or an allocation that the kernel does not have.
    #[error("{stmt} `{text}` names something that the kernel does not have; declare it")]
    NoThing {
        /// The statement.
        stmt: StmtId,
        /// Its text.
        text: String,
    },
}
