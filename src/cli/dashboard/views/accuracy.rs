//! Accuracy: error of the logits against the reference backend, next to a peer's.

use maud::{Markup, html};

use super::super::board::Board;
use super::super::chart::{Chart, Mark, WIDE, round_up};
use super::{commit, link, nothing};
use crate::cli::Failure;
use crate::results::ResultEntry;

/// The view.
pub fn accuracy(board: &Board<'_>) -> Result<Markup, Failure> {
    let ours = board.ours("accuracy").into_iter().filter(is_measured).collect();
    let ours = Board::newest(ours, |e| (e.row.shape.clone(), e.row.variant.clone(), e.call.device.clone()));
    let refused: Vec<ResultEntry<'_>> =
        board.ours("accuracy").into_iter().filter(|entry| entry.row.error.is_none()).collect();
    let cases: Vec<(ResultEntry<'_>, Option<ResultEntry<'_>>, Option<ResultEntry<'_>>)> = ours
        .into_iter()
        .map(|entry| (entry, peer(board, &entry, "pytorch bf16"), peer(board, &entry, "pytorch f32")))
        .collect();
    let beside: Vec<(ResultEntry<'_>, ResultEntry<'_>)> =
        cases.iter().filter_map(|case| Some((case.0, case.1?))).collect();
    let chart = if beside.is_empty() {
        html! {}
    } else {
        chart(&beside)?
    };
    Ok(html! {
        p { "Relative L2 error of the logits against the reference backend in f32: the worst row of a step, newest run. A result is
            right if the error is at most 2e-2 and not larger than that of PyTorch in bf16." }
        @if cases.is_empty() { (nothing("No row is of accuracy; `tilewright accuracy` makes them.")) }
        (chart)
        div class="scroll" tabindex="0" role="group" aria-label="accuracy" { table {
            thead { tr { @for head in ["rows", "positions", "model", "device", "commit", "ours", "PyTorch bf16", "PyTorch f32", "verdict"]
                { th scope="col" { (head) } } } }
            tbody {
                @for (entry, bf16, f32) in &cases { tr data-row=(entry.number) {
                    td class="number" { (entry.extent("rows").unwrap_or(1)) }
                    th scope="row" { (entry.row.variant) }
                    td { (entry.model().map_or("a small model", |model| model.0)) }
                    td { (entry.device()) }
                    td { (commit(entry)) }
                    td class="number" { (link(entry, &error(entry))) }
                    @for peer in [bf16, f32] {
                        td class="number" { @if let Some(peer) = peer { (link(peer, &error(peer))) } @else { "–" } }
                    }
                    td class={ @if entry.row.verdict.as_deref() == Some("WRONG") { "worse" } } { (entry.row.verdict.as_deref().unwrap_or("–")) }
                } }
                @for entry in &refused { tr data-row=(entry.number) {
                    td class="number" { (entry.extent("rows").unwrap_or(1)) }
                    td colspan="8" { (link(entry, entry.row.verdict.as_deref().unwrap_or("not run"))) }
                } }
            }
        } }
    })
}

fn is_measured(entry: &ResultEntry<'_>) -> bool {
    entry.row.error.is_some()
}

fn error(entry: &ResultEntry<'_>) -> String {
    entry.row.error.map_or_else(|| "–".to_owned(), |error| format!("{error:.2e}"))
}

/// A peer's row with an error, of the same step in the same call: one of the two rows that follow
/// ours.
fn peer<'r>(board: &Board<'r>, entry: &ResultEntry<'_>, who: &str) -> Option<ResultEntry<'r>> {
    let same = |e: &&ResultEntry<'_>| {
        let key = |e: &ResultEntry<'_>| (e.call.id.clone(), e.row.variant.clone(), e.row.shape.clone());
        e.row.who == who && is_measured(e) && key(e) == key(entry)
    };
    board.entries().iter().skip(entry.number + 1).take(2).find(same).copied()
}

fn chart(cases: &[(ResultEntry<'_>, ResultEntry<'_>)]) -> Result<Markup, Failure> {
    let count = cases.len();
    let name = |entry: &ResultEntry<'_>| {
        let model = entry.model().map_or("small", |model| model.0);
        format!("{model}, {} rows, {}", entry.extent("rows").unwrap_or(1), entry.row.variant)
    };
    let names: Vec<String> = cases.iter().map(|(ours, _)| name(ours)).collect();
    let mark = |at: usize, entry: &ResultEntry<'_>, series: usize| {
        let x = entry.row.error?;
        let title = format!("{}: {x:.2e} by {}", name(entry), entry.row.who);
        Some(Mark { x, y: (count - 1 - at) as f64, from: None, row: entry.number, series, title })
    };
    let marks = cases.iter().enumerate().flat_map(|(at, (ours, peer))| [mark(at, ours, 0), mark(at, peer, 1)]);
    let marks: Vec<Mark> = marks.flatten().collect();
    let most = round_up(marks.iter().map(|mark| mark.x).fold(0.0, f64::max));
    let chart = Chart {
        title: "Error of the logits",
        axes: ["relative L2 error", "step"],
        width: WIDE,
        height: 80 + 20 * count as u32,
        left: 400,
        legend: vec![(0, "ours".to_owned()), (1, "PyTorch bf16".to_owned())],
        marks,
        lines: Vec::new(),
    };
    chart.bars(&names, most)
}
