//! Properties of batched requests under any requests and faults: no page is lost, no token is lost
//! or delivered twice, and each sequence gets the tokens that it gets alone.

mod drive;
mod fake;

use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;

use super::submission::{EndTokens, Event, Statistics, Submission};
use drive::{Action, Drive, TrialConfig, TrialRequest};
use fake::{FakeFault, FakeFlow, VOCAB};

fn configs() -> impl Strategy<Value = TrialConfig> {
    let pools = (1usize..20, 1usize..5, prop::bool::ANY);
    // Rows of a step beyond those that decode hold chunks of prompts.
    let widest = prop::option::weighted(0.2, 1usize..12);
    let steps = (1usize..9, 0usize..30, 1usize..40, widest, 1usize..9, prop::option::weighted(0.3, (1u64..8, 1u64..5)));
    let model = (prop::option::of((1usize..3, 4usize..30)), 12usize..60, prop::option::of(flows()));
    (pools, steps, [0.5, 0.2].map(prop::bool::weighted), model).prop_map(
        |(
            (pages, page_tokens, sharing),
            (seats, more, prompt_rows, widest, steps, pace),
            [launches, prompts_first],
            model,
        )| {
            let (memory, positions, flow) = model;
            let rows = seats + more;
            let prompt_rows = prompt_rows.min(rows);
            // Blocks that divide pages.
            let flow = flow.map(|(covered, block, states, apart)| {
                let block_tokens =
                    (1..=page_tokens).rev().filter(|size| page_tokens % size == 0).nth(block).unwrap_or(1);
                (FakeFlow { covered, block_tokens, states }, apart)
            });
            TrialConfig {
                pages,
                page_tokens,
                seats,
                rows,
                prompt_rows,
                widest,
                steps,
                pace,
                sharing,
                prompts_first,
                launches,
                memory,
                positions,
                flow,
            }
        },
    )
}

/// Tokens that are covered, which divisor of a page a block has, whether there are states, whether
/// the phases are told apart.
fn flows() -> impl Strategy<Value = (usize, usize, bool, bool)> {
    (prop_oneof![Just(0), 0usize..30], 0usize..3, prop::bool::ANY, prop::bool::ANY)
}

prop_compose! {
    /// Requests that begin alike more often than not.
    fn requests()(
        alike in 0usize..9,
        own in prop::collection::vec(0..VOCAB as u32, 1..4),
        new in 0usize..30,
        priority in 0i32..3,
        deadline in prop::option::weighted(0.2, 0u64..60),
        taken in prop::option::weighted(0.2, 0usize..8),
        (hot, punished, speculate) in (prop::bool::ANY, prop::bool::weighted(0.3), prop::bool::ANY),
        masked in prop::bool::weighted(0.3),
        ends in ends(),
        scored in prop::option::weighted(0.2, 0usize..3),
    ) -> TrialRequest {
        let prompt: Vec<u32> = (0..alike as u32).map(|at| at % 5).chain(own).collect();
        let asked = TrialRequest::new(&prompt, new).urgent(priority);
        let asked = if hot { asked.hot(new as u64) } else { asked };
        let asked = if punished { asked.punished() } else { asked };
        let asked = if masked && !punished { asked.masked() } else { asked };
        let asked = if speculate { asked.speculating() } else { asked }.ending(ends);
        let asked = if let Some(count) = scored { asked.scored(count) } else { asked };
        let deadline = deadline.map(Duration::from_millis);
        TrialRequest { taken, submission: Submission { deadline, ..asked.submission } }
    }
}

/// Tokens that end a request; most requests end at those of the model alone.
fn ends() -> impl Strategy<Value = EndTokens> {
    let tokens = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(0..VOCAB as u32, 1..3)];
    (prop::bool::weighted(0.2), tokens).prop_map(|(ignore_model, tokens)| EndTokens {
        ignore_model,
        tokens,
        min_new_tokens: 0,
    })
}

fn faults() -> impl Strategy<Value = FakeFault> {
    let logits = prop::sample::select(vec![FakeFault::NaN, FakeFault::NoToken]);
    prop_oneof![(0usize..5).prop_map(FakeFault::Abort), (0usize..5).prop_map(FakeFault::Broken), logits]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => requests().prop_map(Action::Submit),
        8 => Just(Action::Step),
        2 => (0usize..64, requests()).prop_map(|(at, asked)| Action::Follow(at, asked)),
        1 => (0usize..64).prop_map(Action::Cancel),
        1 => faults().prop_map(Action::Fault),
        1 => (1u64..20).prop_map(Action::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_each_request_gets_what_it_gets_alone(
        config in configs(),
        actions in prop::collection::vec(actions(), 1..60),
    ) {
        let mut drive = Drive::new(&config);
        actions.iter().for_each(|action| drive.act(action));
        drive.finish();
    }
}

/// Runs these requests, all submitted at once.
fn run(config: &TrialConfig, asked: impl IntoIterator<Item = TrialRequest>) -> (Drive, Statistics) {
    let mut drive = Drive::new(config);
    for asked in asked {
        drive.submit(asked).expect("it fits");
    }
    let statistics = drive.finish();
    (drive, statistics)
}

/// Steps are planned again with the rows that the machines have, fewer than there are seats.
#[test]
fn machines_with_fewer_rows_than_planned_serve_every_request() {
    for widest in [1, 3, 8] {
        let config = TrialConfig { seats: 6, rows: 32, prompt_rows: 32, widest: Some(widest), ..TrialConfig::ample() };
        let config = TrialConfig { sharing: false, ..config };
        let asked: Vec<TrialRequest> = unended(&config, 20, 5).take(6).collect();
        let (drive, statistics) = run(&config, asked);
        assert_eq!(drive.ended.len(), 6);
        // 20 tokens of each prompt, and the four new ones that are fed.
        assert!(statistics.steps as usize >= (6 * 24usize).div_ceil(widest), "{widest}: {statistics:?}");
    }
}

/// A number of different tokens, none of which ends a sequence.
fn tokens(count: usize, from: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * at + from) % (VOCAB - 1)) as u32).collect()
}

/// Requests for a number of tokens, with prompts of a length, that get all of them.
fn unended(config: &TrialConfig, prompt: usize, new: usize) -> impl Iterator<Item = TrialRequest> {
    let asked = (0..).map(move |from| TrialRequest::new(&tokens(prompt, from), new));
    asked.filter(move |asked| asked.alone(config).0.len() == new)
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_page_table_with_two_pages_exchanged_is_found_out() {
    let config = TrialConfig { memory: Some((1, 1000)), ..TrialConfig::ample() };
    let mut drive = Drive::new(&config);
    drive.act(&Action::Submit(TrialRequest::new(&tokens(7, 1), 6)));
    // The first page is in its place when the second is begun, and not any more after it.
    drive.act(&Action::Step);
    drive.act(&Action::Fault(FakeFault::Exchanged));
    drive.finish();
}

/// A config with a flow, whose selection for a request must be the one that it makes for the
/// request alone: from the request's own blocks and state.
fn flow(states: bool) -> TrialConfig {
    let flow = FakeFlow { covered: 4, block_tokens: 2, states };
    TrialConfig { pages: 8, seats: 2, rows: 8, positions: 24, flow: Some((flow, true)), ..TrialConfig::ample() }
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_state_that_goes_over_to_the_next_request_is_found_out() {
    let config = flow(true);
    let mut drive = Drive::new(&config);
    let mut asked = unended(&config, 3, 9);
    drive.submit(asked.next().expect("a request"));
    drive.finish();
    drive.act(&Action::Fault(FakeFault::StatesOfAnyone));
    drive.submit(asked.next().expect("another"));
    drive.finish();
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_prompt_that_writes_no_summaries_is_found_out() {
    let config = flow(false);
    let mut drive = Drive::new(&config);
    drive.act(&Action::Fault(FakeFault::NoSummaries));
    drive.submit(unended(&config, 9, 6).next().expect("a request"));
    drive.finish();
}

/// A request for that many tokens, greedy, that would say the same token twice in a row without its
/// mask.
fn stuttering(config: &TrialConfig, new: usize) -> TrialRequest {
    let all = (0..).map(|seed| TrialRequest::new(&tokens(2, seed), new));
    let stutters = |asked: &TrialRequest| {
        let text = asked.alone(config).0;
        text.len() == new && text.windows(2).any(|pair| pair[0] == pair[1])
    };
    all.into_iter().find(|asked| stutters(asked) && asked.clone().masked().alone(config).0.len() == new).expect("one")
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn masks_that_hide_nothing_are_found_out() {
    let config = TrialConfig { launches: true, ..TrialConfig::ample() };
    let mut drive = Drive::new(&config);
    drive.act(&Action::Fault(FakeFault::NoMasks));
    drive.submit(stuttering(&config, 12).masked());
    drive.finish();
}

#[test]
fn a_request_with_masks_shares_launches_of_many_steps() {
    let config = TrialConfig { launches: true, seats: 2, rows: 8, ..TrialConfig::ample() };
    let mut drive = Drive::new(&config);
    drive.submit(stuttering(&config, 12).masked());
    drive.submit(stuttering(&config, 12));
    // The prompts, and a launch.
    drive.step();
    drive.step();
    assert_eq!(drive.batcher.statistics().tokens, 24);
    drive.finish();
}

/// Two requests of 20 tokens each at the end, in pages for 32, then as many again in the same slots
/// and pages.
#[test]
fn who_is_computed_again_and_who_comes_later_finds_no_state_of_before() {
    for (states, launches) in [(false, false), (true, false), (true, true)] {
        let config = TrialConfig { launches, ..flow(states) };
        let mut drive = Drive::new(&config);
        for asked in unended(&config, 7, 14).take(4) {
            drive.submit(asked).expect("it fits");
        }
        let statistics = drive.finish();
        assert!(statistics.preemptions > 0, "states: {states}, {statistics:?}");
    }
}

/// A page of a prompt is shared; one with tokens that a flow chose for is not, as a prompt of the
/// same tokens attends to all of them.
#[test]
fn pages_are_shared_as_far_as_they_depend_on_tokens_alone() {
    let config = TrialConfig { pages: 64, ..flow(true) };
    let mut drive = Drive::new(&config);
    let first = unended(&config, 9, 10).next().expect("a request");
    drive.submit(first);
    drive.finish();
    drive.act(&Action::Follow(0, TrialRequest::new(&[1], 1)));
    assert_eq!(drive.finish().shared_tokens, 8, "two pages of four tokens of the prompt");
}

/// A prompt in chunks together with a request that the flow selects blocks for: their steps
/// alternate.
#[test]
fn prompts_and_rows_that_are_chosen_for_take_turns() {
    let config = TrialConfig { pages: 64, positions: 100, ..flow(true) };
    let mut drive = Drive::new(&config);
    drive.submit(unended(&config, 4, 30).next().expect("a request"));
    (0..3).for_each(|_| _ = drive.step());
    drive.submit(TrialRequest::new(&tokens(11, 2), 1));
    let mut rows = vec![drive.batcher.statistics().rows];
    while drive.ended.is_empty() {
        drive.step();
        rows.push(drive.batcher.statistics().rows);
    }
    let rows: Vec<u64> = rows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // It takes its seat in a step of the other; then eight of its eleven rows, a row of the other,
    // and the other three.
    assert_eq!(rows, [1, 8, 1, 3]);
    drive.finish();
}

#[test]
fn a_shared_prompt_is_computed_once() {
    let system = tokens(40, 3);
    let asked = |last: u32| TrialRequest::new(&[&system[..], &[last]].concat(), 1);
    let mut drive = Drive::new(&TrialConfig::ample());
    drive.submit(asked(0));
    drive.finish();
    (1..6).for_each(|last| _ = drive.submit(asked(last)));
    let statistics = drive.finish();
    assert_eq!(statistics.shared_tokens, 5 * 40);
    assert_eq!(statistics.rows, 41 + 5);
    let alone = run(&TrialConfig { sharing: false, ..TrialConfig::ample() }, (0..6).map(asked)).1;
    assert_eq!((alone.shared_tokens, alone.rows), (0, 6 * 41));
}

#[test]
fn a_step_holds_prompts_beside_decoding_rows_up_to_the_bound() {
    let config = TrialConfig { rows: 8, prompt_rows: 3, ..TrialConfig::ample() };
    let mut drive = Drive::new(&config);
    let long = unended(&config, 8, 8).next().expect("a request");
    drive.submit(long);
    drive.step();
    assert_eq!(drive.batcher.statistics().rows, 8, "no request decodes: the prompt has the whole step");
    drive.submit(TrialRequest::new(&tokens(9, 2), 1));
    for step in 1..4 {
        drive.step();
        assert_eq!(drive.batcher.statistics().rows, 8 + 4 * step, "a row that decodes and three of the prompt");
    }
    assert_eq!(drive.ended.len(), 1);
    drive.finish();
}

/// A prompt of 260 tokens arrives while a request decodes; a millisecond has 8 rows.
#[test]
fn a_chunk_beside_decoding_rows_is_as_long_as_the_bound_allows() {
    for (launches, pace) in [(false, Some((8, 4))), (true, Some((8, 4))), (true, None)] {
        let config = TrialConfig {
            rows: 128,
            prompt_rows: 128,
            steps: 1,
            launches,
            pace,
            positions: 300,
            pages: 100,
            ..TrialConfig::ample()
        };
        let mut drive = Drive::new(&config);
        drive.submit(getting(&config, |count| count == 40));
        drive.step();
        drive.submit(TrialRequest::new(&tokens(260, 2), 1));
        let mut rows = Vec::new();
        let mut before = drive.batcher.statistics().rows;
        while drive.ended.is_empty() {
            drive.step();
            let now = drive.batcher.statistics().rows;
            rows.push(now - before);
            before = now;
        }
        match pace {
            // Each width is tried twice, as the first time of a width does not count; 64 rows are
            // too many.
            Some(_) => assert_eq!(rows, [2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 21], "launches: {launches}"),
            None => assert_eq!(rows, [128, 128, 7], "a prompt comes in as fast as it can"),
        }
        drive.finish();
    }
}

#[test]
fn the_last_request_loses_its_pages_and_keeps_its_tokens() {
    // Two requests of 12 tokens each at the end, in pages for 16.
    let config = TrialConfig { pages: 4, page_tokens: 4, memory: Some((2, 1000)), ..TrialConfig::ample() };
    let (drive, statistics) = run(&config, unended(&config, 4, 9).take(2));
    assert!(statistics.preemptions > 0);
    let order: Vec<u64> = drive.ended.iter().map(|ticket| ticket.number()).collect();
    assert_eq!(order, [0, 1]);
}

#[test]
fn a_higher_priority_takes_the_seat_of_a_lower_one() {
    let config = TrialConfig { seats: 1, rows: 1, prompt_rows: 1, ..TrialConfig::ample() };
    let mut drive = Drive::new(&config);
    drive.submit(unended(&config, 4, 6).next().expect("a request"));
    (0..6).for_each(|_| _ = drive.step());
    drive.submit(TrialRequest::new(&tokens(4, 2), 1).urgent(-1));
    drive.submit(TrialRequest::new(&tokens(4, 3), 1).urgent(1));
    let statistics = drive.finish();
    let order: Vec<u64> = drive.ended.iter().map(|ticket| ticket.number()).collect();
    assert_eq!((order, statistics.preemptions), (vec![2, 0, 1], 1));
}

/// A request for 40 tokens after a prompt of one, that gets a number of them which `count` accepts.
fn getting(config: &TrialConfig, count: impl Fn(usize) -> bool) -> TrialRequest {
    let all = (0..).map(|seed| TrialRequest::new(&tokens(1, seed as usize), 40).hot(seed));
    all.into_iter().find(|asked| count(asked.alone(config).0.len())).expect("a request")
}

/// Both prompts in one step, then launches of at most 16 steps.
#[test]
fn a_launch_goes_on_until_somebody_waits_for_a_seat_that_is_free() {
    let config = TrialConfig { seats: 2, rows: 2, launches: true, ..TrialConfig::ample() };
    let early = getting(&config, |count| (4..9).contains(&count));
    let long = getting(&config, |count| count == 40);
    let length = early.alone(&config).0.len() as u64;
    for (waits, steps) in [(false, 16), (true, length - 1)] {
        let mut drive = Drive::new(&config);
        drive.submit(early.clone());
        drive.submit(long.clone());
        if waits {
            drive.submit(TrialRequest::new(&[1], 1));
        }
        drive.step();
        drive.step();
        assert_eq!(drive.batcher.statistics().steps, 1 + steps, "somebody waits: {waits}");
        drive.finish();
    }
}

#[test]
fn a_launch_is_left_when_somebody_calls_or_a_deadline_is_over() {
    let config = TrialConfig { launches: true, ..TrialConfig::ample() };
    for deadline in [false, true] {
        let mut drive = Drive::new(&config);
        let long = getting(&config, |count| count == 40);
        let limit = deadline.then_some(Duration::from_millis(5));
        drive.submit(TrialRequest { submission: Submission { deadline: limit, ..long.submission }, ..long });
        drive.step();
        let attention = drive.batcher.attention();
        let time = drive.time();
        let mut tokens = 0;
        drive.batcher.step(|_, event| {
            assert!(matches!(event, Event::Token(_)), "{event:?}");
            tokens += 1;
            if tokens == 3 && deadline {
                time.store(5, Ordering::Relaxed);
            } else if tokens == 3 {
                attention.store(true, Ordering::Relaxed);
            }
        });
        assert_eq!(tokens, 3);
        assert_eq!(drive.batcher.step(|_, _| ()), !deadline);
    }
}

#[test]
fn speculation_gives_the_same_text_in_fewer_steps_where_the_text_repeats_itself() {
    for (launches, hot) in [(false, false), (false, true), (true, false), (true, true)] {
        let config =
            TrialConfig { memory: Some((1, 1000)), launches, positions: 300, pages: 100, ..TrialConfig::ample() };
        // The first prompts whose text has no end in it.
        let asked = (0..VOCAB as u32).map(|token| TrialRequest::new(&[token], 60));
        let asked = asked.map(|asked| if hot { asked.hot(5) } else { asked });
        let Some(asked) = asked.max_by_key(|asked| asked.alone(&config).0.len()) else { continue };
        let length = asked.alone(&config).0.len() as u64;
        let plain = run(&config, [asked.clone()]).1;
        let fast = run(&config, [asked.speculating()]).1;
        assert_eq!((plain.tokens, plain.steps), (length, length));
        assert_eq!(fast.tokens, length);
        if !hot {
            assert!(length == 60 && fast.steps < 40, "{fast:?}");
            assert!(fast.accepted > 20, "{fast:?}");
        }
    }
}

#[test]
fn a_request_that_can_never_fit_is_refused_with_numbers() {
    let mut drive = Drive::new(&TrialConfig { pages: 3, page_tokens: 4, ..TrialConfig::ample() });
    let submit = |drive: &mut Drive, prompt: usize, new| {
        drive.batcher.submit(TrialRequest::new(&tokens(prompt, 1), new).submission).map_err(|error| error.to_string())
    };
    assert!(submit(&mut drive, 6, 7).is_ok());
    let text = submit(&mut drive, 6, 8).expect_err("one too many");
    assert!(text.contains("6 tokens and 8 new ones") && text.contains("12"), "{text}");
    assert!(submit(&mut drive, 0, 1).is_err_and(|text| text.contains("empty")));
    drive.batcher.cancel(super::submission::Ticket(0));
    assert!(drive.batcher.is_idle());
}

#[test]
fn a_deadline_ends_who_runs_and_who_waits() {
    let config = TrialConfig { seats: 1, rows: 1, prompt_rows: 1, ..TrialConfig::ample() };
    let mut drive = Drive::new(&config);
    for _ in 0..2 {
        let asked = TrialRequest::new(&[3, 4], 50);
        let deadline = Some(Duration::from_millis(10));
        drive.submit(TrialRequest { submission: Submission { deadline, ..asked.submission }, ..asked });
    }
    (0..3).for_each(|_| _ = drive.step());
    drive.act(&Action::Wait(10));
    assert!(!drive.step());
    assert_eq!(drive.ended.len(), 2);
    assert_eq!(drive.stories.values().map(|story| story.tokens.len()).sum::<usize>(), 2);
    drive.finish();
}

#[test]
fn what_a_launch_that_failed_wrote_is_never_shared() {
    let config = TrialConfig { launches: true, page_tokens: 2, ..TrialConfig::ample() };
    for fault in [FakeFault::Abort(8), FakeFault::Broken(8)] {
        let mut drive = Drive::new(&config);
        drive.submit(getting(&config, |count| count == 40));
        drive.step();
        drive.act(&Action::Fault(fault));
        drive.step();
        assert_eq!(drive.stories.values().map(|story| story.tokens.len()).sum::<usize>(), 9);
        drive.act(&Action::Follow(0, TrialRequest::new(&[1], 20)));
        assert_eq!(drive.finish().shared_tokens, 0);
    }
}

#[test]
fn a_fault_ends_the_requests_of_its_step_alone() {
    let config = TrialConfig { seats: 1, rows: 1, prompt_rows: 1, ..TrialConfig::ample() };
    for fault in [FakeFault::Abort(0), FakeFault::Broken(0), FakeFault::NaN] {
        let mut drive = Drive::new(&config);
        (0..2).for_each(|from| _ = drive.submit(TrialRequest::new(&[from], 3)));
        drive.step();
        drive.act(&Action::Fault(fault));
        drive.finish();
        let faults: Vec<bool> = drive.stories.values().map(|story| matches!(story.end, Some(Err(_)))).collect();
        assert_eq!(faults, [true, false], "{fault:?}");
    }
}

/// By one step, by launches of several, beside a request that the host chooses for, and by steps of
/// several tokens: the error names the position of the last token.
#[test]
fn a_row_that_a_machine_has_no_token_for_ends_its_request_alone() {
    for (steps, punished) in [(1, false), (16, false), (16, true)] {
        let config = TrialConfig { seats: 2, rows: 2, launches: true, steps, ..TrialConfig::ample() };
        let long = getting(&config, |count| count == 40);
        let beside = if punished { unended(&config, 2, 12).map(TrialRequest::punished).next() } else { None };
        let mut drive = Drive::new(&config);
        drive.submit(beside.unwrap_or_else(|| long.clone()));
        drive.submit(long);
        drive.step();
        drive.act(&Action::Fault(FakeFault::NoToken));
        drive.finish();
        let mut ends: Vec<_> = drive.stories.values().map(|story| (story.end.clone(), story.tokens.len())).collect();
        ends.sort_by_key(|(end, _)| matches!(end, Some(Ok(_))));
        assert_eq!(ends[0].1, 1, "the prompt's token alone was given");
        let text = ends[0].0.clone().and_then(Result::err).expect("a fault");
        assert!(text.starts_with("the logits after position 1 are not numbers (NaN), or infinite"), "{text}");
        assert!(matches!(ends[1].0, Some(Ok(_))), "{ends:?}");
    }
}

#[test]
fn a_speculating_request_that_a_machine_has_no_token_for_ends() {
    let config = TrialConfig { memory: Some((1, 1000)), launches: true, ..TrialConfig::ample() };
    let asked = (0..VOCAB as u32).map(|token| TrialRequest::new(&[token], 40));
    let asked = asked.max_by_key(|asked| asked.alone(&config).0.len()).expect("a request").speculating();
    for before in 1..6 {
        let mut drive = Drive::new(&config);
        drive.submit(asked.clone());
        (0..before).for_each(|_| _ = drive.step());
        let given: usize = drive.stories.values().map(|story| story.tokens.len()).sum();
        drive.act(&Action::Fault(FakeFault::NoToken));
        drive.finish();
        let story = drive.stories.values().next().expect("a story");
        if given < asked.alone(&config).0.len() {
            let text = story.end.clone().and_then(Result::err).expect("a fault");
            let said = format!("the logits after position {} are", story.tokens.len());
            assert!(text.starts_with(&said), "{text}");
        }
    }
}
