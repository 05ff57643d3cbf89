//! The expected contents of an output, its error bound, and the verdict.

use super::element::{ReadElement, TrialElement, float, reader};
use crate::ir::Ty;
use std::fmt;

/// The largest difference of an element from its expected value e: `absolute + relative · |e|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The part that does not depend on the value.
    pub absolute: f64,
    /// The part of the value.
    pub relative: f64,
}

impl Bound {
    /// The largest difference from an expected value that is right.
    ///
    /// ```
    /// use tilewright_codegen::trial::Bound;
    /// assert_eq!(Bound { absolute: 0.5, relative: 0.25 }.at(-8.0), 2.5);
    /// ```
    pub fn at(self, expected: f64) -> f64 {
        self.absolute + self.relative * expected.abs()
    }
}

/// The expected contents of an output after the launch.
#[derive(Clone, Debug)]
pub struct Expected {
    pub(super) len: usize,
    pub(super) size: usize,
    pub(super) floating: bool,
    pub(super) float: Option<Ty>,
    read: ReadElement,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    /// These bytes.
    Exact(Vec<u8>),
    /// Elements near these values.
    Near(Vec<f64>, Bound),
    /// Anything.
    Any,
}

impl Expected {
    fn new<T: TrialElement>(len: usize, law: Law) -> Expected {
        let size = size_of::<T>();
        let floating = T::DTYPE.is_float();
        Expected { len, size, floating, float: float(T::DTYPE), read: reader::<T>(), law }
    }

    /// Expects these elements, bit for bit.
    pub fn exact<T: TrialElement>(elements: &[T]) -> Expected {
        Expected::new::<T>(elements.len(), Law::Exact(bytemuck::cast_slice(elements).to_vec()))
    }

    /// Elements of type `T` within a bound of these values. NaN is right only where the expected
    /// value is NaN too.
    pub fn near<T: TrialElement>(values: &[f64], bound: Bound) -> Expected {
        Expected::new::<T>(values.len(), Law::Near(values.to_vec(), bound))
    }

    /// `len` elements of type `T` that are not compared.
    pub fn anything<T: TrialElement>(len: usize) -> Expected {
        Expected::new::<T>(len, Law::Any)
    }

    /// Whether the elements are looked at.
    pub(super) fn is_judged(&self) -> bool {
        !matches!(self.law, Law::Any)
    }

    /// Judges what was found.
    pub(super) fn judge(&self, name: &str, found: &[u8]) -> Compared {
        let mut verdict = Compared::new(name, self.len);
        let mut difference = 0.0f64;
        let mut norm = 0.0f64;
        for (index, bytes) in found.chunks(self.size).enumerate() {
            let value = (self.read)(bytes);
            let (expected, right) = match &self.law {
                Law::Any => continue,
                Law::Exact(all) => {
                    let wanted = &all[index * self.size..][..bytes.len()];
                    ((self.read)(wanted), wanted == bytes)
                }
                Law::Near(values, bound) => {
                    let expected = values[index];
                    let error = (value - expected).abs();
                    let same = value == expected || (value.is_nan() && expected.is_nan());
                    (expected, same || error <= bound.at(expected))
                }
            };
            let error = if right && !(value - expected).is_finite() { 0.0 } else { (value - expected).abs() };
            // An error that is not a number is the largest of all.
            verdict.max_error = if error.is_nan() { f64::INFINITY } else { verdict.max_error.max(error) };
            difference += error * error;
            norm += if expected.is_finite() { expected * expected } else { 0.0 };
            if !right {
                verdict.wrong += 1;
                verdict.first.get_or_insert(Mismatch { index, found: Some(value), expected });
            }
        }
        verdict.relative_error = if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() };
        verdict
    }

    /// The verdict where the element of that number was never written.
    pub(super) fn unwritten(&self, name: &str, offset: usize) -> Compared {
        let index = offset / self.size;
        let expected = match &self.law {
            Law::Exact(all) => (self.read)(&all[index * self.size..][..self.size]),
            Law::Near(values, _) => values[index],
            Law::Any => f64::NAN,
        };
        let first = Some(Mismatch { index, found: None, expected });
        let wrong = 1;
        let max_error = f64::INFINITY;
        let relative_error = f64::INFINITY;
        Compared { wrong, first, max_error, relative_error, ..Compared::new(name, self.len) }
    }
}

/// The comparison of an output with its expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The buffer's name.
    pub name: String,
    /// Its elements.
    pub elements: usize,
    /// Elements outside their bound; where one was never written, this is 1.
    pub wrong: usize,
    /// The first of them.
    pub first: Option<Mismatch>,
    /// Largest difference of an element from its expected value.
    pub max_error: f64,
    /// ‖found − expected‖ / ‖expected‖.
    pub relative_error: f64,
}

impl Compared {
    fn new(name: &str, elements: usize) -> Compared {
        Compared { name: name.into(), elements, wrong: 0, first: None, max_error: 0.0, relative_error: 0.0 }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.first {
            None => write!(f, "{}: {} elements, max error {:.1e}", self.name, self.elements, self.max_error),
            Some(first) => {
                let name = &self.name;
                let wrong = self.wrong;
                let elements = self.elements;
                write!(f, "{name}: {wrong} of {elements} elements are wrong, the first {first}")
            }
        }
    }
}

/// An element that is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatch {
    /// Its number.
    pub index: usize,
    /// The value found; `None` if it was never written.
    pub found: Option<f64>,
    /// The expected value.
    pub expected: f64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found {
            Some(found) => write!(f, "[{}] = {found}, not {}", self.index, self.expected),
            None => write!(f, "[{}] never written, not {}", self.index, self.expected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judge(expected: &Expected, found: &[f32]) -> Compared {
        expected.judge("y", bytemuck::cast_slice(found))
    }

    #[test]
    fn exact_is_by_bits_and_near_by_value() {
        let zero = Expected::exact(&[0.0f32]);
        assert_eq!(judge(&zero, &[-0.0]).wrong, 1, "another zero");
        let nan = Expected::exact(&[f32::NAN]);
        assert_eq!(judge(&nan, &[f32::NAN]).wrong, 0);
        let bound = Bound { absolute: 0.0, relative: 0.0 };
        let near = Expected::near::<f32>(&[0.0, f64::INFINITY, f64::NAN], bound);
        let right = judge(&near, &[-0.0, f32::INFINITY, f32::NAN]);
        assert_eq!((right.wrong, right.max_error), (0, 0.0));
        let wrong = judge(&near, &[f32::NAN, 1.0, 1.0]);
        assert_eq!((wrong.wrong, wrong.max_error), (3, f64::INFINITY));
        assert_eq!(Expected::anything::<f32>(1).judge("y", &[0xff; 4]).wrong, 0);
    }

    proptest! {
        #[test]
        fn what_lies_outside_the_bound_is_found(
            values in proptest::collection::vec(-1e3f32..1e3, 1..50),
            at in any::<prop::sample::Index>(),
            (absolute, relative) in (1e-3f64..1.0, 1e-3f64..0.1),
        ) {
            let bound = Bound { absolute, relative };
            let at = at.index(values.len());
            let exact: Vec<f64> = values.iter().map(|&v| v.into()).collect();
            let expected = Expected::near::<f32>(&exact, bound);
            let mut found = values.clone();
            found[at] = (exact[at] + 0.9 * bound.at(exact[at])) as f32;
            let inside = judge(&expected, &found);
            prop_assert!(inside.first.is_none() && inside.max_error <= bound.at(exact[at]));
            found[at] = (exact[at] - 1.1 * bound.at(exact[at])) as f32;
            let outside = judge(&expected, &found);
            prop_assert_eq!((outside.wrong, outside.first.map(|m| m.index)), (1, Some(at)));
        }
    }
}
