//! The page: a head, the views, and the rows as data for the script.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::board::Board;
use super::views;
use crate::cli::Failure;
use crate::results::Summary;

/// Views: address, name.
const VIEWS: [(&str, &str); 10] = [
    ("overview", "Overview"),
    ("compare", "Compare"),
    ("history", "History"),
    ("roofline", "Roofline"),
    ("step", "Decode step"),
    ("accuracy", "Accuracy"),
    ("ledgers", "Ledgers"),
    ("plan", "Plan"),
    ("energy", "Energy"),
    ("rows", "All rows"),
];

/// The page as text.
pub fn page(board: &Board<'_>) -> Result<String, Failure> {
    let data = data(board)?;
    let made = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let views: [Markup; 10] = [
        views::overview::overview(board),
        compare(),
        views::history::history(board)?,
        views::roofline::roofline(board)?,
        views::step::step(board)?,
        views::accuracy::accuracy(board)?,
        views::ledgers::ledgers(board),
        views::plan::plan(board)?,
        views::energy::energy(board),
        rows(),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // No request for an icon: the page needs no network.
                link rel="icon" href="data:,";
                title { "tilewright results" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    h1 { "tilewright results" }
                    p { (board.results.rows.len()) " rows, " (made.chars().take(10).collect::<String>()) }
                    button id="theme" type="button" { "Light or dark" }
                }
                nav aria-label="views" {
                    @for (at, (address, name)) in VIEWS.iter().enumerate() {
                        a href={ "#/" (address) } title={ "key " ((at + 1) % 10) } { (name) }
                    }
                }
                (filters(board))
                main {
                    @for ((address, name), view) in VIEWS.iter().zip(&views) {
                        section class="view" id=(address) aria-label=(name) { h2 { (name) } (view) }
                    }
                }
                dialog id="detail" aria-label="a row" { form method="dialog" { button { "Close" } } div id="detail-body" {} }
                script id="data" type="application/json" { (PreEscaped(data)) }
                script { (PreEscaped(include_str!("script.js"))) }
            }
        }
    };
    Ok(page.into_string())
}

fn filters(board: &Board<'_>) -> Markup {
    let mut suites: Vec<&str> = Vec::new();
    let mut devices: Vec<&str> = Vec::new();
    let mut who: Vec<&str> = Vec::new();
    let add = |list: &mut Vec<_>, item| {
        if !list.contains(&item) {
            list.push(item);
        }
    };
    for entry in board.entries() {
        add(&mut suites, entry.row.suite.as_str());
        add(&mut devices, entry.call.device.as_str());
        add(&mut who, entry.row.who.as_str());
    }
    let choice = |id: &str, name: &str, options: &[&str]| {
        html! {
            label { (name) " " select id=(id) { option value="" { "all" } @for option in options { option value=(option) { (option) } } } }
        }
    };
    html! {
        form id="filters" role="search" {
            (choice("suite", "Suite", &suites))
            (choice("device", "Device", &devices))
            (choice("who", "By", &who))
            label { "Words " input id="words" type="search" placeholder="n=4096 bf16" title="key /"; }
            output id="count" {}
        }
    }
}

fn compare() -> Markup {
    html! {
        p { "Medians of equal suite, shape and variant on two sides, regressions first. Noise is the standard error of a median, from the
            row's samples; for rows without samples, the distance to the best time. A difference counts if it exceeds three standard
            errors and 1 %." }
        form id="sides" { label { "Before " select id="before" {} } label { "After " select id="after" {} } }
        p id="comparison" aria-live="polite" {}
        div class="scroll" tabindex="0" role="group" aria-label="comparison" { table id="differences" {
            thead { tr { @for head in ["suite", "shape", "variant", "before, µs", "after, µs", "change", "noise", "verdict"] {
                th scope="col" { (head) }
            } } }
            tbody {}
        } }
    }
}

fn rows() -> Markup {
    html! {
        p { "Rows that match the filters, at most 500." }
        div class="scroll" tabindex="0" role="group" aria-label="rows" { table id="all" {
            thead { tr { @for head in ["suite", "shape", "variant", "by", "device", "commit", "median, µs", "best, µs", "error", "verdict"] {
                th scope="col" { (head) }
            } } }
            tbody {}
        } }
    }
}

/// Calls and rows for the script, in text that may stand in a script element.
fn data(board: &Board<'_>) -> Result<String, Failure> {
    let mut rows = Vec::new();
    for (call, row) in &board.results.rows {
        let mut value = serde_json::to_value(row)?;
        if let Value::Object(fields) = &mut value {
            fields.insert("call".into(), json!(call));
            if let Some(summary) = Summary::of(row) {
                fields.insert("median".into(), json!(summary.median));
                fields.insert("noise".into(), json!(summary.noise));
            }
        }
        rows.push(value);
    }
    let data = json!({ "calls": board.results.calls, "rows": rows });
    Ok(serde_json::to_string(&data)?.replace('<', "\\u003c"))
}
