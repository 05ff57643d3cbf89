//! The output of each scheme: codes, groups, tensors of a module, `quantization_config`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use serde_json::{Map, Value, json};
use thiserror::Error;
use tilewright_kernels::quant::{Code, QuantMatrix, Rounding, common_divisor, nearest};
use tilewright_layout::DType;
use tilewright_megakernel::model::{ModelSpec, TensorSpec};
use tilewright_megakernel::program::Quantised;

use super::QuantizeError;

/// A form of quantised weights that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Integers of 4 bits, symmetric, a scale a group: `pack-quantized`.
    W4A16,
    /// Integers of 8 bits, symmetric, a scale a group: `pack-quantized`.
    W8A16,
    /// e4m3, a scale a row: `float-quantized`.
    Fp8,
}

/// A name that is not a scheme's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` is not a scheme; known are w4a16, w8a16 and fp8")]
pub struct NoScheme {
    found: String,
}

impl FromStr for Scheme {
    type Err = NoScheme;

    fn from_str(name: &str) -> Result<Scheme, NoScheme> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| NoScheme { found: name.to_owned() })
    }
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 3] = [Scheme::W4A16, Scheme::W8A16, Scheme::Fp8];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::W4A16 => "w4a16",
            Scheme::W8A16 => "w8a16",
            Scheme::Fp8 => "fp8",
        }
    }

    /// Columns of a group where nothing is said; `None`: a row is one.
    pub const fn group(self) -> Option<usize> {
        match self {
            Scheme::W4A16 | Scheme::W8A16 => Some(GROUP),
            Scheme::Fp8 => None,
        }
    }

    /// The form of every weight that it quantises, with its columns, by the tensors' names, where
    /// scales are bf16.
    ///
    /// # Errors
    /// If the columns of a module are in no groups of the usual length or less.
    pub fn forms(self, spec: &ModelSpec) -> Result<BTreeMap<String, (Quantised, usize)>, QuantizeError> {
        let recipe = QuantizeRecipe::new(self, None, spec)?;
        let form = |tensor: TensorSpec| {
            let group = recipe.group(tensor.name.strip_suffix(".weight")?)?;
            let &[_, k] = tensor.shape.as_slice() else { return None };
            let group = Some(group).filter(|&group| group < k);
            let form = Quantised { code: self.code().0, group, zeros: false, scale: DType::BF16, ordered: false };
            Some((tensor.name, (form, k)))
        };
        Ok(spec.tensors().into_iter().filter_map(form).collect())
    }

    /// The code of its weights, and the code that means 0.
    pub(crate) const fn code(self) -> (Code, i16) {
        match self {
            Scheme::W4A16 => (Code::U4, 8),
            Scheme::W8A16 => (Code::U8, 128),
            Scheme::Fp8 => (Code::E4m3, 0),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Columns of a group where nothing is said.
pub(crate) const GROUP: usize = 128;
/// The least group that is written.
const LEAST: usize = 16;

/// A scheme for one model.
pub(super) struct QuantizeRecipe {
    scheme: Scheme,
    /// The columns of a group of each module; K for a scale a row.
    groups: BTreeMap<String, usize>,
    asked: usize,
}

/// A tensor to be written.
pub(super) struct PlannedTensor {
    pub name: String,
    /// Its type as the file format names it.
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: usize,
}

impl QuantizeRecipe {
    pub fn new(scheme: Scheme, group: Option<usize>, spec: &ModelSpec) -> Result<QuantizeRecipe, QuantizeError> {
        let asked = group.unwrap_or(GROUP);
        if let (Scheme::Fp8, Some(group)) = (scheme, group) {
            return Err(QuantizeError::NoGroups { group });
        }
        if !(LEAST..=1 << 16).contains(&asked) {
            return Err(QuantizeError::Group { group: asked });
        }
        let mut groups = BTreeMap::new();
        for tensor in spec.tensors() {
            let module = tensor.name.strip_suffix(".weight").filter(|name| name.ends_with("_proj"));
            let (Some(module), &[_, k]) = (module, tensor.shape.as_slice()) else { continue };
            let common = if scheme == Scheme::Fp8 { k } else { common_divisor(k, asked) };
            if scheme != Scheme::Fp8 && common < LEAST {
                return Err(QuantizeError::Ragged { module: module.to_owned(), k, group: asked, common });
            }
            groups.insert(module.to_owned(), common);
        }
        Ok(QuantizeRecipe { scheme, groups, asked })
    }

    /// The columns of a module's groups, if it is quantised.
    pub fn group(&self, module: &str) -> Option<usize> {
        self.groups.get(module).copied()
    }

    /// Columns and number of modules of the groups that are smaller than asked for.
    pub fn smaller(&self) -> Vec<(usize, usize)> {
        let mut count = BTreeMap::new();
        for &group in self.groups.values().filter(|&&group| self.scheme != Scheme::Fp8 && group != self.asked) {
            *count.entry(group).or_insert(0) += 1;
        }
        count.into_iter().collect()
    }

    /// The canonical form of a module's weights `[n, k]`, stored in a type.
    pub fn quantize(
        &self,
        module: &str,
        w: &[f32],
        [n, k]: [usize; 2],
        dtype: DType,
    ) -> Result<QuantMatrix, QuantizeError> {
        let (code, zero) = self.scheme.code();
        let store: fn(f32) -> f32 = match dtype {
            DType::BF16 => |scale| bf16::from_f32(scale).to_f32(),
            DType::F16 => |scale| f16::from_f32(scale).to_f32(),
            _ => |scale| scale,
        };
        let rounding = Rounding { code, zero, group: self.group(module).unwrap_or(k), store };
        nearest(w, n, k, &rounding).map_err(|source| QuantizeError::Module { module: module.to_owned(), source })
    }

    /// The tensors of a module, in the order of [`QuantizeRecipe::contents`].
    pub fn planned(&self, module: &str, [n, k]: [usize; 2], dtype: DType) -> Vec<PlannedTensor> {
        let groups = k.div_ceil(self.group(module).unwrap_or(k));
        let tensor = |suffix: &str, dtype, shape: &[usize], element: usize| {
            let bytes = shape.iter().product::<usize>() * element;
            PlannedTensor { name: format!("{module}.{suffix}"), dtype, shape: shape.to_vec(), bytes }
        };
        let scale = tensor("weight_scale", format_name(dtype), &[n, groups], dtype.bytes());
        match self.scheme {
            Scheme::Fp8 => vec![tensor("weight", "F8_E4M3", &[n, k], 1), scale],
            Scheme::W4A16 | Scheme::W8A16 => {
                let words = (k * self.scheme.code().0.bits()).div_ceil(32);
                vec![tensor("weight_packed", "I32", &[n, words], 4), scale, tensor("weight_shape", "I64", &[2], 8)]
            }
        }
    }

    /// The bytes of a module's tensors.
    pub fn contents(&self, matrix: &QuantMatrix, dtype: DType) -> Vec<Vec<u8>> {
        let scales = matrix.parts().scales.iter();
        let scales: Vec<u8> = match dtype {
            DType::BF16 => scales.flat_map(|&scale| bf16::from_f32(scale).to_le_bytes()).collect(),
            DType::F16 => scales.flat_map(|&scale| f16::from_f32(scale).to_le_bytes()).collect(),
            _ => scales.flat_map(|scale| scale.to_le_bytes()).collect(),
        };
        let word = |row: usize| {
            let codes = matrix.row(row);
            let padding = codes.len().next_multiple_of(4) - codes.len();
            codes.iter().copied().chain(std::iter::repeat_n(0, padding))
        };
        match self.scheme {
            Scheme::Fp8 => vec![matrix.parts().codes.clone(), scales],
            Scheme::W4A16 | Scheme::W8A16 => {
                let codes = (0..matrix.n()).flat_map(word).collect();
                let shape = [matrix.n() as i64, matrix.k() as i64].into_iter().flat_map(i64::to_le_bytes).collect();
                vec![codes, scales, shape]
            }
        }
    }

    /// `quantization_config`: one group for each size of groups.
    pub fn config(&self) -> Value {
        let mut by_size: BTreeMap<Option<usize>, Vec<&str>> = BTreeMap::new();
        for (module, &group) in &self.groups {
            let names = by_size.entry((self.scheme != Scheme::Fp8).then_some(group)).or_default();
            let last = module.rsplit('.').next().unwrap_or(module);
            if !names.contains(&last) {
                names.push(last);
            }
        }
        let single = by_size.len() == 1;
        let format = if self.scheme == Scheme::Fp8 { "float-quantized" } else { "pack-quantized" };
        let mut groups = Map::new();
        for (at, (size, names)) in by_size.into_iter().enumerate() {
            let targets = match single {
                true => vec!["Linear".to_owned()],
                false => names.iter().map(|name| format!("re:.*\\.{name}$")).collect(),
            };
            let (kind, strategy) = match self.scheme {
                Scheme::Fp8 => ("float", "channel"),
                Scheme::W4A16 | Scheme::W8A16 => ("int", "group"),
            };
            let weights = json!({"num_bits": self.scheme.code().0.bits(), "type": kind, "symmetric": true,
                "strategy": strategy, "group_size": size, "dynamic": false, "actorder": null, "block_structure": null,
                "observer": "mse", "observer_kwargs": {}});
            let group = json!({"targets": targets, "weights": weights, "format": format, "input_activations": null,
                "output_activations": null});
            groups.insert(format!("group_{at}"), group);
        }
        json!({"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": groups, "kv_cache_scheme": null, "global_compression_ratio": null})
    }
}

/// The file format's name of a type of weights.
pub(super) fn format_name(dtype: DType) -> &'static str {
    match dtype {
        DType::BF16 => "BF16",
        DType::F16 => "F16",
        _ => "F32",
    }
}
