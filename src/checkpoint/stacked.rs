//! gpt-oss's tensors of all experts of a layer, as tensors of each expert with the names that other
//! families give them.
//!
//! | tensor of the file | extents | becomes |
//! |---|---|---|
//! | `experts.gate_up_proj_blocks` | `[experts, 2 rows, groups, 16]` | `experts.E.gate_proj.blocks` and `experts.E.up_proj.blocks`, whose rows take turns, each `[rows, 16 groups]` |
//! | `experts.gate_up_proj_scales` | `[experts, 2 rows, groups]` | `.scales` of both |
//! | `experts.gate_up_proj_bias` | `[experts, 2 rows]` | `.bias` of both |
//! | `experts.down_proj_…` | as these, with `rows` | `experts.E.down_proj.blocks`, `.scales`, `.bias` |
//!
//! Nothing is copied here. A tensor with other extents stays what it is.

use super::header::{EntryRows, TensorEntry};
use super::shards::Shard;

/// The ends of names, and what they become.
const PARTS: [(&str, &str); 3] = [("_blocks", "blocks"), ("_scales", "scales"), ("_bias", "bias")];

/// Replaces tensors of all experts by those of each.
pub(super) fn split(shards: &mut [Shard]) {
    for shard in shards {
        let entries = std::mem::take(&mut shard.entries);
        shard.entries =
            entries.into_iter().flat_map(|entry| of_experts(&entry).unwrap_or_else(|| vec![entry])).collect();
    }
}

/// The tensors of each expert; `None` for any other tensor.
fn of_experts(entry: &TensorEntry) -> Option<Vec<TensorEntry>> {
    let (block, product) = entry.name.rsplit_once(".experts.")?;
    let (product, part) = PARTS.into_iter().find_map(|(end, part)| Some((product.strip_suffix(end)?, part)))?;
    let products: &[&str] = match product {
        "gate_up_proj" => &["gate_proj", "up_proj"],
        "down_proj" => &["down_proj"],
        _ => return None,
    };
    let (experts, rows, columns) = match (part, entry.shape.as_slice()) {
        ("blocks", &[experts, rows, groups, bytes]) => (experts, rows, Some(groups.checked_mul(bytes)?)),
        ("scales", &[experts, rows, groups]) => (experts, rows, Some(groups)),
        ("bias", &[experts, rows]) => (experts, rows, None),
        _ => return None,
    };
    if experts == 0 || !rows.is_multiple_of(products.len()) {
        return None;
    }
    let each = entry.range.len() / experts;
    let of_expert = |expert: usize| {
        products.iter().enumerate().map(move |(turn, product)| TensorEntry {
            name: format!("{block}.experts.{expert}.{product}.{part}"),
            dtype: entry.dtype,
            shape: [rows / products.len()].into_iter().chain(columns).collect(),
            range: entry.range.start + expert * each..entry.range.start + (expert + 1) * each,
            rows: if products.len() > 1 { EntryRows::Alternate { first: turn } } else { EntryRows::All },
        })
    };
    Some((0..experts).flat_map(of_expert).collect())
}

#[cfg(test)]
mod tests {
    use tilewright_layout::DType;

    use super::*;

    fn entry(name: &str, dtype: DType, shape: &[usize]) -> TensorEntry {
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        TensorEntry { name: name.to_owned(), dtype, shape: shape.to_vec(), range: 8..8 + bytes, rows: EntryRows::All }
    }

    #[test]
    fn rows_of_gates_take_turns_with_the_others() {
        let stacked = entry("model.layers.1.mlp.experts.gate_up_proj_scales", DType::U8, &[2, 4, 3]);
        let bytes: Vec<u8> = (0..8 + 24).collect();
        let found: Vec<(String, Vec<u8>)> = of_experts(&stacked)
            .expect("a tensor of experts")
            .iter()
            .map(|entry| (entry.name.clone(), entry.bytes(&bytes).into_owned()))
            .collect();
        let row = |number: u8| (8 + number * 3..8 + (number + 1) * 3).collect::<Vec<u8>>();
        let of = |expert: u8, product: &str, rows: [u8; 2]| {
            (format!("model.layers.1.mlp.experts.{expert}.{product}.scales"), rows.map(row).concat())
        };
        let expected = [
            of(0, "gate_proj", [0, 2]),
            of(0, "up_proj", [1, 3]),
            of(1, "gate_proj", [4, 6]),
            of(1, "up_proj", [5, 7]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn other_tensors_stay() {
        for (name, shape) in [
            ("model.layers.0.mlp.experts.gate_up_proj", &[2, 4, 3][..]),
            ("model.layers.0.mlp.experts.gate_up_proj_bias", &[2, 4, 3]),
            ("model.layers.0.mlp.experts.gate_up_proj_bias", &[2, 3]),
            ("model.layers.0.mlp.experts.down_proj_blocks", &[2, 4, 3]),
            ("model.layers.0.mlp.experts.other_bias", &[2, 4]),
            ("model.layers.0.mlp.gate_up_proj_bias", &[2, 4]),
            ("model.layers.0.mlp.experts.down_proj_bias", &[0, 4]),
        ] {
            assert!(of_experts(&entry(name, DType::BF16, shape)).is_none(), "{name} {shape:?}");
        }
    }
}
