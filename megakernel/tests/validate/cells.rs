//! Index operands are cells, each of one role: what indexes memory is set and checked by the host
//! alone.

use insta::assert_snapshot;
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::ops::{Attention, Embed, Op, Operands, Sample};
use tilewright_megakernel::program::{BufferKind, Program, Source};
use tilewright_megakernel::validate::{Kind, validate};

use crate::twins::text;

/// A step of two rows that samples: every role of a cell, and every op that reads one.
fn step(qk_norm: bool) -> Program {
    let spec = Llama {
        qk_norm,
        ..Llama::small().hidden(16).layers(1).head_dim(8).inner(16).vocab(24).max_positions(64).heads(2, 1)
    };
    let options = LowerOptions { rows: 2, sampling: true, ..LowerOptions::for_context(32) };
    lower(&spec, &|_| DType::BF16, Target::host(2), &options).expect("the model lowers")
}

/// Regression: these programs were accepted once, and a device followed unchecked indexes.
#[test]
fn index_operands_of_every_other_kind_are_refused() {
    let mut refused = 0;
    for program in [step(false), step(true)] {
        assert!(validate(&program).is_valid(), "{}", validate(&program));
        let cells: Vec<_> = program.buffers.iter().filter(|b| b.kind == BufferKind::Cell).map(|b| b.id).collect();
        assert_eq!(cells.len(), 4, "token, position, page_table, request");
        for cell in cells {
            for kind in BufferKind::ALL.into_iter().filter(|kind| *kind != BufferKind::Cell) {
                let mut changed = program.clone();
                let buffer = &mut changed.buffers[cell.index()];
                buffer.kind = kind;
                buffer.source = (kind == BufferKind::Weight).then(|| Source::Random("numbers".into()));
                let name = buffer.name.clone();
                let report = validate(&changed);
                assert!(report.has("Operand"), "`{name}` as {kind} is accepted: {report}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 40);
}

#[test]
fn a_cell_of_two_roles_is_refused() {
    let mut program = step(false);
    let ids = program.tasks.iter().find_map(|task| task.op.get::<Embed>()).expect("it embeds").ids;
    let operands = program.buffers.clone();
    let at = program.tasks.iter().position(|task| task.op.is::<Attention>()).expect("it attends");
    let mut attention = program.tasks[at].op.get::<Attention>().expect("it was looked for").clone();
    attention.at.position = ids;
    let op = Op::from(attention);
    let footprint = op.footprint(&Operands::new(&operands)).expect("both cells have a number for each row");
    (program.tasks[at].reads, program.tasks[at].writes) = (footprint.reads, footprint.writes);
    program.tasks[at].op = op;
    let report = validate(&program);
    assert!(report.errors.iter().all(|error| matches!(error.kind, Kind::CellRole { .. })), "{report}");
    assert_snapshot!(text(&report, "CellRole"), @"task t4 `layers.0.attention[0]`: b12 is read as position, an earlier task reads it as token; a cell has one role, use two cells");
}

/// A `sample` whose requests are its positions.
#[test]
fn requests_are_a_cell_of_their_own() {
    let mut program = step(false);
    let sample = program.tasks.iter_mut().find_map(|task| task.op.get_mut::<Sample>()).expect("it samples");
    sample.request = sample.position;
    assert!(validate(&program).has("Operand"), "a request has eight words");
}
