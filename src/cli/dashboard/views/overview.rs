//! Overview: how fast, compared with what. Decode and prefill of the newest device workload by
//! workload, its kernels by group, and every comparison as a table.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::super::board::Board;
use super::{commit, link, microseconds, nothing};
use crate::cli::report::words::{kind_name, significant, suite_rank, suite_title};
use crate::results::{Comparison, Figures, PeerKind, ResultEntry, device_name, means};

/// A bar: a ratio with its labels.
struct Bar {
    label: String,
    ratio: f64,
    /// The times or the range that the ratio stands for, and the peer.
    detail: String,
    /// The row that the bar leads to.
    row: usize,
    title: String,
}

/// The view.
pub fn overview(board: &Board<'_>) -> Markup {
    let newest = board.figures.iter().filter_map(|f| Some((f.compared?.ours.age(), f.workload.device)));
    let Some((_, device)) = newest.max() else {
        return html! { (newest_builds(board)) (nothing("No row has a peer of the same run; `tilewright bench --peers` adds them.")) };
    };
    let here: Vec<&Figures<'_>> = board.figures.iter().filter(|f| f.workload.device == device).collect();
    let days = here.iter().filter_map(|figures| Some(figures.compared?.ours.day()));
    let span = match (days.clone().min(), days.max()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    };
    let panels = [
        ("Decode: time per step", models(&here, "decode")),
        ("Prefill: time to the first token", models(&here, "prefill")),
        ("Kernels: geometric mean by group", kernels(&here)),
    ];
    html! {
        p class="lead" {
            "Time of the fastest peer of the same run ÷ time of tilewright, on one " strong { (device_name(device)) } ", measured "
            (span) ". Right of the dashed line at 1×, tilewright is faster."
        }
        div class="panels" {
            @for (title, bars) in panels.iter().filter(|(_, bars)| !bars.is_empty()) { (panel(title, bars)) }
        }
        (newest_builds(board))
        (tables(board))
    }
}

/// The bars of a suite of whole models, smallest model and batch first.
fn models(figures: &[&Figures<'_>], suite: &str) -> Vec<Bar> {
    let mut found: Vec<Comparison<'_>> =
        figures.iter().filter(|f| f.workload.suite == suite).filter_map(|f| f.compared).collect();
    found.sort_by_key(|comparison| comparison.ours.order());
    let bar = |Comparison { ours, peer }: &Comparison<'_>| {
        let ratio = peer.us() / ours.us();
        let times = format!("{} vs. {} ms", significant(ours.us() / 1e3, 3), significant(peer.us() / 1e3, 3));
        Bar {
            label: ours.label(),
            ratio,
            detail: format!("{times}, {}", peer.peer_name()),
            row: ours.number,
            title: format!(
                "{}: {ratio:.2} times as fast as {}, commit {}, {}",
                ours.label(),
                peer.peer_name(),
                commit(ours),
                ours.day()
            ),
        }
    };
    found.iter().map(bar).collect()
}

/// The bars of kernels: a bar for each group and kind of peer.
fn kernels(figures: &[&Figures<'_>]) -> Vec<Bar> {
    let mut groups: BTreeMap<(usize, String, PeerKind), Vec<Comparison<'_>>> = BTreeMap::new();
    for comparison in figures.iter().filter_map(|figures| figures.compared) {
        let Some(group) = group(&comparison.ours) else { continue };
        let rank = suite_rank(&comparison.ours.row.suite);
        groups.entry((rank, group, comparison.kind())).or_default().push(comparison);
    }
    let bar = |((_, group, kind), comparisons): ((usize, String, PeerKind), Vec<Comparison<'_>>)| {
        let (ratio, count) = *means(&comparisons).get(&kind)?;
        let by_ratio = |a: &&Comparison<'_>, b: &&Comparison<'_>| a.ratio().total_cmp(&b.ratio());
        let lowest = comparisons.iter().min_by(by_ratio)?;
        let highest = comparisons.iter().max_by(by_ratio)?;
        let mut peers: Vec<String> = comparisons.iter().map(|comparison| comparison.peer.peer_name()).collect();
        peers.sort();
        peers.dedup();
        let shapes = if count == 1 { "1 shape".to_owned() } else { format!("{count} shapes") };
        Some(Bar {
            label: group.clone(),
            ratio,
            detail: format!("{shapes}, {:.2} to {:.2}, {}", lowest.ratio(), highest.ratio(), peers.join(" or ")),
            row: lowest.ours.number,
            title: format!("{group}: geometric mean {ratio:.2} over {shapes}; the lowest is {}", lowest.ours.label()),
        })
    };
    groups.into_iter().filter_map(bar).collect()
}

/// The group of a kernel's row; `None` for whole models and for suites without kernels.
fn group(entry: &ResultEntry<'_>) -> Option<String> {
    match entry.row.suite.as_str() {
        "attention" => Some(match (entry.row.shape.contains_key("queries"), entry.extent("causal")) {
            (false, _) => "Attention, decode".to_owned(),
            (true, Some(1)) => "Attention, prefill, causal".to_owned(),
            (true, _) => "Attention, prefill, full".to_owned(),
        }),
        "gemv" if entry.extent("batch") == Some(1) => Some("GEMV bf16, 1 vector".to_owned()),
        "gemv" => Some("GEMV bf16, several vectors".to_owned()),
        suite if suite.starts_with("gemm") => Some(suite_title(suite).0),
        _ => None,
    }
}

/// A titled list of bars on one axis, whose end is a whole number.
fn panel(title: &str, bars: &[Bar]) -> Markup {
    let most = bars.iter().map(|bar| bar.ratio).fold(1.0, f64::max).ceil().clamp(2.0, 10.0);
    let part = |ratio: f64| format!("{:.1}%", (ratio / most).clamp(0.0, 1.0) * 100.0);
    html! {
        section class="panel" {
            h3 { (title) }
            div class="bars" {
                @for bar in bars {
                    a class={ "bar mark " (if bar.ratio < 1.0 { "slower" } else { "ahead" }) } href={ "#row-" (bar.row) } data-row=(bar.row) title=(bar.title) {
                        span class="head" { span class="what" { (bar.label) } span class="detail" { (bar.detail) } }
                        span class="track" {
                            span class="fill" style={ "width:" (part(bar.ratio)) } {}
                            span class="parity" style={ "left:" (part(1.0)) } {}
                        }
                        span class="ratio" { (format!("{:.2}×", bar.ratio)) }
                    }
                }
            }
            div class="axis" aria-hidden="true" {
                span class="ticks" {
                    @for tick in 0..=most as u32 { span style={ "left:" (part(f64::from(tick))) } { (tick) "×" } }
                }
            }
        }
    }
}

/// The newest measurements whose run has no peer: time and share of the measured floor.
fn newest_builds(board: &Board<'_>) -> Markup {
    let decode = board.figures.iter().filter(|f| ["decode", "prefill"].contains(&f.workload.suite));
    let mut rows: Vec<&Figures<'_>> =
        decode.filter(|f| f.workload.form.is_empty() && f.is_newer_than_its_peer()).collect();
    rows.sort_by(|a, b| (b.latest.day(), a.workload.device).cmp(&(a.latest.day(), b.workload.device)));
    html! {
        @if !rows.is_empty() {
            h3 { "Newer builds, measured without a peer" }
            p { "The floor is the least time that the bytes and operations allow at the rates measured on the device; 100 % is the limit of the hardware." }
            div class="scroll" tabindex="0" role="group" aria-label="newest builds" { table {
                thead { tr { @for head in ["workload", "device", "time, ms", "share of the floor", "commit", "date"] { th scope="col" { (head) } } } }
                tbody { @for figures in rows { @let entry = &figures.latest; tr data-row=(entry.number) {
                    th scope="row" { (entry.label()) }
                    td { (entry.device()) }
                    td class="number" { (link(entry, &significant(entry.us() / 1e3, 3))) }
                    td class="number" { (floor(board, entry)) }
                    td { (commit(entry)) }
                    td { (entry.day()) }
                } } }
            } }
        }
    }
}

fn floor(board: &Board<'_>, entry: &ResultEntry<'_>) -> String {
    board.peaks.floor(entry).map_or_else(|| "–".to_owned(), |floor| format!("{:.0} %", floor.share * 100.0))
}

/// Every comparison, a table for each suite and device.
fn tables(board: &Board<'_>) -> Markup {
    let compared: Vec<(&Figures<'_>, Comparison<'_>)> =
        board.figures.iter().filter_map(|figures| Some((figures, figures.compared?))).collect();
    let mut tables: Vec<&[(&Figures<'_>, Comparison<'_>)]> = compared
        .chunk_by(|(a, _), (b, _)| (a.workload.suite, a.workload.device) == (b.workload.suite, b.workload.device))
        .collect();
    tables.sort_by_key(|table| suite_rank(table[0].0.workload.suite));
    html! {
        h2 { "Every comparison" }
        @for table in tables {
            @let first = &table[0].0.workload;
            @let (title, about) = suite_title(first.suite);
            section class="suite" {
                h3 { (title) ", " (device_name(first.device)) }
                p { (about) @for (kind, (mean, count)) in means(table.iter().map(|(_, comparison)| comparison)) {
                    " Geometric mean of " (count) " vs. " (kind_name(kind)) ": " strong { (format!("{mean:.2}")) } "."
                } }
                div class="scroll" tabindex="0" role="group" aria-label=(title) { table {
                    thead { tr { @for head in ["workload", "ours, µs", "peer, µs", "peer", "ratio", "floor", "error", "commit", "date"] {
                        th scope="col" { (head) }
                    } } }
                    tbody { @for (_, comparison) in table {
                        @let Comparison { ours, peer } = comparison;
                        tr data-row=(ours.number) {
                            th scope="row" { (ours.label()) }
                            td class="number" { (link(ours, &microseconds(ours.us()))) }
                            td class="number" { (link(peer, &microseconds(peer.us()))) }
                            td { (peer.peer_name()) }
                            td class={ "number " (if comparison.ratio() < 1.0 { "worse" } else { "better" }) } { (format!("{:.2}", comparison.ratio())) }
                            td class="number" { (floor(board, ours)) }
                            td class="number" { (ours.row.error.map_or("–".into(), |error| format!("{error:.1e}"))) }
                            td { (commit(ours)) }
                            td { (ours.day()) }
                        }
                    } }
                } }
            }
        }
    }
}
