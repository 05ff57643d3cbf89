//! Clocks and lanes against the definition: withhold a task, run everything else, see what never
//! ran.

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;

use super::{Clocks, Execution, OrderGraph, Query, lanes};
use crate::ops::Copy;
use crate::program::{BufferKind, CounterId, Op, Program, Region, Span, Task, TaskId, Wait};

/// Per task: signals, waits (counter, how many fewer than all producers), queue.
type OrderRecipe = Vec<(Vec<u8>, Vec<(u8, u8)>, u8)>;

fn recipe(partial: u8) -> impl Strategy<Value = OrderRecipe> {
    let signals = prop::collection::vec(0..12u8, 0..3);
    let waits = prop::collection::vec((0..12u8, 0..=partial), 0..3);
    prop::collection::vec((signals, waits, 0..6u8), 1..40)
}

fn program(recipe: &OrderRecipe, placed: bool, partial: bool) -> Program {
    let mut p = Program::new("order", Target::host(6));
    let buffer = p.add_buffer("b", BufferKind::KvPool, DType::F32, &[1]);
    let region = Region::new(buffer, &[Span::all(1)]);
    (0..12).for_each(|_| _ = p.add_counter(""));
    for (signals, _, _) in recipe {
        let signals = signals.iter().map(|&c| CounterId(c.into())).collect();
        p.add_task("t", Op::from(Copy { src: region, dst: region }), vec![], signals).expect("a copy");
    }
    // A wait is for producers among the tasks before it, so that most programs run to their end.
    for (task, (_, waits, _)) in recipe.iter().enumerate() {
        for &(counter, fewer) in waits {
            let counter = CounterId(counter.into());
            let producers = |tasks: &[Task]| tasks.iter().filter(|t| t.signals.contains(&counter)).count() as u32;
            let before = producers(&p.tasks[..task]);
            let all = producers(&p.tasks);
            if let Some(threshold) = before.checked_sub(fewer.into()).filter(|t| *t > 0 && (partial || *t == all)) {
                p.tasks[task].waits.push(Wait { counter, threshold });
            }
        }
    }
    let mut queues = vec![Vec::new(); 6];
    recipe.iter().enumerate().for_each(|(task, (_, _, sm))| queues[usize::from(*sm)].push(TaskId::from(task)));
    p.queues = placed.then_some(queues);
    p
}

/// The tasks that run when one is withheld, by trying everything until nothing changes.
fn run_without(graph: &OrderGraph, withheld: u32) -> Vec<bool> {
    let mut done = vec![false; graph.tasks];
    loop {
        let fresh = (0..graph.tasks as u32).find(|&task| {
            let value = |counter| graph.producers.row(counter).iter().filter(|p| done[**p as usize]).count();
            let previous = graph.previous[task as usize];
            !done[task as usize]
                && task != withheld
                && graph.waits.row(task).iter().all(|wait| value(wait.counter) >= wait.threshold as usize)
                && (previous == super::NONE || done[previous as usize])
        });
        match fresh {
            Some(task) => done[task as usize] = true,
            None => return done,
        }
    }
}

fn compare(recipe: &OrderRecipe, placed: bool, partial: bool) -> Result<(), TestCaseError> {
    let program = program(recipe, placed, partial);
    prop_assert!(partial || !OrderGraph::new(&program, true).has_partial_waits());
    let graph = OrderGraph::new(&program, true);
    let execution = Execution::new(&graph);
    prop_assume!(execution.is_complete());
    let clocks = Clocks::new(&graph, &execution).expect("a small program");
    let mut queries = Vec::new();
    for earlier in 0..graph.tasks as u32 {
        queries.extend((0..graph.tasks as u32).filter(|&later| later != earlier).map(|later| Query { earlier, later }));
    }
    let answers = lanes::resolve(&graph, &execution, &queries);
    let without: Vec<Vec<bool>> = (0..graph.tasks as u32).map(|task| run_without(&graph, task)).collect();
    for (query, answer) in queries.iter().zip(answers) {
        let Query { earlier, later } = *query;
        let expected = !without[earlier as usize][later as usize];
        prop_assert_eq!(answer, expected, "lanes: {} before {}", earlier, later);
        let clock = clocks.before(earlier, later);
        prop_assert!(!clock || expected, "clocks: {earlier} before {later}");
        prop_assert!(clock == expected || graph.has_partial_waits(), "clocks: {earlier} before {later}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_joins(recipe in recipe(0), placed: bool) {
        compare(&recipe, placed, false)?;
    }

    #[test]
    fn partial_waits(recipe in recipe(2), placed: bool) {
        compare(&recipe, placed, true)?;
    }
}

/// More sources than one block of lanes holds.
#[test]
fn lanes_work_in_blocks() {
    let chain: OrderRecipe = (0..600).map(|_| (vec![], vec![], 0)).collect();
    let program = program(&chain, true, false);
    let graph = OrderGraph::new(&program, true);
    let execution = Execution::new(&graph);
    let queries: Vec<Query> = (0..600).map(|earlier| Query { earlier, later: 300 }).collect();
    let answers = lanes::resolve(&graph, &execution, &queries);
    assert!(answers.iter().enumerate().all(|(earlier, before)| *before == (earlier < 300) || earlier == 300));
}

/// A width that goes up and down does not multiply the chains: narrow levels are bridged.
#[test]
fn chains_are_as_many_as_the_widest_level() {
    let mut p = program(&vec![], false, false);
    let region = Region::new(crate::program::BufferId(0), &[Span::all(1)]);
    let mut before: Option<(CounterId, u32)> = None;
    for level in 0..40u32 {
        let counter = p.add_counter("");
        let width = if level % 2 == 0 { 30 } else { 7 };
        for _ in 0..width {
            let waits = before.iter().map(|&(counter, threshold)| Wait { counter, threshold }).collect();
            p.add_task("t", Op::from(Copy { src: region, dst: region }), waits, vec![counter]).expect("a copy");
        }
        before = Some((counter, width));
    }
    let graph = OrderGraph::new(&p, true);
    let clocks = Clocks::new(&graph, &Execution::new(&graph)).expect("a small program");
    assert_eq!(clocks.chains(), 30);
    // The tasks of a level have one clock, which is kept once; each level adds at most one of 30
    // entries.
    assert!(clocks.entries() <= 40 * 30, "{} entries", clocks.entries());
}
