//! Pools of e4m3 codes: appended, streamed and read from the pages as the reference machine has
//! them.

use tilewright_codegen::target::Target;
use tilewright_codegen::trial::Draw;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::program::{BufferKind, Program};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan};

use super::both::{Both, CONTEXT};
use super::lab::{least, normed, options, tiny, weights};

/// A program whose pools have scales of their own, keys others than values.
fn lowered(spec: &Llama, [rows, splits, sms]: [usize; 3], target: &str) -> Program {
    let target = Target { sms, ..Target::named(target).unwrap() };
    let options = LowerOptions { rows, kv: DType::F8E4M3, page_tokens: 16, ..LowerOptions::for_context(CONTEXT) };
    let options = LowerOptions { splits: Some(splits), ..options };
    let mut program = lower(spec, &|_| DType::BF16, target, &options).unwrap();
    let pools = program.buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::KvPool);
    pools.zip(0u8..).for_each(|(pool, at)| pool.scale = [None, Some(0.03), Some(0.75)][usize::from(at % 3)]);
    program
}

fn agree(spec: &Llama, shape @ [rows, ..]: [usize; 3], options: DeviceOptions, seed: u64) {
    let mut draw = Draw::new(seed);
    let program = schedule(lowered(spec, shape, "h100"), CONTEXT).unwrap();
    let mut both = Both::of(program, &weights(spec), &mut draw, options);
    // After a history a code that is rounded otherwise weighs little.
    for first in [40, 97, 255] {
        let positions: Vec<i32> = (0..rows as i32).map(|row| first - 17 * row % 30).collect();
        both.step(&positions, 1e-2);
    }
}

#[test]
fn heads_of_every_width_agree() {
    for (head_dim, seed) in [(16, 1), (64, 2), (128, 3), (40, 4)] {
        agree(&least().head_dim(head_dim), [2, 2, 3], options(), seed);
    }
}

#[test]
fn norms_of_heads_biases_and_several_rows_agree() {
    agree(&normed(tiny()), [1, 3, 4], options(), 5);
    agree(&normed(least()), [5, 1, 3], options(), 6);
}

#[test]
fn tokens_that_no_ring_brings_agree() {
    agree(&tiny(), [2, 2, 3], DeviceOptions { stream_tokens: false, ..options() }, 7);
}

#[test]
fn an_architecture_without_the_conversion_is_refused() {
    let program = schedule(lowered(&least(), [1, 1, 2], "a100"), CONTEXT).unwrap();
    let refused = Plan::new(&program, options()).map(drop).unwrap_err();
    let Unsupported::Task { source, .. } = refused else { panic!("{refused}") };
    assert!(source.to_string().contains("is f8e4m3, a device needs bf16, being of sm_80"), "{source}");
}
