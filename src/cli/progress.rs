//! The progress bar of work on weights: on a terminal only.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error that appears on a terminal and nowhere else.
pub struct LoadBar(ProgressBar);

impl LoadBar {
    /// A bar that counts bytes.
    pub fn new() -> LoadBar {
        LoadBar::named("loading")
    }

    /// The same, with a word for what is done.
    pub fn named(doing: &'static str) -> LoadBar {
        let shown = std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{msg} {bar:40} {binary_bytes}/{binary_total_bytes}");
        LoadBar(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(doing))
    }

    /// Shows that `done` of `total` bytes are done; a bar that is full goes away.
    pub fn show(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
        if done >= total {
            self.0.finish_and_clear();
        }
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
