//! Roofline: operations a second over operations a byte, below what the device could do.

use maud::{Markup, html};

use super::super::board::{Board, Entry};
use super::super::chart::{Chart, Line, Mark, WIDE};
use super::nothing;
use crate::cli::Failure;

/// The axes: operations a byte, and operations a second in units of 10^12.
const X: (f64, f64) = (0.5, 20_000.0);
const Y: (f64, f64) = (1.0, 3_000.0);

/// Suites, in the order of their colours.
const SUITES: [&str; 6] = ["gemv", "attention", "gemm", "gemm e4m3", "gemm e4m3 fast", "gemm s8"];

/// The view: a chart for every device.
pub fn roofline(board: &Board<'_>) -> Result<Markup, Failure> {
    let mut devices: Vec<String> = Vec::new();
    let entries: Vec<Entry<'_>> = SUITES.iter().flat_map(|suite| board.ours(suite)).filter(is_point).collect();
    for entry in &entries {
        if !devices.contains(&entry.call.device) {
            devices.push(entry.call.device.clone());
        }
    }
    let charts = devices.iter().map(|device| chart(device, &entries)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        p { "Each point is a row: left of the corner the memory is the limit, right of it the matrix instructions. A ceiling is the one
            measured in the call where there is one; else that of an earlier probe of the device; else the data sheet's." }
        @if charts.is_empty() { (nothing("No row has bytes, operations and a device whose ceilings are known.")) }
        @for chart in charts { (chart) }
    })
}

fn is_point(entry: &Entry<'_>) -> bool {
    intensity(entry).is_some() && Board::read_ceiling(entry.call).is_some()
}

/// Operations a byte.
fn intensity(entry: &Entry<'_>) -> Option<f64> {
    Some(entry.row.throughput()? / entry.row.bandwidth()?)
}

fn chart(device: &str, entries: &[Entry<'_>]) -> Result<Markup, Failure> {
    let here: Vec<&Entry<'_>> = entries.iter().filter(|entry| entry.call.device == device).collect();
    let call = here[0].call;
    let (memory, matrix) = (Board::read_ceiling(call), Board::matrix_ceiling(call, "gemm"));
    let narrow = Board::matrix_ceiling(call, "gemm s8");
    let mut legend: Vec<(usize, String)> =
        SUITES.iter().enumerate().filter(|(_, suite)| here.iter().any(|e| e.row.suite == **suite)).map(name).collect();
    let mut lines = Vec::new();
    let tera = 1e-12;
    if let Some(memory) = memory {
        let slope = memory.rate * tera;
        let (from, to) = (X.0.max(Y.0 / slope), X.1.min(Y.1 / slope));
        let points = (0..=40).map(|at| from * (to / from).powf(f64::from(at) / 40.0));
        lines.push(Line { points: points.map(|x| (x, x * slope)).collect(), series: 6 });
        legend.push((6, format!("reading, {slope:.3} TB/s ({})", memory.known_by)));
    }
    for (ceiling, what) in [(matrix, "16-bit"), (narrow, "8-bit")] {
        if let Some(ceiling) = ceiling {
            let rate = ceiling.rate * tera;
            let from = memory.map_or(X.0, |memory| ceiling.rate / memory.rate);
            lines.push(Line { points: vec![(from, rate), (X.1, rate)], series: 7 });
            legend.push((7, format!("{what} matrices, {rate:.0} TFLOP/s ({})", ceiling.known_by)));
        }
    }
    let mark = |entry: &&Entry<'_>| {
        let series = SUITES.iter().position(|suite| *suite == entry.row.suite)?;
        let rate = entry.row.throughput()? * tera;
        let title = format!("{} {} {}: {rate:.1} TFLOP/s", entry.row.suite, entry.label(), entry.row.variant);
        Some(Mark {
            x: intensity(entry)?.clamp(X.0, X.1),
            y: rate.clamp(Y.0, Y.1),
            from: None,
            row: entry.number,
            series,
            title,
        })
    };
    let marks = here.iter().filter_map(mark).collect();
    let axes = ["operations a byte", "TFLOP/s"];
    Chart { title: device, axes, width: WIDE, height: 460, left: 70, legend, marks, lines }
        .logarithmic(X.0..X.1, Y.0..Y.1)
}

fn name((at, suite): (usize, &&str)) -> (usize, String) {
    (at, (*suite).to_owned())
}
