//! Weights in the order, and the form, that products of a few rows read.

use half::{bf16, f16};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::gemm::PlannedLaunch;
use tilewright_kernels::gemv::{Epilogue, GemvEpilogue, GemvPlan, GemvTuning, gemv, hopper};
use tilewright_kernels::quant::{Code, QuantMatrix, Rounding, nearest};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{CodePacker, Codes, Strip, pack};

use super::OpError;

/// How the weight of a [`Linear`](super::Linear) is stored. Codes are the nearest ones, with the
/// scale of least squared error for each group. What they stand for is rounded to bf16 where it is
/// multiplied; such products need compute capability 9.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightForm {
    /// As it is.
    #[default]
    Bf16,
    /// Integers of 4 bits, from -8 to 7 times a bf16 scale for each 128 columns.
    W4A16,
    /// Integers of 8 bits, from -128 to 127 times a bf16 scale for each row.
    W8A16,
    /// e4m3, times an f32 scale for each row.
    Fp8,
    /// e2m1, times a power of two for each 32 columns.
    Mxfp4,
    /// Integers of 4 bits, from 0 to 15, less a zero point, times an f16 scale, both for each 128
    /// columns: what [`pack_codes`] makes of AWQ's.
    Awq,
}

/// Columns that share a scale of [`WeightForm::W4A16`] and [`WeightForm::Awq`].
const GROUP: u32 = 128;
/// Columns that share a scale of [`WeightForm::Mxfp4`].
const MX_GROUP: u32 = 32;
/// Warps and bytes of a stage of packed codes.
const CODES: (u32, u32) = (8, 16384);

impl WeightForm {
    /// Every form.
    pub const ALL: [WeightForm; 6] =
        [WeightForm::Bf16, WeightForm::W4A16, WeightForm::W8A16, WeightForm::Fp8, WeightForm::Mxfp4, WeightForm::Awq];

    /// Its name.
    ///
    /// ```
    /// use tilewright::ops::WeightForm;
    /// assert_eq!(WeightForm::ALL.map(WeightForm::name), ["bf16", "w4a16", "w8a16", "fp8", "mxfp4", "awq"]);
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            WeightForm::Bf16 => "bf16",
            WeightForm::W4A16 => "w4a16",
            WeightForm::W8A16 => "w8a16",
            WeightForm::Fp8 => "fp8",
            WeightForm::Mxfp4 => "mxfp4",
            WeightForm::Awq => "awq",
        }
    }

    fn codes(self) -> Option<Codes> {
        let form =
            |code, group, scale| Some(Codes { code, group, zeros: self == WeightForm::Awq, scale, blocks: false });
        match self {
            WeightForm::Bf16 => None,
            WeightForm::W4A16 => form(Code::U4, Some(GROUP), Float::Bf16),
            WeightForm::W8A16 => form(Code::U8, None, Float::Bf16),
            WeightForm::Fp8 => form(Code::E4m3, None, Float::F32),
            WeightForm::Mxfp4 => form(Code::E2m1, Some(MX_GROUP), Float::Bf16),
            WeightForm::Awq => form(Code::U4, Some(GROUP), Float::F16),
        }
    }

    /// Columns that a weight has a multiple of.
    pub(super) const fn multiple(self) -> u32 {
        if matches!(self, WeightForm::W4A16 | WeightForm::Awq) { GROUP } else { 64 }
    }

    /// The packing of rows of `k` columns.
    pub(super) fn strip(self, k: u32) -> Result<Strip, OpError> {
        match self.codes() {
            Some(codes) => Ok(Strip::of_codes(k, CODES.0, CODES.1, codes)?),
            None => Ok(rows_plan(1, k, 1)?.strip),
        }
    }
}

/// The nearest codes of a weight `[N, K]`, of a form that has codes.
///
/// # Errors
/// [`OpError::Codes`] for numbers that are not finite.
fn quantised(weight: &[bf16], k: usize, form: WeightForm, codes: Codes) -> Result<QuantMatrix, OpError> {
    // Both powers of two around a scale are tried, since all numbers from it to its half are.
    let store = if form == WeightForm::Mxfp4 { next_power_of_two } else { stored_as(codes.scale) };
    let group = codes.group.map_or(k, |group| group as usize);
    let rounding = Rounding { code: codes.code, zero: codes.code.middle(), group, store };
    let weight: Vec<f32> = weight.iter().map(|x| x.to_f32()).collect();
    Ok(nearest(&weight, weight.len() / k, k, &rounding)?)
}

/// Rounds a scale to the type in which it is stored.
fn stored_as(float: Float) -> fn(f32) -> f32 {
    match float {
        Float::Bf16 => |scale| bf16::from_f32(scale).to_f32(),
        Float::F16 => |scale| f16::from_f32(scale).to_f32(),
        Float::F32 => |scale| scale,
    }
}

/// The least power of two that is a number or more; infinity has none.
fn next_power_of_two(number: f32) -> f32 {
    f32::from_bits((number.to_bits() + 0x007f_ffff) & 0x7f80_0000)
}

/// The packed order of a weight `[N, K]` of bf16, for every number of rows: whole strips of 8 rows.
///
/// ```
/// use half::bf16;
/// use tilewright::ops::{WeightForm, pack_linear};
/// let packed = pack_linear(&vec![bf16::ONE; 12 * 64], 64, WeightForm::Bf16)?;
/// assert_eq!(packed.len(), 2 * 16 * 64);
/// # Ok::<(), tilewright::ops::OpError>(())
/// ```
///
/// # Errors
/// [`OpError`] for a K of which no tiles are made, and numbers that have no codes.
pub fn pack_linear(weight: &[bf16], k: usize, form: WeightForm) -> Result<Vec<u8>, OpError> {
    let columns = u32::try_from(k).unwrap_or(0);
    if columns == 0 || !columns.is_multiple_of(form.multiple()) || !weight.len().is_multiple_of(k) {
        let found = format!("{} elements in rows of {k}", weight.len());
        let expected = "rows have a multiple of 64 elements, of w4a16 and awq of 128";
        return Err(OpError::Number { op: "pack", name: "the weight", found, expected });
    }
    let strip = form.strip(columns)?;
    let (Some(codes), Some(packer)) = (form.codes(), CodePacker::new(strip)) else {
        return Ok(pack(weight, strip).into_iter().flat_map(bf16::to_le_bytes).collect());
    };
    Ok(pack_rows(&quantised(weight, k, form, codes)?, strip, &packer))
}

/// The packed order of the codes of a checkpoint, as they are: no number changes.
///
/// ```
/// use tilewright::kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
/// use tilewright::ops::{WeightForm, pack_codes};
/// // 8 rows of 64 e2m1 in groups of 32, whose scales are powers of two.
/// let (codes, scales) = (vec![0x21; 8 * 32], vec![0.25; 8 * 2]);
/// let parts = QuantParts { n: 8, k: 64, code: Code::E2m1, group: 32, codes, scales, zeros: Zeros::Same(0), order: None };
/// let matrix = QuantMatrix::new(parts)?;
/// assert!(pack_codes(&matrix, WeightForm::Mxfp4).is_ok() && pack_codes(&matrix, WeightForm::Fp8).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`OpError::Form`] for codes that the form does not hold as they are.
pub fn pack_codes(matrix: &QuantMatrix, form: WeightForm) -> Result<Vec<u8>, OpError> {
    let columns = u32::try_from(matrix.k()).unwrap_or(0);
    let held = form.codes().filter(|codes| {
        let store = stored_as(codes.scale);
        let own = Codes::of(matrix).map(|own| Codes { scale: codes.scale, ..own });
        own.is_ok_and(|own| own.join(*codes) == Some(*codes))
            && matrix.order().is_none()
            && matrix.parts().scales.iter().all(|&scale| store(scale) == scale)
            && columns.is_multiple_of(form.multiple())
    });
    let strip = held.map(|_| form.strip(columns)).transpose()?;
    match strip.and_then(|strip| Some((strip, CodePacker::new(strip)?))) {
        Some((strip, packer)) => Ok(pack_rows(matrix, strip, &packer)),
        None => Err(OpError::Form {
            form: form.name(),
            code: matrix.code(),
            k: matrix.k(),
            group: matrix.group(),
            scale: matrix.scale_float(),
        }),
    }
}

fn pack_rows(matrix: &QuantMatrix, strip: Strip, packer: &CodePacker) -> Vec<u8> {
    let mut packed = vec![0; strip.bytes() as usize * matrix.n().div_ceil(Strip::ROWS as usize)];
    for (number, memory) in packed.chunks_exact_mut(strip.bytes() as usize).enumerate() {
        let row = |row| Some((matrix, Strip::ROWS as usize * number + row)).filter(|(_, row)| *row < matrix.n());
        packer.pack(&std::array::from_fn(row), memory);
    }
    packed
}

/// A product with a packed weight: all that its kernel is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PackedProduct {
    pub rows: u32,
    pub n: u32,
    pub k: u32,
    pub form: WeightForm,
    pub bias: bool,
    pub residual: bool,
    pub wide: bool,
}

impl PackedProduct {
    pub fn plan(&self, arch: Arch, sms: u32) -> Result<PlannedLaunch, OpError> {
        let PackedProduct { rows, n, k, form, bias, residual, wide } = *self;
        let finish = GemvEpilogue { wide, ..Epilogue { bias, residual, ..Epilogue::default() }.into() };
        let strips = n.div_ceil(Strip::ROWS);
        if form == WeightForm::Bf16 {
            let kernel = gemv(arch, &rows_plan(rows, k, strips.div_ceil(sms.max(1)))?, finish);
            return Ok(PlannedLaunch { kernel, grid: strips.min(sms), arguments: Vec::new(), custom: false });
        }
        let strip = form.strip(k)?;
        // Blocks of a cluster are resident together on every device.
        let tuning = hopper::choose(rows, n, strip, sms, 2);
        let plan = hopper::HopperPlan::new(rows, n, strip, tuning)?;
        Ok(hopper::step(arch, &plan, finish, sms))
    }
}

fn rows_plan(rows: u32, k: u32, strips: u32) -> Result<GemvPlan, OpError> {
    Ok(GemvPlan::new(rows, k, strips, GemvTuning::h100(rows))?)
}
