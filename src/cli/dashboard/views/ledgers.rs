//! Ledgers: tests that ran many times: planted bugs, random programs, trials against oracles, tests
//! on a device.

use maud::{Markup, html};

use super::super::board::Board;
use super::{commit, link, nothing};
use crate::cli::report::words::significant;
use crate::results::ResultEntry;

/// Suites of the ledgers: suite, title, what a row is and which verdicts are good.
const LEDGERS: [(&str, &str, &str); 5] = [
    (
        "mutants",
        "Planted bugs",
        "Each row is a bug that was planted in a kernel or a program on purpose. “caught” means that the simulator or the \
         validator reported it; “survived” means that it was missed.",
    ),
    (
        "fuzz",
        "Random programs on a GPU and in the simulator",
        "Each row is a batch of random programs or matrix instructions that ran on a GPU and in the simulator. Results must be \
         equal bit by bit; “near” counts floating-point sums that differ within the hardware's rounding; “differ” and “wrong” \
         count the others, each of which was investigated.",
    ),
    (
        "selftest",
        "Random trials of kernels",
        "Each row is a kernel and the number of random shapes and inputs on which its result was compared with a plain loop in \
         f64 (the oracle). “wrong” must be 0.",
    ),
    ("tests", "Tests on a GPU", "Each row is a test of the suite that ran on a GPU, and whether it passed."),
    (
        "endurance",
        "Long runs",
        "Each row is a run of thousands of steps that was repeated; every repetition must choose the same tokens.",
    ),
];

/// The view.
pub fn ledgers(board: &Board<'_>) -> Markup {
    html! {
        p { "A ledger counts checks of correctness, not times. It answers how often something was tried and whether any result was
            wrong. Each entry below is one run; open it for its rows." }
        @for (suite, title, what) in LEDGERS {
            @let rows = board.ours(suite);
            section {
                h3 { (title) " " small { (rows.len()) " rows" } }
                p { (what) }
                @if rows.is_empty() { (nothing("These results have none.")) }
                @for call in calls(&rows) { (ledger(&call)) }
            }
        }
    }
}

/// The rows of each call.
fn calls<'r>(rows: &[ResultEntry<'r>]) -> Vec<Vec<ResultEntry<'r>>> {
    let mut calls: Vec<Vec<ResultEntry<'r>>> = Vec::new();
    for row in rows {
        match calls.last_mut().filter(|call| call[0].call.id == row.call.id) {
            Some(call) => call.push(*row),
            None => calls.push(vec![*row]),
        }
    }
    calls
}

/// Whether a row says that something was wrong.
fn is_bad(entry: &ResultEntry<'_>) -> bool {
    let count = |name: &str| entry.row.values.get(name).is_some_and(|count| *count > 0.0);
    let verdict = entry.row.verdict.as_deref().unwrap_or_default();
    ["WRONG", "FAILED", "differs", "survived"].contains(&verdict)
        || count("wrong")
        || count("differ")
        || count("failed")
}

fn ledger(call: &[ResultEntry<'_>]) -> Markup {
    let first = &call[0];
    let bad = call.iter().filter(|entry| is_bad(entry)).count();
    html! {
        details {
            summary {
                (first.call.title.as_deref().unwrap_or(&first.call.command)) ", " (first.device()) ", " (commit(first)) ": "
                (call.len()) " rows" @if bad > 0 { ", " span class="worse" { (bad) " with a difference" } }
            }
            div class="scroll" tabindex="0" role="group" aria-label="ledger" { table {
                thead { tr { th scope="col" { "checked" } th scope="col" { "counts and errors" } th scope="col" { "verdict" } } }
                tbody { @for entry in call { tr data-row=(entry.number) {
                    th scope="row" { (link(entry, &entry.row.variant)) }
                    td { (figures(entry)) }
                    td class={ @if is_bad(entry) { "worse" } } { (entry.row.verdict.as_deref().unwrap_or("–")) }
                } } }
            } }
        }
    }
}

fn figures(entry: &ResultEntry<'_>) -> String {
    let values =
        entry.row.values.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), significant(*value, 4)));
    values.chain(entry.row.error.map(|error| format!("error {error:.1e}"))).collect::<Vec<_>>().join(", ")
}
