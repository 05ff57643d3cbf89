//! Keys and values through the ring: what earlier steps left comes that way, what any row of this
//! step writes does not.

use tilewright_codegen::trial::Draw;
use tilewright_graph::models::Llama;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Opcode, Plan};

use super::both::{Both, CONTEXT, lowered};
use super::lab::{Cells, least, machine, options, relative, tiny};

/// Rows of one sequence, one after the other, between rows of others; one is idle.
#[test]
fn rows_of_one_sequence_agree_with_the_reference() {
    for seed in 0..6 {
        let mut draw = Draw::new(seed);
        let stage_bytes = [2048, 4096, 6144][seed as usize % 3];
        let mut both =
            Both::new(&least(), [6, 1 + seed as usize % 3, 3], &mut draw, DeviceOptions { stage_bytes, ..options() });
        for _ in 0..2 {
            // Around the ends of blocks and pages, and at the beginning.
            let first = [0, 14, 15, 16, 31, 127][draw.between(0..=5) as usize] + draw.between(0..=1) as i32;
            let [far, near] = [200, 20].map(|most| draw.between(0..=most) as i32);
            both.step_of(&[1, 3, 3, 3, 0, 5], &[far, first, first + 1, first + 2, near, -1], 2e-2);
        }
    }
}

/// Tokens that were new in a step are settled some steps later.
#[test]
fn a_launch_of_many_steps_reads_what_its_own_steps_wrote() {
    for (seed, rows) in [(0, 1), (1, 2), (2, 3)] {
        let run = |stream_tokens: bool| {
            let mut machine = machine(&tiny(), rows, 3, seed, DeviceOptions { stream_tokens, ..options() });
            let tokens = machine.run(&Cells::at(rows, 0).view(), 35).unwrap();
            (tokens, machine.f32(LOGITS).unwrap())
        };
        let (found, logits) = run(true);
        let (expected, others) = run(false);
        assert_eq!(found, expected, "seed {seed}");
        // The fresh tokens are another warp's, so sums are taken in another order.
        let error = relative(&logits, &others);
        assert!(error < 1e-3, "seed {seed}: {error}");
    }
}

/// Device functions that fill stages, and those whose tokens are read from their pages.
fn streams(spec: &Llama, options: DeviceOptions) -> [usize; 2] {
    let plan = Plan::new(&schedule(lowered(spec, 2, 2, 3), CONTEXT).unwrap(), options).unwrap();
    let count = |is: &dyn Fn(&Opcode) -> bool| plan.opcodes.iter().filter(|opcode| is(opcode)).count();
    [count(&|opcode| opcode.fills()), count(&|opcode| opcode.tokens().is_some())]
}

#[test]
fn tokens_are_streamed_where_stages_hold_them_and_one_pass_serves_a_group() {
    assert_eq!(streams(&least(), options()), [1, 0]);
    assert_eq!(streams(&least(), DeviceOptions { stream_tokens: false, ..options() }), [0, 1]);
    // A stage of 2 KB holds 8 tokens of 64 dimensions, and a block has 16.
    assert_eq!(streams(&least().head_dim(64), options()), [0, 1]);
    assert_eq!(streams(&least().heads(9, 1), options()), [0, 1]);
}
