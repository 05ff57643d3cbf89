//! The nesting of a tuple, without its numbers.

use crate::LayoutError;
use crate::Message;

/// The most integers that a shape, a stride or a coordinate holds.
///
/// The largest layout seen in the conformance vectors has 16.
pub const MAX_LEAVES: usize = 32;

/// The most integers and tuples together.
pub const MAX_NODES: usize = 64;

/// Marks an integer among the nodes; every other value is the number of a tuple's modes.
const LEAF: u8 = u8::MAX;

/// The nesting of a tuple: which places are integers and which are tuples, in reading order.
///
/// `8` and `(8)` differ: the first is one integer, the second a tuple that holds one.
///
/// ```
/// use tilewright_layout::IntTuple;
/// let nested = IntTuple::parse("((2,3),4)").unwrap();
/// let profile = nested.profile();
/// assert_eq!((profile.leaves(), profile.rank(), profile.depth()), (3, 2, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    kinds: [u8; MAX_NODES],
    nodes: u8,
    leaves: u8,
}

/// A place in a tree: the index of a node and of the next leaf, both in reading order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreePosition {
    pub(crate) node: usize,
    pub(crate) leaf: usize,
}

/// A run of integers that was copied from one tuple to another.
pub(crate) struct Moved {
    from: usize,
    to: usize,
    count: usize,
}

impl Moved {
    /// Copies the run.
    pub(crate) const fn copy(&self, from: &[i64; MAX_LEAVES], to: &mut [i64; MAX_LEAVES]) {
        let mut i = 0;
        while i < self.count {
            to[self.to + i] = from[self.from + i];
            i += 1;
        }
    }
}

impl TreePosition {
    pub(crate) const ROOT: TreePosition = TreePosition { node: 0, leaf: 0 };
}

impl Profile {
    pub(crate) const EMPTY: Profile = Profile { kinds: [0; MAX_NODES], nodes: 0, leaves: 0 };

    /// The profile of a single integer.
    pub const INT: Profile = {
        let mut kinds = [0; MAX_NODES];
        kinds[0] = LEAF;
        Profile { kinds, nodes: 1, leaves: 1 }
    };

    /// Number of integers.
    pub const fn leaves(&self) -> usize {
        self.leaves as usize
    }

    /// Number of integers and tuples.
    pub const fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// Number of top-level modes; 1 for an integer.
    pub const fn rank(&self) -> usize {
        self.rank_at(0)
    }

    pub(crate) const fn rank_at(&self, node: usize) -> usize {
        match self.arity(node) {
            Some(arity) => arity,
            None => 1,
        }
    }

    /// 0 for an integer, else one more than the deepest mode.
    pub const fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut open = [0usize; MAX_NODES];
        let mut depth = 0;
        let mut node = 0;
        while node < self.nodes() {
            while depth > 0 && open[depth - 1] == 0 {
                depth -= 1;
            }
            if depth > 0 {
                open[depth - 1] -= 1;
            }
            if let Some(arity) = self.arity(node) {
                open[depth] = arity;
                depth += 1;
                if depth > deepest {
                    deepest = depth;
                }
            }
            node += 1;
        }
        deepest
    }

    /// The number of modes of the tuple at `node`, or `None` where an integer stands.
    pub(crate) const fn arity(&self, node: usize) -> Option<usize> {
        match self.kinds[node] {
            LEAF => None,
            arity => Some(arity as usize),
        }
    }

    /// The place just after the subtree at `at`.
    pub(crate) const fn end(&self, mut at: TreePosition) -> TreePosition {
        let mut pending = 1;
        while pending > 0 {
            pending -= 1;
            match self.arity(at.node) {
                Some(arity) => pending += arity,
                None => at.leaf += 1,
            }
            at.node += 1;
        }
        at
    }

    /// The place of mode `index` of the subtree at `at`; an integer is its own mode 0. `index` must
    /// be below the rank.
    pub(crate) const fn child(&self, at: TreePosition, index: usize) -> TreePosition {
        if self.arity(at.node).is_none() {
            return at;
        }
        let mut child = TreePosition { node: at.node + 1, leaf: at.leaf };
        let mut i = 0;
        while i < index {
            child = self.end(child);
            i += 1;
        }
        child
    }

    /// The place of top-level mode `index`.
    pub(crate) const fn mode(&self, index: usize) -> Result<TreePosition, LayoutError> {
        if index >= self.rank() {
            return Err(LayoutError::NoSuchMode { operation: "mode", index: index as i64, rank: self.rank() });
        }
        Ok(self.child(TreePosition::ROOT, index))
    }

    /// The integers among `values`, which are kept in an array of the full capacity.
    pub(crate) const fn used<'v>(&self, values: &'v [i64; MAX_LEAVES]) -> &'v [i64] {
        values.split_at(self.leaves()).0
    }

    /// The product of the integers of the subtree at `at`, for sizes that are checked: beyond 64
    /// bits it wraps.
    pub(crate) const fn product(&self, at: TreePosition, values: &[i64; MAX_LEAVES]) -> i64 {
        let end = self.end(at).leaf;
        let mut product = 1i64;
        let mut leaf = at.leaf;
        while leaf < end {
            product = product.wrapping_mul(values[leaf]);
            leaf += 1;
        }
        product
    }

    /// Whether the subtrees at the two places have the same nesting.
    pub(crate) const fn same(&self, at: TreePosition, other: &Profile, other_at: TreePosition) -> bool {
        let end = self.end(at).node;
        if end - at.node != other.end(other_at).node - other_at.node {
            return false;
        }
        let mut i = 0;
        while at.node + i < end {
            if self.kinds[at.node + i] != other.kinds[other_at.node + i] {
                return false;
            }
            i += 1;
        }
        true
    }

    /// Returns whether both have the same nesting.
    pub const fn congruent(&self, other: &Profile) -> bool {
        self.same(TreePosition::ROOT, other, TreePosition::ROOT)
    }

    pub(crate) const fn push_leaf(&mut self) -> Result<(), LayoutError> {
        if self.leaves() == MAX_LEAVES {
            return Err(LayoutError::Capacity { what: "integers", limit: MAX_LEAVES });
        }
        tri!(self.push_node(LEAF));
        self.leaves += 1;
        Ok(())
    }

    /// Appends the subtree of `from` at `at`, and says which of its integers came where.
    pub(crate) const fn push_subtree(&mut self, from: &Profile, at: TreePosition) -> Result<Moved, LayoutError> {
        let end = from.end(at);
        let to = self.leaves();
        let mut node = at.node;
        while node < end.node {
            match from.arity(node) {
                Some(arity) => {
                    tri!(self.push_tuple(arity));
                }
                None => tri!(self.push_leaf()),
            }
            node += 1;
        }
        Ok(Moved { from: at.leaf, to, count: end.leaf - at.leaf })
    }

    /// Opens a tuple of `arity` modes and gives its node, for [`Profile::set_arity`].
    pub(crate) const fn push_tuple(&mut self, arity: usize) -> Result<usize, LayoutError> {
        if arity >= MAX_NODES {
            return Err(LayoutError::Capacity { what: "modes", limit: MAX_NODES - 1 });
        }
        let node = self.nodes();
        tri!(self.push_node(arity as u8));
        Ok(node)
    }

    /// Corrects the number of modes of a tuple pushed before they were counted.
    pub(crate) const fn set_arity(&mut self, node: usize, arity: usize) {
        self.kinds[node] = arity as u8;
    }

    /// Makes one tuple of the integers from `node` to the end, if there are several.
    pub(crate) const fn wrap_leaves(&mut self, node: usize) -> Result<(), LayoutError> {
        let count = self.nodes() - node;
        if count > 1 {
            tri!(self.push_node(LEAF));
            self.kinds[node] = count as u8;
        }
        Ok(())
    }

    const fn push_node(&mut self, node: u8) -> Result<(), LayoutError> {
        if self.nodes() == MAX_NODES {
            return Err(LayoutError::Capacity { what: "integers and tuples", limit: MAX_NODES });
        }
        self.kinds[self.nodes()] = node;
        self.nodes += 1;
        Ok(())
    }
}

impl Message {
    /// The message followed by the values of a tuple's leaves, in its parentheses.
    pub(crate) const fn tree(mut self, profile: &Profile, values: &[i64; MAX_LEAVES]) -> Message {
        // For every open tuple: how many of its modes are still to come.
        let mut open = [0usize; MAX_NODES];
        let mut depth = 0;
        let mut leaf = 0;
        let mut node = 0;
        while node < profile.nodes() {
            if depth > 0 {
                if !self.ends_with(b'(') {
                    self.push(b',');
                }
                open[depth - 1] -= 1;
            }
            match profile.arity(node) {
                Some(arity) => {
                    self.push(b'(');
                    open[depth] = arity;
                    depth += 1;
                }
                None => {
                    self = self.number(values[leaf]);
                    leaf += 1;
                }
            }
            while depth > 0 && open[depth - 1] == 0 {
                self.push(b')');
                depth -= 1;
            }
            node += 1;
        }
        self
    }
}
