//! Bounds of indexes: what a library states about an access, for the simulator to check.
//!
//! A bound is not a statement: it writes no PTX, has no number and appears in no text. The
//! simulator compares the index with the extent in every lane that executes the access, and reports
//! the tensor, the mode and the author's line.

use super::{Operand, Src, StmtId};

/// An index into a mode of a tensor, and the extent that it must stay below.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexBound {
    /// The tensor, in words: its name, or its layout.
    pub tensor: String,
    /// The mode of the tensor.
    pub mode: u32,
    /// The part of the index that is known at run time, of type `u32`.
    pub index: Operand,
    /// The constant added to it, modulo 2³².
    pub constant: u32,
    /// The extent of the mode.
    pub extent: u32,
    /// The line that computed the address.
    pub src: Src,
    /// The next bound of the same access.
    pub next: Option<BoundId>,
}

/// The number of a bound in its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoundId(pub u32);

/// The bounds of a kernel, and the accesses that they belong to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexBounds {
    all: Vec<IndexBound>,
    /// The accesses in the order of recording: a statement, and the first of its bounds.
    accesses: Vec<(StmtId, BoundId)>,
}

impl IndexBounds {
    /// Adds a bound, which belongs to no access yet.
    pub fn add(&mut self, bound: IndexBound) -> BoundId {
        self.all.push(bound);
        BoundId(self.all.len() as u32 - 1)
    }

    /// States that a bound, and those that it names as its next, hold of a statement's access.
    pub fn attach(&mut self, stmt: StmtId, bound: BoundId) {
        if self.accesses.last() != Some(&(stmt, bound)) {
            self.accesses.push((stmt, bound));
        }
    }

    /// A bound by its number.
    pub fn get(&self, id: BoundId) -> Option<&IndexBound> {
        self.all.get(id.0 as usize)
    }

    /// The bounds of a statement's accesses, each with its number.
    pub fn of(&self, stmt: StmtId) -> impl Iterator<Item = (BoundId, &IndexBound)> {
        // Statements are recorded in the order of their numbers, but for those that hold blocks,
        // which access nothing.
        let first = self.accesses.partition_point(|(of, _)| *of < stmt);
        self.accesses[first..].iter().take_while(move |(of, _)| *of == stmt).flat_map(|&(_, id)| self.chain(id))
    }

    fn chain(&self, id: BoundId) -> impl Iterator<Item = (BoundId, &IndexBound)> {
        let of = |id: BoundId| self.get(id).map(|bound| (id, bound));
        std::iter::successors(of(id), move |(id, bound)| bound.next.filter(|next| next.0 < id.0).and_then(of))
    }
}
