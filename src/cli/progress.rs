//! Progress bars: percentage, rate and time left, on a terminal and without --quiet only.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::paint::{self, Level};

const BYTES: &str =
    "{msg} {bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const ITEMS: &str = "{msg} {bar:30} {percent:>3} %  {pos} of {len}, {per_sec}, {eta} left";

/// A bar on standard error.
fn bar(doing: &'static str, template: &str, len: u64) -> ProgressBar {
    let shown = std::io::stderr().is_terminal() && paint::level() > Level::Quiet;
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len), target).with_style(style).with_message(doing)
}

/// A bar that counts bytes.
pub struct LoadBar(ProgressBar);

impl LoadBar {
    /// A bar for loading weights.
    pub fn new() -> LoadBar {
        LoadBar::named("loading")
    }

    /// A bar for `doing`.
    pub fn named(doing: &'static str) -> LoadBar {
        LoadBar(bar(doing, BYTES, 0))
    }

    /// Shows that `done` of `total` bytes are done; a full bar disappears.
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

/// A bar that counts items: kernels, steps, cases.
pub struct ItemBar(ProgressBar);

impl ItemBar {
    /// A bar for `count` items.
    pub fn new(doing: &'static str, count: usize) -> ItemBar {
        ItemBar(bar(doing, ITEMS, count as u64))
    }

    /// Counts one item.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// Hides the bar while `print` writes to the terminal.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }
}

impl Drop for ItemBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An invalid template would silently become the default bar.
    #[test]
    fn templates_are_valid_and_show_percentage_rate_and_time_left() {
        for template in [BYTES, ITEMS] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
            for part in ["{percent", "per_sec}", "{eta}"] {
                assert!(template.contains(part), "{template}");
            }
        }
    }
}
