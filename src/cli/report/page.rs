//! The benchmark page: one table per suite and device, in Markdown.

use std::fmt::Write;

use crate::cli::report::words::{kind_name, significant, suite_rank, suite_title};
use crate::results::{Comparison, Figures, Peaks, ResultEntry, Results, WorkloadRuns, device_name, means};

const HEAD: &str = "\
# Benchmarks

<!-- Generated from the result rows by `tilewright report`. Do not edit: a test compares this page with the rows. -->

Every figure is the newest measurement of its workload, next to the fastest peer that ran in the same run. How the figures
are measured, and what they do not say, is in [the method](benchmarks-method.md). [The dashboard](dashboard.md) shows the
same rows with their samples and commands. This page is generated:

```sh
tilewright report --results benches/results/rows --out docs/benchmarks.md --chart docs/pictures/speed.svg
```

* **ratio**: the peer's time over ours. Above 1, tilewright is faster.
* **floor**: the least time that the workload's bytes and operations allow at the rates measured on the device, as a share
  of our time. 100 % is the limit of the hardware. `~` marks rates from other calls on that device; `–` marks workloads
  whose limiting rate was not measured.
* **commit**: the build that was measured. Times of two commits or two cards are not compared here.

Decode times are of launches of many steps; the dashboard also has those of one launch per token.

";

/// Form of decode rows that the page leaves out: they repeat the workload with a launch per token.
const SINGLE: &str = "one launch per token";

/// The page of all suites and devices.
pub fn page(results: &Results) -> String {
    let mut figures = WorkloadRuns::new(results).figures();
    figures.retain(|figures| !figures.workload.form.contains(SINGLE));
    let newest_of = |device: &str| figures.iter().filter(|f| f.workload.device == device).map(|f| f.latest.age()).max();
    let ages: Vec<_> = figures.iter().map(|f| newest_of(f.workload.device)).collect();
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|&a, &b| {
        let key = |at: usize| (suite_rank(figures[at].workload.suite), figures[at].workload.suite);
        key(a).cmp(&key(b)).then_with(|| ages[b].cmp(&ages[a])).then_with(|| a.cmp(&b))
    });
    figures = order.into_iter().map(|at| figures[at].clone()).collect();
    let peaks = Peaks::new(results);
    let tables: Vec<&[Figures<'_>]> = figures
        .chunk_by(|a, b| (a.workload.suite, a.workload.device) == (b.workload.suite, b.workload.device))
        .collect();
    let mut page = HEAD.to_owned();
    summary(&mut page, &tables);
    for table in tables {
        section(&mut page, table, &peaks);
    }
    page
}

/// Geometric means by suite, device and kind of peer.
fn summary(page: &mut String, tables: &[&[Figures<'_>]]) {
    page.push_str("## Summary\n\nGeometric mean of the ratios below, by kind of peer.\n\n");
    page.push_str("| suite | device | peer | workloads | ratio |\n|---|---|---|---:|---:|\n");
    for table in tables {
        let compared: Vec<Comparison<'_>> = table.iter().filter_map(|figures| figures.compared).collect();
        let first = &table[0].workload;
        for (kind, (mean, count)) in means(&compared) {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {count} | {mean:.2} |",
                suite_title(first.suite).0,
                cell(&device_name(first.device)),
                kind_name(kind)
            );
        }
    }
    page.push('\n');
}

/// The tables of a suite on a device: with peers, and without.
fn section(page: &mut String, table: &[Figures<'_>], peaks: &Peaks<'_>) {
    let first = &table[0].workload;
    let (title, about) = suite_title(first.suite);
    let _ = write!(page, "## {}, {}\n\n", cell(&title), cell(&device_name(first.device)));
    if !about.is_empty() {
        let _ = write!(page, "{about}\n\n");
    }
    let compared: Vec<(&Figures<'_>, Comparison<'_>)> =
        table.iter().filter_map(|figures| Some((figures, figures.compared?))).collect();
    let alone: Vec<&Figures<'_>> = table.iter().filter(|figures| figures.is_newer_than_its_peer()).collect();
    let unit = Unit::of(table.iter().map(|figures| figures.latest.us()));
    if !compared.is_empty() {
        let _ = writeln!(
            page,
            "| workload | ours, {0} | best peer, {0} | peer | ratio | floor | date | commit |",
            unit.name
        );
        page.push_str("|---|---:|---:|---|---:|---:|---|---|\n");
        for (figures, comparison) in &compared {
            let Comparison { ours, peer } = comparison;
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {:.2} | {} | {} | {} |",
                cell(&name(figures, ours)),
                unit.shown(ours.us()),
                unit.shown(peer.us()),
                cell(&peer.peer_name()),
                comparison.ratio(),
                floor(ours, peaks),
                cell(ours.day()),
                commit(ours)
            );
        }
        page.push('\n');
    }
    if alone.is_empty() {
        return;
    }
    if !compared.is_empty() {
        page.push_str("Newest measurements whose run has no peer:\n\n");
    }
    let _ = writeln!(page, "| workload | ours, {} | floor | date | commit |", unit.name);
    page.push_str("|---|---:|---:|---|---|\n");
    for figures in alone {
        let ours = &figures.latest;
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} |",
            cell(&name(figures, ours)),
            unit.shown(ours.us()),
            floor(ours, peaks),
            cell(ours.day()),
            commit(ours)
        );
    }
    page.push('\n');
}

/// The workload and its form.
fn name(figures: &Figures<'_>, entry: &ResultEntry<'_>) -> String {
    let mut label = entry.label();
    if let Some(bits) = entry.extent("weight_bits").filter(|_| !figures.workload.form.is_empty()) {
        // The form names the format, which says the bits.
        label = label.replace(&format!(", {bits}-bit weights"), "");
    }
    let parts = [label, figures.workload.form.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn floor(entry: &ResultEntry<'_>, peaks: &Peaks<'_>) -> String {
    peaks.floor(entry).map_or_else(
        || "–".to_owned(),
        |floor| format!("{}{:.0} %", if floor.measured_in_call { "" } else { "~" }, floor.share * 100.0),
    )
}

fn commit(entry: &ResultEntry<'_>) -> String {
    let changed = if entry.call.clean == Some(false) { "+" } else { "" };
    entry.commit().map_or_else(|| "–".to_owned(), |commit| format!("{}{changed}", cell(commit)))
}

/// The unit of a table's times.
struct Unit {
    name: &'static str,
    us: f64,
}

impl Unit {
    /// Milliseconds if half of the times have one or more, otherwise microseconds.
    fn of(times: impl Iterator<Item = f64>) -> Unit {
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        match times.get(times.len() / 2) {
            Some(&middle) if middle >= 10_000.0 => Unit { name: "ms", us: 1e3 },
            _ => Unit { name: "µs", us: 1.0 },
        }
    }

    fn shown(&self, us: f64) -> String {
        significant(us / self.us, 4)
    }
}

/// Text of a row as one cell of a table: no markup, no line break.
fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' => cell.extend(['\\', letter]),
            letter if letter.is_control() => cell.push(' '),
            letter => cell.push(letter),
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_rows_cannot_break_a_table() {
        assert_eq!(cell("a|b\n<c> `d`"), "a\\|b \\<c\\> \\`d\\`");
    }
}
