//! Each scheme of quantised weights is decoded: the megakernel on the simulator, or on the device
//! that `TILEWRIGHT_DEVICE` names, gives the logits of the reference machine; so do two devices
//! that share the model.

use std::error::Error;

use tilewright::engine::{Device, Engine};

use crate::measure::relative_l2;
use crate::quant_folder::{Drawing, Sizes, folder_as};
use crate::quant_pack::ROWS;

/// The largest relative L2 error of logits that bf16 operands and pools make.
const LIMIT: f64 = 2e-2;
/// Whole tiles of the megakernel; groups of 32 where a scheme asks for none of its own.
const SIZES: Sizes = Sizes { hidden: 128, head_dim: 32, heads: 4, intermediate: 128, group: 32 };
/// Scales with which activations are numbers of f16 and layers weigh more than embeddings; an
/// input's matrices have one order.
const DRAWING: Drawing = Drawing { scales: [10, 6], embedding: 1.0 / 64.0, one_order: true };
/// Forms that two devices cannot share: an act-order of groups spreads them over all columns.
const NOT_SHARED: [(&str, &str); 3] = [
    ("gptq v1, 8 bits, act-order", "self_attn.o_proj.weight` cannot be shared by 2 devices"),
    ("gptq v2, act-order", "self_attn.o_proj.weight` cannot be shared by 2 devices"),
    ("pack-quantized with zero points, act-order", "self_attn.o_proj.weight` cannot be shared by 2 devices"),
];

#[test]
fn every_scheme_is_decoded() {
    let named = || std::env::var("TILEWRIGHT_DEVICE").ok().map(|name| name.parse().expect("a device"));
    decoded(|seed| named().unwrap_or(Device::Sim { seed }), &[]);
}

#[test]
fn every_scheme_is_shared_by_two_devices() {
    decoded(|seed| Device::SimPeers { seed, count: 2 }, &NOT_SHARED);
}

/// An error and its causes.
fn chain(error: &dyn Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

fn decoded(device: impl Fn(u64) -> Device, refused: &[(&str, &str)]) {
    for (seed, row) in (1..).zip(&ROWS) {
        let logits = |device, seed| {
            // Exponents beside codes of e4m3 are the least; scales that a second one divides are
            // larger.
            let scales = match row.name {
                "mxfp8" | "mxfp8 of modelopt" => [0, 6],
                "nvfp4" => [60, 6],
                _ => DRAWING.scales,
            };
            let drawing = Drawing { scales, ..DRAWING };
            let (folder, _) = folder_as(row, SIZES, seed, drawing);
            let engine = Engine::load(&folder.path(""), device).map_err(|error| chain(&error))?;
            engine.logits(&[3, 17, 39]).map_err(|error| chain(&error))
        };
        let reference =
            |seed| logits(Device::Cpu { workers: 1 }, seed).expect("the reference machine takes every scheme");
        let expected = reference(seed);
        let other = reference(seed + 100);
        let change = relative_l2(&other, &expected);
        assert!(change > 2.0 * LIMIT, "{}: other weights change logits by {change:.1e} alone", row.name);
        match (logits(device(seed), seed), refused.iter().find(|(name, _)| *name == row.name)) {
            (Ok(found), None) => {
                let error = relative_l2(&found, &expected);
                println!("{}: relative L2 error {error:.1e}, other weights change {change:.1e}", row.name);
                assert!(error <= LIMIT, "{}: {error:.1e}", row.name);
            }
            (Err(error), Some((_, why))) => assert!(error.contains(why), "{}: {error}", row.name),
            (found, _) => panic!("{}: {:?}", row.name, found.map(|_| "decoded")),
        }
    }
}
