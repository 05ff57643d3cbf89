//! The first word of a line on standard error, coloured on a terminal and nowhere else.

use std::io::Write;

use clap::builder::styling::{AnsiColor, Style};

/// How a line begins.
#[derive(Clone, Copy)]
pub enum Word {
    /// Something failed.
    Error,
    /// Something that the user should know.
    Note,
}

/// Writes a line. Whether there are colours is decided as other programs do: on a terminal, unless `NO_COLOR` is set or the
/// terminal knows none; `CLICOLOR_FORCE` has them everywhere.
pub fn line(word: Word, text: &str) {
    let (word, colour) = match word {
        Word::Error => ("error:", AnsiColor::Red),
        Word::Note => ("note:", AnsiColor::Cyan),
    };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    // Where standard error is closed, the exit code has to say it alone.
    let _ = writeln!(anstream::stderr(), "{style}{word}{style:#} {text}");
}
