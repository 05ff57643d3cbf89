//! Roofline: operations per second over operations per byte, below the measured ceilings of the
//! device.

use maud::{Markup, html};

use super::super::board::Board;
use super::super::chart::{Chart, ChartLine, Mark, WIDE};
use super::nothing;
use crate::cli::Failure;
use crate::cli::report::words::significant;
use crate::results::ResultEntry;

/// The axes: operations per byte, and operations per second in units of 10^12.
const X: (f64, f64) = (0.5, 20_000.0);
const Y: (f64, f64) = (1.0, 3_000.0);

/// Suites, in the order of their colours.
const SUITES: [&str; 6] = ["gemv", "attention", "gemm", "gemm e4m3", "gemm e4m3 fast", "gemm s8"];

/// The view: a chart for every device.
pub fn roofline(board: &Board<'_>) -> Result<Markup, Failure> {
    let mut devices: Vec<String> = Vec::new();
    let entries: Vec<ResultEntry<'_>> =
        SUITES.iter().flat_map(|suite| board.ours(suite)).filter(|entry| is_point(board, entry)).collect();
    for entry in &entries {
        if !devices.contains(&entry.call.device) {
            devices.push(entry.call.device.clone());
        }
    }
    let charts = devices.iter().map(|device| chart(board, device, &entries)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        p { "Each point is a measurement of a kernel. Left of the corner the memory is the limit, right of it the matrix
            instructions. Both ceilings were measured on the device: in the same run, otherwise in other runs of that device (the
            median). The ceiling of matrix instructions is that of bf16, so products of 8-bit factors may lie above it." }
        @if charts.is_empty() { (nothing("No row has bytes, operations and a device whose ceilings were measured.")) }
        @for chart in charts { (chart) }
    })
}

fn is_point(board: &Board<'_>, entry: &ResultEntry<'_>) -> bool {
    intensity(entry).is_some() && board.read_ceiling(entry).is_some()
}

/// Operations per byte.
fn intensity(entry: &ResultEntry<'_>) -> Option<f64> {
    Some(entry.row.throughput()? / entry.row.bandwidth()?)
}

fn chart(board: &Board<'_>, device: &str, entries: &[ResultEntry<'_>]) -> Result<Markup, Failure> {
    let here: Vec<&ResultEntry<'_>> = entries.iter().filter(|entry| entry.call.device == device).collect();
    let memory = board.read_ceiling(here[0]);
    let matrix = board.matrix_ceiling(here[0]);
    let mut legend: Vec<(usize, String)> =
        SUITES.iter().enumerate().filter(|(_, suite)| here.iter().any(|e| e.row.suite == **suite)).map(name).collect();
    let mut lines = Vec::new();
    let tera = 1e-12;
    if let Some(memory) = memory {
        let slope = memory.rate * tera;
        let from = (Y.0 / slope).clamp(X.0, X.1);
        let to = (Y.1 / slope).clamp(X.0, X.1);
        let points = (0..=40).map(|at| from * (to / from).powf(f64::from(at) / 40.0));
        lines.push(ChartLine { points: points.map(|x| (x, (x * slope).clamp(Y.0, Y.1))).collect(), series: 6 });
        legend.push((6, format!("reading memory, {} TB/s ({})", significant(slope, 3), memory.measured_in)));
    }
    if let Some(ceiling) = matrix {
        let rate = ceiling.rate * tera;
        let from = memory.map_or(X.0, |memory| ceiling.rate / memory.rate).clamp(X.0, X.1);
        lines.push(ChartLine { points: vec![(from, rate.clamp(Y.0, Y.1)), (X.1, rate.clamp(Y.0, Y.1))], series: 7 });
        legend
            .push((7, format!("bf16 matrix instructions, {} TFLOP/s ({})", significant(rate, 3), ceiling.measured_in)));
    }
    let mark = |entry: &&ResultEntry<'_>| {
        let series = SUITES.iter().position(|suite| *suite == entry.row.suite)?;
        let rate = entry.row.throughput()? * tera;
        let title =
            format!("{} {} {}: {} TFLOP/s", entry.row.suite, entry.label(), entry.row.variant, significant(rate, 3));
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
    let axes = ["operations per byte", "TFLOP/s"];
    Chart { title: device, axes, width: WIDE, height: 460, left: 70, legend, marks, lines }
        .logarithmic(X.0..X.1, Y.0..Y.1)
}

fn name((at, suite): (usize, &&str)) -> (usize, String) {
    (at, (*suite).to_owned())
}
