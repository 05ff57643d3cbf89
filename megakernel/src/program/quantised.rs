//! The quantised form of a weight, from which code is generated. The codes themselves belong to the
//! weights.

use serde::{Deserialize, Serialize};
use tilewright_kernels::quant::{Code, QuantMatrix, group_of_part};
use tilewright_kernels::weights::{Codes, CodesError};
use tilewright_layout::DType;

use super::dtype::{dtype_name, float_of};
use super::region::Span;

/// The form of a quantised matrix `[n, k]`: `w = (code − zero) · scale` by groups of k. The
/// buffer's element type then says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantised {
    /// The encoding of a code.
    #[serde(with = "code_name")]
    pub code: Code,
    /// Weights of a group along k; `None`: a row is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Whether zeros differ from the middle code.
    pub zeros: bool,
    /// The narrowest type that holds the scales; `f8e4m3` where they are that times one f32 of the
    /// tensor, of blocks of sixteen `e2m1`.
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
        let scale = if matrix.blocks().is_some() { DType::F8E4M3 } else { scale.unwrap_or(DType::F32) };
        let zeros = matrix.has_zeros();
        let ordered = matrix.order().is_some();
        Quantised { code: matrix.code(), group, zeros, scale, ordered }
    }

    /// The form of a part with some of the `k` columns of a matrix of this form. It is the same for
    /// all devices that share the columns evenly: a cut within groups makes all of them shorter.
    #[must_use]
    pub fn of_columns(self, k: usize, columns: Span) -> Quantised {
        let Some(group) = self.group else { return self };
        // Of an act-order whole groups are there, or none.
        let own = if self.ordered { group } else { group_of_part(group, k, &(columns.lo..columns.hi)) };
        // Cut within a block, its scale and the tensor's are one.
        let scale = if own < group && self.scale == DType::F8E4M3 { DType::F32 } else { self.scale };
        Quantised { group: (own < columns.len()).then_some(own), scale, ..self }
    }

    /// Whether products of many rows read its codes as the decode machine streams them: places are
    /// columns, and groups whole steps of 32.
    pub fn has_whole_steps(self) -> bool {
        !self.ordered && self.codes().is_ok_and(Codes::is_of_whole_steps)
    }

    /// The form in which a device stores such a matrix. Permuted columns are stored in the permuted
    /// order.
    ///
    /// # Errors
    /// If a device does not support the form.
    pub fn codes(self) -> Result<Codes, CodesError> {
        if let Quantised { code, group: Some(16), zeros: false, scale: DType::F8E4M3, ordered: false } = self
            && code.takes_block_scales()
        {
            return Ok(Codes::of_blocks());
        }
        let scale = float_of(self.scale).ok_or(CodesError::Scale)?;
        Codes::new(self.code, self.group, self.zeros, scale)
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
