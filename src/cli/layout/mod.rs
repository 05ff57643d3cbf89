//! `tilewright layout`: the layout algebra from the command line.
//!
//! `eval` computes an expression, `check` runs golden cases, `show` draws a layout. The language
//! and its operations are those of [`algebra`](crate::algebra).

pub mod check;
mod fragment_cases;
mod mojo;
mod quirk;
mod show;
pub mod verdict;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::algebra::{ExpressionRefusal, LayoutValue, locate};
use crate::cli::Failure;

pub use mojo::SkipReason;

/// Operations that an expression may call, for the help.
const OPERATIONS: &str = "Notation: 8, (2,(3,4)), (2,3):(3,1), S<3,4,3> o 0 o (8,8):(8,1), A o B, f(A, B).
Tilers: an extent, a layout, _, or a tuple of these, one per mode.

Operations:
  coalesce filter filter_zeros complement composition right_inverse left_inverse nullspace
  logical_divide zipped_divide tiled_divide flat_divide
  logical_product zipped_product tiled_product flat_product blocked_product raked_product tile_to_shape
  upcast downcast recast_layout make_layout make_ordered_layout make_layout_like make_fragment_like
  flatten unflatten append prepend replace select take group_modes zip get rank depth size cosize coshape
  slice dice slice_and_offset index crd2idx idx2crd crd2crd get_1d_coord get_flat_coord get_hier_coord
  compact_col_major compact_row_major shape_div ceil_div elem_scale product_each inner_product
  congruent weakly_congruent compatible weakly_compatible evenly_divides domain_distribute expand_modes_alike
  max_common_layout max_common_vector max_alignment
  make_swizzle swizzle_apply swizzle_masks swizzle_composition swizzle_upcast swizzle_downcast swizzle_recast
  layout_swizzle_composition gmma_atom gmma_smem_layout gmma_atom_bits";

/// The layout algebra: evaluate, check, draw.
#[derive(Subcommand)]
pub enum LayoutCommand {
    /// Evaluate an expression and print its value.
    #[command(after_help = OPERATIONS)]
    Eval {
        /// The expression, such as "blocked_product((2,5):(5,1), (3,4):(4,1))".
        expression: String,
    },
    /// Run a file of golden cases: one JSON object a line.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Draw a layout: rows are mode 0, columns all other modes.
    Show {
        /// The expression; its value must be a layout.
        expression: String,
        /// Write an SVG image to this file instead of text.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// The meaning of the image's colours, and the rules of the text.
        #[command(flatten)]
        colours: show::Colours,
    },
}

/// Runs the subcommand. A refused expression is one line on standard error; where a part of it was
/// refused, the expression follows with that part underlined.
///
/// # Errors
/// A file that cannot be read or written, or a layout that cannot be drawn.
pub fn run(command: &LayoutCommand) -> Result<ExitCode, Failure> {
    let value = match command {
        LayoutCommand::Eval { expression } | LayoutCommand::Show { expression, .. } => locate(expression),
        LayoutCommand::Check { .. } => Ok(LayoutValue::Open),
    };
    let value = match value {
        Ok(value) => value,
        Err(mistake) => {
            let excerpt = mistake.excerpt();
            let code = Failure::from(mistake.refusal).report();
            if let Some(excerpt) = excerpt {
                write!(io::stderr(), "{excerpt}")?;
            }
            return Ok(ExitCode::from(code));
        }
    };
    match command {
        LayoutCommand::Eval { .. } => {
            writeln!(io::stdout(), "{value}")?;
            Ok(ExitCode::SUCCESS)
        }
        LayoutCommand::Check { file } => {
            let tally = check::run(file)?;
            writeln!(io::stdout(), "{tally}")?;
            Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
        }
        LayoutCommand::Show { svg, colours, .. } => {
            let layout = match value {
                LayoutValue::Layout(layout) => tilewright_layout::Composed::Plain(*layout),
                LayoutValue::Swizzled(swizzled) => tilewright_layout::Composed::Swizzled(*swizzled),
                other => {
                    return Err(ExpressionRefusal::Kind { expected: "a layout to draw", found: other.kind() }.into());
                }
            };
            show::run(&layout, svg.as_deref(), colours)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
