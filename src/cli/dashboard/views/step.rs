//! The decode step by level: the time of each phase, the bytes that a level reads, and the time
//! beyond reading them.

use maud::{Markup, html};
use tilewright_megakernel::model::ModelSizes;

use super::super::board::Board;
use super::super::chart::{Chart, Mark, WIDE, round_up};
use super::{commit, link, nothing};
use crate::cli::Failure;
use crate::results::ResultEntry;

/// Phases of a task, and their names in a row's values.
const PHASES: [(&str, &str); 4] =
    [("wait", "wait_us"), ("load", "load_us"), ("compute", "compute_us"), ("publish", "publish_us")];

/// Kinds of levels of a step at most.
const MOST_LEVELS: usize = 64;

/// The view.
pub fn step(board: &Board<'_>) -> Result<Markup, Failure> {
    let mut steps: Vec<Vec<ResultEntry<'_>>> = Vec::new();
    for entry in board
        .entries()
        .iter()
        .filter(|e| e.row.suite == "timeline" && e.row.variant != "step" && e.row.copy_of.is_none())
    {
        // A step's levels are next to each other; one name twice is the next step.
        let follows = |step: &Vec<ResultEntry<'_>>| {
            let last = &step[step.len() - 1];
            let same = (&last.call.id, &last.row.shape) == (&entry.call.id, &entry.row.shape);
            same && step.len() < MOST_LEVELS
                && last.number + 1 == entry.number
                && step.iter().all(|e| e.row.variant != entry.row.variant)
        };
        match steps.last_mut().filter(|step| follows(step)) {
            Some(step) => step.push(*entry),
            None => steps.push(vec![*entry]),
        }
    }
    let drawn = steps
        .iter()
        .map(|levels| Ok((chart(levels)?, table(board, levels), levels[0])))
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(html! {
        p { "A level is a set of tasks that can run at the same time, such as all tiles of one matrix product. Bars are means over the
            tasks of a level. “Ring full” is the time without room for further weights in shared memory. The gap is the time of a level beyond reading
            its bytes at the measured read rate; it can be negative, because weights are prefetched before their level begins." }
        @if drawn.is_empty() { (nothing("No row is of a timeline; `tilewright timeline --json` writes them.")) }
        @for (chart, table, first) in drawn {
            details open[first.call.id.contains("decode-all") || steps.len() < 4] {
                summary { (first.label()) ", " (first.device()) ", " (commit(&first)) " " small { (first.call.id) } }
                (chart)
                (table)
            }
        }
    })
}

fn chart(levels: &[ResultEntry<'_>]) -> Result<Markup, Failure> {
    let count = levels.len();
    let names: Vec<String> = levels.iter().map(|level| level.row.variant.clone()).collect();
    let mut marks = Vec::new();
    let mut most = 0f64;
    for (at, level) in levels.iter().enumerate() {
        let mut end = 0.0;
        for (series, (phase, value)) in PHASES.iter().enumerate() {
            let times = level.row.values.get("times").copied().unwrap_or(1.0);
            let length = (times * level.row.values.get(*value).copied().unwrap_or(0.0)).max(0.0);
            let title = format!("{} {phase}: {length:.2} µs", level.row.variant);
            let from = Some(end);
            end += length;
            if length > 0.0 {
                marks.push(Mark {
                    x: end,
                    y: (count - 1 - at) as f64,
                    from,
                    row: level.number,
                    series: series + 2,
                    title,
                });
            }
        }
        most = most.max(end);
    }
    let legend = PHASES.iter().enumerate().map(|(series, (phase, _))| (series + 2, (*phase).to_owned())).collect();
    let chart = Chart {
        title: "time of each level by phase",
        axes: ["time per step, µs", "level"],
        width: WIDE,
        height: 80 + 26 * count as u32,
        left: 130,
        legend,
        marks,
        lines: Vec::new(),
    };
    chart.bars(&names, round_up(most))
}

fn table(board: &Board<'_>, levels: &[ResultEntry<'_>]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-label="levels" { table {
            thead { tr {
                @for head in ["level", "levels", "tasks", "time of one, µs", "time per step, µs", "ring full, µs", "bytes, MB", "reading, µs", "gap, µs"]
                { th scope="col" { (head) } }
            } }
            tbody { @for level in levels {
                @let figure = |name: &str| level.row.values.get(name).copied();
                @let bytes = level_bytes(level);
                @let reading = bytes.zip(board.read_ceiling(level)).map(|(bytes, ceiling)| bytes / ceiling.rate * 1e6);
                tr data-row=(level.number) {
                    th scope="row" { (level.row.variant) }
                    td class="number" { (shown(figure("times"), 0)) }
                    td class="number" { (shown(figure("tasks"), 0)) }
                    td class="number" { (link(level, &shown(figure("length_us"), 2))) }
                    td class="number" { (shown(figure("together_us"), 1)) }
                    td class="number" { (shown(figure("full_us"), 2)) }
                    td class="number" { (shown(bytes.map(|bytes| bytes / 1e6), 2)) }
                    td class="number" { (shown(reading, 2)) }
                    td class="number" { (shown(figure("length_us").zip(reading).map(|(length, reading)| length - reading), 2)) }
                }
            } }
        } }
    }
}

fn shown(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) if value.abs() < 1e9 => format!("{value:.digits$}"),
        Some(value) => format!("{value:.2e}"),
        None => "–".to_owned(),
    }
}

/// Bytes of device memory that one level of a known model reads, 16-bit weights, keys and values.
fn level_bytes(level: &ResultEntry<'_>) -> Option<f64> {
    let (_, spec) = level.model()?;
    let ModelSizes { hidden, heads, kv_heads, head_dim, intermediate, vocab, .. } = *spec;
    let rows = level.extent("batch")? as f64;
    let context = level.extent("context")? as f64;
    let [hidden, heads, kv_heads, head_dim, intermediate, vocab] =
        [hidden, heads, kv_heads, head_dim, intermediate, vocab].map(|extent| extent as f64);
    let elements = match level.row.variant.as_str() {
        "qkv" => hidden * (heads + 2.0 * kv_heads) * head_dim,
        "attention" => 2.0 * rows * context * kv_heads * head_dim,
        "o" => heads * head_dim * hidden,
        "gate_up" => 2.0 * hidden * intermediate,
        "down" => intermediate * hidden,
        "logits" => vocab * hidden,
        "embed" => rows * hidden,
        _ => return None,
    };
    Some(2.0 * elements)
}
