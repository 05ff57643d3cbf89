//! Rules on tables, waits and placement: one invalid twin each, with the text that a person reads.

use insta::assert_snapshot;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::program::{BufferKind, CounterId, Program, SmId, Source, TaskId};

use crate::twins::{CELL, H, W, Y, among, assert_valid, only, signals, valid, wait};

#[test]
fn ids_are_indexes() {
    assert_snapshot!(among("WrongId", |p| p.buffers[5].id.0 = 9), @r#"buffer b5 `cell`: id 9, an id is the index of its entry, 5; renumber the table"#);
    assert_snapshot!(only("WrongId", |p| p.tasks[3].id.0 = 0), @r#"task t3 `store`: id 0, an id is the index of its entry, 3; renumber the table"#);
    assert_snapshot!(only("WrongId", |p| p.counters[1].id.0 = 7), @r#"counter c1 `sum`: id 7, an id is the index of its entry, 1; renumber the table"#);
}

#[test]
fn buffer_names_are_unique() {
    assert_snapshot!(only("DuplicateName", |p| p.buffers[3].name = "h".into()), @r#"buffer b3 `h`: the name is also that of b2, names are unique; rename one of them"#);
}

#[test]
fn a_rank_is_one_to_four() {
    assert_snapshot!(only("Rank", |p| p.buffers[CELL.index()].shape = vec![]), @r#"buffer b5 `cell`: rank 0, supported are 1 to 4; merge or add dimensions"#);
    assert_snapshot!(only("Rank", |p| p.buffers[CELL.index()].shape = vec![1, 1, 1, 1, 8]), @r#"buffer b5 `cell`: rank 5, supported are 1 to 4; merge or add dimensions"#);
}

#[test]
fn an_extent_is_not_zero() {
    assert_snapshot!(only("ZeroExtent", |p| p.buffers[CELL.index()].shape = vec![1, 0]), @r#"buffer b5 `cell`: extent 0 in dimension 1, every extent is at least 1; drop the buffer"#);
}

#[test]
fn a_size_fits_in_memory() {
    assert_snapshot!(only("TooLarge", |p| p.buffers[CELL.index()].shape = vec![1 << 40, 1 << 40]), @r#"buffer b5 `cell`: shape [1099511627776, 1099511627776] of 2-byte elements, the size must fit in 9223372036854775807 bytes; use smaller extents"#);
}

#[test]
fn weights_and_only_weights_have_a_source() {
    assert_snapshot!(only("NoSource", |p| p.buffers[W.index()].source = None), @r#"buffer b1 `w`: no source, a weight has one; name its tensor or give its values"#);
    let source = || Some(Source::Tensor("y".into()));
    assert_snapshot!(only("SourceForbidden", |p| p.buffers[Y.index()].source = source()), @r#"buffer b3 `y`: a source on a buffer of kind activation, only weights have one; remove it or make the buffer a weight"#);
}

#[test]
fn values_fill_their_buffer() {
    assert_snapshot!(only("ValuesLength", |p| p.buffers[W.index()].source = Some(Source::Values(vec![0.0; 63]))), @r#"buffer b1 `w`: 63 values for 64 elements, the source gives one value per element; give exactly 64"#);
}

#[test]
fn only_activations_live_in_the_arena_inside_of_it_and_aligned() {
    assert_snapshot!(only("ArenaForbidden", |p| p.buffers[CELL.index()].arena = Some(64)), @r#"buffer b5 `cell`: an arena offset on a buffer of kind cell, only activations live in the arena; remove the offset"#);
    assert_snapshot!(only("ArenaEnd", |p| p.buffers[Y.index()].arena = Some(u64::MAX - 1)), @r#"buffer b3 `y`: arena offset 18446744073709551614 and 16 bytes, the end must be at most 9223372036854775807; choose a lower offset"#);
    assert_snapshot!(only("ArenaAlign", |p| p.buffers[H.index()].arena = Some(66)), @r#"buffer b2 `h`: arena offset 66, it must be a multiple of the element's 4 bytes; align it"#);
}

#[test]
fn only_pools_of_codes_have_a_scale_and_weights_of_tensors_an_offset() {
    assert_snapshot!(only("PoolScale", |p| p.buffers[Y.index()].scale = Some(0.5)), @"buffer b3 `y`: scale 0.5, a KV pool of f8e4m3 has a finite one above 0 and no other buffer has one; mend or remove it");
    assert_snapshot!(only("WeightOffset", |p| p.buffers[Y.index()].offset = Some(1.0)), @"buffer b3 `y`: offset 1, weights of f32 that come from a tensor have a finite one and no other buffer has one; mend or remove it");
    assert_snapshot!(only("WeightMultiplier", |p| p.buffers[Y.index()].multiplier = Some(2.0)), @"buffer b3 `y`: multiplier 2, weights of f32 that come from a tensor have a finite one other than 0 and no other buffer has one; mend or remove it");
}

/// H5: a head start fires the consumer early.
#[test]
fn counters_start_at_zero() {
    assert_snapshot!(only("CounterInit", |p| p.counters[0].init = 1), @r#"counter c0 `tiles`: initial value 1, every counter starts at 0; a head start would release a task before its producers"#);
}

#[test]
fn counters_of_waits_and_signals_exist() {
    assert_snapshot!(only("WaitsOnMissing", |p| p.tasks[3].waits.push(wait(9, 1))), @r#"task t3 `store`: a wait on missing counter c9, the program has 2 counters; add it or wait on another"#);
    assert_snapshot!(only("SignalsMissing", |p| p.tasks[3].signals.push(CounterId(9))), @r#"task t3 `store`: a signal of missing counter c9, the program has 2 counters; add it or signal another"#);
}

/// `extra` more counters that `right` signals; gives their indexes.
fn more_counters(p: &mut Program, extra: usize) -> Vec<u32> {
    (0..extra).map(|at| p.add_counter(format!("extra.{at}")).0).collect()
}

#[test]
fn capacity_overflow() {
    let waits = |p: &mut Program, count: usize| {
        for counter in more_counters(p, count) {
            p.tasks[(counter % 2) as usize].signals.push(CounterId(counter));
            p.tasks[2].waits.push(wait(counter, 1));
        }
    };
    let mut full = valid();
    waits(&mut full, 7);
    assert_valid(&full);
    assert_snapshot!(only("TooManyWaits", |p| waits(p, 8)), @r#"task t2 `sum`: 9 waits, a task has at most 8; join producers in one counter"#);
    let signal = |p: &mut Program, count: usize| {
        let counters = more_counters(p, count);
        p.tasks[3].signals.extend(signals(&counters));
    };
    let mut full = valid();
    signal(&mut full, 8);
    assert_valid(&full);
    assert_snapshot!(only("TooManySignals", |p| signal(p, 9)), @r#"task t3 `store`: 9 signals, a task has at most 8; share counters between the waiters"#);
}

#[test]
fn waits_and_signals_of_a_task_are_distinct() {
    assert_snapshot!(only("DuplicateWait", |p| p.tasks[2].waits.push(wait(0, 1))), @r#"task t2 `sum`: 2 waits on counter c0, a task waits once on a counter; keep the highest threshold"#);
    assert_snapshot!(only("DuplicateSignal", |p| p.tasks[0].signals.push(CounterId(0))), @r#"task t0 `left`: 2 signals of counter c0, a task signals a counter once; drop the repetition"#);
}

#[test]
fn a_threshold_is_positive() {
    assert_snapshot!(among("ZeroThreshold", |p| p.tasks[2].waits[0].threshold = 0), @r#"task t2 `sum`: threshold 0 on counter c0, a wait has at least 1; drop the wait or raise the threshold"#);
}

#[test]
fn unsatisfiable_threshold_is_rejected() {
    assert_snapshot!(only("ThresholdTooHigh", |p| p.tasks[2].waits[0].threshold = 3), @r#"task t2 `sum`: threshold 3 on counter c0, which has 2 producers; it can never be satisfied, lower it"#);
    assert_snapshot!(only("ThresholdTooHigh", |p| p.tasks[2].waits[0].threshold = u32::MAX), @r#"task t2 `sum`: threshold 4294967295 on counter c0, which has 2 producers; it can never be satisfied, lower it"#);
}

#[test]
fn a_counter_waited_on_has_a_producer() {
    assert_snapshot!(only("NoProducer", |p| p.tasks[2].signals.clear()), @r#"task t3 `store`: a wait on counter c1 that no task signals, it can never be satisfied; add a producer or drop the wait"#);
}

#[test]
fn a_wait_that_only_its_own_task_could_satisfy_is_rejected() {
    let own = |p: &mut Program, threshold| {
        p.tasks[2].signals.push(CounterId(0));
        p.tasks[2].waits[0].threshold = threshold;
    };
    let mut harmless = valid();
    own(&mut harmless, 2);
    assert_valid(&harmless);
    assert_snapshot!(only("SelfWait", |p| own(p, 3)), @r#"task t2 `sum`: threshold 3 on counter c0, whose 3 producers include the task itself; it can never be satisfied, drop the wait or the signal"#);
}

#[test]
fn a_target_has_an_sm() {
    let no_sm = |p: &mut Program| {
        p.target = Target { sms: 0, ..Target::host(1) };
        p.queues = None;
    };
    assert_snapshot!(only("NoSms", no_sm), @r#"program: a target of 0 SMs, at least 1 is needed to run anything; set `target.sms`"#);
}

/// H8: placement is checked with the rest; a placed program is validated as placed.
#[test]
fn every_task_is_in_exactly_one_queue_of_one_per_sm() {
    let queue = |p: &mut Program, sm: usize, tasks: &[u32]| {
        p.queues.as_mut().unwrap()[sm] = tasks.iter().copied().map(TaskId).collect();
    };
    assert_snapshot!(only("QueueCount", |p| p.target.sms = 3), @r#"program: 2 queues for 3 SMs, there is exactly one per SM; schedule the program again"#);
    assert_snapshot!(only("QueueCount", |p| p.queues.as_mut().unwrap().push(vec![])), @r#"program: 3 queues for 2 SMs, there is exactly one per SM; schedule the program again"#);
    assert_snapshot!(only("QueuesMissing", |p| queue(p, 1, &[1, 3, 4])), @r#"queue of sm1: missing task t4 at position 2, the program has 4 tasks; schedule the program again"#);
    assert_snapshot!(only("QueuedTwice", |p| queue(p, 1, &[1, 3, 0])), @r#"task t0 `left`: queued on sm0 and again on sm1, a task runs once; keep one of them"#);
    assert_snapshot!(only("QueuedTwice", |p| queue(p, 0, &[0, 2, 0])), @r#"task t0 `left`: queued on sm0 and again on sm0, a task runs once; keep one of them"#);
    assert_snapshot!(only("Unqueued", |p| queue(p, 1, &[1])), @r#"task t3 `store`: in no queue, every task of a placed program is in exactly one; schedule the program again"#);
}

#[test]
fn pins_are_in_range_and_honoured() {
    let mut pinned = valid();
    pinned.tasks[2].sm = Some(SmId(0));
    assert_valid(&pinned);
    assert_snapshot!(among("PinRange", |p| p.tasks[2].sm = Some(SmId(2))), @r#"task t2 `sum`: pinned to sm2, the target has SMs 0 to 1; choose one of them"#);
    assert_snapshot!(only("PinBroken", |p| p.tasks[2].sm = Some(SmId(1))), @r#"task t2 `sum`: pinned to sm1 but queued on sm0, a pin is binding; move the task or drop the pin"#);
    // A partial placement by hand stays what it says before scheduling.
    pinned.queues = None;
    assert_valid(&pinned);
}

/// H3: ids 5 and 9 in a table of two, and a task table out of order, are reports and not crashes.
#[test]
fn h3_sparse_ids_are_reported() {
    let mut p = Program::new("sparse", Target::host(1));
    p.add_buffer("a", BufferKind::Input, DType::F32, &[1]);
    p.add_buffer("b", BufferKind::Input, DType::F32, &[1]);
    (p.buffers[0].id.0, p.buffers[1].id.0) = (5, 9);
    let report = tilewright_megakernel::validate::validate(&p);
    assert_eq!(report.errors.len(), 2, "{report}");
    let swapped = among("WrongId", |p| p.tasks.swap(0, 3));
    assert_eq!(swapped.lines().count(), 2, "{swapped}");
}
