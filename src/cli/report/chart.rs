//! The chart of the README: decode and prefill against the best peer of the run, one bar per
//! workload.
//!
//! Bars are the peer's time over ours, so that models of all sizes share one axis; the dashed line
//! at 1 is parity. The picture follows the reader's colour scheme.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use thiserror::Error;

use crate::cli::report::words::significant;
use crate::results::{Comparison, Figures, Results, WorkloadRuns};

/// Why there is no chart.
#[derive(Debug, Error)]
pub enum ChartError {
    /// No comparison of decode or prefill.
    #[error("no decode or prefill row has a peer of the same run; `tilewright bench --peers` adds them")]
    NoPeers,
}

/// Sizes in pixels of a picture 700 wide.
const WIDTH: f64 = 700.0;
const BARS: f64 = 262.0;
const BARS_END: f64 = 420.0;
const ROW: f64 = 38.0;
const TOP: f64 = 62.0;
const GROUP: f64 = 32.0;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1b1f24}\
.title{font-size:16px;font-weight:600}.group{font-weight:600}.faint{fill:#5a6470;font-size:12px}.ratio{font-weight:600}\
.end{text-anchor:end}.middle{text-anchor:middle}\
.paper{fill:#fff}.faster{fill:#1f6fd0}.slower{fill:#c2410c}.line{stroke:#d5dae0}.parity{stroke:#1b1f24;stroke-dasharray:4 3}\
@media (prefers-color-scheme:dark){text{fill:#e8ebee}.faint{fill:#a3adb8}.paper{fill:#14171b}\
.faster{fill:#6aa9ff}.slower{fill:#ff9b61}.line{stroke:#363d45}.parity{stroke:#e8ebee}}";

/// Draws the newest comparisons of decode and prefill of the device that has the newest one.
pub fn chart(results: &Results) -> Result<String, ChartError> {
    let figures = WorkloadRuns::new(results).figures();
    let compared = |figures: &Figures<'_>| ["decode", "prefill"].contains(&figures.workload.suite);
    let newest =
        figures.iter().filter(|f| compared(f)).filter_map(|f| Some((f.compared?.ours.age(), f.workload.device)));
    let (_, device) = newest.max().ok_or(ChartError::NoPeers)?;
    let of = |suite: &str| {
        let here = figures.iter().filter(|f| f.workload.suite == suite && f.workload.device == device);
        let mut found: Vec<Comparison<'_>> = here.filter_map(|f| f.compared).collect();
        found.sort_by_key(|comparison| comparison.ours.order());
        found
    };
    let groups: Vec<(&str, Vec<Comparison<'_>>)> =
        [("Decode, time per step", of("decode")), ("Prefill, time to the first token", of("prefill"))]
            .into_iter()
            .filter(|(_, rows)| !rows.is_empty())
            .collect();
    Ok(picture(device, &groups))
}

fn picture(device: &str, groups: &[(&str, Vec<Comparison<'_>>)]) -> String {
    let rows: Vec<&Comparison<'_>> = groups.iter().flat_map(|(_, rows)| rows).collect();
    let most = rows.iter().map(|row| row.ratio()).fold(1.0, f64::max).ceil().min(10.0);
    let x = |ratio: f64| BARS + (BARS_END - BARS) * (ratio / most).min(1.0);
    let bottom = TOP + groups.len() as f64 * GROUP + rows.len() as f64 * ROW;
    let height = bottom + 62.0;
    let days = rows.iter().map(|row| row.ours.day());
    let first = days.clone().min().unwrap_or_default();
    let last = days.max().unwrap_or_default();
    let mut body = String::new();
    for tick in 0..=most as u32 {
        let at = x(f64::from(tick));
        let class = if tick == 1 { "parity" } else { "line" };
        add(
            &mut body,
            &html! {
                line class=(class) x1=(px(at)) x2=(px(at)) y1=(px(TOP)) y2=(px(bottom)) {}
                text class="faint middle" x=(px(at)) y=(px(bottom + 16.0)) { (tick) "×" }
            },
        );
    }
    let mut y = TOP;
    for (name, rows) in groups {
        add(&mut body, &html! { text class="group" x="10" y=(px(y + 22.0)) { (name) } });
        y += GROUP;
        for row in rows {
            add(&mut body, &bar(row, y, x(row.ratio())));
            y += ROW;
        }
    }
    let caption = "Bar: time of the fastest peer of the same run ÷ time of tilewright; longer is better, 1× is parity.";
    let title = format!("How fast tilewright is on one {device}, bf16");
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (px(WIDTH)) " " (px(height)) } width=(px(WIDTH)) height=(px(height)) role="img" aria-label=(title) {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect class="paper" width="100%" height="100%" {}
            text class="title" x="10" y="26" { (title) }
            text class="faint" x="10" y="46" { (caption) }
            (PreEscaped(body))
            text class="faint" x="10" y=(px(bottom + 40.0)) { "Random weights, medians. Measured " (first) " to " (last) "; commits and commands: docs/benchmarks.md." }
        }
    };
    format!("{}\n", svg.into_string())
}

fn add(body: &mut String, markup: &Markup) {
    let _ = write!(body, "{}", markup.0);
}

fn bar(row: &Comparison<'_>, y: f64, end: f64) -> Markup {
    let class = if row.ratio() >= 1.0 { "faster" } else { "slower" };
    html! {
        text x="10" y=(px(y + 14.0)) { (row.ours.label()) }
        text class="faint" x="10" y=(px(y + 29.0)) { (time(row.ours.us())) " vs. " (time(row.peer.us())) }
        rect class=(class) x=(px(BARS)) y=(px(y + 6.0)) width=(px((end - BARS).max(1.0))) height="18" rx="2" {}
        text class="ratio" x=(px(end + 6.0)) y=(px(y + 20.0)) { (format!("{:.2}×", row.ratio())) }
        text class="faint end" x=(px(WIDTH - 10.0)) y=(px(y + 20.0)) { "vs. " (row.peer.peer_name()) }
    }
}

/// A time in milliseconds.
fn time(us: f64) -> String {
    format!("{} ms", significant(us / 1e3, 3))
}

/// A length without needless digits.
fn px(length: f64) -> String {
    let rounded = (length * 10.0).round() / 10.0;
    format!("{rounded}")
}
