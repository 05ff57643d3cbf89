//! Logits agree with the reference machine; tokens do not depend on whether the host or the kernel
//! feeds them back.

use std::ops::ControlFlow;

use tilewright_megakernel::lower::{LOGITS, NEXT_TOKEN};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::testing::{small_families, small_latents, small_mixtures, small_norms};
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::vm::reference::{KvState, Machine};

use super::lab::{Cells, chain, gemma2, least, machine, normed, options, placed, relative, tiny, weights};

/// Steps of `rows` sequences, against the reference machine. Activations of f32 are multiplied as
/// two bf16 each; of more than four rows attention hands on its result in bf16.
fn agree(spec: &impl Architecture, rows: usize, sms: usize, seed: u64, steps: usize) {
    let program = placed(spec, rows, sms);
    let mut reference = Machine::new(program.clone(), &weights(spec), 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let mut device = machine(spec, rows, sms, seed, options());
    for step in 0..steps {
        let mut cells = Cells::at(rows, step as i32);
        // The last row falls idle in the second step.
        if rows > 1 && step == 1 {
            cells.positions[rows - 1] = -1;
        }
        device.step(&cells.view()).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {}", chain(&error)));
        let output = reference.step(&mut kv, &cells.view()).unwrap();
        let active = cells.positions.iter().filter(|&&position| position >= 0).count();
        for row in 0..active {
            let found = device.f32_row(LOGITS, row).unwrap();
            let expected = output.f32_row(LOGITS, row).unwrap();
            let error = relative(&found, &expected);
            assert!(error < if rows <= 4 { 1e-3 } else { 1e-2 }, "seed {seed}, step {step}, row {row}: {error}");
        }
        let found = device.i32(NEXT_TOKEN).unwrap();
        let expected = output.i32(NEXT_TOKEN).unwrap();
        assert_eq!(found[..active], expected[..active], "seed {seed}, step {step}");
    }
}

#[test]
fn one_row_agrees_with_the_reference() {
    for seed in 0..3 {
        agree(&tiny(), 1, 3, seed * 100, 3);
    }
}

#[test]
fn rows_of_different_sequences_agree_with_the_reference() {
    agree(&tiny(), 3, 4, 5, 2);
    agree(&least(), 6, 2, 8, 2);
    agree(&least(), 9, 2, 6, 2);
    agree(&least(), 16, 2, 9, 2);
}

/// Attention takes a group of query heads by passes, so their number has no limit.
#[test]
fn groups_of_17_and_more_query_heads_agree_with_the_reference() {
    for (group, rows) in [(17, 1), (20, 2), (33, 1)] {
        let spec = least().heads(group, 1);
        agree(&spec, rows, 3, group as u64, 2);
    }
}

#[test]
fn norms_of_heads_and_biases_agree_with_the_reference() {
    for seed in 0..2 {
        agree(&normed(tiny()), 1, 3, seed * 100, 2);
    }
    agree(&normed(least()), 2, 2, 7, 2);
}

/// Seven steps go beyond the window, and the caps bite in all of them.
#[test]
fn gemma_2_agrees_with_the_reference() {
    agree(&gemma2(), 1, 3, 11, 7);
    agree(&gemma2(), 3, 4, 12, 7);
    agree(&gemma2(), 9, 2, 13, 2);
}

/// Parts of weights, rows of heads in another order, two rotations and none, norms of the stream
/// divided by a factor; seven steps go beyond the window of 5.
#[test]
fn families_by_their_graphs_agree_with_the_reference() {
    for (seed, spec) in (20..).zip(small_families(16)) {
        agree(&spec, 1 + (seed as usize + 1) % 3, 3, seed, 7);
    }
}

/// Norms that a level has for itself, or none; of whole queries and keys.
#[test]
fn other_norms_agree_with_the_reference() {
    for (seed, spec) in (50..).zip(small_norms(16)) {
        for (rows, steps) in [(1, 7), (2, 2), (5, 2)] {
            agree(&spec, rows, 3, seed, steps);
        }
    }
}

/// The experts of each row come by its own router: of one row two or three, of several their union.
#[test]
fn mixtures_of_experts_agree_with_the_reference() {
    for (seed, spec) in (40..).zip(small_mixtures(16)) {
        // Seven steps go beyond a window of 5.
        for (rows, steps) in [(1, 7), (2, 2), (5, 2)] {
            agree(&spec, rows, 3, seed, steps);
        }
    }
}

/// Heads that attend to one latent vector of a token, by absorbed products.
#[test]
fn latent_attention_agrees_with_the_reference() {
    for (seed, spec) in (60..).zip(small_latents()) {
        for (rows, steps) in [(1, 4), (2, 2), (5, 2)] {
            agree(&spec, rows, 3, seed, steps);
        }
    }
}

/// Tokens by single steps, fed back by the host.
fn by_steps(machine: &mut DeviceMachine, rows: usize, steps: usize) -> Vec<u32> {
    let mut cells = Cells::at(rows, 0);
    let mut tokens = Vec::new();
    for _ in 0..steps {
        machine.step(&cells.view()).unwrap();
        cells.tokens = machine.i32(NEXT_TOKEN).unwrap();
        tokens.extend(cells.tokens.iter().map(|&token| token as u32));
        cells.positions.iter_mut().for_each(|position| *position += 1);
    }
    tokens
}

#[test]
fn many_steps_in_one_launch_give_the_tokens_of_single_steps() {
    for (rows, seed) in [(1, 0), (2, 50)] {
        let expected = by_steps(&mut machine(&least(), rows, 3, seed, options()), rows, 6);
        let mut device = machine(&least(), rows, 3, seed + 7, options());
        assert_eq!(device.run(&Cells::at(rows, 0).view(), 6).unwrap(), expected);
        // Counters go on from where the launch before left them.
        assert_eq!(device.run(&Cells::at(rows, 0).view(), 6).unwrap(), expected);
    }
}

#[test]
fn a_callback_may_end_a_launch() {
    let mut device = machine(&least(), 1, 2, 0, options());
    let whole = device.run(&Cells::at(1, 0).view(), 5).unwrap();
    let mut taken = Vec::new();
    let steps = device.run_each(&Cells::at(1, 0).view(), 5, &mut |tokens| {
        taken.extend_from_slice(tokens);
        if taken.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((steps.unwrap(), &taken[..]), (2, &whole[..2]));
    assert_eq!(device.run(&Cells::at(1, 0).view(), 5).unwrap(), whole);
}
