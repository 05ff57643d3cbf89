//! Ten thousand damaged quantised checkpoints: none panics, none is accepted with shapes that do
//! not fit.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::folder::{join, split};
use crate::mutants::{Campaign, mutate_json, seed};
use crate::quant_folder::{SMALL, folder};
use crate::quant_pack::ROWS;

/// Mutants of a scheme's `quantization_config`, of its header and of its data.
const MUTANTS: [usize; 3] = [250, 250, 100];

#[test]
fn no_mutant_of_a_quantised_checkpoint_panics() {
    let mut campaign = Campaign { seed: seed(), counts: BTreeMap::new() };
    for (at, row) in ROWS.iter().enumerate() {
        let (folder, _) = folder(row, SMALL, at as u64);
        assert!(folder.open().is_ok(), "{}", row.name);
        let original: Value = serde_json::from_slice(&folder.read("config.json")).unwrap();
        // Another seed for each scheme: the files differ, the damage should too.
        campaign.seed = seed() ^ (at as u64) << 48;
        campaign.run("quantization_config, values", &folder, "config.json", MUTANTS[0], |rng| {
            let mut mutant = original.clone();
            mutant["quantization_config"] = mutate_json(rng, &original["quantization_config"]);
            mutant.to_string().into_bytes()
        });
        let bytes = folder.read("model.safetensors");
        let (header, data) = split(&bytes);
        let header = Value::Object(header);
        campaign.run("quantised weights, values of the header", &folder, "model.safetensors", MUTANTS[1], |rng| {
            join(&mutate_json(rng, &header).to_string(), data)
        });
        campaign.run("quantised weights, data", &folder, "model.safetensors", MUTANTS[2], |rng| {
            let mut mutant = bytes.clone();
            for _ in 0..=rng.below(8) {
                let at = bytes.len() - 1 - rng.below(data.len());
                mutant[at] = if rng.below(2) == 0 { 0xff } else { rng.next() as u8 };
            }
            mutant
        });
    }
    assert!(campaign.report() >= 10_000);
    assert!(campaign.counts.values().all(|(all, accepted)| 0 < *accepted && accepted < all));
}
