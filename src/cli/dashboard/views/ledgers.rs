//! Ledgers: mutants that must be caught, random programs on the simulator and the device, trials against oracles, tests on
//! a device.

use maud::{Markup, html};

use super::super::board::{Board, Entry};
use super::{commit, link, nothing};

/// Suites of the ledgers, and what they hold.
const LEDGERS: [(&str, &str); 5] = [
    ("mutants", "Planted bugs, and whether the simulator or the validator caught them"),
    ("fuzz", "Random programs and multiplies: the simulator against a device"),
    ("selftest", "Random trials of every kernel against its oracle"),
    ("tests", "Tests that ran on a device"),
    ("endurance", "Long runs that must choose the same tokens each time"),
];

/// The view.
pub fn ledgers(board: &Board<'_>) -> Markup {
    html! {
        @for (suite, what) in LEDGERS {
            @let rows = board.ours(suite);
            section {
                h3 { (suite) }
                p { (what) ". " (rows.len()) " rows." }
                @if rows.is_empty() { (nothing("These results have none.")) }
                @for call in calls(&rows) { (ledger(&call)) }
            }
        }
    }
}

/// The rows of each call.
fn calls<'r>(rows: &[Entry<'r>]) -> Vec<Vec<Entry<'r>>> {
    let mut calls: Vec<Vec<Entry<'r>>> = Vec::new();
    for row in rows {
        match calls.last_mut().filter(|call| call[0].call.id == row.call.id) {
            Some(call) => call.push(*row),
            None => calls.push(vec![*row]),
        }
    }
    calls
}

/// Whether a row says that something was wrong.
fn is_bad(entry: &Entry<'_>) -> bool {
    let count = |name: &str| entry.row.values.get(name).is_some_and(|count| *count > 0.0);
    let verdict = entry.row.verdict.as_deref().unwrap_or_default();
    ["WRONG", "FAILED", "differs", "survived"].contains(&verdict)
        || count("wrong")
        || count("differ")
        || count("failed")
}

fn ledger(call: &[Entry<'_>]) -> Markup {
    let first = &call[0];
    let bad = call.iter().filter(|entry| is_bad(entry)).count();
    html! {
        details {
            summary {
                (first.call.title.as_deref().unwrap_or(&first.call.command)) ", " (first.device()) ", " (commit(first)) ": "
                (call.len()) " rows" @if bad > 0 { ", " span class="worse" { (bad) " with a difference" } }
            }
            div class="scroll" tabindex="0" role="group" aria-label="ledger" { table {
                thead { tr { th scope="col" { "what" } th scope="col" { "figures" } th scope="col" { "verdict" } } }
                tbody { @for entry in call { tr data-row=(entry.number) {
                    th scope="row" { (link(entry, &entry.row.variant)) }
                    td { (figures(entry)) }
                    td class={ @if is_bad(entry) { "worse" } } { (entry.row.verdict.as_deref().unwrap_or("–")) }
                } } }
            } }
        }
    }
}

fn figures(entry: &Entry<'_>) -> String {
    let values = entry.row.values.iter().map(|(name, value)| format!("{name} {value}"));
    values.chain(entry.row.error.map(|error| format!("error {error:.1e}"))).collect::<Vec<_>>().join(", ")
}
