//! The dashboard in a real browser: what it shows equals the rows.
//!
//! Without Chromium the tests print that and pass. `TILEWRIGHT_PICTURES=DIR` saves the screenshots.

mod browser;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use browser::Browser;
use serde_json::json;
use tilewright::results::{Figures, ResultRow, Results, Summary, WorkloadRuns, difference_is_significant};

fn rows() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/rows")
}

/// Makes the page of a folder or a file of rows.
fn make(results: &Path, out: &Path) {
    let command = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["dashboard", "--results"])
        .arg(results)
        .arg("--out")
        .arg(out)
        .output()
        .expect("runs");
    assert!(command.status.success(), "{}", String::from_utf8_lossy(&command.stderr));
}

/// The browser on the page of these rows, or `None` where there is no browser.
fn open(results: &Path, folder: &Path) -> Option<Browser> {
    let Some(command) = browser::installed() else {
        println!("NOT TESTED: Chromium is missing (Debian: apt-get install chromium; or set TILEWRIGHT_CHROMIUM)");
        assert!(std::env::var_os("TILEWRIGHT_NEEDS_CHROMIUM").is_none(), "Chromium is needed here and missing");
        return None;
    };
    let page = folder.join("page.html");
    make(results, &page);
    Some(Browser::open(&command, &page))
}

fn keep(picture: &[u8], name: &str) {
    if let Some(folder) = std::env::var_os("TILEWRIGHT_PICTURES") {
        std::fs::write(Path::new(&folder).join(name), picture).expect("a picture");
    }
    // A picture of one colour would be a few hundred bytes.
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{name}: {} bytes", picture.len());
}

#[test]
fn the_page_shows_what_the_rows_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut page) = open(&rows(), folder.path()) else { return };
    let results = Results::open(&rows()).expect("rows");
    page.resize(1280, 900, false);
    the_first_screen_compares(&mut page, &results);
    // Axes have names on every chart of the page, shown or not.
    let bare = "[...document.querySelectorAll('main svg')].filter((s) => s.querySelectorAll('text').length < 4).length";
    assert_eq!(page.eval(bare), json!(0));
    roofline_and_steps(&mut page, &results);
    a_click_opens_the_detail(&mut page, &results);
    filters_narrow(&mut page, &results);
    regressions_come_first(&mut page, &results);
    pictures(&mut page);
    assert!(page.console.is_empty(), "{:#?}", page.console);
}

/// Overview: a bar for each decode and prefill workload of the newest device and for each group of
/// kernels, without scrolling; a line of a table for each comparison; each workload once.
fn the_first_screen_compares(page: &mut Browser, results: &Results) {
    let figures = WorkloadRuns::new(results).figures();
    let compared: Vec<_> = figures.iter().filter(|figures| figures.compared.is_some()).collect();
    assert!(compared.len() > 100);
    assert_eq!(page.visible("#overview .suite tbody tr"), compared.len() as u64);
    let newest = compared.iter().max_by_key(|figures| figures.compared.map(|compared| compared.ours.age()));
    let device = newest.expect("a device").workload.device;
    let models = |suite: &str| {
        let of = |figures: &&&Figures<'_>| (figures.workload.suite, figures.workload.device) == (suite, device);
        compared.iter().filter(of).count() as u64
    };
    for (panel, suite) in [(1, "decode"), (2, "prefill")] {
        assert!(models(suite) > 3, "{suite}");
        assert_eq!(page.visible(&format!("#overview .panel:nth-child({panel}) .bar")), models(suite), "{suite}");
    }
    assert!(page.visible("#overview .panel:nth-child(3) .bar") >= 4);
    let labels = page.eval("[...document.querySelectorAll('#overview .bar .what')].map((e) => e.textContent)");
    let labels: Vec<&str> = labels.as_array().expect("labels").iter().filter_map(|label| label.as_str()).collect();
    let distinct: HashSet<&str> = labels.iter().copied().collect();
    assert_eq!(distinct.len(), labels.len(), "a workload is there twice: {labels:?}");
    // Every bar names its peer, has a parity line, and a panel's axis has units.
    let peers = "[...document.querySelectorAll('#overview .bar .detail')].every((e) => /PyTorch|cuBLAS|cuDNN|FlashAttention|DeepGEMM|Triton|CUB/.test(e.textContent))";
    assert_eq!(page.eval(peers), json!(true));
    assert_eq!(page.visible("#overview .bar .parity"), labels.len() as u64);
    assert_eq!(
        page.eval("[...document.querySelectorAll('#overview .axis')].every((e) => e.textContent.includes('1×'))"),
        json!(true)
    );
    let lowest =
        "Math.max(...[...document.querySelectorAll('#overview .panel')].map((e) => e.getBoundingClientRect().bottom))";
    let lowest = page.eval(lowest).as_f64().expect("a place");
    assert!(lowest <= 900.0, "the panels end at {lowest}, past the first screen");
}

fn roofline_and_steps(page: &mut Browser, results: &Results) {
    page.press_for("4", "roofline");
    let points = results.rows.iter().filter(|(_, row)| {
        let suites = ["gemv", "attention", "gemm", "gemm e4m3", "gemm e4m3 fast", "gemm s8"];
        let whole = row.copy_of.is_none() && row.is_ours() && row.median_us.is_some();
        whole
            && suites.contains(&row.suite.as_str())
            && row.bytes.is_some()
            && row.operations.is_some_and(|count| count > 0)
    });
    assert_eq!(page.visible("#roofline .mark"), points.count() as u64);
    page.press_for("5", "step");
    let levels = results.rows.iter().filter(|(_, row)| row.suite == "timeline" && row.variant != "step").count();
    assert_eq!(page.eval("document.querySelectorAll('#step tbody tr').length"), json!(levels));
    assert!(page.visible("#step .mark") > 20);
    page.press_for("1", "overview");
}

/// A number leads to its row, its samples, its source and the command; Escape leads back.
fn a_click_opens_the_detail(page: &mut Browser, results: &Results) {
    for selector in ["#overview .suite tbody td a", "#overview .bar"] {
        page.click(selector);
        page.wait("document.querySelector('#detail').open");
        let number = page.eval("Number(location.hash.slice('#row-'.length))").as_u64().expect("a number") as usize;
        let call = results.call(&results.rows[number]);
        let row = &results.rows[number].1;
        let text = page.eval("document.querySelector('#detail-body').innerText");
        let text = text.as_str().expect("text");
        let shown = page.eval(&format!("rounded({})", row.median_us.expect("a time")));
        let shown = format!("{} µs", shown.as_str().expect("a number"));
        for part in [&call.command, &call.device, &shown, &row.shape_line()] {
            assert!(text.contains(part.as_str()), "{part} is not in {text}");
        }
        page.press("Escape");
        page.wait("!document.querySelector('#detail').open && location.hash === '#/overview'");
    }
}

fn filters_narrow(page: &mut Browser, results: &Results) {
    let all = page.visible("#overview .suite tbody tr");
    let set = "(() => { const e = document.querySelector('#suite'); e.value = 'gemv'; e.dispatchEvent(new Event('input', { bubbles: true })); })()";
    page.eval(set);
    let rows = results.rows.iter().filter(|(_, row)| row.suite == "gemv").count();
    let count = format!("{rows} of {} rows", results.rows.len());
    assert_eq!(page.eval("document.querySelector('#count').textContent"), json!(count));
    let left = page.visible("#overview .suite tbody tr");
    assert!(left > 0 && left < all && page.visible("#overview .bar") == 2, "GEMV of one vector and of several");
    // A key leads to the words; every word must be there.
    page.press("/");
    page.wait("document.activeElement.id === 'words'");
    page.call("Input.insertText", json!({ "text": "batch=64 k=8192" }));
    page.wait("document.querySelector('#words').value === 'batch=64 k=8192'");
    let is_left = |row: &ResultRow| {
        ["batch=64", "k=8192"].iter().all(|word| row.shape_line().split(' ').any(|part| part == *word))
    };
    let figures = WorkloadRuns::new(results).figures();
    let ours = figures.iter().filter_map(|figures| figures.compared).map(|compared| compared.ours.row);
    let named = ours.filter(|row| row.suite == "gemv" && is_left(row)).count() as u64;
    assert!(named > 0 && named < left);
    assert_eq!(page.visible("#overview .suite tbody tr"), named);
    page.eval("(() => { document.activeElement.blur(); document.querySelector('#filters').reset(); filter(); })()");
    assert_eq!(page.visible("#overview .suite tbody tr"), all);
}

/// The page's rule is the library's, and the worst comes first.
fn regressions_come_first(page: &mut Browser, results: &Results) {
    page.press_for("2", "compare");
    let shown = page.eval(
        "[...document.querySelectorAll('#differences tbody tr')].map((tr) => \
         [...tr.querySelectorAll('a')].map((a) => Number(a.hash.slice('#row-'.length))).concat(tr.lastChild.textContent))",
    );
    let shown = shown.as_array().expect("rows");
    assert!(shown.len() > 3, "{shown:?}");
    let order = ["regression", "improvement", "within noise"];
    let mut before = 0;
    for line in shown {
        let summary =
            |at: usize| Summary::of(&results.rows[line[at].as_u64().expect("a row") as usize].1).expect("a time");
        let a = summary(0);
        let b = summary(1);
        let expected = match difference_is_significant(a, b) {
            false => 2,
            true => usize::from(b.median < a.median),
        };
        assert_eq!(line[2], json!(order[expected]));
        assert!(expected >= before, "{shown:?}");
        before = expected;
    }
    page.press_for("1", "overview");
}

/// At both widths, light and dark: nothing is wider than the window, and letters are large enough.
fn pictures(page: &mut Browser) {
    for (width, height, dark, name) in [
        (1280, 900, false, "dashboard-1280.png"),
        (390, 844, false, "dashboard-390.png"),
        (1280, 900, true, "dashboard-dark.png"),
    ] {
        page.resize(width, height, dark);
        page.eval("window.scrollTo(0, 0)");
        page.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": 1, "y": 1 }));
        let wide = page.eval("document.documentElement.scrollWidth").as_u64().expect("a width");
        assert!(wide <= u64::from(width), "the page is {wide} wide in a window of {width}");
        let letters = "Math.min(...[...document.querySelectorAll('#overview .bar span, #overview .axis span')].filter((t) => t.getClientRects().length > 0 && \
                       t.textContent !== '').map((t) => parseFloat(getComputedStyle(t).fontSize)))";
        let letters = page.eval(letters).as_f64().expect("a size");
        assert!(letters >= 12.0, "letters of {letters} pixels at {width}");
        // Bars are within the window without scrolling.
        let widest = "Math.max(...[...document.querySelectorAll('#overview .mark')].map((m) => m.getBoundingClientRect().right))";
        let widest = page.eval(widest).as_f64().expect("a place");
        assert!(widest <= f64::from(width), "a bar ends at {widest} in a window of {width}");
        let ink = page.eval("getComputedStyle(document.body).color + getComputedStyle(document.body).backgroundColor");
        assert_eq!(ink == json!("rgb(27, 31, 36)rgb(255, 255, 255)"), !dark, "{ink}");
        keep(&page.picture(), name);
    }
    // No view is wider than a narrow window, and every chart in it fits.
    page.resize(390, 844, false);
    for view in ["compare", "history", "roofline", "step", "accuracy", "ledgers", "plan", "energy", "rows", "overview"]
    {
        page.eval(&format!("location.hash = '#/{view}'"));
        page.wait_for_view(view);
        let wide = page.eval("document.documentElement.scrollWidth").as_u64().expect("a width");
        assert!(wide <= 390, "{view} is {wide} wide in a window of 390");
        let chart = "Math.max(0, ...[...document.querySelectorAll('.view.shown figure svg')].map((e) => e.getBoundingClientRect().right))";
        let chart = page.eval(chart).as_f64().expect("a place");
        assert!(chart <= 390.0, "a chart of {view} ends at {chart}");
    }
    page.resize(1280, 900, false);
    page.press_for("3", "history");
    keep(&page.picture(), "dashboard-history.png");
    page.press_for("1", "overview");
}

/// Rows may come from anywhere: what they say is text, never markup or script. Samples and energy
/// are shown where they are.
#[test]
fn hostile_names_stay_text_and_samples_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>";
    let call = json!({ "call": { "id": evil, "date": "2026-01-01", "device": format!("H100 {evil}"), "command": evil, "commit": "c0ffee" } });
    let row = |who: &str, us: f64, variant: &str| {
        let samples = [us, us * 1.01, us * 0.99, us * 1.02];
        json!({ "suite": "gemv", "who": who, "shape": { "n": 8 }, "variant": variant, "samples_us": samples, "median_us": us, "best_us": us * 0.99,
                "bytes": 1_000_000, "operations": 1000, "joules": 0.25, "watts": 500.0 })
    };
    let text = [call, row("tilewright", 10.0, evil), row("tilewright", 10.0, ""), row(evil, 12.5, "")];
    let text = text.map(|line| line.to_string()).join("\n");
    let file = folder.path().join("rows.jsonl");
    std::fs::write(&file, text).expect("writes");
    let Some(mut page) = open(&file, folder.path()) else { return };
    assert_eq!(page.eval("window.evil === undefined"), json!(true));
    assert_eq!(
        page.eval("document.querySelector('#overview .bar .detail').textContent.includes('</script>')"),
        json!(true)
    );
    page.eval("location.hash = '#row-0'");
    page.wait("document.querySelector('#detail').open");
    assert_eq!(page.visible("#detail .strip circle"), 4);
    assert_eq!(page.eval("document.querySelector('#samples').textContent"), json!("10 10.1 9.9 10.2"));
    assert_eq!(page.eval("document.querySelector('#command').textContent"), json!(evil));
    assert_eq!(page.eval("window.evil === undefined"), json!(true));
    page.eval("location.hash = '#/energy'");
    page.wait_for_view("energy");
    assert_eq!(page.visible("#energy tbody tr"), 3);
    assert!(page.console.is_empty(), "{:#?}", page.console);
}

#[test]
fn results_that_cannot_be_shown_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("page.html");
    for (results, words) in
        [(folder.path().to_owned(), "has no row of results"), (folder.path().join("none"), "cannot be read")]
    {
        let command = Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .args(["dashboard", "--results"])
            .arg(&results)
            .arg("--out")
            .arg(&out)
            .output()
            .expect("runs");
        let error = String::from_utf8_lossy(&command.stderr).into_owned();
        assert_eq!(command.status.code(), Some(2), "{error}");
        assert!(error.lines().count() == 1 && error.contains(words), "{error}");
        assert!(!out.exists());
    }
}
