//! The walk over cells and the comparison of pairs say the same.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;

use super::access::Accesses;
use super::findings::Findings;
use super::{grid, pairs};
use crate::ops::Copy;
use crate::program::{BufferId, BufferKind, CounterId, Op, Program, Region, Span, TaskId, Wait};
use crate::validate::order::{Execution, HappensBefore, OrderGraph};
use crate::validate::report::Report;

/// Per task: the box it writes, the box it reads, its queue, and a task that it waits for.
type AccessRecipe = Vec<([usize; 4], [usize; 4], usize, usize)>;

fn boxes() -> impl Strategy<Value = [usize; 4]> {
    [0..6usize, 1..5usize, 0..6usize, 1..5usize]
}

fn region(buffer: BufferId, [a, b, c, d]: [usize; 4]) -> Region {
    Region::new(buffer, &[Span::new(a, (a + b).min(6)), Span::new(c, (c + d).min(6))])
}

fn program(recipe: &AccessRecipe, kind: BufferKind) -> Program {
    let mut p = Program::new("boxes", Target::host(3));
    let buffer = p.add_buffer("b", kind, DType::F32, &[6, 6]);
    let mut queues = vec![Vec::new(); 3];
    for (at, (write, read, sm, after)) in recipe.iter().enumerate() {
        let counter = p.add_counter("");
        // The footprint is not at issue here: only the declared regions are walked.
        let whole = Region::new(buffer, &[Span::all(6), Span::all(6)]);
        let waits = if *after < at { vec![Wait { counter: CounterId(*after as u32), threshold: 1 }] } else { vec![] };
        let id = p.add_task("t", Op::from(Copy { src: whole, dst: whole }), waits, vec![counter]).expect("a copy");
        p.tasks[id.index()].writes = vec![region(buffer, *write)];
        p.tasks[id.index()].reads = if at % 3 == 0 { vec![] } else { vec![region(buffer, *read)] };
        queues[*sm].push(TaskId::from(at));
    }
    p.queues = Some(queues);
    p
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn cells_and_pairs_agree(
        recipe in prop::collection::vec((boxes(), boxes(), 0..3usize, 0..20usize), 1..14),
        kind in prop::sample::select(vec![BufferKind::Activation, BufferKind::Output, BufferKind::KvPool]),
    ) {
        let program = program(&recipe, kind);
        let graph = OrderGraph::new(&program, true);
        let execution = Execution::new(&graph);
        prop_assume!(execution.is_complete());
        let order = HappensBefore::new(&graph, &execution);
        let accesses = Accesses::new(&program, &order);
        let kinds = |walk: fn(&Program, usize, &[super::access::TaskAccess], &mut Findings)| {
            let mut findings = Findings::new(&program, &order);
            let mut report = Report::default();
            walk(&program, 0, accesses.of(0), &mut findings);
            findings.report(&mut report);
            report.errors.iter().map(|e| e.kind.name()).collect::<BTreeSet<_>>()
        };
        let cells = kinds(grid::walk);
        let all = kinds(pairs::walk);
        prop_assert_eq!(cells.is_empty(), all.is_empty(), "{:?} {:?}", cells, all);
        prop_assert!(cells.is_subset(&all), "{cells:?} {all:?}");
    }
}
