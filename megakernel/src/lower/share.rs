//! The shard of a model on each of several devices: whole heads, parts of the MLP, parts of the
//! vocabulary.
//!
//! | tensor | part of device d of N |
//! |---|---|
//! | q, gate, up | rows d/N .. (d + 1)/N |
//! | k, v | rows of kv heads; with fewer kv heads than devices each is on several |
//! | gate, up of experts | rows d/N .. (d + 1)/N of each |
//! | o, down (of each expert) | columns d/N .. (d + 1)/N: their products are parts of a sum; a bias is the first device's |
//! | embedding, head | rows d/N .. (d + 1)/N |
//! | sinks | those of its heads |
//! | norms, routers, rotations | all, each device its own |

use super::nodes::ProductRole;
use super::options::LowerError;
use crate::model::{ExpertSizes, ModelSizes};
use crate::program::Span;

/// The extents of the model's parts on one device.
pub(super) fn share(spec: &ModelSizes, devices: usize) -> Result<ModelSizes, LowerError> {
    let inner = spec.experts.map_or(0, |experts| experts.inner);
    let even = [
        ("heads", spec.heads),
        ("intermediate", spec.intermediate),
        ("experts' inner", inner),
        ("shared expert's inner", spec.shared),
        ("vocab", spec.vocab),
    ];
    let uneven = even.into_iter().find(|(_, found)| !found.is_multiple_of(devices));
    let kv_heads = spec.kv_heads;
    let heads_fit = kv_heads.is_multiple_of(devices) || devices.is_multiple_of(kv_heads);
    if let Some((name, found)) = uneven.or((!heads_fit).then_some(("kv_heads", kv_heads))) {
        return Err(LowerError::Share { name, found, devices });
    }
    Ok(ModelSizes {
        heads: spec.heads / devices,
        kv_heads: (kv_heads / devices).max(1),
        intermediate: spec.intermediate / devices,
        vocab: spec.vocab / devices,
        experts: spec.experts.map(|experts| ExpertSizes { inner: experts.inner / devices, ..experts }),
        shared: spec.shared / devices,
        ..*spec
    })
}

/// A device's share of a tensor: everything, an interval of one dimension, or nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TensorShare {
    All,
    Of { dim: usize, span: Span },
    None,
}

/// The weight that a part is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightRole {
    Product(ProductRole),
    Bias(ProductRole),
    /// The product of chosen experts, with the extent of their inside.
    Expert {
        role: ProductRole,
        inner: usize,
    },
    /// Its bias.
    ExpertBias {
        role: ProductRole,
        inner: usize,
    },
    /// A score of each query head that has no value.
    Sinks,
    /// What corrects the choice of experts.
    Correction,
    /// The expansion of latent vectors, with the rows of a head for keys and for values.
    Expansion {
        plain: usize,
        value: usize,
    },
    /// The embedding or the output projection.
    Table,
    /// A weight that every device has.
    Whole,
}

/// The part of a weight that `device` of `devices` has; `share` is the model as it sees it.
pub(super) fn part(
    role: WeightRole,
    spec: &ModelSizes,
    share: &ModelSizes,
    device: usize,
    devices: usize,
) -> TensorShare {
    let of = |dim, each: usize| TensorShare::Of { dim, span: Span::new(device * each, (device + 1) * each) };
    match role {
        WeightRole::Product(ProductRole::Query) | WeightRole::Bias(ProductRole::Query) => {
            of(0, share.heads * spec.head_dim)
        }
        WeightRole::Product(ProductRole::Key | ProductRole::Value)
        | WeightRole::Bias(ProductRole::Key | ProductRole::Value) => {
            let first = device * spec.kv_heads / devices;
            TensorShare::Of { dim: 0, span: Span::new(first * spec.head_dim, (first + share.kv_heads) * spec.head_dim) }
        }
        WeightRole::Product(ProductRole::Gate | ProductRole::Up)
        | WeightRole::Bias(ProductRole::Gate | ProductRole::Up) => of(0, share.intermediate),
        WeightRole::Bias(ProductRole::Output | ProductRole::Down)
        | WeightRole::ExpertBias { role: ProductRole::Down, .. }
            if device > 0 =>
        {
            TensorShare::None
        }
        WeightRole::Product(ProductRole::Router) | WeightRole::Bias(ProductRole::Router) => TensorShare::All,
        WeightRole::Bias(ProductRole::Output | ProductRole::Down) | WeightRole::Whole => TensorShare::All,
        WeightRole::ExpertBias { role: ProductRole::Down, .. } => TensorShare::All,
        WeightRole::Correction | WeightRole::Expansion { .. } => TensorShare::All,
        WeightRole::Expert { role: ProductRole::Down, inner } => of(1, inner / devices),
        WeightRole::Expert { inner, .. } | WeightRole::ExpertBias { inner, .. } => of(0, inner / devices),
        WeightRole::Product(ProductRole::Output) => of(1, share.heads * spec.head_dim),
        WeightRole::Product(ProductRole::Down) => of(1, share.intermediate),
        WeightRole::Sinks => of(0, share.heads),
        WeightRole::Table => of(0, share.vocab),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelSpec;

    fn spec() -> ModelSpec {
        ModelSpec::named("llama-3.1-8b").expect("a known model")
    }

    #[test]
    fn kv_heads_are_on_several_devices_where_there_are_fewer() {
        let spec = spec();
        let devices = 16;
        let share = share(&spec, devices).expect("it divides");
        assert_eq!((share.heads, share.kv_heads), (2, 1));
        let rows = |device| part(WeightRole::Product(ProductRole::Key), &spec, &share, device, devices);
        let of = |head: usize| TensorShare::Of { dim: 0, span: Span::new(head * 128, (head + 1) * 128) };
        assert_eq!([rows(0), rows(1), rows(2), rows(15)], [of(0), of(0), of(1), of(7)]);
    }

    #[test]
    fn what_does_not_divide_is_named() {
        let text = |devices| share(&spec(), devices).expect_err("it does not divide").to_string();
        assert_eq!(
            text(3),
            "the model's `heads` is 32, which 3 devices cannot share evenly; choose a number that divides it"
        );
    }

    #[test]
    fn a_bias_of_a_sum_is_the_first_devices() {
        let spec = spec();
        let share = share(&spec, 2).expect("it divides");
        let bias = |device| part(WeightRole::Bias(ProductRole::Output), &spec, &share, device, 2);
        assert_eq!([bias(0), bias(1)], [TensorShare::All, TensorShare::None]);
    }
}
