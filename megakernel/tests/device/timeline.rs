//! Timelines: complete, in order, and absent from a kernel that was not asked for one.

use std::collections::HashSet;

use serde_json::Value;
use tilewright_codegen::verify::verify;
use tilewright_megakernel::vm::device::timeline::{LevelTable, Timeline};
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, record};

use super::lab::{Cells, least, machine, options, tiny};

fn timed() -> DeviceMachine {
    let mut machine = machine(&tiny(), 1, 3, 0, DeviceOptions { timeline: true, ..options() });
    machine.step(&Cells::at(1, 0).view()).unwrap();
    machine
}

#[test]
fn every_task_has_its_times_in_order() {
    let machine = timed();
    let times = machine.times().unwrap();
    assert_eq!(times.len(), machine.program().tasks.len());
    assert_eq!(times.iter().map(|t| t.task).collect::<HashSet<_>>().len(), times.len());
    for t in &times {
        let moments = [t.begun, t.waited, t.loaded.unwrap_or(t.waited), t.computed, t.published];
        assert!(moments.is_sorted() && t.begun > 0, "{t:?}");
    }
}

#[test]
fn the_table_adds_up_to_the_step() {
    let machine = timed();
    let timeline = Timeline::new(machine.program(), &machine.times().unwrap());
    let table = LevelTable::of(&timeline);
    let names: Vec<&str> = table.levels.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["embed", "qkv", "attention", "o", "gate_up", "down", "logits", "argmax"]);
    assert_eq!(table.levels.iter().map(|l| l.times).collect::<Vec<_>>(), [1, 2, 2, 2, 2, 2, 1, 1]);
    let sum: f64 = table.levels.iter().map(|l| l.length * l.times as f64).sum();
    assert!((sum - table.step).abs() < 1e-6 * table.step.max(1.0), "{sum} {}", table.step);
    assert!(table.to_string().lines().count() == table.levels.len() + 2, "{table}");
}

#[test]
fn the_trace_is_json_with_an_event_for_every_task() {
    let machine = timed();
    let timeline = Timeline::new(machine.program(), &machine.times().unwrap());
    let mut bytes = Vec::new();
    timeline.write_trace(&mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let tasks = events.iter().filter(|e| e["args"]["task"].is_number()).count();
    assert_eq!(tasks, machine.program().tasks.len());
    assert!(events.iter().all(|e| e["ph"] == "M" || e["dur"].as_f64().is_some_and(|d| d >= 0.0)));
    let svg = timeline.svg();
    // A title for each task, and the picture's own; axes, a legend of phases and a dark mode.
    assert_eq!(svg.matches("<title>").count(), tasks + 1);
    for part in [">time, µs<", ">SM<", ">waiting<", ">publishing<", "prefers-color-scheme:dark"] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_kernel_without_a_timeline_has_no_trace_of_it() {
    let text = |timeline| {
        let machine = machine(&least(), 1, 2, 0, DeviceOptions { timeline, ..options() });
        let kernel = verify(record(machine.plan())).unwrap();
        tilewright_codegen::ptx::emit(&kernel)
    };
    let with = text(true);
    let without = text(false);
    assert!(with.contains("globaltimer"));
    assert!(!without.contains("globaltimer") && !without.contains("trace"));
}
