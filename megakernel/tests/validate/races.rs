//! Rules on order and memory: deadlocks, races, partial waits, aliasing, undefined reads, gaps.

use insta::assert_snapshot;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::program::{BufferId, BufferKind, CounterId, Program, Region, Span, TaskId};
use tilewright_megakernel::validate::{Kind, Note, Reason, validate};

use crate::twins::{
    H, OUT, X, Y, add, among, assert_valid, buffers, changed, cols, copy, only, set_op, signals, text, valid, wait,
};

/// H1: the waits are acyclic and each queue is in order, but together they form a circle.
#[test]
fn h1_queue_order_and_waits_together_deadlock() {
    // sm0: sum, left.  sm1: right, store.  sum waits for left, which is queued behind it.
    let swapped = |p: &mut Program| p.queues.as_mut().unwrap()[0].reverse();
    assert_snapshot!(only("Deadlock", swapped), @r#"program: deadlock, 3 tasks never run: t0 `left` is queued on sm0 behind t2, t2 `sum` waits on c0 for t0; break the cycle"#);
    let mut p = buffers();
    let part = |at: usize| copy(cols(X, at, at + 1), cols(H, at, at + 1));
    let bc = p.add_counter("b to c");
    let da = p.add_counter("d to a");
    p.add_task("a", part(0), vec![wait(da.0, 1)], vec![]).unwrap();
    p.add_task("b", part(1), vec![], vec![bc]).unwrap();
    p.add_task("c", part(2), vec![wait(bc.0, 1)], vec![]).unwrap();
    p.add_task("d", part(3), vec![], vec![da]).unwrap();
    p.add_task("out", copy(cols(X, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    assert_valid(&p);
    p.queues = Some(vec![[0, 1].map(TaskId).to_vec(), [2, 3, 4].map(TaskId).to_vec()]);
    let report = validate(&p);
    assert_snapshot!(text(&report, "Deadlock"), @r#"program: deadlock, 5 tasks never run: t0 `a` waits on c1 for t3, t3 `d` is queued on sm1 behind t2, t2 `c` waits on c0 for t1, t1 `b` is queued on sm0 behind t0; break the cycle"#);
    let Kind::Deadlock { cycle, stuck } = &report.errors[0].kind else { panic!("{report}") };
    assert_eq!((*stuck, report.errors.len()), (5, 1));
    let queued = |reason: &Reason| matches!(reason, Reason::Queue(_));
    assert_eq!(cycle.steps.iter().filter(|step| queued(&step.reason)).count(), 2);
}

#[test]
fn cycle_is_rejected() {
    let circle = |p: &mut Program| {
        p.tasks[0].waits.push(wait(1, 1));
    };
    assert_snapshot!(only("Deadlock", circle), @r#"program: deadlock, 3 tasks never run: t0 `left` waits on c1 for t2, t2 `sum` waits on c0 for t0; break the cycle"#);
}

/// A ring of tasks, each of which waits for the one before it.
fn ring(count: usize, closed: bool) -> Program {
    let mut p = buffers();
    p.add_task("out", copy(cols(X, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    for at in 0..count as u32 {
        p.add_counter("");
        let waits = if at == 0 && !closed { vec![] } else { vec![wait((at + count as u32 - 1) % count as u32, 1)] };
        p.add_task("ring", copy(cols(X, 0, 1), cols(H, 0, 1)), waits, signals(&[at])).unwrap();
    }
    p
}

#[test]
fn huge_cycles_are_found_without_recursion() {
    for count in [5_000, 200_000] {
        assert_valid(&ring(count, false));
        let report = validate(&ring(count, true));
        let Kind::Deadlock { cycle, stuck } = &report.errors[0].kind else { panic!("{report}") };
        assert_eq!((*stuck, cycle.steps.len()), (count, count));
    }
    assert_snapshot!(text(&validate(&ring(5_000, true)), "Deadlock"), @r#"program: deadlock, 5000 tasks never run: t1 `ring` waits on c4999 for t5000, t5000 `ring` waits on c4998 for t4999, t4999 `ring` waits on c4997 for t4998, t4998 `ring` waits on c4996 for t4997, t4997 `ring` waits on c4995 for t4996, t4996 `ring` waits on c4994 for t4995, ... 4988 more tasks ..., t7 `ring` waits on c5 for t6, t6 `ring` waits on c4 for t5, t5 `ring` waits on c3 for t4, t4 `ring` waits on c2 for t3, t3 `ring` waits on c1 for t2, t2 `ring` waits on c0 for t1; break the cycle"#);
}

#[test]
fn missing_happens_before_edge() {
    assert_snapshot!(only("ReadAfterWrite", |p| p.tasks[3].waits.pop()), @r#"buffer b3 `y`: t2 `sum` writes b3[0:1, 0:8] and t3 `store` reads b3[0:1, 0:8] with no order between them; make the reader wait for the writer"#);
}

#[test]
fn a_writer_waits_for_the_readers_before_it() {
    // The store reads y while another task overwrites it.
    let overwrite = |p: &mut Program| {
        p.add_task("late", copy(cols(X, 2, 5), cols(Y, 2, 5)), vec![wait(1, 1)], vec![]).unwrap();
        p.queues.as_mut().unwrap()[0].push(TaskId(4));
    };
    assert_snapshot!(only("WriteAfterRead", overwrite), @r#"buffer b3 `y`: t3 `store` reads b3[0:1, 0:8] and t4 `late` writes b3[0:1, 2:5] with no order between them; make the writer wait for the reader"#);
    let mut ordered = valid();
    overwrite(&mut ordered);
    let done = ordered.add_counter("stored");
    ordered.tasks[3].signals.push(done);
    ordered.tasks[4].waits = vec![wait(done.0, 1)];
    assert_valid(&ordered);
}

#[test]
fn two_unordered_writers_one_buffer() {
    let mut p = buffers();
    p.add_task("one", copy(cols(X, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    p.add_task("two", copy(cols(X, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    assert_snapshot!(text(&validate(&p), "WriteAfterWrite"), @r#"buffer b4 `out`: t0 `one` writes b4[0:1, 0:8] and t1 `two` writes b4[0:1, 0:8] with no order between them; make one writer wait for the other, or write disjoint regions"#);
}

#[test]
fn fully_overlapping_tiles_race_and_disjoint_tiles_do_not() {
    assert_valid(&valid());
    let overlap = |p: &mut Program| set_op(p, 1, crate::twins::linear(2, 8));
    assert_snapshot!(only("WriteAfterWrite", overlap), @r#"buffer b2 `h`: t0 `left` writes b2[0:1, 0:4] and t1 `right` writes b2[0:1, 2:8] with no order between them; make one writer wait for the other, or write disjoint regions"#);
    let whole = changed(|p| set_op(p, 1, crate::twins::linear(0, 8)));
    assert!(whole.has("WriteAfterWrite"), "{whole}");
}

#[test]
fn partial_wait_on_shared_counter() {
    assert_snapshot!(only("PartialJoin", |p| p.tasks[2].waits[0].threshold = 1), @r#"task t2 `sum`: threshold 1 of 2 on counter c0 lets t2 `sum` pass too early: t1 `right` writes b2[0:1, 4:8] and t2 `sum` reads b2[0:1, 0:8] with no order between them; raise the threshold to 2 or use a counter of its own"#);
}

#[test]
fn two_producers_one_consumer_partial() {
    // Placed on one SM the left tile is always first: waiting for one of two is exact, if only the
    // left is read.
    let mut p = valid();
    p.queues = Some(vec![[0, 1].map(TaskId).to_vec(), [2, 3].map(TaskId).to_vec()]);
    p.tasks[2].waits[0].threshold = 1;
    let half = |buffer| cols(buffer, 0, 4);
    set_op(&mut p, 2, add(half(H), half(X), half(Y)));
    set_op(&mut p, 3, add(cols(X, 0, 8), cols(X, 0, 8), cols(OUT, 0, 8)));
    let report = validate(&p);
    assert!(report.is_valid(), "{report}");
    let note = Note::PartialWait { counter: CounterId(0), threshold: 1, producers: 2 };
    assert!(report.warnings.iter().any(|w| w.note == note), "{report}");
    p.queues.as_mut().unwrap()[0].reverse();
    assert!(validate(&p).has("PartialJoin"), "{}", validate(&p));
}

/// Two tasks append to a pool and one reads it, as lowered attention does.
fn appends(order: bool) -> Program {
    let mut p = buffers();
    let pool = p.add_buffer("pool", BufferKind::KvPool, DType::BF16, &[1, 8]);
    let counter = p.add_counter("appended");
    p.add_task("first", copy(cols(X, 0, 4), cols(pool, 0, 4)), vec![], vec![counter]).unwrap();
    p.add_task("second", copy(cols(X, 4, 8), cols(pool, 4, 8)), vec![], vec![counter]).unwrap();
    let waits = if order { vec![wait(0, 2)] } else { vec![] };
    p.add_task("attend", copy(cols(pool, 0, 8), cols(OUT, 0, 8)), waits, vec![]).unwrap();
    p
}

#[test]
fn kv_read_before_append() {
    assert_valid(&appends(true));
    let report = validate(&appends(false));
    assert!(report.has("ReadAfterWrite") || report.has("WriteAfterRead"), "{report}");
}

/// H7: 8,002 unordered writers and an unordered reader. All are checked, and the report stays
/// short.
#[test]
fn h7_eight_thousand_tasks_are_all_checked() {
    let mut p = buffers();
    for at in 0..8_002 {
        p.add_task(format!("w{at}"), copy(cols(X, 0, 8), cols(H, 0, 8)), vec![], vec![]).unwrap();
    }
    p.add_task("reader", copy(cols(H, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    let report = validate(&p);
    let Kind::WriteAfterWrite(conflicts) = &report.errors[1].kind else { panic!("{report}") };
    assert_eq!((conflicts.count, conflicts.pairs.len()), (8_001, 8));
    let Kind::ReadAfterWrite(conflicts) = &report.errors[0].kind else { panic!("{report}") };
    assert_eq!((conflicts.count, report.errors.len()), (1, 2));
    assert!(report.to_string().len() < 1_000, "{report}");
}

#[test]
fn a_report_does_not_grow_with_the_pairs() {
    let mut p = buffers();
    for at in 0..3_000 {
        let (src, dst) = if at % 2 == 0 { (X, H) } else { (H, Y) };
        p.add_task("t", copy(cols(src, 0, 8), cols(dst, 0, 8)), vec![], vec![]).unwrap();
    }
    p.add_task("out", copy(cols(X, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    let report = validate(&p);
    assert!(report.errors.len() <= 4 && report.to_string().len() < 2_000, "{report}");
}

#[test]
fn reads_find_what_was_written() {
    // Nothing was ever written.
    assert_snapshot!(among("UnwrittenRead", |p| set_op(p, 2, add(cols(Y, 0, 8), cols(X, 0, 8), cols(Y, 0, 8)))), @r#"buffer b3 `y`: t2 `sum` reads b3[0:1, 0:8], of which b3[0:1, 0:8] was never written; write them in a task that the reader waits for"#);
    // H4: the tiles cover columns 0 to 4 and 5 to 8 of 8.
    assert_snapshot!(only("UnwrittenRead", |p| set_op(p, 1, crate::twins::linear(5, 8))), @r#"buffer b2 `h`: t2 `sum` reads b2[0:1, 0:8], of which b2[0:1, 4:5] was never written; write them in a task that the reader waits for"#);
}

#[test]
fn outputs_are_written_completely() {
    assert_snapshot!(only("OutputGap", |p| set_op(p, 3, copy(cols(Y, 0, 6), cols(OUT, 0, 6)))), @r#"buffer b4 `out`: b4[0:1, 6:8] is written by no task, an output is written completely; cover it"#);
    assert_snapshot!(only("OutputGap", |p| p.add_buffer("more", BufferKind::Output, DType::F32, &[3])), @r#"buffer b6 `more`: b6[0:3] is written by no task, an output is written completely; cover it"#);
}

/// `y` moved over `h` by `offset` bytes.
fn overlaid(p: &mut Program, offset: u64) {
    p.buffers[Y.index()].arena = Some(offset);
}

/// h is copied to the output, then y takes its bytes, is written and read.
fn reuse(ordered: bool, early: bool) -> Program {
    let mut p = buffers();
    overlaid(&mut p, 16);
    p.add_counter("h is read");
    p.add_counter("y is written");
    p.add_task("write h", copy(cols(X, 0, 8), cols(H, 0, 8)), vec![], vec![]).unwrap();
    p.add_task("read h", copy(cols(H, 0, 8), cols(OUT, 0, 8)), vec![], signals(&[0])).unwrap();
    let waits = if ordered { vec![wait(0, 1)] } else { vec![] };
    p.add_task("write y", copy(cols(X, 0, 8), cols(Y, 0, 8)), waits, signals(&[1])).unwrap();
    let late = if early { cols(H, 0, 8) } else { cols(Y, 0, 8) };
    let more = p.add_buffer("more", BufferKind::Output, DType::F32, &[1, 8]);
    p.add_task("last", copy(late, cols(more, 0, 8)), vec![wait(1, 1)], vec![]).unwrap();
    p.queues = Some(vec![[0, 1].map(TaskId).to_vec(), [2, 3].map(TaskId).to_vec()]);
    p
}

#[test]
fn page_alias_accept_and_reject() {
    assert_valid(&reuse(true, false));
    assert_snapshot!(text(&validate(&reuse(false, false)), "AliasRace"), @r#"
    buffer b2 `h`: t2 `write y` writes b3[0:1, 0:8] and t1 `read h` reads b2[0:1, 0:8] with no order between them; order the tasks, or move the buffers apart in the arena
    buffer b3 `y`: t0 `write h` writes b2[0:1, 0:8] and t2 `write y` writes b3[0:1, 0:8] with no order between them; order the tasks, or move the buffers apart in the arena
    "#);
    assert_snapshot!(text(&validate(&reuse(true, true)), "Clobbered"), @r#"buffer b2 `h`: t3 `last` reads b2[0:1, 0:8], but its bytes were overwritten when t2 `write y` wrote b3[0:1, 0:8]; read before that write, or move the buffers apart in the arena"#);
    // One element further the buffers do not meet.
    let mut apart = reuse(false, true);
    overlaid(&mut apart, 32);
    apart.tasks[3].waits.clear();
    apart.tasks[0].signals.push(CounterId(1));
    apart.tasks[2].signals.clear();
    apart.tasks[3].waits.push(wait(1, 1));
    assert_valid(&apart);
}

#[test]
fn a_task_does_not_read_and_write_the_same_bytes_through_two_buffers() {
    assert_snapshot!(among("SelfOverlap", |p| overlaid(p, 16)), @r#"task t2 `sum`: the read b2[0:1, 0:8] and the write b3[0:1, 0:8] overlap within one task, their order is not defined; use separate buffers, or exactly the region that the op may update in place"#);
}

#[test]
fn regions_too_fine_to_compare_in_the_arena_are_refused() {
    let mut p = buffers();
    let tall = |p: &mut Program, name: &str, offset| {
        let id = p.add_buffer(name, BufferKind::Activation, DType::F32, &[1 << 22, 4]);
        p.buffers[id.index()].arena = Some(offset);
        id
    };
    let a = tall(&mut p, "a", 1 << 10);
    let b = tall(&mut p, "b", 1 << 12);
    let column = |buffer: BufferId, at| Region::new(buffer, &[Span::all(1 << 22), Span::one(at)]);
    let source = p.add_buffer("source", BufferKind::Input, DType::F32, &[1 << 22, 4]);
    p.add_task("a", copy(column(source, 0), column(a, 0)), vec![], vec![]).unwrap();
    p.add_task("b", copy(column(source, 1), column(b, 1)), vec![], vec![]).unwrap();
    p.add_task("out", copy(cols(X, 0, 8), cols(OUT, 0, 8)), vec![], vec![]).unwrap();
    assert_snapshot!(text(&validate(&p), "AliasTooFine"), @r#"buffer b7 `b`: regions of 4194305 or more separate byte runs share the arena with other buffers, at most 4194304 are compared; give the buffer arena bytes of its own"#);
    p.buffers[b.index()].arena = Some(1 << 30);
    assert_valid(&p);
}

/// Boxes that cut each other everywhere: the check goes by pairs instead of cells and says the
/// same.
#[test]
fn irregular_tiles_are_checked_by_pairs() {
    let mut p = Program::new("irregular", Target::host(1));
    let side = 1usize << 14;
    let source = p.add_buffer("source", BufferKind::Input, DType::F32, &[side, side]);
    let work = p.add_buffer("work", BufferKind::Activation, DType::F32, &[side, side]);
    let out = p.add_buffer("out", BufferKind::Output, DType::F32, &[side, side]);
    let band = |buffer, dim: usize, lo, hi| {
        let mut spans = [Span::all(side), Span::all(side)];
        spans[dim] = Span::new(lo, hi);
        Region::new(buffer, &spans)
    };
    // 2,400 rows and 2,400 columns: about 5.8 million cells.
    for at in 0..2_400 {
        p.add_task("row", copy(band(source, 0, at * 4, at * 4 + 4), band(work, 0, at * 4, at * 4 + 4)), vec![], vec![])
            .unwrap();
    }
    p.add_task("rest", copy(band(source, 0, 9_600, side), band(work, 0, 9_600, side)), vec![], vec![]).unwrap();
    for at in 0..2_400 {
        p.add_task("col", copy(band(work, 1, at * 3, at * 3 + 3), band(out, 1, at * 3, at * 3 + 3)), vec![], vec![])
            .unwrap();
    }
    p.add_task("rest", copy(band(work, 1, 7_200, side), band(out, 1, 7_200, side)), vec![], vec![]).unwrap();
    p.queues = Some(vec![(0..p.tasks.len()).map(TaskId::from).collect()]);
    assert_valid(&p);
    let mut unordered = p.clone();
    unordered.queues = None;
    assert!(validate(&unordered).has("ReadAfterWrite"));
    let mut gap = p.clone();
    let src = band(source, 0, 9_601, side);
    let dst = band(work, 0, 9_601, side);
    set_op(&mut gap, 2_400, copy(src, dst));
    assert!(validate(&gap).has("UnwrittenRead"));
    let last = p.tasks.len() - 1;
    set_op(&mut p, last, copy(band(work, 1, 7_201, side), band(out, 1, 7_201, side)));
    assert!(validate(&p).has("OutputGap"));
}

/// 20,000 tasks side by side and 2,000 that wait for all of them: too wide for clocks, so the order
/// is asked from lanes.
#[test]
fn programs_too_wide_for_clocks_are_checked_all_the_same() {
    let writers = 20_000;
    let readers = 2_000;
    let mut p = Program::new("wide", Target::host(1));
    let source = p.add_buffer("source", BufferKind::Input, DType::F32, &[1, writers]);
    let work = p.add_buffer("work", BufferKind::Activation, DType::F32, &[1, writers]);
    let out = p.add_buffer("out", BufferKind::Output, DType::F32, &[1, readers]);
    let all = p.add_counter("all");
    for at in 0..writers {
        p.add_task("write", copy(cols(source, at, at + 1), cols(work, at, at + 1)), vec![], vec![all]).unwrap();
    }
    for at in 0..readers {
        let waits = vec![wait(all.0, writers as u32)];
        p.add_task("read", copy(cols(work, at * 7, at * 7 + 1), cols(out, at, at + 1)), waits, vec![]).unwrap();
    }
    assert_valid(&p);
    let mut early = p.clone();
    early.tasks[writers + 5].waits[0].threshold -= 1;
    assert!(validate(&early).has("PartialJoin"));
    p.tasks[writers + 5].waits.clear();
    let report = validate(&p);
    assert!(report.has("ReadAfterWrite") || report.has("WriteAfterRead"), "{report}");
    assert_eq!(report.errors.len(), 1, "{report}");
}
