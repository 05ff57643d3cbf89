//! Steps that no graph of launches computes.

use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, StepPlan};
use tilewright_megakernel::testing::small_latents;
use tilewright_megakernel::vm::graph::GraphPlan;

use super::devices::{self, small};
use super::lab::{PAGE, TARGET, options, planned, planned_with, tiny};

/// A step is refused for this level and this reason, in one line.
fn refused(step: &StepPlan, level: &str, why: &str) {
    let text = GraphPlan::new(step, TARGET).expect_err("is refused").to_string();
    assert!(text.contains(level) && text.contains(why) && text.lines().count() == 1, "{text}");
}

#[test]
fn heads_and_pools_of_other_sizes_and_types_are_named() {
    refused(
        &planned(&tiny(16), 32),
        "level `layers.0.attention`",
        "dimensions of a head: 16, and a device needs 32, 64, 80, 96, 112, 128",
    );
    let wide = planned_with(&tiny(32), &LowerOptions { kv: DType::F32, ..options(32) });
    refused(&wide, "level `layers.0.qkv`", "is f32, a device needs bf16");
}

/// Places in the table of cosines and sines have 32 bits: position 2^32 / dimensions would read the
/// row of position 0.
#[test]
fn positions_whose_cosines_are_beyond_32_bits_are_refused() {
    let spec = tiny(32).max_positions(1 << 28);
    let step = |context| planned_with(&spec, &LowerOptions { context, ..options(1) });
    refused(
        &step(1 << 27),
        "level `layers.0.qkv`",
        "the elements of a table of cosines and sines: 4294967296, and a device needs fewer than 2^32",
    );
    GraphPlan::new(&step((1 << 27) - PAGE), TARGET).expect("a page less is planned");
}

#[test]
fn heads_that_attend_to_latent_vectors_are_named() {
    for spec in small_latents() {
        refused(&planned(&spec, 32), "level `layers.0.", "heads that attend to latent vectors");
    }
}

/// A plan of one device has no device barrier.
#[test]
fn a_step_of_several_devices_is_none_of_one() {
    let two = devices::planned(&small(32), [32, 2], false);
    refused(&two, "the program is for 2 devices", "this machine has one");
    assert_eq!(GraphPlan::new(&planned(&tiny(32), 32), TARGET).unwrap().meet, None);
}
