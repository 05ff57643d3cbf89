//! Nested tuples of integers: shapes, strides, coordinates.

use core::fmt;

use crate::profile::TreePosition;
use crate::{LayoutError, MAX_LEAVES, Message, Profile};

/// An integer, or a tuple of integers and tuples.
///
/// `8` and `(8)` are different values. Equality is exact.
///
/// ```
/// use tilewright_layout::IntTuple;
/// let shape = IntTuple::parse("((2,3),4)").unwrap();
/// assert_eq!(shape.product(), Ok(24));
/// assert_eq!(shape.mode(0).unwrap(), IntTuple::flat(&[2, 3]).unwrap());
/// assert_ne!(IntTuple::parse("8"), IntTuple::parse("(8)"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntTuple {
    pub(crate) profile: Profile,
    pub(crate) values: [i64; MAX_LEAVES],
}

impl IntTuple {
    pub(crate) const NOTHING: IntTuple = IntTuple { profile: Profile::EMPTY, values: [0; MAX_LEAVES] };

    /// A tuple that is a single integer.
    pub const fn int(value: i64) -> IntTuple {
        let mut values = [0; MAX_LEAVES];
        values[0] = value;
        IntTuple { profile: Profile::INT, values }
    }

    /// A tuple of integers.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] integers.
    pub const fn flat(values: &[i64]) -> Result<IntTuple, LayoutError> {
        let mut tuple = IntTuple::NOTHING;
        tri!(tuple.profile.push_tuple(values.len()));
        let mut i = 0;
        while i < values.len() {
            tri!(tuple.push(values[i]));
            i += 1;
        }
        Ok(tuple)
    }

    /// A tuple of tuples or integers.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] where the parts do not fit together.
    pub const fn tuple(modes: &[IntTuple]) -> Result<IntTuple, LayoutError> {
        let mut tuple = IntTuple::NOTHING;
        tri!(tuple.profile.push_tuple(modes.len()));
        let mut i = 0;
        while i < modes.len() {
            tri!(tuple.push_mode(&modes[i], TreePosition::ROOT));
            i += 1;
        }
        Ok(tuple)
    }

    /// The value of a result, or a panic with the error's text: a compile error where it stands in
    /// a `const`.
    ///
    /// # Panics
    /// If the result is an error.
    pub const fn constant(result: Result<IntTuple, LayoutError>) -> IntTuple {
        match result {
            Ok(tuple) => tuple,
            Err(error) => panic!("{}", error.message().as_str()),
        }
    }

    /// The nesting.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// The integers in reading order.
    pub const fn values(&self) -> &[i64] {
        self.profile.used(&self.values)
    }

    /// Returns whether it is one integer, not a tuple.
    pub const fn is_int(&self) -> bool {
        self.profile.arity(0).is_none()
    }

    /// Number of top-level modes; 1 for an integer.
    pub const fn rank(&self) -> usize {
        self.profile.rank()
    }

    /// 0 for an integer, else one more than the deepest mode.
    pub const fn depth(&self) -> usize {
        self.profile.depth()
    }

    /// Mode `index`; an integer is its own mode 0.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchMode`].
    pub const fn mode(&self, index: usize) -> Result<IntTuple, LayoutError> {
        Ok(self.subtree(tri!(self.profile.mode(index))))
    }

    /// The integers' product.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let sizes = IntTuple::parse("((4294967296,4294967296),2)").unwrap();
    /// assert!(sizes.product().is_err());
    /// assert_eq!(sizes.mode(1).unwrap().product(), Ok(2));
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Overflow`] where 64 bits do not hold it.
    pub const fn product(&self) -> Result<i64, LayoutError> {
        self.product_at(TreePosition::ROOT)
    }

    pub(crate) const fn product_at(&self, at: TreePosition) -> Result<i64, LayoutError> {
        let end = self.profile.end(at).leaf;
        let mut total = 1;
        let mut leaf = at.leaf;
        while leaf < end {
            if self.values[leaf] == 0 {
                return Ok(0);
            }
            leaf += 1;
        }
        leaf = at.leaf;
        while leaf < end {
            total = tri!(product(total, self.values[leaf], "the product"));
            leaf += 1;
        }
        Ok(total)
    }

    /// The sum of the products of the integers in the same places.
    ///
    /// Law: of a coordinate and a stride, the offset.
    ///
    /// Edge cases: of two integers, their product; of two empty tuples, 0.
    ///
    /// ```console
    /// $ tilewright layout eval "inner_product((1,(2,3)), (10,(20,30)))"
    /// 140
    /// $ tilewright layout eval "inner_product(4294967296, 4294967296)"
    /// error: layout: the inner product of 4294967296 and 4294967296 is beyond 60 bits; use smaller extents or strides
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the two are not nested alike; [`LayoutError::Overflow`] where 64
    /// bits do not hold a part of it.
    pub const fn inner_product(&self, other: &IntTuple) -> Result<i64, LayoutError> {
        if !self.profile.congruent(&other.profile) {
            let given = self.rank();
            let expected = other.rank();
            return Err(LayoutError::Rank { operation: "inner_product", given, expected });
        }
        let mut total = 0;
        let mut leaf = 0;
        while leaf < self.profile.leaves() {
            let part = tri!(product(self.values[leaf], other.values[leaf], "the inner product"));
            total = tri!(sum(total, part, "the inner product"));
            leaf += 1;
        }
        Ok(total)
    }

    pub(crate) const fn subtree(&self, at: TreePosition) -> IntTuple {
        let mut tuple = IntTuple::NOTHING;
        // A part of a tuple fits where the whole did.
        let _ = tuple.push_mode(self, at);
        tuple
    }

    pub(crate) const fn push(&mut self, value: i64) -> Result<(), LayoutError> {
        tri!(self.profile.push_leaf());
        self.values[self.profile.leaves() - 1] = value;
        Ok(())
    }

    pub(crate) const fn push_mode(&mut self, from: &IntTuple, at: TreePosition) -> Result<(), LayoutError> {
        tri!(self.profile.push_subtree(&from.profile, at)).copy(&from.values, &mut self.values);
        Ok(())
    }
}

impl fmt::Display for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Message::new().tuple(self).as_str())
    }
}

impl fmt::Debug for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The product, or an error where 64 bits do not hold it.
pub(crate) const fn product(left: i64, right: i64, what: &'static str) -> Result<i64, LayoutError> {
    match left.checked_mul(right) {
        Some(product) => Ok(product),
        None => Err(LayoutError::Overflow { what, left, right }),
    }
}

/// The sum, or an error where 64 bits do not hold it.
pub(crate) const fn sum(left: i64, right: i64, what: &'static str) -> Result<i64, LayoutError> {
    match left.checked_add(right) {
        Some(sum) => Ok(sum),
        None => Err(LayoutError::Overflow { what, left, right }),
    }
}

impl Message {
    /// The message followed by a tuple in the notation `((2,3),4)`.
    pub const fn tuple(self, tuple: &IntTuple) -> Message {
        self.tree(&tuple.profile, &tuple.values)
    }
}
