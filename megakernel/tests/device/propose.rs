//! Proposals: a text is the same with and without them, token by token, and comes in fewer steps
//! where it repeats itself.

use std::ops::ControlFlow;

use proptest::prelude::*;
use tilewright_codegen::sim::mutate::mutants;
use tilewright_codegen::verify::verify;
use tilewright_kernels::naive::Sampling;
use tilewright_kernels::sample::Request;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{Accepted, DeviceFault, DeviceMachine, DeviceOptions, Text, record};
use tilewright_megakernel::vm::{LaunchError, NO_TOKEN};

use super::lab::{Cells, PAGES, least, load, options, placed, sampling};

/// Pages of 16 tokens.
const PAGE: usize = 16;

fn with_proposals() -> DeviceOptions {
    DeviceOptions { propose: true, ..options() }
}

/// A machine of the least model whose rows are of one sequence.
fn machine(program: Placed, seed: u64) -> DeviceMachine {
    load(program, &least(), seed, with_proposals())
}

/// Feeds all tokens but the last, one in a step: the machine's rows beside it are idle.
fn feed(machine: &mut DeviceMachine, tokens: &[u32], pages: &[i32]) {
    let rows = machine.plan().rows as usize;
    for (position, &token) in tokens[..tokens.len() - 1].iter().enumerate() {
        machine.step(&single(rows, token, position, pages).view()).expect("a step");
    }
}

/// Cells of a step whose first row alone is fed.
fn single(rows: usize, token: u32, position: usize, pages: &[i32]) -> Cells {
    let mut tokens = vec![0; rows];
    let mut positions = vec![-1; rows];
    (tokens[0], positions[0]) = (token as i32, position as i32);
    Cells { tokens, positions, page_table: pages.repeat(rows) }
}

/// The text as one row gives it.
fn alone(machine: &mut DeviceMachine, text: &Text) -> Vec<u32> {
    feed(machine, text.tokens, text.pages);
    let rows = machine.plan().rows as usize;
    if let Some(request) = text.request {
        machine.set_requests(&vec![request; rows]).expect("requests");
    }
    let cells = single(rows, text.tokens[text.tokens.len() - 1], text.tokens.len() - 1, text.pages);
    let mut tokens = Vec::new();
    let each = &mut |step: &[u32]| {
        assert!(step[1..].iter().all(|&token| token == NO_TOKEN));
        tokens.push(step[0]);
        ControlFlow::Continue(())
    };
    machine.run_until(&cells.view(), text.left, &vec![text.ends; rows], each).expect("a launch");
    tokens
}

/// The text with proposals, what each step gave.
fn together(machine: &mut DeviceMachine, text: &Text, steps: usize) -> Vec<Accepted> {
    feed(machine, text.tokens, text.pages);
    let mut gave = Vec::new();
    let each = &mut |step: &Accepted| {
        gave.push(step.clone());
        ControlFlow::Continue(())
    };
    machine.propose(text, steps, each).expect("a launch");
    gave
}

fn tokens(gave: &[Accepted]) -> Vec<u32> {
    gave.iter().flat_map(|step| step.tokens.clone()).collect()
}

/// The proposal of a step after a text: the tokens that followed the last earlier occurrence of the
/// longest run of its last tokens, of two to four tokens.
fn proposed(text: &[u32], most: usize) -> Vec<u32> {
    let last = text.len() - 1;
    let run = |end: usize| (0..4.min(end + 1)).take_while(|&back| text[end - back] == text[last - back]).count();
    let best = (0..last).map(|end| (run(end), end)).filter(|(run, _)| *run >= 2).max();
    let Some((_, end)) = best else { return Vec::new() };
    text[end + 1..].iter().copied().cycle().take(most).collect()
}

const GREEDY: Text =
    Text { tokens: &[], pages: &[0, 1, 2, 3], request: None, ends: &[], left: 1, proposed: 7, script: None };

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Rows, prompts, pages, choices and orders of the blocks at random.
    #[test]
    fn a_text_is_the_same_with_and_without_proposals(
        rows in prop::sample::select(vec![2usize, 3, 8]),
        prompt in prop::collection::vec(0u32..6, 1..14),
        left in 1usize..18,
        at_random: bool,
        end in prop::option::of(0u32..40),
        order in 0u64..1000,
        pages in Just(vec![0i32, 1, 2, 3]).prop_shuffle(),
    ) {
        let program = if at_random { sampling(&least(), rows, 2) } else { placed(&least(), rows, 2) };
        let warm = Sampling::new(0.8, Some(5), 0.95, order).expect("it makes sense");
        let request = at_random.then(|| Request::new(&warm, 3, 2));
        let ends: Vec<u32> = end.into_iter().collect();
        let text = Text { tokens: &prompt, pages: &pages, request, ends: &ends, left, ..GREEDY };
        let expected = alone(&mut machine(program.clone(), order), &text);
        let gave = together(&mut machine(program, order + 1), &text, left);
        prop_assert_eq!(tokens(&gave), expected);
        // Each step proposed what it should have, and accepted what was right of it.
        let mut known = prompt.clone();
        for (step, accepted) in gave.iter().enumerate() {
            let most = (rows - 1).min(left - (known.len() - prompt.len()) - 1);
            let wanted = if step == 0 { Vec::new() } else { proposed(&known, most) };
            prop_assert_eq!(accepted.proposed, wanted.len(), "step {} after {:?}", step, known);
            let right = wanted.iter().zip(&accepted.tokens).take_while(|(a, b)| a == b).count();
            prop_assert!(accepted.tokens.len() <= right + 1);
            known.extend(&accepted.tokens);
        }
    }
}

/// A greedy model of few tokens soon goes round.
#[test]
fn a_text_that_goes_round_comes_in_few_steps() {
    let mut machine = machine(placed(&least(), 8, 2), 5);
    let text = Text { tokens: &[3], left: 50, ..GREEDY };
    let gave = together(&mut machine, &text, 50);
    assert_eq!(tokens(&gave).len(), 50);
    assert!(gave.len() < 40, "{} steps for 50 tokens", gave.len());
    // A launch after another begins where that one ended, with other proposals.
    let first = tokens(&gave);
    let mut rest = Vec::new();
    let so_far = [&[3], &first[..20]].concat();
    let again = Text { tokens: &so_far, left: 30, proposed: 2, ..GREEDY };
    let each = &mut |step: &Accepted| {
        rest.extend(step.tokens.clone());
        ControlFlow::Continue(())
    };
    machine.propose(&again, 50, each).expect("a launch");
    assert_eq!(rest, first[20..]);
}

#[test]
fn a_text_that_is_known_is_chosen_whatever_the_rows_choose() {
    let mut machine = machine(placed(&least(), 8, 2), 9);
    let script: Vec<u32> = [1, 2, 3, 4, 5].iter().copied().cycle().take(40).collect();
    let gave = together(&mut machine, &Text { tokens: &[1, 2], left: 30, script: Some(&script), ..GREEDY }, 40);
    assert_eq!(tokens(&gave), script[..30]);
    assert!(gave.len() <= 10, "{} steps", gave.len());
    assert!(gave.iter().skip(8).any(|step| step.tokens.len() > 5));
}

#[test]
fn launches_with_proposals_end_early_as_others_do() {
    let mut machine = machine(placed(&least(), 2, 2), 1);
    let text = Text { tokens: &[1, 2, 3], left: 20, ..GREEDY };
    let expected = tokens(&together(&mut machine, &text, 20));
    let mut seen = 0;
    let steps = machine.propose(&text, 20, &mut |_| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(steps.expect("it ends well"), 2);
    machine.abort_handle().abort();
    let aborted = machine.propose(&text, 20, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(aborted, Err(LaunchError::Aborted { .. })), "{aborted:?}");
    let task = machine.program().tasks[0].id;
    machine.inject(DeviceFault::Opcode { task, opcode: 99 }).expect("the device");
    let broken = machine.propose(&text, 20, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(broken, Err(LaunchError::Opcode { .. })), "{broken:?}");
    machine.mend().expect("the device");
    assert_eq!(tokens(&together(&mut machine, &text, 20)), expected);
}

#[test]
fn what_cannot_be_proposed_is_refused() {
    let run = |machine: &mut DeviceMachine, text: &Text, steps| {
        machine.propose(text, steps, &mut |_| ControlFlow::Continue(())).expect_err("it is refused").to_string()
    };
    let text = Text { tokens: &[1], ..GREEDY };
    let mut without = load(placed(&least(), 2, 2), &least(), 0, options());
    assert!(run(&mut without, &text, 1).contains("made without proposals"));
    let mut machine = machine(placed(&least(), 2, 2), 0);
    assert!(run(&mut machine, &text, 0).contains("1 to 4096 steps"));
    assert!(run(&mut machine, &GREEDY, 1).contains("a text of 0 tokens"));
    assert!(run(&mut machine, &Text { left: 0, ..text }, 1).contains("cannot continue by 0"));
    assert!(run(&mut machine, &Text { pages: &[0; PAGES + 1], ..text }, 1).contains("at most 4 pages"));
    assert!(run(&mut machine, &Text { left: PAGES * PAGE + 1, ..text }, 1).contains("the cells are refused"));
    assert!(run(&mut machine, &Text { pages: &[0, 0, 1, 2], left: 20, ..text }, 1).contains("the cells are refused"));
}

/// Rows of one sequence compute what each of them computes alone: wherever a step's first row is.
#[test]
fn a_row_computes_the_same_in_any_company() {
    use tilewright_megakernel::lower::LOGITS;
    let rows = 8;
    let mut machine = machine(placed(&least(), rows, 2), 3);
    let text: Vec<u32> = (0..48u32).map(|at| (at * at + 3) % 40).collect();
    feed(&mut machine, &text, GREEDY.pages);
    // Around a border of blocks of 16 tokens, which is where rows before it would be.
    let alone: Vec<Vec<u32>> = (20..40)
        .map(|position| {
            machine.step(&single(rows, text[position], position, GREEDY.pages).view()).expect("a step");
            bits(&machine.f32_row(LOGITS, 0).expect("a row"))
        })
        .collect();
    for first in 20..40 - rows {
        let cells = Cells {
            tokens: (first..first + rows).map(|at| text[at] as i32).collect(),
            positions: (first..first + rows).map(|at| at as i32).collect(),
            page_table: GREEDY.pages.repeat(rows),
        };
        machine.step(&cells.view()).expect("a step");
        for row in 0..rows {
            let found = bits(&machine.f32_row(LOGITS, row).expect("a row"));
            assert!(found == alone[first + row - 20], "position {} in row {row}", first + row);
        }
    }
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// The host reads a step's tokens after the word that says that the step has ended, which orders
/// them.
const SHOWN: &str = "st.relaxed.sys.u32 global";

/// Barriers and ordered accesses of the end of a step with proposals, each removed or weakened,
/// with tokens that come through the ring and with tokens that are read from their pages.
#[test]
fn mutants_of_the_end_of_a_step_are_found_out() {
    let least_of = DeviceOptions { warps: 2, stage_bytes: 1024, prefetch_stages: 1, ..with_proposals() }
        .with_thresholds(|limits| limits.sums_bytes = 256);
    let plain = DeviceOptions { packets: false, stream_tokens: false, ..least_of };
    let text = Text { tokens: &[1, 2, 3], left: 7, ..GREEDY };
    // Of each recording the mutants that survive, by their place and what was done.
    let survivors = |options: DeviceOptions| -> Vec<String> {
        let subject = |seed| load(placed(&least(), 2, 2), &least(), seed, options);
        let expected = tokens(&together(&mut subject(0), &text, 7));
        let finds_out = |seed: u64, kernel: &tilewright_codegen::ir::Kernel| {
            let Ok(kernel) = verify(kernel.clone()) else { return true };
            let mut machine = subject(seed);
            feed(&mut machine, text.tokens, text.pages);
            let mut gave = Vec::new();
            let refused = machine.replace_kernel(&kernel).is_err();
            let ended = machine.propose(&text, 7, &mut |step: &Accepted| {
                gave.extend(step.tokens.clone());
                ControlFlow::Continue(())
            });
            refused || ended.is_err() || gave != expected
        };
        let all = mutants(&record(subject(0).plan()));
        let own: Vec<_> = all.iter().filter(|mutant| mutant.src.file().ends_with("kernel/propose.rs")).collect();
        assert!(own.len() >= 5, "{} mutants", own.len());
        let left = own.into_iter().filter(|mutant| !(0..3).any(|seed| finds_out(seed, &mutant.kernel)));
        left.map(|mutant| format!("{} {} {}", mutant.src, mutant.inst, mutant.change)).collect()
    };
    let [streamed, plain] = [survivors(least_of), survivors(plain)];
    let place = |text: &String| text.split(' ').next().map(str::to_owned);
    let both: Vec<_> = streamed.iter().filter(|one| plain.iter().any(|other| place(one) == place(other))).collect();
    assert!(both.iter().all(|survivor| survivor.contains(SHOWN) && survivor.ends_with("weak")), "{both:#?}");
}
