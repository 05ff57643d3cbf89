//! Progress bars: percentage, rate and time left, on a terminal and without --quiet only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::paint::{self, OutputLevel};

const BYTES: &str =
    "{msg} {bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const ITEMS: &str = "{msg} {bar:30} {percent:>3} %  {pos} of {len}, {per_sec}, {eta} left";
/// The message of a search has its rate.
const SEARCH: &str = "{prefix} {bar:30} {percent:>3} %  {msg}, {eta} left";

/// A bar on standard error.
fn bar(doing: &'static str, template: &str, len: u64) -> ProgressBar {
    let target = match is_drawn(paint::level(), std::io::stderr().is_terminal()) {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    bar_on(target, doing, template, len)
}

fn bar_on(target: ProgressDrawTarget, doing: &'static str, template: &str, len: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len), target).with_style(style).with_message(doing).with_prefix(doing)
}

/// Whether bars are drawn: on a terminal, and without --quiet.
fn is_drawn(level: OutputLevel, is_terminal: bool) -> bool {
    is_terminal && level > OutputLevel::Quiet
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

/// A bar that counts items: kernels, steps, rows.
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

    /// Shows that `done` of `total` items are done.
    pub fn show(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.0.finish_and_clear();
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

/// The progress of the search for one shape.
#[derive(Clone, Copy, Debug)]
pub struct SearchProgress {
    /// Configurations that were measured for the shape.
    pub tried: usize,
    /// Configurations that the shape has.
    pub configurations: usize,
    /// Time since the search for the shape began.
    pub elapsed: Duration,
    /// The time that the search may take.
    pub budget: Duration,
}

impl SearchProgress {
    /// The part of the search that is done, from 0 to 1: a search ends when its time is over or
    /// when every configuration is measured.
    fn part(&self) -> f64 {
        let of_budget = self.elapsed.as_secs_f64() / self.budget.as_secs_f64();
        let of_space = self.tried as f64 / self.configurations as f64;
        let part = of_budget.max(of_space);
        // Without time and configurations it is 0 / 0.
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }
}

/// Steps of a search bar for each shape.
const STEPS: u64 = 1000;

/// A bar for searches: the percentage is of the time or of the configurations, whichever is
/// further.
pub struct SearchBar {
    bar: ProgressBar,
    shapes: u64,
    since: Instant,
}

impl SearchBar {
    /// A bar for the searches for `shapes` shapes.
    pub fn new(doing: &'static str, shapes: usize) -> SearchBar {
        let shapes = shapes as u64;
        SearchBar { bar: bar(doing, SEARCH, shapes * STEPS), shapes, since: Instant::now() }
    }

    /// Shows how far the search for a shape is; `measured` configurations were measured in all.
    pub fn show(&self, shape: usize, measured: usize, progress: &SearchProgress) {
        self.bar.set_position(search_position(self.shapes, shape, progress));
        self.bar.set_message(measured_at(measured, self.since.elapsed()));
    }

    /// Hides the bar while `print` writes to the terminal.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

impl Drop for SearchBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The position of a search bar.
fn search_position(shapes: u64, shape: usize, progress: &SearchProgress) -> u64 {
    let within = (progress.part() * STEPS as f64) as u64;
    (shape as u64 * STEPS + within).min(shapes * STEPS)
}

/// A count of configurations and their rate.
fn measured_at(measured: usize, elapsed: Duration) -> String {
    let noun = if measured == 1 { "configuration" } else { "configurations" };
    let rate = measured as f64 / elapsed.as_secs_f64();
    if rate.is_finite() { format!("{measured} {noun}, {rate:.2}/s") } else { format!("{measured} {noun}") }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what is written.
    #[derive(Clone, Debug, Default)]
    struct Captured(Arc<Mutex<String>>);

    impl Captured {
        fn text(&self) -> String {
            self.0.lock().expect("no panic").clone()
        }
    }

    impl TermLike for Captured {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no panic").push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bars_are_drawn_on_a_terminal_without_quiet_only() {
        assert!(is_drawn(OutputLevel::Normal, true) && is_drawn(OutputLevel::Verbose, true));
        assert!(
            !is_drawn(OutputLevel::Quiet, true)
                && !is_drawn(OutputLevel::Normal, false)
                && !is_drawn(OutputLevel::Verbose, false)
        );
    }

    #[test]
    fn a_bar_of_items_shows_the_count_and_the_percentage() {
        let terminal = Captured::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = ItemBar(bar_on(target, "measuring", ITEMS, 0));
        bar.show(3, 12);
        bar.0.force_draw();
        assert!(terminal.text().contains(" 25 %  3 of 12, "), "{}", terminal.text());
        assert!(terminal.text().starts_with("measuring ") && terminal.text().contains(" left"), "{}", terminal.text());
    }

    #[test]
    fn a_search_is_as_far_as_its_time_or_its_configurations() {
        let at = |tried, seconds| SearchProgress {
            tried,
            configurations: 40,
            elapsed: Duration::from_secs(seconds),
            budget: Duration::from_secs(60),
        };
        assert_eq!(at(1, 30).part(), 0.5);
        assert_eq!(at(30, 15).part(), 0.75);
        assert_eq!(at(40, 90).part(), 1.0);
        // The second of four shapes, half of its time.
        assert_eq!(search_position(4, 1, &at(1, 30)), 1500);
        assert_eq!(search_position(4, 3, &at(40, 0)), 4000);
        let without_time = SearchProgress { budget: Duration::ZERO, configurations: 0, ..at(0, 0) };
        assert_eq!(without_time.part(), 0.0);
        assert_eq!(search_position(4, 1, &without_time), 1000);
        assert_eq!(measured_at(1, Duration::from_secs(4)), "1 configuration, 0.25/s");
        assert_eq!(measured_at(12, Duration::from_secs(4)), "12 configurations, 3.00/s");
        assert_eq!(measured_at(0, Duration::ZERO), "0 configurations");
    }

    /// An invalid template would silently become the default bar.
    #[test]
    fn templates_are_valid_and_show_percentage_rate_and_time_left() {
        for (template, rate) in [(BYTES, "per_sec}"), (ITEMS, "per_sec}"), (SEARCH, "{msg}")] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
            for part in ["{percent", rate, "{eta}"] {
                assert!(template.contains(part), "{template}");
            }
        }
    }
}
