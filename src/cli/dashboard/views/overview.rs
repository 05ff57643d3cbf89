//! Overview: each suite against its peers.

use maud::{Markup, html};

use super::super::board::{Board, Entry};
use super::super::chart::{Chart, Line, Mark, WIDE, round_up};
use super::{commit, link, microseconds, nothing, percent};
use crate::cli::Failure;

/// A row beside its fastest peer.
struct Beside<'r> {
    ours: Entry<'r>,
    peer: Entry<'r>,
    /// The peer's time over ours: above 1 we are faster.
    ratio: f64,
}

fn beside<'r>(board: &Board<'r>, suite: &str) -> Vec<Beside<'r>> {
    let with_peers: Vec<Entry<'r>> = board.ours(suite).into_iter().filter(|ours| board.peer(ours).is_some()).collect();
    let newest = Board::newest(with_peers, |e| (e.row.shape.clone(), e.call.device.clone(), family(e)));
    let rows = newest.into_iter().filter_map(|ours| {
        let peer = board.peer(&ours)?;
        let ratio = peer.row.median_us? / ours.row.median_us?;
        Some(Beside { ours, peer, ratio })
    });
    rows.collect()
}

/// What a variant is one of: tiles are variants of one product, launches of one token and of many are not.
fn family(entry: &Entry<'_>) -> String {
    match entry.row.suite.as_str() {
        "attention" => entry.row.variant.split(' ').next().unwrap_or_default().to_owned(),
        suite if suite.starts_with("gem") => String::new(),
        _ => entry.row.variant.split(',').next().unwrap_or_default().to_owned(),
    }
}

/// The view.
pub fn overview(board: &Board<'_>) -> Result<Markup, Failure> {
    let mut suites = Vec::new();
    for suite in board.timed_suites() {
        let rows = beside(board, suite);
        if !rows.is_empty() {
            suites.push((suite, chart(suite, &rows)?, table(&rows), mean(&rows)));
        }
    }
    Ok(html! {
        p { "The newest median of each shape and device beside the fastest peer of the same call, or of the same device and commit where
            that call had none. Above 1.00 ours is faster." }
        @if suites.is_empty() { (nothing("No row has a peer.")) }
        @for (suite, chart, table, mean) in suites {
            section class="suite" {
                h3 { (suite) " " small { "geometric mean " (format!("{mean:.3}")) } }
                (chart)
                (table)
            }
        }
    })
}

fn mean(rows: &[Beside<'_>]) -> f64 {
    (rows.iter().map(|row| row.ratio.ln()).sum::<f64>() / rows.len() as f64).exp()
}

fn chart(suite: &str, rows: &[Beside<'_>]) -> Result<Markup, Failure> {
    let count = rows.len();
    let names: Vec<String> = rows.iter().map(|row| name(&row.ours)).collect();
    let mark = |(at, row): (usize, &Beside<'_>)| Mark {
        x: row.ratio,
        y: (count - 1 - at) as f64,
        from: Some(0.0),
        row: row.ours.number,
        series: usize::from(row.ratio < 1.0),
        title: format!("{}: {:.3} of {}", name(&row.ours), row.ratio, row.peer.row.who),
    };
    let marks: Vec<Mark> = rows.iter().enumerate().map(mark).collect();
    let most = round_up(rows.iter().map(|row| row.ratio).fold(1.2, f64::max));
    let even = Line { points: vec![(1.0, -0.5), (1.0, count as f64 - 0.5)], series: 2 };
    let chart = Chart {
        title: &format!("{suite}: peer's time over ours"),
        axes: ["peer's time / ours", "shape"],
        width: WIDE,
        height: 80 + 22 * count as u32,
        left: 420,
        legend: vec![(0, "faster than the peer".to_owned()), (1, "slower".to_owned())],
        marks,
        lines: vec![even],
    };
    chart.bars(&names, most)
}

/// The shape, and what tells rows of one shape apart.
fn name(entry: &Entry<'_>) -> String {
    let mut name = format!("{} {}", entry.label(), family(entry)).trim().to_owned();
    if entry.device() != "H100" {
        name = format!("{name}, {}", entry.device());
    }
    name
}

fn table(rows: &[Beside<'_>]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-label="table" { table {
            thead { tr {
                @for head in ["shape", "variant", "device", "commit", "ours, µs", "peer, µs", "peer", "ratio", "TB/s", "TFLOP/s",
                    "of the ceiling", "error"] { th scope="col" { (head) } }
            } }
            tbody { @for Beside { ours, peer, ratio } in rows {
                tr data-row=(ours.number) {
                    th scope="row" { (ours.label()) }
                    td { (ours.row.variant) }
                    td { (ours.device()) }
                    td { (commit(ours)) }
                    td class="number" { (link(ours, &microseconds(ours.row.median_us.unwrap_or(f64::NAN)))) }
                    td class="number" { (link(peer, &microseconds(peer.row.median_us.unwrap_or(f64::NAN)))) }
                    td { (peer.row.who) @if peer.call.id != ours.call.id { " (another call)" } }
                    td class={ "number " (if *ratio < 1.0 { "worse" } else { "better" }) } { (format!("{ratio:.3}")) }
                    td class="number" { (ours.row.bandwidth().map_or("–".into(), |rate| format!("{:.3}", rate / 1e12))) }
                    td class="number" { (ours.row.throughput().map_or("–".into(), |rate| format!("{:.1}", rate / 1e12))) }
                    td class="number" { (percent(Board::share_of_ceiling(ours))) }
                    td class="number" { (ours.row.error.map_or("–".into(), |error| format!("{error:.1e}"))) }
                }
            } }
        } }
    }
}
