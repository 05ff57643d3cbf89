//! Energy: joules of a token or a launch, for rows measured with the device's energy counter.

use maud::{Markup, html};

use super::super::board::Board;
use super::{commit, link, nothing};
use crate::cli::report::words::significant;
use crate::results::ResultEntry;

/// The view.
pub fn energy(board: &Board<'_>) -> Markup {
    let known: Vec<(ResultEntry<'_>, f64)> =
        board.entries().iter().filter_map(|entry| Some((*entry, entry.row.joules?))).collect();
    html! {
        p { "Energy of one token: the device's energy counter before and after the timed launches, divided by their tokens." }
        @if known.is_empty() {
            (nothing("No row of these results has energy: they were measured before rows carried it, or on a machine without NVML."))
        } @else {
            div class="scroll" tabindex="0" role="group" aria-label="energy" { table {
                thead { tr { @for head in ["suite", "workload", "variant", "device", "commit", "energy, J", "power, W", "time, µs"] { th scope="col" { (head) } } } }
                tbody { @for (entry, joules) in &known { tr data-row=(entry.number) {
                    td { (entry.row.suite) }
                    th scope="row" { (entry.label()) }
                    td { (entry.row.variant) }
                    td { (entry.device()) }
                    td { (commit(entry)) }
                    td class="number" { (link(entry, &significant(*joules, 3))) }
                    td class="number" { (entry.row.watts.map_or("–".into(), |watts| significant(watts, 3))) }
                    td class="number" { (entry.row.median_us.map_or("–".into(), |us| significant(us, 4))) }
                } } }
            } }
        }
    }
}
