//! The query, key and value projections of one kv head and its query group, with rotation and append fused.
//!
//! The output rows of a group are numbered in *units*, so that every tile of consecutive units can rotate its own
//! pairs and all units weigh the same (8 weight rows where the head allows it):
//!
//! ```text
//! group = heads / kv_heads, half = head_dim / 2, units per head u = ceil(half / 4)
//!
//! unit        0 .. group·u          group·u .. (group+1)·u     (group+1)·u .. (group+2)·u
//! part        q heads of the group  k head                     v head
//! rows        pairs 4j..4j+4:       pairs 4j..4j+4:            8j..8j+8 of v
//!             (i, i + half) of q    (i, i + half) of k
//! ```

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::linear::LinearInput;
use super::operand::{Check, Footprint, OperandError, Operands, index, interval, multiple, positive};
use crate::program::{BufferId, Region, Span};

/// Rotary pairs in one unit; a unit of v has twice as many rows.
pub const PAIRS_PER_UNIT: usize = 4;

/// Projects `input` to the units `units` of kv head `kv_head`'s group.
///
/// With `rope`, q is rotated and stored to `q`, k is rotated and appended to `k`. Without it (models that normalise each
/// head first), q and k are stored as they are, k to `k_raw`; the op `rope` finishes both. v is always appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qkv {
    /// Where the activations come from.
    pub input: LinearInput,
    /// The q projection, `[heads · head_dim, k]`.
    pub wq: Projection,
    /// The k projection, `[kv_heads · head_dim, k]`.
    pub wk: Projection,
    /// The v projection, `[kv_heads · head_dim, k]`.
    pub wv: Projection,
    /// The kv head whose group this is.
    pub kv_head: usize,
    /// Units of the group that this task computes.
    pub units: Span,
    /// Rows of the batch that this task computes.
    pub rows: Span,
    /// Output for q, `[rows, heads, head_dim]`.
    pub q: BufferId,
    /// What happens to k.
    pub k: KeyOutput,
    /// Where v is appended, `[kv_heads, pages, page_tokens, head_dim]`.
    pub v_pool: BufferId,
    /// Where a row's token goes.
    pub at: Place,
}

/// A weight matrix with its optional bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// Weights, `[n, k]`.
    pub weight: BufferId,
    /// Bias, `[n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<BufferId>,
}

/// What [`Qkv`] does with q and k.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyOutput {
    /// Rotate q and k; append k to the pool.
    RopeAppend {
        /// The rotation.
        rope: Rotation,
        /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`.
        pool: BufferId,
    },
    /// Store q and k as they are; a `rope` task finishes them.
    Raw {
        /// Output for k, `[rows, kv_heads, head_dim]`.
        out: BufferId,
    },
}

/// A rotation of pairs `(i, i + half)` by `position · inv_freq[i]` radians, both results times `scale`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Radians per position, f32 `[head_dim / 2]`.
    pub inv_freq: BufferId,
    /// Factor on cosine and sine.
    pub scale: f32,
}

impl Rotation {
    pub(super) fn check(&self, ops: &Operands, head_dim: usize) -> Check {
        multiple("head_dim", head_dim, 2)?;
        ops.exactly("inv_freq", self.inv_freq, DType::F32, [head_dim / 2])?;
        positive("scale", self.scale)
    }
}

/// The cells that say which token of which sequence a row is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Position of every row, i32 `[rows]`; negative: the row is idle, it appends nothing and attends to nothing.
    pub position: BufferId,
    /// Page of every run of `page_tokens` tokens, i32 `[rows, pages_per_sequence]`.
    pub page_table: BufferId,
}

impl Place {
    /// Checks both cells; gives the regions of them that the rows read.
    pub(super) fn footprint(&self, ops: &Operands, rows: Span, count: usize) -> Check<[Region; 2]> {
        ops.exactly("position", self.position, DType::I32, [count])?;
        let [_, pages] = ops.shape("page_table", self.page_table)?;
        ops.exactly("page_table", self.page_table, DType::I32, [count, pages])?;
        Ok([Region::new(self.position, &[rows]), Region::new(self.page_table, &[rows, Span::all(pages)])])
    }
}

/// Which of the three projections a unit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Query head `head` (of all heads).
    Query {
        /// The head.
        head: usize,
    },
    /// The key head.
    Key,
    /// The value head.
    Value,
}

/// Consecutive units of one head: a run of pairs (q, k) or of rows (v).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Projection and head.
    pub part: Part,
    /// Pairs `i` with rows `i` and `i + half` for q and k; rows for v.
    pub span: Span,
}

/// The shape of a group: how units map to heads, pairs and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShape {
    /// Query heads in the group.
    pub group: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

impl GroupShape {
    /// Units of one head.
    pub fn units_per_head(self) -> usize {
        (self.head_dim / 2).div_ceil(PAIRS_PER_UNIT)
    }

    /// Units of the whole group.
    pub fn units(self) -> usize {
        (self.group + 2) * self.units_per_head()
    }

    /// The units `units` of kv head `kv_head`'s group, as runs by head.
    ///
    /// ```
    /// use tilewright_megakernel::program::{GroupShape, Part, Span};
    /// let shape = GroupShape { group: 4, head_dim: 64 };
    /// assert_eq!(shape.units(), 48);
    /// let runs = shape.runs(1, Span::new(6, 10));
    /// assert_eq!((runs[0].part, runs[0].span), (Part::Query { head: 4 }, Span::new(24, 32)));
    /// assert_eq!((runs[1].part, runs[1].span), (Part::Query { head: 5 }, Span::new(0, 8)));
    /// ```
    pub fn runs(self, kv_head: usize, units: Span) -> Vec<Run> {
        let (per_head, half) = (self.units_per_head(), self.head_dim / 2);
        let mut runs = Vec::new();
        let mut at = units.lo;
        while at < units.hi && per_head > 0 {
            let slot = at / per_head;
            let end = units.hi.min((slot + 1) * per_head);
            let first = slot * per_head;
            let scaled = |step: usize, limit: usize| {
                Span::new(((at - first) * step).min(limit), ((end - first) * step).min(limit))
            };
            let pairs = scaled(PAIRS_PER_UNIT, half);
            runs.push(if slot < self.group {
                Run { part: Part::Query { head: kv_head * self.group + slot }, span: pairs }
            } else if slot == self.group {
                Run { part: Part::Key, span: pairs }
            } else {
                Run { part: Part::Value, span: scaled(2 * PAIRS_PER_UNIT, self.head_dim) }
            });
            at = end;
        }
        runs
    }
}

/// The extents that a checked [`Qkv`] agrees on.
pub(super) struct QkvShape {
    pub group: GroupShape,
    pub k: usize,
    pub rows: usize,
}

impl Qkv {
    pub(super) fn shape(&self, ops: &Operands) -> Check<QkvShape> {
        let [rows, heads, head_dim] = ops.floats("q", self.q)?;
        let [kv_heads, pages, page_tokens, _] = ops.pool("v_pool", self.v_pool)?;
        ops.floats_of("v_pool", self.v_pool, [kv_heads, pages, page_tokens, head_dim])?;
        multiple("heads", heads, kv_heads)?;
        multiple("head_dim", head_dim, 2)?;
        index("kv_head", self.kv_head, kv_heads)?;
        let [_, k] = ops.floats("wq", self.wq.weight)?;
        let projections = [("wq", &self.wq, heads), ("wk", &self.wk, kv_heads), ("wv", &self.wv, kv_heads)];
        for (name, projection, count) in projections {
            let n = count.saturating_mul(head_dim);
            ops.floats_of(name, projection.weight, [n, k])?;
            if let Some(bias) = projection.bias {
                ops.floats_of("bias", bias, [n])?;
            }
        }
        match &self.k {
            KeyOutput::RopeAppend { rope, pool } => {
                rope.check(ops, head_dim)?;
                ops.pool("k pool", *pool)?;
                ops.floats_of("k pool", *pool, [kv_heads, pages, page_tokens, head_dim])?;
                if *pool == self.v_pool {
                    let (buffer, expected) = (*pool, "another pool than v's");
                    return Err(OperandError::Aliased { operand: "k pool", buffer, expected });
                }
            }
            KeyOutput::Raw { out } => drop(ops.floats_of("k out", *out, [rows, kv_heads, head_dim])?),
        }
        Ok(QkvShape { group: GroupShape { group: heads / kv_heads, head_dim }, k, rows })
    }

    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let QkvShape { group, k, rows } = self.shape(ops)?;
        interval("units", self.units, group.units())?;
        let (count, mut reads) = self.input.footprint(ops, self.rows, k)?;
        if count != rows {
            let (operand, buffer) = ("input", self.q);
            return Err(OperandError::Extent { operand, buffer, dim: 0, found: count, expected: rows });
        }
        interval("rows", self.rows, rows)?;
        reads.extend(self.at.footprint(ops, self.rows, rows)?);
        let mut writes = Vec::new();
        for run in group.runs(self.kv_head, self.units) {
            let head = match run.part {
                Part::Query { head } => head,
                Part::Key | Part::Value => self.kv_head,
            };
            let projection = match run.part {
                Part::Query { .. } => &self.wq,
                Part::Key => &self.wk,
                Part::Value => &self.wv,
            };
            for dims in run.dims(group.head_dim) {
                let base = head * group.head_dim;
                let features = Span::new(base + dims.lo, base + dims.hi);
                reads.push(Region::new(projection.weight, &[features, Span::all(k)]));
                reads.extend(projection.bias.map(|bias| Region::new(bias, &[features])));
                writes.push(self.destination(ops, run.part, head, dims)?);
            }
            if let (KeyOutput::RopeAppend { rope, .. }, Part::Query { .. } | Part::Key) = (&self.k, run.part) {
                reads.push(Region::new(rope.inv_freq, &[run.span]));
            }
        }
        Ok(Footprint { reads, writes })
    }

    /// Where the dimensions `dims` of a head are written.
    fn destination(&self, ops: &Operands, part: Part, head: usize, dims: Span) -> Check<Region> {
        let pool = |buffer| -> Check<Region> {
            let [_, pages, page_tokens, _] = ops.shape("pool", buffer)?;
            Ok(Region::new(buffer, &[Span::one(head), Span::all(pages), Span::all(page_tokens), dims]))
        };
        match (part, &self.k) {
            (Part::Query { .. }, _) => Ok(Region::new(self.q, &[self.rows, Span::one(head), dims])),
            (Part::Key, KeyOutput::Raw { out }) => Ok(Region::new(*out, &[self.rows, Span::one(head), dims])),
            (Part::Key, KeyOutput::RopeAppend { pool: buffer, .. }) => pool(*buffer),
            (Part::Value, _) => pool(self.v_pool),
        }
    }
}

impl Run {
    /// The dimensions of the head that the run covers: two intervals for pairs, one for rows.
    pub fn dims(&self, head_dim: usize) -> Vec<Span> {
        match self.part {
            Part::Value => vec![self.span],
            Part::Query { .. } | Part::Key => {
                let half = head_dim / 2;
                vec![self.span, Span::new(self.span.lo + half, self.span.hi + half)]
            }
        }
    }
}
