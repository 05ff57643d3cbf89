//! Strips of a group: how they map to heads, pairs and rows.

use crate::program::Span;

/// Rotary pairs in one strip; a strip of v has twice as many rows.
pub const PAIRS_PER_STRIP: usize = 4;

/// The projection that a strip belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkvProjection {
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

/// Consecutive strips of one head: a run of pairs (q, k) or of rows (v).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripRun {
    /// Projection and head.
    pub part: QkvProjection,
    /// Pairs `i` with rows `i` and `i + half` for q and k; rows for v.
    pub span: Span,
}

/// The shape of a group: how strips map to heads, pairs and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShape {
    /// Query heads in the group.
    pub group: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

impl GroupShape {
    /// Strips of one head.
    pub fn strips_per_head(self) -> usize {
        (self.head_dim / 2).div_ceil(PAIRS_PER_STRIP)
    }

    /// Strips of the whole group.
    pub fn strips(self) -> usize {
        (self.group + 2) * self.strips_per_head()
    }

    /// The strips `strips` of kv head `kv_head`'s group, as runs by head.
    ///
    /// ```
    /// use tilewright_megakernel::program::Span;
    /// use tilewright_megakernel::ops::{GroupShape, QkvProjection};
    /// let shape = GroupShape { group: 4, head_dim: 64 };
    /// assert_eq!(shape.strips(), 48);
    /// let runs = shape.runs(1, Span::new(6, 10));
    /// assert_eq!((runs[0].part, runs[0].span), (QkvProjection::Query { head: 4 }, Span::new(24, 32)));
    /// assert_eq!((runs[1].part, runs[1].span), (QkvProjection::Query { head: 5 }, Span::new(0, 8)));
    /// ```
    pub fn runs(self, kv_head: usize, strips: Span) -> Vec<StripRun> {
        let per_head = self.strips_per_head();
        let half = self.head_dim / 2;
        let mut runs = Vec::new();
        let mut at = strips.lo;
        while at < strips.hi && per_head > 0 {
            let slot = at / per_head;
            let end = strips.hi.min((slot + 1) * per_head);
            let first = slot * per_head;
            let scaled = |step: usize, limit: usize| {
                Span::new(((at - first) * step).min(limit), ((end - first) * step).min(limit))
            };
            let pairs = scaled(PAIRS_PER_STRIP, half);
            runs.push(if slot < self.group {
                StripRun { part: QkvProjection::Query { head: kv_head * self.group + slot }, span: pairs }
            } else if slot == self.group {
                StripRun { part: QkvProjection::Key, span: pairs }
            } else {
                StripRun { part: QkvProjection::Value, span: scaled(2 * PAIRS_PER_STRIP, self.head_dim) }
            });
            at = end;
        }
        runs
    }
}

impl StripRun {
    /// The dimensions of the head that the run covers: two intervals for pairs, one for rows.
    pub fn dims(&self, head_dim: usize) -> Vec<Span> {
        match self.part {
            QkvProjection::Value => vec![self.span],
            QkvProjection::Query { .. } | QkvProjection::Key => {
                let half = head_dim / 2;
                vec![self.span, Span::new(self.span.lo + half, self.span.hi + half)]
            }
        }
    }
}
