//! The tensors of one quantised module: held against the scheme's row, then unpacked into the
//! canonical form.
//!
//! [`prepare`] looks at types and shapes alone, so that every fault of a file is found at once;
//! [`Job::run`] reads the contents.

use std::borrow::Cow;
use std::path::Path;

use bytemuck::{Pod, pod_read_unaligned};
use half::{bf16, f16};
use tilewright_kernels::quant::{Code, QuantError, QuantMatrix, QuantParts, Zeros};
use tilewright_layout::DType;

use super::fault::PartFault;
use super::scheme::{CodeOrder, Global, Packing, ScaleType, WeightAxis};
use crate::checkpoint::StoredModule;
use crate::checkpoint::header::TensorEntry;
use crate::checkpoint::quant::stored::{Presence, Scales};

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(in crate::checkpoint) struct TensorPart<'a> {
    pub file: &'a Path,
    pub entry: &'a TensorEntry,
    /// The bytes of the file.
    pub mapping: &'a [u8],
}

impl<'a> TensorPart<'a> {
    fn name(&self) -> String {
        self.entry.name.clone()
    }

    fn bytes(&self) -> Cow<'a, [u8]> {
        self.entry.bytes(self.mapping)
    }
}

/// A module whose tensors have the right types and shapes.
pub(in crate::checkpoint) struct Job<'a> {
    pub module: String,
    n: usize,
    k: usize,
    stored: StoredModule,
    codes: TensorPart<'a>,
    scales: TensorPart<'a>,
    global: Option<TensorPart<'a>>,
    zeros: Option<TensorPart<'a>>,
    order: Option<TensorPart<'a>>,
    shape: Option<TensorPart<'a>>,
}

/// A module in the canonical form.
#[derive(Debug)]
pub(in crate::checkpoint) struct Unpacked {
    pub matrix: QuantMatrix,
    /// Whether zero points wrapped round from all ones to 0.
    pub wrapped: bool,
}

/// The requirements on a part.
struct Wanted {
    presence: Presence,
    /// The shapes that it may have, the usual one first.
    shapes: Vec<Vec<usize>>,
    dtypes: &'static [DType],
    text: &'static str,
}

/// Rows and columns of the weight that one scale covers.
fn cover(scales: Scales, n: usize, k: usize) -> [usize; 2] {
    match scales {
        Scales::Tensor => [n, k],
        Scales::Channel => [1, k],
        Scales::Group(group) => [1, group.min(k)],
        Scales::Block(rows, columns) => [rows.min(n), columns.min(k)],
    }
}

/// The size of groups or blocks that other sizes could be mistaken for, with the extent that it
/// cuts.
///
/// A size that divides the extent is the only one with its number of scales. Of the others only
/// powers of two are written by tools.
fn ambiguous(scales: Scales, [n, k]: [usize; 2]) -> Option<(usize, usize)> {
    let cuts = match scales {
        Scales::Tensor | Scales::Channel => return None,
        Scales::Group(group) => [(1, n), (group, k)],
        Scales::Block(rows, columns) => [(rows, n), (columns, k)],
    };
    let is_odd =
        |&(size, extent): &(usize, usize)| size < extent && !extent.is_multiple_of(size) && !size.is_power_of_two();
    cuts.into_iter().find(is_odd)
}

/// Takes the tensors of a module `[n, k]`, where types and shapes are right; what is wrong goes to
/// `faults`.
pub(in crate::checkpoint) fn prepare<'a>(
    module: &str,
    [n, k]: [usize; 2],
    stored: StoredModule,
    take: &mut dyn FnMut(&str) -> Option<TensorPart<'a>>,
    faults: &mut Vec<PartFault>,
) -> Option<Job<'a>> {
    let (scheme, [rows, columns]) = (stored.scheme, cover(stored.scales, n, k));
    let before = faults.len();
    if !(scheme.ragged || n.is_multiple_of(8) && k.is_multiple_of(columns)) {
        let module = module.to_owned();
        faults.push(PartFault::Ragged { module, scheme: scheme.name, n, k, group: columns });
    }
    if let Some((size, extent)) = ambiguous(stored.scales, [n, k]) {
        faults.push(PartFault::OddSize { module: module.to_owned(), size, extent });
    }
    let grid = [n.div_ceil(rows), k.div_ceil(columns)];
    let bits = scheme.code.bits();
    let mut get = |suffix: &str, wanted: Wanted| {
        let name = format!("{module}.{suffix}");
        if wanted.presence == Presence::Absent {
            return None;
        }
        check(take(&name), name, scheme.name, wanted, faults)
    };
    let required = |shapes, dtypes, text| Wanted { presence: Presence::Required, shapes, dtypes, text };
    let (suffix, packing) = scheme.codes;
    let codes = get(suffix, required(vec![packing.shape(bits, n, k).to_vec()], words(packing), text_of(packing.word)));
    let (dtypes, text) = scale_types(scheme.scale_type);
    let usual = if scheme.scale_outer == WeightAxis::N { grid } else { [grid[1], grid[0]] };
    let scales = get(scheme.scale, required(shapes_of(usual, grid), dtypes, text));
    let one = || vec![vec![1], vec![], vec![1, 1]];
    let global = scheme.global.and_then(|(Global::Divide(suffix) | Global::Multiply(suffix))| {
        get(suffix, required(one(), &[DType::F32], "f32"))
    });
    let zeros = scheme.zero.tensor.and_then(|(suffix, packing)| {
        let shapes = shapes_of(packing.shape(bits, grid[0], grid[1]), grid);
        let presence = stored.zeros;
        let dtypes = words(packing);
        let text = text_of(packing.word);
        get(suffix, Wanted { presence, shapes, dtypes, text })
    });
    let order = scheme.order.and_then(|suffix| {
        let presence = stored.order;
        let shapes = vec![vec![k]];
        get(suffix, Wanted { presence, shapes, dtypes: &[DType::I32], text: "i32" })
    });
    let shape = scheme.shape.and_then(|suffix| get(suffix, required(vec![vec![2]], &[DType::I64], "i64")));
    for suffix in scheme.unused {
        take(&format!("{module}.{suffix}"));
    }
    let codes = codes?;
    let scales = scales?;
    let module = module.to_owned();
    (faults.len() == before).then_some(Job { module, n, k, stored, codes, scales, global, zeros, order, shape })
}

/// A part as it is wanted; `None` and a fault where it is not, `None` alone where it may be left
/// out and is.
fn check<'a>(
    found: Option<TensorPart<'a>>,
    tensor: String,
    scheme: &'static str,
    wanted: Wanted,
    faults: &mut Vec<PartFault>,
) -> Option<TensorPart<'a>> {
    let usual = wanted.shapes.first().cloned().unwrap_or_default();
    let Some(part) = found else {
        if wanted.presence == Presence::Required {
            faults.push(PartFault::Missing { tensor, scheme, expected: usual });
        }
        return None;
    };
    let file = part.file.to_owned();
    if !wanted.dtypes.contains(&part.entry.dtype) {
        let expected = wanted.text;
        let found = part.entry.dtype;
        faults.push(PartFault::Dtype { tensor, file, scheme, expected, found });
        return None;
    }
    if !wanted.shapes.contains(&part.entry.shape) {
        let found = part.entry.shape.clone();
        faults.push(PartFault::Shape { tensor, file, scheme, expected: usual, found });
        return None;
    }
    Some(part)
}

/// The shapes of a tensor of one element for each cell of a grid: a single cell may be a scalar, a
/// single column a vector.
fn shapes_of(usual: [usize; 2], grid: [usize; 2]) -> Vec<Vec<usize>> {
    let mut shapes = vec![usual.to_vec()];
    if grid == [1, 1] {
        shapes.extend([vec![1], vec![]]);
    } else if grid[1] == 1 {
        shapes.push(vec![usual[0].max(usual[1])]);
    }
    shapes
}

fn words(packing: Packing) -> &'static [DType] {
    match packing.word {
        DType::I32 => &[DType::I32],
        DType::U8 => &[DType::U8],
        DType::I8 => &[DType::I8],
        _ => &[DType::F8E4M3],
    }
}

fn text_of(word: DType) -> &'static str {
    word.name()
}

fn scale_types(scale: ScaleType) -> (&'static [DType], &'static str) {
    match scale {
        ScaleType::Float => (&[DType::F32, DType::F16, DType::BF16], "f32, f16 or bf16"),
        ScaleType::E8m0 => (&[DType::U8], "u8 (exponents)"),
        ScaleType::E4m3 => (&[DType::F8E4M3], "f8e4m3"),
    }
}

impl Job<'_> {
    /// Reads the contents.
    pub fn run(&self) -> Result<Unpacked, PartFault> {
        let n = self.n;
        let k = self.k;
        self.check_shape()?;
        let [rows, columns] = cover(self.stored.scales, n, k);
        let order = self.read_order(columns)?;
        let scales = self.read_scales([rows, columns])?;
        let (zeros, wrapped) = self.read_zeros([rows, columns])?;
        let codes = self.read_codes(order.as_deref());
        let code = self.stored.scheme.code;
        let parts = QuantParts { n, k, code, group: columns, codes, scales, zeros, order };
        let matrix = QuantMatrix::new(parts).map_err(|source| self.fault_of(source))?;
        let matrix = match self.of_tensor()? {
            Some(scale) if self.stored.scheme.scale_type == ScaleType::E4m3 => matrix.with_tensor_scale(scale as f32),
            Some(_) | None => matrix,
        };
        Ok(Unpacked { matrix, wrapped })
    }

    /// The fault of the tensor that an error is about.
    fn fault_of(&self, source: QuantError) -> PartFault {
        let part = match source {
            QuantError::Scales { .. } | QuantError::Scale { .. } => &self.scales,
            QuantError::Zeros { .. } | QuantError::Zero { .. } => self.zeros.as_ref().unwrap_or(&self.codes),
            QuantError::Order { .. } | QuantError::Permutation { .. } => self.order.as_ref().unwrap_or(&self.codes),
            QuantError::Extents { .. }
            | QuantError::Codes { .. }
            | QuantError::NotANumber { .. }
            | QuantError::Weights { .. }
            | QuantError::Weight { .. } => &self.codes,
        };
        PartFault::Values { tensor: part.name(), file: part.file.to_owned(), source }
    }

    fn check_shape(&self) -> Result<(), PartFault> {
        let Some(part) = &self.shape else { return Ok(()) };
        let expected = [self.n, self.k];
        let found = elements::<i64>(&part.bytes());
        if found.iter().map(|&extent| usize::try_from(extent).ok()).eq(expected.map(Some)) {
            return Ok(());
        }
        Err(PartFault::WeightShape { tensor: part.name(), file: part.file.to_owned(), expected, found })
    }

    /// The column of every place: columns by their groups. `None` where that is their order
    /// already.
    fn read_order(&self, size: usize) -> Result<Option<Vec<u32>>, PartFault> {
        let Some(part) = &self.order else { return Ok(None) };
        let k = self.k;
        let groups = self.k.div_ceil(size);
        let of: Vec<i32> = elements(&part.bytes());
        // An index that was never filled has no information.
        if of.iter().all(|&group| group == -1) {
            return Ok(None);
        }
        let place = || (part.name(), part.file.to_owned());
        let mut columns = vec![Vec::new(); groups];
        for (column, &found) in of.iter().enumerate() {
            match usize::try_from(found).ok().and_then(|group| columns.get_mut(group)) {
                Some(columns) => columns.push(column as u32),
                None => {
                    let (tensor, file) = place();
                    return Err(PartFault::GroupIndex { tensor, file, column, found, groups });
                }
            }
        }
        for (group, columns) in columns.iter().enumerate() {
            let found = columns.len();
            let expected = size.min(k - group * size);
            if found != expected {
                let (tensor, file) = place();
                return Err(PartFault::GroupSize { tensor, file, group, found, expected });
            }
        }
        let order = columns.concat();
        Ok((!order.iter().enumerate().all(|(place, &column)| place == column as usize)).then_some(order))
    }

    /// A scale for every row and group, `[n, groups]`.
    fn read_scales(&self, [rows, columns]: [usize; 2]) -> Result<Vec<f32>, PartFault> {
        let part = &self.scales;
        let stored: Vec<f32> = match self.stored.scheme.scale_type {
            ScaleType::Float => floats(part),
            ScaleType::E8m0 => part.bytes().iter().map(|&exponent| e8m0(exponent)).collect(),
            ScaleType::E4m3 => part.bytes().iter().map(|&bits| Code::E4m3.value(bits)).collect(),
        };
        if let Some(&value) = stored.iter().find(|scale| !(scale.is_finite() && **scale >= 0.0)) {
            return Err(PartFault::Scale { tensor: part.name(), file: part.file.to_owned(), value });
        }
        let stored = self.with_global(stored)?;
        let wide = self.n.div_ceil(rows);
        let groups = self.k.div_ceil(columns);
        let at = |row: usize, group: usize| match self.stored.scheme.scale_outer {
            WeightAxis::N => row / rows * groups + group,
            WeightAxis::K => group * wide + row / rows,
        };
        let all = (0..self.n).flat_map(|row| (0..groups).map(move |group| (row, group)));
        Ok(all.map(|(row, group)| stored[at(row, group)]).collect())
    }

    /// Joins the second scale, rounding once.
    fn with_global(&self, scales: Vec<f32>) -> Result<Vec<f32>, PartFault> {
        let (Some(value), Some(global)) = (self.global()?, self.stored.scheme.global) else { return Ok(scales) };
        let of = |scale: f32| match global {
            Global::Divide(_) => (f64::from(scale) / value) as f32,
            Global::Multiply(_) => (f64::from(scale) * value) as f32,
        };
        Ok(scales.into_iter().map(of).collect())
    }

    /// The factor of all scales, if the scheme has a second scale.
    fn of_tensor(&self) -> Result<Option<f64>, PartFault> {
        let global = self.global()?.zip(self.stored.scheme.global);
        Ok(global.map(|(value, global)| match global {
            Global::Divide(_) => 1.0 / value,
            Global::Multiply(_) => value,
        }))
    }

    /// The second scale as it is stored.
    fn global(&self) -> Result<Option<f64>, PartFault> {
        let Some(part) = &self.global else { return Ok(None) };
        let value = floats(part).first().copied().unwrap_or(f32::NAN);
        if !(value.is_finite() && value > 0.0) {
            return Err(PartFault::Global { tensor: part.name(), file: part.file.to_owned(), value });
        }
        Ok(Some(value.into()))
    }

    /// The zero points, and whether one wrapped round to 0.
    fn read_zeros(&self, [rows, columns]: [usize; 2]) -> Result<(Zeros, bool), PartFault> {
        let zero = self.stored.scheme.zero;
        let (Some(part), Some((_, packing))) = (&self.zeros, zero.tensor) else {
            return Ok((Zeros::Same(zero.same), false));
        };
        let code = self.stored.scheme.code;
        let wide = self.n.div_ceil(rows);
        let groups = self.k.div_ceil(columns);
        let mask = (code.count() - 1) as u8;
        let mut stored = vec![0i16; wide * groups];
        let mut wrapped = false;
        packing.unpack(code.bits(), wide, groups, &part.bytes(), |row, group, field| {
            wrapped |= zero.offset > 0 && field == mask;
            stored[row * groups + group] = code.value(field.wrapping_add(zero.offset) & mask) as i16;
        });
        let tensor = part.name();
        let file = part.file.to_owned();
        if let Some(&found) = stored.iter().find(|found| self.stored.symmetric && **found != zero.same) {
            return Err(PartFault::Asymmetric { tensor, file, expected: zero.same, found });
        }
        if self.stored.symmetric {
            return Ok((Zeros::Same(zero.same), wrapped));
        }
        let all = (0..self.n).flat_map(|row| (0..groups).map(move |group| (row / rows, group)));
        Ok((Zeros::Each(all.map(|(row, group)| stored[row * groups + group]).collect()), wrapped))
    }

    /// The codes in the order of places, `[n, bytes of a row]`.
    fn read_codes(&self, order: Option<&[u32]>) -> Vec<u8> {
        let (_, packing) = self.stored.scheme.codes;
        let n = self.n;
        let k = self.k;
        let bits = self.stored.scheme.code.bits();
        let row_bytes = k.div_ceil(8 / bits);
        let in_rows =
            packing.along == WeightAxis::K && packing.outer == WeightAxis::N && packing.order == CodeOrder::Plain;
        if in_rows && order.is_none() {
            let stored = packing.shape(bits, n, k)[1] * packing.word.bytes();
            return self.codes.bytes().chunks_exact(stored).flat_map(|row| &row[..row_bytes]).copied().collect();
        }
        let mut places: Vec<usize> = (0..k).collect();
        for (place, &column) in order.into_iter().flatten().enumerate() {
            places[column as usize] = place;
        }
        let mut codes = vec![0; n * row_bytes];
        packing.unpack(bits, n, k, &self.codes.bytes(), |row, column, code| {
            let place = places[column];
            codes[row * row_bytes + place * bits / 8] |= code << (place * bits % 8);
        });
        codes
    }
}

/// The elements of a tensor, wherever it begins.
fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(pod_read_unaligned).collect()
}

/// The elements of a tensor of floating-point numbers, exact in f32.
fn floats(part: &TensorPart) -> Vec<f32> {
    match part.entry.dtype {
        DType::F16 => elements::<f16>(&part.bytes()).into_iter().map(f16::to_f32).collect(),
        DType::BF16 => elements::<bf16>(&part.bytes()).into_iter().map(bf16::to_f32).collect(),
        _ => elements(&part.bytes()),
    }
}

/// 2^(e − 127), exact; NaN for 255.
fn e8m0(exponent: u8) -> f32 {
    if exponent == 255 { f32::NAN } else { f64::from(i32::from(exponent) - 127).exp2() as f32 }
}
