//! The form that a module's codes will have, before its tensors are read: for planning without
//! weights.

use std::collections::BTreeMap;

use tilewright_layout::DType;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Quantised;

use super::scheme::ScaleType;
use crate::checkpoint::quant::stored::{Presence, Scales};
use crate::checkpoint::{QuantPlan, StoredModule};

impl QuantPlan {
    /// The form of every quantised weight with its columns, by the tensors' names. Properties that
    /// only the values determine are assumed to be the usual ones: scales of floating-point numbers
    /// are bf16, zero points that may be left out are, and a required act-order is one.
    pub fn forms(&self, spec: &ModelSpec) -> BTreeMap<String, (Quantised, usize)> {
        let form = |tensor: tilewright_megakernel::model::TensorSpec| {
            let stored = self.stored(tensor.name.strip_suffix(".weight")?)?;
            let &[_, k] = tensor.shape.as_slice() else { return None };
            Some((tensor.name, (stored.form(k), k)))
        };
        spec.tensors().into_iter().filter_map(form).collect()
    }
}

impl StoredModule {
    fn form(self, k: usize) -> Quantised {
        let group = match self.scales {
            Scales::Tensor | Scales::Channel => None,
            Scales::Group(group) | Scales::Block(_, group) => Some(group).filter(|&group| group < k),
        };
        let scale = match (self.scheme.scale_type, self.scheme.global) {
            // One of a block, and the tensor's.
            (ScaleType::E4m3, Some(_)) if self.scheme.code.takes_block_scales() => DType::F8E4M3,
            // Two scales become one.
            (_, Some(_)) => DType::F32,
            (ScaleType::Float | ScaleType::E8m0 | ScaleType::E4m3, None) => DType::BF16,
        };
        let zeros = self.zeros == Presence::Required && !self.symmetric;
        Quantised { code: self.scheme.code, group, zeros, scale, ordered: self.order == Presence::Required }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tilewright_megakernel::weights::Weights;

    use super::*;
    use crate::checkpoint::{Checkpoint, ModelConfig};

    #[test]
    fn forms_are_those_of_the_tensors() {
        for model in ["awq", "gptq", "w4a16", "fp8block"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/quant").join(format!("tiny-llama-{model}"));
            let ModelConfig { spec, quantization, .. } = ModelConfig::read(&folder.join("config.json")).expect("sound");
            let forms = quantization.expect("quantised").forms(&spec);
            let checkpoint = Checkpoint::open(&folder, &mut |_| ()).expect("opens");
            assert_eq!(forms.len(), checkpoint.quantized_modules().len());
            for (name, (form, k)) in forms {
                let matrix = checkpoint.quantized(&name).expect("the configuration says so");
                let found = Quantised { scale: form.scale, ..Quantised::of(&matrix) };
                assert_eq!((found, matrix.k()), (form, k), "{model}: {name}");
            }
        }
    }
}
