//! Which blocks were attended to at which step: a heat map of what `generate --dump-selection` wrote.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use thiserror::Error;

use crate::cli::Failure;
use crate::cli::output::Output;
use crate::engine::Chosen;

/// What to draw.
#[derive(Args)]
pub struct MapArgs {
    /// File that `generate --dump-selection` wrote
    file: PathBuf,
    /// Draw the steps of this request alone: its number among the prompts
    #[arg(long, value_name = "N")]
    request: Option<u64>,
    /// Draw this layer alone
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Draw this key head alone
    #[arg(long, value_name = "N")]
    kv_head: Option<usize>,
    /// Image to write
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
}

/// Why a file is no dump of selections.
#[derive(Debug, Error)]
enum MapError {
    #[error("selections `{}` cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("line {line} of `{}` is no selection", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error("`{}` has no selection of that request, layer and key head", path.display())]
    Nothing { path: PathBuf },
}

/// Pixels of the picture without its margins.
const SIZE: [f64; 2] = [1200.0, 600.0];
/// Pixels of the margins.
const MARGIN: f64 = 44.0;

/// Runs the subcommand.
pub fn run(args: &MapArgs) -> Result<(), Failure> {
    let svg = Output::create(&args.svg)?;
    let map = Map::of(args)?;
    svg.write(|writer| map.draw(writer))
}

/// How often each block was attended to, by step.
struct Map {
    /// Of each position the counts of its blocks, and how many rows might have chosen each.
    steps: BTreeMap<usize, (BTreeMap<usize, usize>, usize)>,
    /// Blocks of the picture.
    blocks: usize,
}

impl Map {
    fn of(args: &MapArgs) -> Result<Map, MapError> {
        let path = args.file.clone();
        let text = std::fs::read_to_string(&path).map_err(|source| MapError::Read { path, source })?;
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

    fn draw(&self, to: &mut dyn Write) -> io::Result<()> {
        let [width, height] = SIZE;
        let cell = [width / self.steps.len() as f64, height / self.blocks as f64];
        let (right, bottom) = (width + 2.0 * MARGIN, height + 2.0 * MARGIN);
        writeln!(
            to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {right} {bottom}\" font-family=\"sans-serif\">"
        )?;
        writeln!(to, "<rect width=\"{right}\" height=\"{bottom}\" fill=\"#fff\"/>")?;
        writeln!(to, "<rect x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{width}\" height=\"{height}\" fill=\"#f2f4f7\"/>")?;
        for (column, (counts, all)) in self.steps.values().enumerate() {
            let x = MARGIN + column as f64 * cell[0];
            for (&block, &count) in counts {
                let (y, share) = (MARGIN + block as f64 * cell[1], count as f64 / *all as f64);
                let size = format!("width=\"{:.2}\" height=\"{:.2}\"", cell[0], cell[1]);
                writeln!(to, "<rect x=\"{x:.2}\" y=\"{y:.2}\" {size} fill=\"#0b5\" fill-opacity=\"{share:.3}\"/>")?;
            }
        }
        let [first, last] =
            [self.steps.keys().next(), self.steps.keys().next_back()].map(|at| at.copied().unwrap_or(0));
        let text = |to: &mut dyn Write, x: f64, y: f64, anchor: &str, words: &str| {
            writeln!(to, "<text x=\"{x}\" y=\"{y}\" font-size=\"14\" text-anchor=\"{anchor}\">{words}</text>")
        };
        text(to, MARGIN, bottom - 16.0, "start", &format!("position {first}"))?;
        text(to, right - MARGIN, bottom - 16.0, "end", &format!("position {last}"))?;
        text(
            to,
            MARGIN,
            MARGIN - 16.0,
            "start",
            &format!("blocks 0 (top) to {} (bottom) that a step attends to", self.blocks - 1),
        )?;
        writeln!(to, "</svg>")
    }
}
