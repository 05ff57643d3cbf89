//! Element types by name, and as kernels have them.

use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

/// The floating-point types of the machines.
pub(crate) fn float_of(dtype: DType) -> Option<Float> {
    let floats = [(DType::F32, Float::F32), (DType::F16, Float::F16), (DType::BF16, Float::Bf16)];
    floats.into_iter().find(|(known, _)| *known == dtype).map(|(_, float)| float)
}

/// `DType` by name: the layout crate has no serde.
pub(super) mod dtype_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tilewright_layout::DType;

    pub fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(dtype.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        DType::from_name(&name).ok_or_else(|| D::Error::custom(format_args!("`{name}` is not an element type")))
    }
}
