//! The cost model compared with measured decode steps.

use maud::{Markup, html};
use tilewright_megakernel::model::Architecture;

use super::super::board::Board;
use super::super::chart::{Chart, ChartLine, Mark, WIDE, round_up};
use super::{commit, link, microseconds, nothing};
use crate::cli::Failure;
use crate::cli::plan::cost::{StepCost, StepLoad};
use crate::results::{ResultEntry, target_of};

/// A measured row and its prediction.
struct PredictedRow<'r> {
    entry: ResultEntry<'r>,
    us: f64,
    ratio: f64,
}

/// The view.
pub fn plan(board: &Board<'_>) -> Result<Markup, Failure> {
    let rows: Vec<PredictedRow<'_>> = board.ours("decode").iter().filter_map(planned).collect();
    let chart = if rows.is_empty() {
        html! {}
    } else {
        chart(&rows)?
    };
    Ok(html! {
        p { "The time that " code { "tilewright plan" } " predicts for a decode step ÷ the measured time. The model describes the
            current kernels, so rows of earlier builds lie below 1. Within 10 % counts as agreement." }
        @if rows.is_empty() { (nothing("No row is a decode step of a known model on a known device.")) }
        (chart)
        div class="scroll" tabindex="0" role="group" aria-label="plan" { table {
            thead { tr { @for head in ["workload", "device", "commit", "predicted, µs", "measured, µs", "ratio"] {
                th scope="col" { (head) } } } }
            tbody { @for PredictedRow { entry, us, ratio } in &rows { tr data-row=(entry.number) {
                th scope="row" { (entry.label()) }
                td { (entry.device()) }
                td { (commit(entry)) }
                td class="number" { (microseconds(*us)) }
                td class="number" { (link(entry, &microseconds(entry.us()))) }
                td class="number" { (format!("{ratio:.3}")) }
            } } }
        } }
    })
}

/// Tokens of a launch; the mean position is half of them before the end of the context.
const TOKENS: u64 = 200;

/// Rows and tokens of the largest step that the cost model is asked about.
const MOST_ROWS: u64 = 1024;
const MOST_TOKENS: u64 = 1 << 24;

fn planned<'r>(entry: &ResultEntry<'r>) -> Option<PredictedRow<'r>> {
    if !entry.row.variant.starts_with("launches of 200") {
        return None;
    }
    let ((_, spec), target) = (entry.model()?, target_of(&entry.call.device)?);
    let rows = entry.extent("batch")?;
    let context = entry.extent("context")?;
    let us = entry.row.median_us.filter(|us| *us > 0.0)?;
    if rows > MOST_ROWS || context > MOST_TOKENS {
        return None;
    }
    let context = context.saturating_sub(TOKENS / 2) as usize;
    let spec = spec.model().ok()?;
    let planned = StepCost::of(&spec, &target, StepLoad { rows: rows as usize, devices: 1, context }).seconds() * 1e6;
    Some(PredictedRow { entry: *entry, us: planned, ratio: planned / us })
}

fn chart(rows: &[PredictedRow<'_>]) -> Result<Markup, Failure> {
    let count = rows.len();
    let name =
        |row: &PredictedRow<'_>| format!("{}, {}, {}", row.entry.label(), row.entry.device(), commit(&row.entry));
    let names: Vec<String> = rows.iter().map(name).collect();
    let mark = |(at, row): (usize, &PredictedRow<'_>)| Mark {
        x: row.ratio,
        y: (count - 1 - at) as f64,
        from: None,
        row: row.entry.number,
        series: usize::from((row.ratio - 1.0).abs() > 0.1),
        title: format!("{}: {:.3}", name(row), row.ratio),
    };
    let line = |x: f64| ChartLine { points: vec![(x, -0.5), (x, count as f64 - 0.5)], series: 2 };
    let most = round_up(rows.iter().map(|row| row.ratio).fold(1.5, f64::max));
    let chart = Chart {
        title: "predicted ÷ measured time of decode steps",
        axes: ["predicted ÷ measured", "step"],
        width: WIDE,
        height: 80 + 22 * count as u32,
        left: 400,
        legend: vec![(0, "within 10 %".to_owned()), (1, "further off".to_owned())],
        marks: rows.iter().enumerate().map(mark).collect(),
        lines: vec![line(0.9), line(1.0), line(1.1)],
    };
    chart.bars(&names, most)
}
