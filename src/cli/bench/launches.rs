//! The times of the launches of a graph, as a table.

use std::collections::BTreeMap;
use std::io::{self, Write};

use tilewright_megakernel::vm::graph::AnyGraph;

use crate::cli::Failure;
use crate::cli::subject::StepInputs;

/// Runs of a step; the table has the least time of each launch.
const RUNS: usize = 5;

/// Writes the times of the launches of a step by kernel. If a kernel is launched equally often in
/// each of the layers, its launches within a layer are separate lines.
pub fn table(machine: &mut AnyGraph, cells: &StepInputs, layers: usize) -> Result<(), Failure> {
    let mut least: Vec<(String, f64)> = Vec::new();
    for run in 0..RUNS {
        let times = machine.times(&cells.view())?;
        let times = times.into_iter().map(|(name, time)| (name, time.as_secs_f64() * 1e6));
        match run {
            0 => least = times.collect(),
            _ => least.iter_mut().zip(times).for_each(|(least, (_, time))| least.1 = least.1.min(time)),
        }
    }
    let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    least.iter().for_each(|(name, time)| by_name.entry(name).or_default().push(*time));
    let mut out = io::stderr().lock();
    for (name, times) in by_name {
        let of_layer = times.len().checked_div(layers).filter(|of_layer| of_layer * layers == times.len());
        let kinds = of_layer.unwrap_or(1).max(1);
        for kind in 0..kinds {
            let times: Vec<f64> = times.iter().skip(kind).step_by(kinds).copied().collect();
            let count = times.len();
            let sum = times.iter().sum::<f64>();
            let name = if kinds > 1 { format!("{name}, {} of a layer", kind + 1) } else { name.to_owned() };
            writeln!(out, "{name:40} {count:4} launches, {:8.2} us each, {sum:9.1} us", sum / count as f64)?;
        }
    }
    let sum: f64 = least.iter().map(|(_, time)| time).sum();
    writeln!(out, "{:40} {:4} launches, {sum:30.1} us", "all", least.len())?;
    Ok(())
}
