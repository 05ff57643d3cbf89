//! The ops: what a task computes. One file per family; an op is a struct whose `footprint` checks its operands and
//! says which regions the task reads and writes.
//!
//! All arithmetic is f32, a store converts to the dtype of its buffer. Every op has a naive oracle of the same name in
//! `tilewright_kernels::naive`. Fused ops are defined by the plain ones: `linear` with an `rms_norm` input equals
//! `rms_norm` followed by `linear`, bit for bit on the reference machine.
//!
//! To add an op: a struct with its footprint here, a row in the `ops!` table below, its oracle, and an arm in each
//! virtual machine; the matches are exhaustive, so nothing compiles until both answer.

mod argmax;
mod attention;
mod elementwise;
mod embed;
mod linear;
mod operand;
mod qkv;
mod rope;
mod sample;

use serde::{Deserialize, Serialize};

pub use argmax::Argmax;
pub use attention::{Attention, Combine};
pub use elementwise::{Add, Copy, RmsNorm, SiluMul};
pub use embed::Embed;
pub use linear::{Linear, LinearInput, LinearOutput};
pub use operand::{Footprint, OperandError, Operands};
pub use qkv::{GroupShape, KeyOutput, PAIRS_PER_UNIT, Part, Place, Projection, Qkv, Rotation, Run};
pub use rope::{HeadNorm, HeadOutput, KvAppend, Rope};
pub use sample::{REQUEST_WORDS, Sample};

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident $text:literal;)*) => {
        /// What a task computes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
        }

        impl Op {
            /// The names of all ops, as JSON spells them.
            pub const NAMES: &'static [&'static str] = &[$($text),*];

            /// The op's name, as JSON spells it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$name(_) => $text,)*
                }
            }

            /// Checks the operands and gives the regions that the op reads and writes.
            ///
            /// # Errors
            /// What is wrong with the first operand that is wrong.
            pub fn footprint(&self, buffers: &Operands) -> Result<Footprint, OperandError> {
                match self {
                    $(Op::$name(op) => op.footprint(buffers),)*
                }
            }
        }
    };
}

ops! {
    /// Element-by-element copy with conversion.
    Copy "copy";
    /// Sum of two boxes.
    Add "add";
    /// `silu(gate) · up`.
    SiluMul "silu_mul";
    /// RMS norm of rows.
    RmsNorm "rms_norm";
    /// Rows of the embedding table.
    Embed "embed";
    /// A tile of a linear layer, with fused input and output.
    Linear "linear";
    /// A tile of the q, k and v projections of one kv head's group.
    Qkv "qkv";
    /// Norm and rotation of heads.
    Rope "rope";
    /// Append to a key or value pool.
    KvAppend "kv_append";
    /// Partial attention of one kv head over one split of the tokens.
    Attention "attention";
    /// Merge of the splits.
    Combine "combine";
    /// Greedy choice.
    Argmax "argmax";
    /// The choice that a row asks for.
    Sample "sample";
}
