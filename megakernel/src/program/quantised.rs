//! How a weight is quantised: what code is generated from. The codes themselves are the weights'.

use serde::{Deserialize, Serialize};
use tilewright_kernels::gemv::{Codes, CodesError};
use tilewright_kernels::quant::{Code, QuantMatrix};
use tilewright_layout::DType;

use super::buffer::dtype_name;
use super::{Buffer, BufferKind, Program, Source, float_of};
use crate::weights::Weights;

/// The form of a quantised matrix `[n, k]`: `w = (code − zero) · scale` by groups of k. The buffer's element type then says
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantised {
    /// What the codes mean.
    #[serde(with = "code_name")]
    pub code: Code,
    /// Weights of a group along k; `None`: a row is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Whether zeros differ from the middle code.
    pub zeros: bool,
    /// The narrowest type that holds the scales.
    #[serde(with = "dtype_name")]
    pub scale: DType,
    /// Whether columns are permuted.
    pub ordered: bool,
}

impl Quantised {
    /// The form of a matrix.
    pub fn of(matrix: &QuantMatrix) -> Quantised {
        let group = (matrix.groups() > 1).then_some(matrix.group());
        let scale = [DType::BF16, DType::F16].into_iter().find(|&dtype| float_of(dtype) == Some(matrix.scale_float()));
        let (zeros, ordered) = (matrix.has_zeros(), matrix.order().is_some());
        Quantised { code: matrix.code(), group, zeros, scale: scale.unwrap_or(DType::F32), ordered }
    }

    /// How a device stores such a matrix: where columns are permuted, place by place.
    ///
    /// # Errors
    /// What of it a device does not have.
    pub fn codes(self) -> Result<Codes, CodesError> {
        let scale = float_of(self.scale).ok_or(CodesError::Scale)?;
        Codes::new(self.code, self.group, self.zeros, scale)
    }
}

impl Program {
    /// The same with every weight as it is stored: quantised where these have it so, and pools of codes with the scales that these
    /// bring for them. Before it is scheduled, since fewer bytes are less work.
    #[must_use]
    pub fn stored_as(mut self, weights: &dyn Weights) -> Program {
        let is_codes = |buffer: &&mut Buffer| buffer.kind == BufferKind::KvPool && buffer.dtype == DType::F8E4M3;
        for buffer in self.buffers.iter_mut().filter(is_codes) {
            buffer.scale = weights.cache_scale(&buffer.name);
        }
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::Weight) {
            if let Some(Source::Tensor(name)) = &buffer.source {
                buffer.quantised = weights.quantized(name).map(|matrix| Quantised::of(&matrix));
            }
        }
        self
    }
}

/// `Code` by name: the kernels' crate has no serde.
mod code_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tilewright_kernels::quant::Code;

    pub fn serialize<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(code.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Code::from_name(&name).ok_or_else(|| D::Error::custom(format_args!("`{name}` is not a code of weights")))
    }
}
