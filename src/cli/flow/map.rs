//! Draws the blocks that were attended to at each step: a heat map of the output of `generate
//! --dump-selection`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use thiserror::Error;

use crate::cli::output::CommandOutput;
use crate::cli::{Failure, number};
use crate::engine::Chosen;
use crate::input;

/// The picture to draw.
#[derive(Args)]
pub struct MapArgs {
    /// File that `generate --dump-selection` wrote
    file: PathBuf,
    /// Draw the steps of this request alone: its number among the prompts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1 << 32))]
    request: Option<u64>,
    /// Draw this layer alone
    #[arg(long, value_name = "N", value_parser = number::count(0..=1 << 16))]
    layer: Option<usize>,
    /// Draw this key head alone
    #[arg(long, value_name = "N", value_parser = number::count(0..=1 << 16))]
    kv_head: Option<usize>,
    /// Image to write
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
}

/// Why a file is not a dump of selections.
#[derive(Debug, Error)]
enum MapError {
    #[error("selections `{}` cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("line {line} of `{}` is not a selection", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error("`{}` has no selection of that request, layer and key head", path.display())]
    Nothing { path: PathBuf },
}

/// Pixels of the picture without its margins.
const SIZE: [f64; 2] = [1200.0, 600.0];
/// Pixels of the margins.
const MARGIN: f64 = 64.0;
/// The title of the picture.
const TITLE: &str = "Blocks of keys and values that each decode step attends to";
/// Colours in light and dark mode.
const STYLE: &str = "<style>\n\
    .ground { fill: #fff } .plot { fill: #f2f4f7 } .mark { fill: #0b5 } text { fill: #1f2328 }\n\
    @media (prefers-color-scheme: dark) {\n\
    .ground { fill: #0d1117 } .plot { fill: #161b22 } .mark { fill: #3fb950 } text { fill: #e6edf3 }\n\
    }\n</style>";

/// Runs the subcommand.
pub fn run(args: &MapArgs) -> Result<(), Failure> {
    let svg = CommandOutput::create(&args.svg)?;
    let map = Map::of(args)?;
    svg.write(|writer| map.draw(writer))
}

/// Most bytes of a file of selections.
const LIMIT: u64 = 1 << 30;

/// The number of times that each block was attended to, by step.
struct Map {
    /// For each position, the counts of its blocks, and the number of rows that might have chosen
    /// each.
    steps: BTreeMap<usize, (BTreeMap<usize, usize>, usize)>,
    /// Blocks of the picture.
    blocks: usize,
}

impl Map {
    fn of(args: &MapArgs) -> Result<Map, MapError> {
        let path = args.file.clone();
        let text = input::read(&path, LIMIT).map_err(|error| MapError::Read { path, source: error.into() })?;
        let mut map = Map { steps: BTreeMap::new(), blocks: 0 };
        for (line, text) in text.lines().enumerate() {
            let chosen: Chosen = serde_json::from_str(text).map_err(|source| MapError::Line {
                path: args.file.clone(),
                line: line + 1,
                source,
            })?;
            let is_other = |wanted: Option<usize>, found| wanted.is_some_and(|wanted| wanted != found);
            if args.request.is_some_and(|wanted| wanted != chosen.request)
                || is_other(args.layer, chosen.layer)
                || is_other(args.kv_head, chosen.kv_head)
            {
                continue;
            }
            let (counts, all) = map.steps.entry(chosen.position).or_default();
            *all += 1;
            for block in chosen.blocks {
                *counts.entry(block).or_default() += 1;
                map.blocks = map.blocks.max(block + 1);
            }
        }
        if map.blocks == 0 {
            return Err(MapError::Nothing { path: args.file.clone() });
        }
        Ok(map)
    }

    /// Writes the picture: steps from left to right, blocks from top to bottom, the share of rows
    /// as opacity.
    fn draw(&self, to: &mut dyn Write) -> io::Result<()> {
        let [width, height] = SIZE;
        let cell = [width / self.steps.len() as f64, height / self.blocks as f64];
        let right = width + 2.0 * MARGIN;
        let bottom = height + 2.0 * MARGIN;
        writeln!(
            to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {right} {bottom}\" font-family=\"sans-serif\" role=\"img\">"
        )?;
        writeln!(to, "<title>{TITLE}</title>")?;
        writeln!(to, "{STYLE}")?;
        writeln!(to, "<rect class=\"ground\" width=\"{right}\" height=\"{bottom}\"/>")?;
        writeln!(to, "<rect class=\"plot\" x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{width}\" height=\"{height}\"/>")?;
        for (column, (counts, all)) in self.steps.values().enumerate() {
            let x = MARGIN + column as f64 * cell[0];
            for (&block, &count) in counts {
                let y = MARGIN + block as f64 * cell[1];
                let share = count as f64 / *all as f64;
                let size = format!("width=\"{:.2}\" height=\"{:.2}\"", cell[0], cell[1]);
                writeln!(to, "<rect class=\"mark\" x=\"{x:.2}\" y=\"{y:.2}\" {size} fill-opacity=\"{share:.3}\"/>")?;
            }
        }
        let [first, last] =
            [self.steps.keys().next(), self.steps.keys().next_back()].map(|at| at.copied().unwrap_or(0));
        let text = |to: &mut dyn Write, x: f64, y: f64, anchor: &str, words: &str| {
            writeln!(to, "<text x=\"{x}\" y=\"{y}\" font-size=\"14\" text-anchor=\"{anchor}\">{words}</text>")
        };
        let left = MARGIN - 8.0;
        let below = MARGIN + height + 20.0;
        text(to, MARGIN, MARGIN - 44.0, "start", TITLE)?;
        text(to, left, MARGIN + 12.0, "end", "0")?;
        text(to, left, MARGIN + height, "end", &(self.blocks - 1).to_string())?;
        text(to, left, MARGIN + height / 2.0, "end", "block")?;
        text(to, MARGIN, below, "start", &first.to_string())?;
        text(to, MARGIN + width, below, "end", &last.to_string())?;
        text(to, MARGIN + width / 2.0, below, "middle", "position of the token that attends")?;
        // The legend: which share of rows (requests, layers, key heads) attends.
        let shares = [0.25, 0.5, 0.75, 1.0];
        for (column, share) in shares.into_iter().enumerate() {
            let x = right - MARGIN - 260.0 + 65.0 * column as f64;
            let y = MARGIN - 30.0;
            writeln!(
                to,
                "<rect class=\"mark\" x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" fill-opacity=\"{share}\"/>"
            )?;
            text(to, x + 20.0, y + 12.0, "start", &format!("{} %", share * 100.0))?;
        }
        text(to, right - MARGIN - 270.0, MARGIN - 18.0, "end", "rows that attend")?;
        writeln!(to, "</svg>")
    }
}
