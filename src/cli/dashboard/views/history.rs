//! History: the quoted time of a workload, build after build.

use maud::{Markup, html};

use super::super::board::Board;
use super::super::chart::{Chart, ChartLine, HALF, Mark, range_around};
use super::{microseconds, nothing};
use crate::cli::Failure;
use crate::cli::report::words::{suite_rank, suite_title};
use crate::results::{Figures, ResultEntry};

/// Suites whose histories are drawn; the detail of a row lists the same measurement of other runs
/// for every suite.
const SUITES: [&str; 7] = ["decode", "prefill", "attention", "gemv", "gemm", "gemm e4m3", "gemm s8"];

/// Builds that a chart shows at most, the newest ones.
const BUILDS: usize = 50;

/// Charts of a page at most.
const CHARTS: usize = 60;

/// The view.
pub fn history(board: &Board<'_>) -> Result<Markup, Failure> {
    let mut groups: Vec<(&Figures<'_>, Vec<ResultEntry<'_>>)> = board
        .figures
        .iter()
        .filter(|figures| SUITES.contains(&figures.workload.suite))
        .map(|figures| (figures, board.runs.history(&figures.workload)))
        .filter(|(_, entries)| entries.len() > 1)
        .collect();
    groups.sort_by_key(|(figures, entries)| (suite_rank(figures.workload.suite), std::cmp::Reverse(entries.len())));
    let count = groups.len();
    groups.truncate(CHARTS);
    let charts = groups.iter().map(|(figures, entries)| chart(figures, entries)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        p { "The time of one workload on one device, one point for each build in the order of commits; lower is better. The vertical
            axis does not begin at 0. A chart shows the newest " (BUILDS) " builds, and the page the " (charts.len()) " of " (count)
            " workloads with the most builds." }
        @if charts.is_empty() { (nothing("No workload was measured at two commits.")) }
        div class="grid" { @for chart in charts { (chart) } }
    })
}

fn chart(figures: &Figures<'_>, entries: &[ResultEntry<'_>]) -> Result<Markup, Failure> {
    let entries = &entries[entries.len().saturating_sub(BUILDS)..];
    let names: Vec<String> = entries.iter().map(name).collect();
    let range = range_around(entries.iter().map(ResultEntry::us));
    let mark = |(at, entry): (usize, &ResultEntry<'_>)| Mark {
        x: at as f64,
        y: entry.us(),
        from: None,
        row: entry.number,
        series: 0,
        title: format!("{} on {}: {} µs", name(entry), entry.day(), microseconds(entry.us())),
    };
    let form = if figures.workload.form.is_empty() { String::new() } else { format!(", {}", figures.workload.form) };
    let first = &entries[0];
    let chart = Chart {
        title: &format!("{}: {}{form}, {}", suite_title(figures.workload.suite).0, first.label(), first.device()),
        axes: ["commit, oldest to newest", "time, µs"],
        width: HALF,
        height: 230,
        left: 76,
        legend: Vec::new(),
        marks: entries.iter().enumerate().map(mark).collect(),
        lines: vec![ChartLine {
            points: entries.iter().enumerate().map(|(at, e)| (at as f64, e.us())).collect(),
            series: 0,
        }],
    };
    chart.sequence(&names, range)
}

/// Seven digits of the commit, or the day if the commit is unknown.
fn name(entry: &ResultEntry<'_>) -> String {
    entry.commit().map_or_else(|| entry.day().to_owned(), |commit| commit.get(..7).unwrap_or(commit).to_owned())
}
