//! A timeline as the trace events that Chrome (`chrome://tracing`) and Perfetto read.
//!
//! Format: "Trace Event Format", complete events (`"ph": "X"`), times in microseconds. A block is a
//! thread; a task is an event with its phases as events inside.

use std::io::{self, Write};

use serde_json::json;

use super::{Timeline, TimelineTask};

/// Names of the phases.
const PHASES: [&str; 4] = ["wait", "load", "compute", "publish"];

impl Timeline {
    /// Writes the trace as one JSON object.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_trace(&self, writer: &mut dyn Write) -> io::Result<()> {
        write!(writer, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let name = |pid: usize, what: &str, name: String| json!({"ph": "M", "name": what, "pid": 0, "tid": pid, "args": {"name": name}});
        write!(writer, "{}", name(0, "process_name", "megakernel".into()))?;
        for block in 0..self.blocks {
            write!(writer, ",\n{}", name(block, "thread_name", format!("SM {block}")))?;
        }
        let start = self.start();
        for entry in &self.tasks {
            for event in self.events(entry, start) {
                write!(writer, ",\n{event}")?;
            }
        }
        writeln!(writer, "]}}")
    }

    fn events(&self, entry: &TimelineTask, start: u64) -> Vec<serde_json::Value> {
        let times = &entry.times;
        let micro = |moment: u64| moment.saturating_sub(start) as f64 / 1e3;
        let whole = times.published.saturating_sub(times.begun) as f64 / 1e3;
        let args = json!({"task": times.task.index(), "level": entry.level});
        let kind = &self.kinds[entry.kind];
        let mut events = vec![json!({
            "ph": "X", "name": entry.label, "cat": kind, "pid": 0, "tid": times.block, "ts": micro(times.begun),
            "dur": whole, "args": args,
        })];
        let mut moment = times.begun;
        for (name, length) in PHASES.into_iter().zip(times.phases()) {
            if length > 0 {
                events.push(json!({
                    "ph": "X", "name": name, "cat": kind, "pid": 0, "tid": times.block, "ts": micro(moment),
                    "dur": length as f64 / 1e3,
                }));
            }
            moment += length;
        }
        events
    }
}
