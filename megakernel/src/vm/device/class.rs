//! Opcodes: what the generated kernel can do, each specialised for its shapes.
//!
//! A class is everything of a task that is constant in the code. What differs between tasks of a class (where operands
//! begin, which features, which rows) is in their records. Equal classes are one opcode.

use tilewright_kernels::decode::{Float, Heads, Operand, Packing, Path, Sums, TokenStage, Unit};

/// Units of a group of sums where activations are held in registers, at least: fewer groups, fewer barriers.
const HELD_UNITS: u32 = 4;

/// How activations are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// Their type.
    pub float: Float,
    /// Generations of a step, where they are tagged; 0 where not.
    pub period: u32,
}

/// An opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Rows of the embedding table. Operands: ids, position, out.
    Embed {
        /// Shape of the table's units.
        unit: Unit,
        /// Rows of the task.
        rows: u32,
        /// Columns of the task.
        columns: u32,
        /// Storage of the output.
        out: Storage,
    },
    /// A tile of a linear layer. Operands: the input's two, bias, the output's two, what it is stored to.
    Linear {
        /// Shape of a unit.
        unit: Unit,
        /// Rows of the task.
        rows: u32,
        /// Activations.
        input: InputClass,
        /// The way that they take.
        path: Path,
        /// Storage of the bias.
        bias: Option<Float>,
        /// What becomes of the result.
        output: OutputClass,
        /// Features of a row of the output.
        width: u32,
    },
    /// A tile of a kv head's group. Operands: the input's two, q, k, v, biases of q, k, v.
    Qkv {
        /// Shape of a unit.
        unit: Unit,
        /// Rows of the task.
        rows: u32,
        /// Activations.
        input: InputClass,
        /// The way that they take.
        path: Path,
        /// Heads; splits are not looked at.
        heads: Heads,
        /// Storage of the biases.
        bias: [Option<Float>; 3],
        /// Storage of q.
        q: Float,
        /// What becomes of q and k.
        keys: KeysClass,
        /// The pools.
        pools: PoolClass,
    },
    /// Whole heads rotated. Operands: x, norm weight, out.
    Rope {
        /// Rows of the task.
        rows: u32,
        /// Heads of the input.
        heads: u32,
        /// Heads of the task.
        count: u32,
        /// Storage of the input.
        x: Float,
        /// Storage of the norm's weight, and its epsilon's bits.
        norm: Option<(Float, u32)>,
        /// The rotation.
        rotation: RotationClass,
        /// Storage of the output; `None`: the pool.
        out: Option<Float>,
        /// The pools.
        pools: PoolClass,
    },
    /// A split of a kv head's tokens. Operands: q, k, v, acc, stats, the merge and its arrivals.
    Attention {
        /// Rows of the task.
        rows: u32,
        /// Heads, dimensions, splits.
        heads: Heads,
        /// Bits of the factor on the scores.
        scale: u32,
        /// Storage of q.
        q: Float,
        /// The pools.
        pools: PoolClass,
        /// How tokens of earlier steps come through the ring, if they do.
        streamed: Option<TokenStage>,
        /// Storage of the merge.
        out: Storage,
    },
    /// Greedy choice. Operands: value, index, out.
    Argmax {
        /// Rows of the task.
        rows: u32,
        /// Tiles of the logits.
        tiles: u32,
    },
    /// The choice that a row asks for. Operands: logits, value, index, position, request, out.
    Sample {
        /// Rows of the task.
        rows: u32,
        /// Tiles of the logits.
        tiles: u32,
        /// Tokens that there are.
        vocab: u32,
    },
}

/// Where activations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputClass {
    /// As they are, or as attention merged them.
    Plain {
        /// Storage.
        x: Storage,
    },
    /// Normalised.
    RmsNorm {
        /// Storage.
        x: Storage,
        /// Storage of the weight.
        weight: Float,
        /// Bits of epsilon.
        eps: u32,
    },
}

impl InputClass {
    /// How so many rows lie in the MMA's operand.
    pub(super) fn packing(self, rows: u32) -> Packing {
        Packing::of(rows, if let InputClass::Plain { x } = self { x.float } else { Float::F32 })
    }
}

/// What becomes of a linear layer's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputClass {
    /// Stored.
    Store {
        /// Storage.
        out: Storage,
    },
    /// Added to a residual.
    Add {
        /// Storage of the residual.
        residual: Storage,
        /// Storage.
        out: Storage,
    },
    /// `silu(y) · u`.
    SiluMul {
        /// Storage of u's bias.
        up_bias: Option<Float>,
        /// Storage.
        out: Storage,
    },
    /// Logits and the largest of the tile.
    Logits {
        /// Tiles.
        tiles: u32,
    },
}

/// What becomes of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeysClass {
    /// Rotated, k appended.
    Rotated(RotationClass),
    /// As they are.
    Raw {
        /// Storage of k.
        out: Float,
    },
}

/// A table of cosines and sines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RotationClass {
    /// Where it begins in the plain weights, in units of 16 bytes.
    pub table: u32,
    /// Half the dimensions of a head.
    pub half: u32,
}

/// The pools of a layer, and the cells that say whose tokens they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolClass {
    /// Storage.
    pub float: Float,
    /// Pages.
    pub pages: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Dimensions of a head.
    pub dim: u32,
    /// Where the positions begin in the state, in units of 16 bytes.
    pub position: u32,
    /// Where the page tables begin in the state, in units of 16 bytes.
    pub table: u32,
    /// Entries of a row of the page table.
    pub table_width: u32,
    /// Fewest pages of a split.
    pub split_pages: u32,
}

impl Class {
    /// What a person calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Class::Embed { .. } => "embed",
            Class::Linear { .. } => "linear",
            Class::Qkv { .. } => "qkv",
            Class::Rope { .. } => "rope",
            Class::Attention { .. } => "attention",
            Class::Argmax { .. } => "argmax",
            Class::Sample { .. } => "sample",
        }
    }

    /// Bytes of shared memory for sums: at least these.
    pub(super) fn sums_bytes(&self, warps: u32) -> u32 {
        let (rows, path, streams) = match *self {
            Class::Linear { rows, path, output: OutputClass::SiluMul { .. }, .. } => (rows, path, 2),
            Class::Linear { rows, path, .. } | Class::Qkv { rows, path, .. } => (rows, path, 1),
            _ => return 0,
        };
        let units = match path {
            Path::Copied => streams,
            Path::Held => HELD_UNITS,
            Path::Streamed { group } => group,
        };
        units * Sums::bytes(rows, warps)
    }

    /// Bytes of shared memory for activations, for the results of warps, or for the work of sampling.
    pub(super) fn operand_bytes(&self, warps: u32) -> u32 {
        match *self {
            Class::Linear { path: Path::Copied, unit, rows, input, .. }
            | Class::Qkv { path: Path::Copied, unit, rows, input, .. } => Operand::bytes(unit, input.packing(rows)),
            Class::Linear { .. } | Class::Qkv { .. } => 0,
            Class::Attention { heads, .. } => heads.scratch_bytes(warps),
            Class::Sample { .. } => tilewright_kernels::sample::Scratch::BYTES,
            Class::Embed { .. } | Class::Rope { .. } | Class::Argmax { .. } => 0,
        }
    }
}
