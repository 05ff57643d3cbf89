//! History: one measurement on one device, call after call.

use maud::{Markup, html};

use super::super::board::{Board, Entry};
use super::super::chart::{Chart, HALF, Line, Mark, round_up};
use super::nothing;
use crate::cli::Failure;

/// Suites whose histories are drawn; those of other rows are in their details.
const SUITES: [&str; 7] = ["decode", "gemm", "gemm e4m3", "gemm e4m3 fast", "gemm s8", "gemv", "attention"];

/// The view.
pub fn history(board: &Board<'_>) -> Result<Markup, Failure> {
    let groups = board.histories(&SUITES);
    let charts = groups.iter().map(|group| chart(group)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        p { "The same suite, shape, variant and device in several calls, from left to right in the order of their commits. The history
            of any other row is in its detail." }
        @if charts.is_empty() { (nothing("No measurement was made by two calls.")) }
        div class="grid" { @for chart in charts { (chart) } }
    })
}

fn chart(group: &[Entry<'_>]) -> Result<Markup, Failure> {
    let names: Vec<String> = group.iter().map(name).collect();
    let time = |entry: &Entry<'_>| entry.row.median_us.unwrap_or(f64::NAN);
    let most = round_up(group.iter().map(time).fold(0.0, f64::max));
    let mark = |(at, entry): (usize, &Entry<'_>)| Mark {
        x: at as f64,
        y: time(entry),
        from: None,
        row: entry.number,
        series: 0,
        title: format!("{}: {:.2} µs", name(entry), time(entry)),
    };
    let first = &group[0];
    let chart = Chart {
        title: &format!("{} {} {}, {}", first.row.suite, first.label(), first.row.variant, first.device()),
        axes: ["commit", "median, µs"],
        width: HALF,
        height: 260,
        left: 80,
        legend: Vec::new(),
        marks: group.iter().enumerate().map(mark).collect(),
        lines: vec![Line { points: group.iter().enumerate().map(|(at, e)| (at as f64, time(e))).collect(), series: 0 }],
    };
    chart.sequence(&names, most)
}

/// The commit, or the day where it is not known.
fn name(entry: &Entry<'_>) -> String {
    entry.call.commit.clone().unwrap_or_else(|| entry.call.date.chars().take(10).collect())
}
