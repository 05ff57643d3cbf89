//! The plan against the clock: what the cost model says of a decode step, beside what was measured.

use maud::{Markup, html};

use super::super::board::{Board, Entry};
use super::super::chart::{Chart, Line, Mark, WIDE};
use super::{commit, link, microseconds, nothing};
use crate::cli::Failure;
use crate::cli::plan::cost::Step;

/// A measured row, and what the model says.
struct Planned<'r> {
    entry: Entry<'r>,
    us: f64,
    ratio: f64,
}

/// The view.
pub fn plan(board: &Board<'_>) -> Result<Markup, Failure> {
    let rows: Vec<Planned<'_>> = board.ours("decode").iter().filter_map(planned).collect();
    let chart = if rows.is_empty() {
        html! {}
    } else {
        chart(&rows)?
    };
    Ok(html! {
        p { "What " code { "tilewright plan" } " says of launches that feed themselves, over what was measured. The model knows today's kernels: rows of
            earlier builds lie below 1." }
        @if rows.is_empty() { (nothing("No row is a decode step of a known model on a known device.")) }
        (chart)
        div class="scroll" tabindex="0" role="group" aria-label="plan" { table {
            thead { tr { @for head in ["shape", "device", "commit", "planned, µs", "measured, µs", "planned / measured"] {
                th scope="col" { (head) } } } }
            tbody { @for Planned { entry, us, ratio } in &rows { tr data-row=(entry.number) {
                th scope="row" { (entry.label()) }
                td { (entry.device()) }
                td { (commit(entry)) }
                td class="number" { (microseconds(*us)) }
                td class="number" { (link(entry, &microseconds(entry.row.median_us.unwrap_or(f64::NAN)))) }
                td class="number" { (format!("{ratio:.3}")) }
            } } }
        } }
    })
}

/// Tokens of a launch that feeds itself; half of them lie behind the mean position.
const TOKENS: u64 = 200;

fn planned<'r>(entry: &Entry<'r>) -> Option<Planned<'r>> {
    if !entry.row.variant.starts_with("launches of 200") {
        return None;
    }
    let ((_, spec), target) = (entry.model()?, Board::target(&entry.call.device)?);
    let (rows, context) = (entry.extent("batch")?, entry.extent("context")?);
    let us = Step::of(&spec, &target, 1, rows as usize, context.saturating_sub(TOKENS / 2) as usize).seconds() * 1e6;
    Some(Planned { entry: *entry, us, ratio: us / entry.row.median_us? })
}

fn chart(rows: &[Planned<'_>]) -> Result<Markup, Failure> {
    let count = rows.len();
    let name = |row: &Planned<'_>| format!("{}, {}, {}", row.entry.label(), row.entry.device(), commit(&row.entry));
    let names: Vec<String> = rows.iter().map(name).collect();
    let mark = |(at, row): (usize, &Planned<'_>)| Mark {
        x: row.ratio,
        y: (count - 1 - at) as f64,
        from: None,
        row: row.entry.number,
        series: usize::from((row.ratio - 1.0).abs() > 0.1),
        title: format!("{}: {:.3}", name(row), row.ratio),
    };
    let line = |x: f64| Line { points: vec![(x, -0.5), (x, count as f64 - 0.5)], series: 2 };
    let chart = Chart {
        title: "planned over measured",
        axes: ["planned / measured", "step"],
        width: WIDE,
        height: 80 + 22 * count as u32,
        left: 400,
        legend: vec![(0, "within 10 %".to_owned()), (1, "further off".to_owned())],
        marks: rows.iter().enumerate().map(mark).collect(),
        lines: vec![line(0.9), line(1.0), line(1.1)],
    };
    chart.bars(&names, 1.5)
}
