//! Small files whose regions are made to be dear: the time that a program takes is bounded, and
//! what is beyond is refused by name.

use insta::assert_snapshot;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::ops::Copy;
use tilewright_megakernel::program::{BufferKind, Program, Region, Span, TaskId};
use tilewright_megakernel::validate::validate;

use crate::twins::text;
use tilewright_megakernel::testing::Rng;

/// A program of copies in one queue.
fn copies(buffers: &[(&str, BufferKind, &[usize], Option<u64>)], copies: Vec<(Region, Region)>) -> Program {
    let mut p = Program::new("copies", Target::host(1));
    for &(name, kind, shape, arena) in buffers {
        let id = p.add_buffer(name, kind, DType::BF16, shape);
        p.buffers[id.index()].arena = arena;
    }
    for (src, dst) in copies {
        p.add_task("copy", Copy { src, dst }, vec![], vec![]).expect("equal boxes");
    }
    p.queues = Some(vec![(0..p.tasks.len()).map(TaskId::from).collect()]);
    p
}

#[test]
fn boxes_of_few_tasks_that_cut_each_other_into_many_pieces_are_refused_in_time() {
    let extent = 1000;
    let mut rng = Rng::new(3);
    let [x, h, y] = [0, 1, 2].map(tilewright_megakernel::program::BufferId);
    let mut list = Vec::new();
    // Boxes are compared by where they begin in the first dimension: the one that covers all reads
    // comes last, when lines along the other dimensions have cut them.
    for at in 0..300 {
        let thin: [Span; 3] = std::array::from_fn(|_| Span::one(rng.below(extent)));
        let mut line = [Span::new(at, extent), thin[0], thin[1], thin[2]];
        line[1 + at % 3] = Span::all(extent);
        list.push((Region::new(x, &line), Region::new(h, &line)));
    }
    let all = [Span::new(400, extent), Span::all(extent), Span::all(extent), Span::all(extent)];
    list.push((Region::new(x, &all), Region::new(h, &all)));
    for at in 0..250 {
        let read = [Span::new(500 + at, extent), all[1], all[2], all[3]];
        list.push((Region::new(h, &read), Region::new(y, &read)));
    }
    let shape = [extent; 4];
    let buffers = [
        ("x", BufferKind::Input, &shape[..], None),
        ("h", BufferKind::Activation, &shape[..], None),
        ("y", BufferKind::Activation, &shape[..], None),
    ];
    let report = validate(&copies(&buffers, list));
    assert_snapshot!(text(&report, "BoxesTooFine"), @"buffer b1 `h`: regions of this buffer cut each other into pieces too many to follow, at most 67108864 are; use regions that begin and end at common indexes");
}

#[test]
fn visits_of_shared_bytes_are_bounded() {
    let rows = 1 << 20;
    let [x, a, b] = [0, 1, 2].map(tilewright_megakernel::program::BufferId);
    let column = |buffer, at| Region::new(buffer, &[Span::all(rows), Span::one(at)]);
    let list = (0..600).map(|at| (column(x, at % 2), column(if at < 300 { a } else { b }, at % 2))).collect();
    let shape = [rows, 2];
    let buffers = [
        ("x", BufferKind::Input, &shape[..], None),
        ("a", BufferKind::Activation, &shape[..], Some(0)),
        ("b", BufferKind::Activation, &shape[..], Some(0)),
    ];
    let report = validate(&copies(&buffers, list));
    assert!(report.has("AliasTooFine"), "{report}");
}
