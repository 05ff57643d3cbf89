//! Energy: joules of a token or a launch, where the device's counters told them.

use maud::{Markup, html};

use super::super::board::{Board, Entry};
use super::{commit, link, nothing};

/// The view.
pub fn energy(board: &Board<'_>) -> Markup {
    let known: Vec<Entry<'_>> = board.entries().filter(|entry| entry.row.joules.is_some()).collect();
    html! {
        p { "Energy of one token: the device's energy counter before and after the timed launches, divided by their tokens." }
        @if known.is_empty() {
            (nothing("No row of these results has energy: they were measured before rows carried it, or where NVML was missing."))
        } @else {
            div class="scroll" tabindex="0" role="group" aria-label="energy" { table {
                thead { tr { @for head in ["suite", "shape", "variant", "device", "commit", "J", "W", "µs"] { th scope="col" { (head) } } } }
                tbody { @for entry in &known { tr data-row=(entry.number) {
                    td { (entry.row.suite) }
                    th scope="row" { (entry.label()) }
                    td { (entry.row.variant) }
                    td { (entry.device()) }
                    td { (commit(entry)) }
                    td class="number" { (link(entry, &format!("{:.4}", entry.row.joules.unwrap_or(f64::NAN)))) }
                    td class="number" { (entry.row.watts.map_or("–".into(), |watts| format!("{watts:.0}"))) }
                    td class="number" { (entry.row.median_us.map_or("–".into(), |us| format!("{us:.1}"))) }
                } } }
            } }
        }
    }
}
