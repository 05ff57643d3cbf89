//! A kernel whose settings can be searched, and the shapes that it runs at.

use super::error::MOST_ELEMENTS;
use crate::cli::Failure;
use crate::cli::bench::error::BenchError;
use crate::cli::bench::extent::parse_extent;
use crate::results::ResultRow;
use crate::tuning::{SearchSpace, Settings};

/// A kernel of one shape whose settings may differ.
pub trait Tunable {
    /// The suite of its rows.
    fn suite(&self) -> &str;

    /// The shape of its rows.
    fn shape(&self) -> Vec<(&'static str, u64)>;

    /// The configurations to search.
    fn space(&self) -> SearchSpace;

    /// A figure that rises with the time; infinite for a configuration that cannot run.
    fn predict(&self, settings: &Settings) -> f64 {
        let _ = settings;
        0.0
    }

    /// An error that is accurate enough, whatever the error of the shipped configuration.
    fn as_right(&self) -> f64 {
        0.0
    }

    /// Measures these settings. Fails if they cannot run or give wrong results.
    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure>;
}

/// Makes a kernel's operands when the kernel is to run.
pub type Prepare<'b> = Box<dyn FnOnce() -> Result<Box<dyn Tunable + 'b>, Failure> + 'b>;

/// Extents of a shape, such as `m=4096,n=4096,k=4096`.
#[derive(Clone, Debug)]
pub struct ShapeExtents(Vec<(String, u64)>);

impl ShapeExtents {
    pub fn parse(text: &str) -> Result<ShapeExtents, BenchError> {
        text.split(',').map(parse_extent).collect::<Result<_, _>>().map(ShapeExtents)
    }

    /// The extents of these names, each from 1 to 2³¹ − 1; `operands` gives the elements of the
    /// kernel's operands.
    pub fn of<const N: usize, const M: usize>(
        &self,
        names: [&str; N],
        operands: impl Fn([u128; N]) -> [u128; M],
    ) -> Result<[u32; N], BenchError> {
        let extents = self.named(names)?;
        match operands(extents.map(u128::from)).into_iter().find(|&elements| elements > MOST_ELEMENTS) {
            Some(elements) => Err(BenchError::Elements { shape: self.line(), elements }),
            None => Ok(extents),
        }
    }

    pub(super) fn line(&self) -> String {
        self.0.iter().map(|(name, extent)| format!("{name}={extent}")).collect::<Vec<_>>().join(",")
    }

    pub(super) fn named<const N: usize>(&self, names: [&str; N]) -> Result<[u32; N], BenchError> {
        let wrong = || BenchError::Shape { found: self.line(), wanted: names.join(", ") };
        let mut all = [0; N];
        for (to, name) in all.iter_mut().zip(names) {
            let mut same = self.0.iter().filter(|(known, _)| known == name);
            let (Some(&(_, extent)), None) = (same.next(), same.next()) else { return Err(wrong()) };
            *to = u32::try_from(extent).ok().filter(|extent| (1..1 << 31).contains(extent)).ok_or_else(wrong)?;
        }
        if self.0.len() == N { Ok(all) } else { Err(wrong()) }
    }
}
