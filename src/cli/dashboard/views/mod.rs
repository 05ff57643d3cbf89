//! The views: each is a function from the board to a section of the page.

pub mod accuracy;
pub mod energy;
pub mod history;
pub mod ledgers;
pub mod overview;
pub mod plan;
pub mod roofline;
pub mod step;

use maud::{Markup, html};

use crate::cli::report::words::significant;
use crate::results::ResultEntry;

/// A number that leads to its row.
fn link(entry: &ResultEntry<'_>, text: &str) -> Markup {
    html! { a href={ "#row-" (entry.number) } { (text) } }
}

/// A sentence in place of a view without rows; text in backquotes is code.
fn nothing(what: &str) -> Markup {
    let parts = what.split('`').enumerate();
    html! { p class="none" { @for (at, part) in parts { @if at % 2 == 1 { code { (part) } } @else { (part) } } } }
}

/// A commit, or a dash; `+` if the tree had changes that were not committed.
fn commit(entry: &ResultEntry<'_>) -> String {
    let changed = if entry.call.clean == Some(false) { "+" } else { "" };
    entry.commit().map_or("–".to_owned(), |commit| format!("{commit}{changed}"))
}

/// Microseconds with four significant digits.
fn microseconds(us: f64) -> String {
    significant(us, 4)
}
