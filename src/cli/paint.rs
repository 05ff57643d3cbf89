//! Lines on standard error: their first word, its colour, and whether the line is printed at all.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use clap::builder::styling::{AnsiColor, Style};

/// The first word of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The command failed. Always printed.
    Error,
    /// Advice on how to fix an error. Always printed.
    Tip,
    /// Information that a user should have. Not printed with --quiet.
    Note,
    /// Progress and times. Printed with --verbose only.
    Detail,
}

/// The verbosity of standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputLevel {
    /// Errors only.
    Quiet,
    /// Errors and notes; progress bars on a terminal.
    Normal,
    /// Also what the command does and how long it takes.
    Verbose,
}

static LEVEL: AtomicU8 = AtomicU8::new(OutputLevel::Normal as u8);

/// Sets the level of the process.
pub fn set_level(level: OutputLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// The level of the process.
pub fn level() -> OutputLevel {
    match LEVEL.load(Ordering::Relaxed) {
        0 => OutputLevel::Quiet,
        1 => OutputLevel::Normal,
        _ => OutputLevel::Verbose,
    }
}

/// Whether a person reads along: standard error is a terminal, or --verbose asks for it; never with
/// --quiet.
pub fn is_watched() -> bool {
    match level() {
        OutputLevel::Quiet => false,
        OutputLevel::Normal => std::io::stderr().is_terminal(),
        OutputLevel::Verbose => true,
    }
}

/// Writes a line.
///
/// It is coloured on a terminal, unless `NO_COLOR` is set or the terminal has no colours;
/// `CLICOLOR_FORCE` colours it everywhere.
pub fn line(word: Word, text: &str) {
    let (name, colour, least) = match word {
        Word::Error => ("error:", AnsiColor::Red, OutputLevel::Quiet),
        Word::Tip => ("tip:", AnsiColor::Green, OutputLevel::Quiet),
        Word::Note => ("note:", AnsiColor::Cyan, OutputLevel::Normal),
        Word::Detail => ("info:", AnsiColor::Blue, OutputLevel::Verbose),
    };
    if level() < least {
        return;
    }
    let style = Style::new().bold().fg_color(Some(colour.into()));
    // If standard error is closed, the exit code alone reports the outcome.
    let _ = writeln!(anstream::stderr(), "{style}{name}{style:#} {text}");
}
