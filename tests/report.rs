//! The generated benchmark page and chart: equal to what the rows give, and the policy that chooses
//! the figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tilewright::results::{Figures, Peaks, PeerKind, ResultEntry, Results, WorkloadRuns, means};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn report(results: &Path, arguments: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.arg("report").arg("--results").arg(results);
    for (name, path) in arguments {
        command.arg(name).arg(path);
    }
    command.output().expect("runs")
}

/// With `TILEWRIGHT_BLESS` set, the page and the chart are written instead of compared.
#[test]
fn the_page_and_the_chart_are_what_the_rows_give() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = [root().join("docs/benchmarks.md"), root().join("docs/pictures/speed.svg")];
    let made: [PathBuf; 2] = if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        kept.clone()
    } else {
        [folder.path().join("page.md"), folder.path().join("speed.svg")]
    };
    let run = report(&root().join("benches/results/rows"), &[("--out", &made[0]), ("--chart", &made[1])]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    for (made, kept) in made.iter().zip(&kept) {
        let [made, text] = [made, kept].map(|path| fs::read_to_string(path).expect("text"));
        let differs = made.lines().zip(text.lines()).find(|(made, kept)| made != kept);
        assert!(
            made == text,
            "{} is not what the rows give: run this test with TILEWRIGHT_BLESS=1 ({differs:?})",
            kept.display()
        );
    }
}

/// The figures in the README's text, which no command writes, and its length.
#[test]
fn the_readme_quotes_what_the_rows_give() {
    let readme = fs::read_to_string(root().join("README.md")).expect("text");
    assert!(readme.lines().count() <= 250, "the README has {} lines", readme.lines().count());
    let results = Results::open(&root().join("benches/results/rows")).expect("rows");
    let runs = WorkloadRuns::new(&results);
    let figures = runs.figures();
    let chart: Vec<f64> = figures
        .iter()
        .filter(|figures| ["decode", "prefill"].contains(&figures.workload.suite))
        .filter(|figures| figures.workload.device.contains("H200"))
        .filter_map(|figures| Some(figures.compared?.ratio()))
        .collect();
    let [least, most] = [chart.iter().copied().fold(f64::MAX, f64::min), chart.iter().copied().fold(0.0, f64::max)];
    let one = figures.iter().find(|figures| {
        let entry = &figures.latest;
        let of = |name, extent| entry.extent(name) == Some(extent);
        figures.workload.suite == "decode"
            && figures.workload.device.contains("H200")
            && figures.workload.form.is_empty()
            && [("hidden", 2048), ("layers", 16), ("batch", 1), ("context", 200)]
                .into_iter()
                .all(|(name, n)| of(name, n))
    });
    let one = &one.expect("decode of Llama-3.2-1B").latest;
    let share = Peaks::new(&results).floor(one).expect("a measured peak").share * 100.0;
    for figure in [
        format!("by a factor of {least:.1} to {most:.1}"),
        format!("{:.0} µs per token", one.us()),
        format!("{share:.0} %"),
    ] {
        assert!(readme.contains(&figure), "the rows give `{figure}`, which the README does not say");
    }
}

#[test]
fn rows_without_peers_or_files_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows.jsonl");
    fs::write(&rows, row("decode", "tilewright", 600.0, MODEL, "launches of 200")).expect("writes");
    let out = folder.path().join("chart.svg");
    for (results, words) in
        [(rows.as_path(), "no decode or prefill row has a peer"), (Path::new("no/such"), "cannot be read")]
    {
        let run = report(results, &[("--chart", &out)]);
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(error.lines().count() == 1 && error.contains(words), "{error}");
        assert!(!out.exists());
    }
}

const MODEL: &str = r#""hidden": 2048, "layers": 16, "batch": 1, "context": 200"#;
const PROMPT: &str = r#""hidden": 2048, "layers": 16, "tokens": 512"#;

fn row(suite: &str, who: &str, us: f64, shape: &str, variant: &str) -> String {
    format!(
        r#"{{"suite": "{suite}", "who": "{who}", "median_us": {us}, "shape": {{{shape}}}, "variant": "{variant}", "bytes": 2000000000}}"#
    ) + "\n"
}

fn call(id: &str, commit: &str, date: &str, more: &str) -> String {
    format!(r#"{{"call": {{"id": "{id}", "date": "{date}", "device": "NVIDIA H200", "commit": "{commit}"{more}}}}}"#)
        + "\n"
}

fn results(lines: &[String]) -> Results {
    let mut results = Results::default();
    results.add(&lines.concat(), "rows.jsonl").expect("rows");
    results
}

fn only<'r>(figures: &'r [Figures<'r>]) -> &'r Figures<'r> {
    assert_eq!(figures.len(), 1, "{figures:?}");
    &figures[0]
}

#[test]
fn the_peer_is_the_fastest_of_the_same_run_and_the_newest_run_with_one_is_quoted() {
    let launches = "launches of 200, median of 5";
    let rows = results(&[
        call("a", "aaaa", "2026-01-01", ""),
        row("decode", "tilewright", 700.0, MODEL, launches),
        row("decode", "pytorch-compile-cuda-graph", 900.0, MODEL, ""),
        call("b", "bbbb", "2026-01-02", ""),
        row("decode", "tilewright", 640.0, MODEL, launches),
        row("decode", "tilewright", 600.0, MODEL, launches),
        row("decode", "tilewright", 650.0, MODEL, launches),
        row("decode", "pytorch-cuda-graph", 1700.0, MODEL, ""),
        row("decode", "pytorch-compile-cuda-graph", 1200.0, MODEL, ""),
        call("c", "cccc", "2026-01-03", ""),
        row("decode", "tilewright", 500.0, MODEL, launches),
    ]);
    let figures = WorkloadRuns::new(&rows).figures();
    let figures = only(&figures);
    assert_eq!(figures.latest.us(), 500.0);
    let compared = figures.compared.expect("a peer");
    // The middle of three repeats, and not the older run's peer although that was faster.
    assert_eq!((compared.ours.us(), compared.peer.us()), (640.0, 1200.0));
    assert!(figures.is_newer_than_its_peer());
}

#[test]
fn trials_and_other_forms_are_not_compared_with_a_plain_peer() {
    let weights = r#", "command": "tilewright bench --suite prefill --weights w4a16""#;
    let rows = results(&[
        call("a", "aaaa", "2026-01-01", ""),
        row("decode", "tilewright", 100.0, MODEL, "graph, launches of 50, median of 5, stages=3"),
        row("decode", "tilewright", 101.0, MODEL, "launches of 200, packets announced early, median of 5"),
        row("decode", "tilewright", 640.0, MODEL, "launches of 1, median of 200"),
        row("decode", "pytorch-cuda-graph", 1700.0, MODEL, ""),
        row("prefill", "pytorch", 9000.0, PROMPT, "torch, flash"),
        call("b", "aaaa", "2026-01-01", weights),
        row("prefill", "tilewright", 2000.0, PROMPT, "chunks of 512, median of 7"),
        call("c", "aaaa", "2026-01-01", r#", "command": "tilewright tune --suite gemv""#),
        row("gemv", "tilewright", 8.0, r#""n": 8, "k": 8, "batch": 1"#, ""),
    ]);
    let figures = WorkloadRuns::new(&rows).figures();
    let forms: Vec<(&str, &str)> = figures.iter().map(|f| (f.workload.suite, f.workload.form.as_str())).collect();
    assert_eq!(forms, [("decode", "one launch per token"), ("prefill", "w4a16")]);
    assert!(figures.iter().all(|figures| figures.compared.is_none()));
}

#[test]
fn of_several_settings_the_fastest_counts_and_the_floor_is_the_measured_one() {
    let peaks = r#", "read_peak": 4e12, "matrix_peak": 9e14"#;
    let rows = results(&[
        call("a", "aaaa", "2026-01-01", peaks),
        row("prefill", "tilewright", 3000.0, PROMPT, "chunks of 512, median of 7"),
        row("prefill", "tilewright", 1000.0, PROMPT, "chunks of 2048, median of 7"),
        call("b", "bbbb", "2026-01-02", ""),
        row("decode", "tilewright", 1000.0, MODEL, "launches of 200, median of 5"),
        row("decode", "tilewright", 1000.0, &format!(r#"{MODEL}, "devices": 2"#), "launches of 200, median of 5"),
    ]);
    let runs = WorkloadRuns::new(&rows);
    let peaks = Peaks::new(&rows);
    let shares: Vec<(f64, f64, bool)> = runs
        .figures()
        .iter()
        .map(|figures| (figures.latest.us(), peaks.floor(&figures.latest).expect("a floor")))
        .map(|(us, floor)| (us, (floor.share * 1e6).round() / 1e6, floor.measured_in_call))
        .collect();
    // 2 GB at 4 TB/s take 500 µs, and half of that on two devices.
    assert_eq!(shares, [(1000.0, 0.5, false), (1000.0, 0.25, false), (1000.0, 0.5, true)]);
}

#[test]
fn a_mean_never_mixes_compiled_and_eager_peers() {
    let launches = "launches of 200, median of 5";
    let other = MODEL.replace("200", "4096");
    let third = MODEL.replace("\"batch\": 1", "\"batch\": 8");
    let rows = results(&[
        call("a", "aaaa", "2026-01-01", ""),
        row("decode", "tilewright", 500.0, MODEL, launches),
        row("decode", "pytorch-cuda-graph", 1000.0, MODEL, ""),
        row("decode", "tilewright", 500.0, &other, launches),
        row("decode", "pytorch-cuda-graph", 4000.0, &other, ""),
        row("decode", "tilewright", 500.0, &third, launches),
        row("decode", "pytorch-compile-cuda-graph", 600.0, &third, ""),
    ]);
    let compared: Vec<_> = WorkloadRuns::new(&rows).figures().iter().filter_map(|figures| figures.compared).collect();
    let means: Vec<(PeerKind, f64, usize)> =
        means(&compared).into_iter().map(|(kind, (mean, count))| (kind, (mean * 1e6).round() / 1e6, count)).collect();
    assert_eq!(means, [(PeerKind::Eager, 4.0, 2), (PeerKind::Compiled, 1.2, 1)]);
}

#[test]
fn no_kept_row_beats_its_measured_floor_by_more_than_the_noise_of_the_peak() {
    let rows = Results::open(&root().join("benches/results/rows")).expect("rows");
    let peaks = Peaks::new(&rows);
    let figures = WorkloadRuns::new(&rows).figures();
    let beyond = |entry: &ResultEntry<'_>| peaks.floor(entry).filter(|floor| floor.share > 1.04);
    let found: Vec<String> = figures
        .iter()
        .flat_map(|figures| [Some(figures.latest), figures.compared.map(|compared| compared.ours)])
        .flatten()
        .filter_map(|entry| {
            beyond(&entry).map(|floor| format!("{} {}: {:.2}", entry.row.suite, entry.label(), floor.share))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(figures.iter().filter(|figures| figures.compared.is_some()).count() > 100);
}
