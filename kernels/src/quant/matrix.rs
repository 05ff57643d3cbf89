//! The canonical form of a quantised matrix, and what must hold of it.

use half::{bf16, f16};
use thiserror::Error;

use super::Code;
use crate::tile::Float;

/// The zero points of a matrix: the numbers of codes that mean 0, in -128 to 255.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// A single zero point for the whole matrix.
    Same(i16),
    /// A zero point for each group, `[n, groups]`.
    Each(Vec<i16>),
}

/// The parts of a [`QuantMatrix`]; see the module for their meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantParts {
    /// Output features.
    pub n: usize,
    /// Input features.
    pub k: usize,
    /// The encoding of the codes.
    pub code: Code,
    /// Codes of a group, along K; the last group of a row may be smaller.
    pub group: usize,
    /// Packed codes, `[n, ceil(k · bits / 8)]` bytes.
    pub codes: Vec<u8>,
    /// Scales, `[n, groups]`.
    pub scales: Vec<f32>,
    /// Zero points.
    pub zeros: Zeros,
    /// The column of every place, `[k]`; `None`: places are columns.
    pub order: Option<Vec<u32>>,
}

/// A quantised matrix `[n, k]` that is sound: extents agree, scales are finite and not negative, no
/// code is NaN.
///
/// ```
/// use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
/// let parts = QuantParts {
///     n: 1, k: 3, code: Code::U4, group: 2, codes: vec![0x21, 0x0f], scales: vec![0.5, 2.0],
///     zeros: Zeros::Same(8), order: None,
/// };
/// let matrix = QuantMatrix::new(parts)?;
/// assert_eq!(tilewright_kernels::naive::dequantize::<f32>(&matrix), [-3.5, -3.0, 14.0]);
/// # Ok::<(), tilewright_kernels::quant::QuantError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct QuantMatrix {
    parts: QuantParts,
    tensor_scale: Option<f32>,
}

/// Why parts are not a matrix.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum QuantError {
    #[error("matrix is {n} x {k} in groups of {group}; each must be 1 at least, and K at most {}", u32::MAX)]
    Extents { n: usize, k: usize, group: usize },
    #[error("codes have {found} bytes; {n} rows of {k} {code} codes need {expected}")]
    Codes { n: usize, k: usize, code: Code, expected: usize, found: usize },
    #[error("there are {found} weights; {n} rows of {k} need {expected}")]
    Weights { n: usize, k: usize, expected: usize, found: usize },
    #[error("weight at row {row}, column {column} is {value}; only finite numbers are quantised")]
    Weight { row: usize, column: usize, value: f32 },
    #[error("code at row {row}, place {place} is {bits:#04x}, which is NaN; weights are numbers")]
    NotANumber { row: usize, place: usize, bits: u8 },
    #[error("there are {found} scales; {n} rows of {groups} groups need {expected}")]
    Scales { n: usize, groups: usize, expected: usize, found: usize },
    #[error("scale of row {row}, group {group} is {value}; it must be finite and not negative")]
    Scale { row: usize, group: usize, value: f32 },
    #[error("there are {found} zero points; {n} rows of {groups} groups need {expected}")]
    Zeros { n: usize, groups: usize, expected: usize, found: usize },
    #[error("zero point {value} is not one of {code}, which go from {low} to {high}")]
    Zero { value: i16, code: Code, low: i16, high: i16 },
    #[error("order has {found} entries; K is {expected}")]
    Order { expected: usize, found: usize },
    #[error(
        "order has column {column} at place {place}, out of range or a second time; it must be a permutation of {k}"
    )]
    Permutation { place: usize, column: u32, k: usize },
}

impl QuantMatrix {
    /// Joins the parts. The unused half of a row's last byte is cleared.
    ///
    /// # Errors
    /// The first [`QuantError`] found.
    pub fn new(mut parts: QuantParts) -> Result<QuantMatrix, QuantError> {
        let n = parts.n;
        let k = parts.k;
        let group = parts.group;
        if n == 0 || k == 0 || group == 0 || u32::try_from(k).is_err() {
            return Err(QuantError::Extents { n, k, group });
        }
        parts.group = group.min(k);
        check_codes(&mut parts)?;
        check_scales(&parts)?;
        check_zeros(&parts)?;
        check_order(&parts)?;
        Ok(QuantMatrix { parts, tensor_scale: None })
    }

    /// The [`blocks`](QuantMatrix::blocks) with scales that are each an `e4m3` number times
    /// `scale`, in f32, as in NVFP4. Other matrices are left unchanged. The check is made once,
    /// here, since packing asks for every block.
    ///
    /// ```
    /// use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
    /// let parts = |scales| QuantParts {
    ///     n: 1, k: 32, code: Code::E2m1, group: 16, codes: vec![0x21; 16], scales, zeros: Zeros::Same(0), order: None,
    /// };
    /// let matrix = |scales| QuantMatrix::new(parts(scales)).map(|matrix| matrix.with_tensor_scale(0.25));
    /// assert_eq!(matrix(vec![0.25, 112.0])?.blocks(), Some(0.25));
    /// assert_eq!(matrix(vec![0.25, 112.5])?.blocks(), None);
    /// # Ok::<(), tilewright_kernels::quant::QuantError>(())
    /// ```
    #[must_use]
    pub fn with_tensor_scale(self, scale: f32) -> QuantMatrix {
        // Either rounded once: two roundings apart at most.
        let near = |x: f32| {
            let whole = block_scale(x, scale) * scale;
            (whole - x).abs() <= x * (2.0 * f32::EPSILON)
        };
        let QuantParts { code, group, order, scales, .. } = &self.parts;
        let blocks = code.takes_block_scales() && *group == BLOCK && self.groups() > 1;
        let blocks = blocks && order.is_none() && !self.has_zeros() && scale > 0.0 && scale.is_finite();
        let tensor_scale = (blocks && scales.iter().all(|&x| near(x))).then_some(scale);
        QuantMatrix { tensor_scale, ..self }
    }

    /// The tensor's scale of blocks of sixteen `e2m1` in the order of columns, whose own are
    /// numbers of `e4m3`: then a number times its block's scale is one of f16. `None` where codes
    /// are others, or the scales.
    pub fn blocks(&self) -> Option<f32> {
        self.tensor_scale
    }

    /// The `e4m3` of a row's block.
    ///
    /// # Panics
    /// If there is no such row or block, or there are no [`blocks`](QuantMatrix::blocks).
    pub fn block(&self, row: usize, block: usize) -> u8 {
        let scale = self.blocks().unwrap_or_else(|| panic!("scales are not those of blocks"));
        Code::E4m3.nearest(self.scales(row)[block] / scale)
    }

    /// The parts of the matrix.
    pub fn parts(&self) -> &QuantParts {
        &self.parts
    }

    /// Output features.
    pub fn n(&self) -> usize {
        self.parts.n
    }

    /// Input features.
    pub fn k(&self) -> usize {
        self.parts.k
    }

    /// The number format of its codes.
    pub fn code(&self) -> Code {
        self.parts.code
    }

    /// Codes of a group.
    pub fn group(&self) -> usize {
        self.parts.group
    }

    /// Groups of a row.
    pub fn groups(&self) -> usize {
        self.parts.k.div_ceil(self.parts.group)
    }

    /// The packed codes of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        let bytes = row_bytes(&self.parts);
        &self.parts.codes[row * bytes..][..bytes]
    }

    /// The bits of one code.
    ///
    /// # Panics
    /// If there is no such row or place.
    pub fn bits(&self, row: usize, place: usize) -> u8 {
        assert!(place < self.parts.k, "place {place} of {}", self.parts.k);
        match self.parts.code.bits() {
            4 => self.row(row)[place / 2] >> (4 * (place % 2)) & 15,
            _ => self.row(row)[place],
        }
    }

    /// The scales of a row's groups.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn scales(&self, row: usize) -> &[f32] {
        &self.parts.scales[row * self.groups()..][..self.groups()]
    }

    /// The zero point of a row's group.
    ///
    /// # Panics
    /// If there is no such row or group.
    pub fn zero(&self, row: usize, group: usize) -> i16 {
        assert!(group < self.groups(), "group {group} of {}", self.groups());
        match &self.parts.zeros {
            Zeros::Same(zero) => *zero,
            Zeros::Each(zeros) => zeros[row * self.groups() + group],
        }
    }

    /// Whether some zero point is not the one of symmetric schemes ([`Code::middle`]).
    pub fn has_zeros(&self) -> bool {
        let middle = self.parts.code.middle();
        match &self.parts.zeros {
            Zeros::Same(zero) => *zero != middle,
            Zeros::Each(zeros) => zeros.iter().any(|&zero| zero != middle),
        }
    }

    /// The narrowest type that holds every scale exactly: bf16, f16 or f32.
    ///
    /// ```
    /// use tilewright_kernels::{quant::{Code, Rounding, nearest}, tile::Float};
    /// let rounding = Rounding { code: Code::I8, zero: 0, group: 2, store: |_| 1.0 + 1.0 / 1024.0 };
    /// assert_eq!(nearest(&[1.0, 2.0], 1, 2, &rounding)?.scale_float(), Float::F16);
    /// # Ok::<(), tilewright_kernels::quant::QuantError>(())
    /// ```
    pub fn scale_float(&self) -> Float {
        let exact = |round: fn(f32) -> f32| self.parts.scales.iter().all(|&scale| round(scale) == scale);
        if exact(|scale| bf16::from_f32(scale).to_f32()) {
            Float::Bf16
        } else if exact(|scale| f16::from_f32(scale).to_f32()) {
            Float::F16
        } else {
            Float::F32
        }
    }

    /// The column of every place, where places are not columns.
    pub fn order(&self) -> Option<&[u32]> {
        self.parts.order.as_deref()
    }

    /// Bytes that it takes: codes, scales, zeros, order.
    pub fn bytes(&self) -> usize {
        let zeros = match &self.parts.zeros {
            Zeros::Same(_) => 0,
            Zeros::Each(zeros) => 2 * zeros.len(),
        };
        self.parts.codes.len() + 4 * self.parts.scales.len() + zeros + 4 * self.parts.order.as_ref().map_or(0, Vec::len)
    }
}

/// Codes of a block that has a scale of `e4m3`.
const BLOCK: usize = 16;

/// The `e4m3` that a scale is of a tensor's.
fn block_scale(scale: f32, of_tensor: f32) -> f32 {
    Code::E4m3.value(Code::E4m3.nearest(scale / of_tensor))
}

fn row_bytes(parts: &QuantParts) -> usize {
    parts.k.div_ceil(8 / parts.code.bits())
}

fn check_codes(parts: &mut QuantParts) -> Result<(), QuantError> {
    let n = parts.n;
    let k = parts.k;
    let code = parts.code;
    let found = parts.codes.len();
    let bytes = row_bytes(parts);
    let expected = n.saturating_mul(bytes);
    if found != expected {
        return Err(QuantError::Codes { n, k, code, expected, found });
    }
    if code.bits() == 4 && k % 2 == 1 {
        parts.codes.iter_mut().skip(bytes - 1).step_by(bytes).for_each(|last| *last &= 15);
    }
    let nan = |&bits: &u8| code == Code::E4m3 && bits & 0x7f == 0x7f;
    match parts.codes.iter().position(nan) {
        Some(at) => Err(QuantError::NotANumber { row: at / bytes, place: at % bytes, bits: parts.codes[at] }),
        None => Ok(()),
    }
}

fn check_scales(parts: &QuantParts) -> Result<(), QuantError> {
    let n = parts.n;
    let groups = parts.k.div_ceil(parts.group);
    let found = parts.scales.len();
    let expected = n.saturating_mul(groups);
    if found != expected {
        return Err(QuantError::Scales { n, groups, expected, found });
    }
    match parts.scales.iter().position(|scale| !(scale.is_finite() && *scale >= 0.0)) {
        Some(at) => Err(QuantError::Scale { row: at / groups, group: at % groups, value: parts.scales[at] }),
        None => Ok(()),
    }
}

fn check_zeros(parts: &QuantParts) -> Result<(), QuantError> {
    let n = parts.n;
    let groups = parts.k.div_ceil(parts.group);
    let code = parts.code;
    let zeros = match &parts.zeros {
        Zeros::Same(zero) => std::slice::from_ref(zero),
        Zeros::Each(zeros) => {
            let expected = n.saturating_mul(groups);
            let found = zeros.len();
            if found != expected {
                return Err(QuantError::Zeros { n, groups, expected, found });
            }
            zeros
        }
    };
    let (low, high) = if code.is_integer() { code.range() } else { (0.0, 0.0) };
    let low = low as i16;
    let high = high as i16;
    match zeros.iter().find(|zero| !(low..=high).contains(*zero)) {
        Some(&value) => Err(QuantError::Zero { value, code, low, high }),
        None => Ok(()),
    }
}

fn check_order(parts: &QuantParts) -> Result<(), QuantError> {
    let Some(order) = &parts.order else { return Ok(()) };
    let k = parts.k;
    let found = order.len();
    if found != k {
        return Err(QuantError::Order { expected: k, found });
    }
    let mut seen = vec![false; k];
    for (place, &column) in order.iter().enumerate() {
        match seen.get_mut(column as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(QuantError::Permutation { place, column, k }),
        }
    }
    Ok(())
}
