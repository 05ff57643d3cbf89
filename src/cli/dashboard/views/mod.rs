//! The views: each a function from the board to a section of the page.

pub mod accuracy;
pub mod energy;
pub mod history;
pub mod ledgers;
pub mod overview;
pub mod plan;
pub mod roofline;
pub mod step;

use maud::{Markup, html};

use super::board::Entry;

/// A number that leads to its row.
fn link(entry: &Entry<'_>, text: &str) -> Markup {
    html! { a href={ "#row-" (entry.number) } { (text) } }
}

/// What a view says where the results have nothing for it.
fn nothing(what: &str) -> Markup {
    html! { p class="none" { (what) } }
}

/// A commit, or a dash; `+` where the tree had changes.
fn commit(entry: &Entry<'_>) -> String {
    let changed = if entry.call.clean == Some(false) { "+" } else { "" };
    entry.call.commit.as_ref().map_or("–".to_owned(), |commit| format!("{commit}{changed}"))
}

/// Microseconds with so many digits as they are worth.
fn microseconds(us: f64) -> String {
    match us {
        us if us >= 100.0 => format!("{us:.1}"),
        us if us >= 1.0 => format!("{us:.2}"),
        us => format!("{us:.3}"),
    }
}

/// A part of 1 in percent.
fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "–".to_owned(), |part| format!("{:.0} %", part * 100.0))
}
