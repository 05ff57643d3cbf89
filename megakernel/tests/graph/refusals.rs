//! Programs that no graph of launches computes.

use tilewright_layout::DType;
use tilewright_megakernel::program::{BufferKind, Program, Wait};
use tilewright_megakernel::validate::Checked;
use tilewright_megakernel::vm::graph::GraphPlan;

use super::devices::{self, small};
use super::lab::{TARGET, program, tiny};

/// A valid program is refused for this task and this reason, in one line.
fn refused(program: Program, task: &str, why: &str) {
    let checked = Checked::new(program).unwrap_or_else(|rejected| panic!("{rejected}"));
    let text = GraphPlan::new(&checked, TARGET).expect_err("is refused").to_string();
    assert!(text.contains(task) && text.contains(why) && text.lines().count() == 1, "{text}");
}

#[test]
fn heads_and_pools_of_other_sizes_and_types_are_named() {
    refused(
        program(&tiny(16), 32, 1),
        "layers.0.attention[0]",
        "dimensions of a head: 16, and a device needs 32, 64, 80, 96, 112, 128",
    );
    let mut wide = program(&tiny(32), 32, 1);
    for buffer in wide.buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::KvPool) {
        buffer.dtype = DType::F32;
    }
    refused(wide, "layers.0.qkv.h0[0]", "is f32, a device needs bf16");
}

/// A task that is left out, and a wait for a part of the own level.
#[test]
fn levels_that_no_order_of_launches_serves_are_refused() {
    let mut part = program(&tiny(32), 32, 3);
    // Keys and values of a pool need not all be written: the program stays valid.
    let last = part.tasks.iter().rposition(|task| task.label.contains("qkv.h1")).unwrap();
    let counter = part.tasks[last].signals[0];
    part.tasks.remove(last);
    for (at, task) in part.tasks.iter_mut().enumerate() {
        task.id = at.into();
        task.waits.iter_mut().filter(|wait| wait.counter == counter).for_each(|wait| wait.threshold -= 1);
    }
    refused(part, "layers.1.qkv.h0[0]", "a level that computes a part of its result");

    let mut chain = program(&tiny(32), 32, 2);
    let gates: Vec<usize> =
        (0..chain.tasks.len()).filter(|&at| chain.tasks[at].label.contains("layers.0.gate_up")).collect();
    let counter = chain.add_counter("a part of gate/up");
    chain.tasks[gates[0]].signals.push(counter);
    chain.tasks[gates[1]].waits.push(Wait { counter, threshold: 1 });
    refused(chain, "layers.0.gate_up[1]", "tasks that wait for parts of their own level");
}

/// A plan of one device has none of the launches that several meet by.
#[test]
fn a_program_of_several_devices_is_none_of_one() {
    let two = devices::program(&small(32), [32, 2, 1], false);
    refused(two, "the program is for 2 devices", "this machine has one");
    let one = Checked::new(program(&tiny(32), 32, 1)).unwrap();
    assert_eq!(GraphPlan::new(&one, TARGET).unwrap().meet, None);
}
