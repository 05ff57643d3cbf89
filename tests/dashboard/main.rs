//! The dashboard in a real browser: what it shows is what the rows say.
//!
//! Without Chromium the tests say so and pass. `TILEWRIGHT_PICTURES=DIR` keeps the pictures that they take.

mod browser;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use browser::Browser;
use serde_json::json;
use tilewright::results::{Results, Row, Summary, difference_is_significant};

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

/// The shapes that have a row of ours beside a peer's, of the same call, or else of the same device and commit: by suite and
/// device, attention's decode and prefill apart, and decode's kinds of launches.
fn with_peer(results: &Results) -> usize {
    let mut found = HashSet::new();
    for ours in results.rows.iter().filter(|(_, row)| row.is_ours() && row.copy_of.is_none() && row.median_us.is_some())
    {
        let (call, row) = (results.call(ours), &ours.1);
        let is_peer = |other: &&(usize, Row)| {
            let its = results.call(other);
            let same_build = call.commit.is_some() && (&its.device, &its.commit) == (&call.device, &call.commit);
            let same_shape = (&other.1.suite, &other.1.shape) == (&row.suite, &row.shape);
            same_shape && !other.1.is_ours() && other.1.median_us.is_some() && (its.id == call.id || same_build)
        };
        let kind = match row.suite.as_str() {
            "attention" => row.variant.split(' ').next().unwrap_or_default(),
            "decode" => row.variant.split(',').next().unwrap_or_default(),
            _ => "",
        };
        if results.rows.iter().any(|other| is_peer(&other)) {
            found.insert((&row.suite, &row.shape, &call.device, kind));
        }
    }
    found.len()
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
    // Overview: a bar and a line of a table for each row that has a peer, and a chart for each of their suites.
    let beside = with_peer(&results) as u64;
    assert!(beside > 50);
    assert_eq!((page.visible("#overview .mark"), page.visible("#overview tbody tr")), (beside, beside));
    let charts = page.visible("#overview svg");
    assert_eq!(charts, page.visible("#overview .suite"));
    // Axes have names on every chart of the page, shown or not.
    let bare = "[...document.querySelectorAll('main svg')].filter((s) => s.querySelectorAll('text').length < 4).length";
    assert_eq!(page.eval(bare), json!(0));
    let named =
        "[...document.querySelectorAll('#overview svg')].every((s) => s.textContent.includes(\"peer's time / ours\"))";
    assert_eq!(page.eval(named), json!(true));
    roofline_and_steps(&mut page, &results);
    a_click_opens_the_detail(&mut page, &results);
    filters_narrow(&mut page, &results);
    regressions_come_first(&mut page, &results);
    pictures(&mut page);
    assert!(page.console.is_empty(), "{:#?}", page.console);
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
    for selector in ["#overview tbody td a", "#overview .mark rect"] {
        page.click(selector);
        page.wait("document.querySelector('#detail').open");
        let number = page.eval("Number(location.hash.slice('#row-'.length))").as_u64().expect("a number") as usize;
        let (call, row) = (results.call(&results.rows[number]), &results.rows[number].1);
        let text = page.eval("document.querySelector('#detail-body').innerText");
        let text = text.as_str().expect("text");
        for part in [&call.command, &call.device, &row.median_us.expect("a time").to_string(), &row.shape_line()] {
            assert!(text.contains(part.as_str()), "{part} is not in {text}");
        }
        page.press("Escape");
        page.wait("!document.querySelector('#detail').open && location.hash === '#/overview'");
    }
}

fn filters_narrow(page: &mut Browser, results: &Results) {
    let all = page.visible("#overview tbody tr");
    let set = "(() => { const e = document.querySelector('#suite'); e.value = 'gemv'; e.dispatchEvent(new Event('input', { bubbles: true })); })()";
    page.eval(set);
    let rows = results.rows.iter().filter(|(_, row)| row.suite == "gemv").count();
    let count = format!("{rows} of {} rows", results.rows.len());
    assert_eq!(page.eval("document.querySelector('#count').textContent"), json!(count));
    let left = page.visible("#overview tbody tr");
    assert!(left > 0 && left < all && page.visible("#overview .mark") == left);
    // A key leads to the words; every word must be there.
    page.press("/");
    page.wait("document.activeElement.id === 'words'");
    page.call("Input.insertText", json!({ "text": "batch=64 k=8192" }));
    page.wait("document.querySelector('#words').value === 'batch=64 k=8192'");
    let is_left =
        |row: &Row| ["batch=64", "k=8192"].iter().all(|word| row.shape_line().split(' ').any(|part| part == *word));
    let ours = |row: &Row| row.suite == "gemv" && row.is_ours() && row.copy_of.is_none();
    // A shape has one line for each device, however often it was measured.
    let named = results.rows.iter().filter(|(_, row)| ours(row) && is_left(row));
    let named: HashSet<_> = named.map(|at| (&at.1.shape, &results.call(at).device)).collect();
    let named = named.len() as u64;
    assert!(named > 0 && named < left);
    assert_eq!(page.visible("#overview tbody tr"), named);
    page.eval("(() => { document.activeElement.blur(); document.querySelector('#filters').reset(); filter(); })()");
    assert_eq!(page.visible("#overview tbody tr"), all);
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
        let (a, b) = (summary(0), summary(1));
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
        let letters = "Math.min(...[...document.querySelectorAll('#overview svg text')].filter((t) => t.getClientRects().length > 0 && \
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
    page.resize(1280, 900, false);
    page.press_for("4", "roofline");
    keep(&page.picture(), "dashboard-roofline.png");
    page.press_for("1", "overview");
}

/// Rows may come from anywhere: what they say is text, never markup or script. Samples and energy are shown where they are.
#[test]
fn hostile_names_stay_text_and_samples_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>";
    let call = json!({ "call": { "id": evil, "date": "2026-01-01", "device": format!("H100 {evil}"), "command": evil, "commit": "c0ffee" } });
    let row = |who: &str, us: f64| {
        let samples = [us, us * 1.01, us * 0.99, us * 1.02];
        json!({ "suite": "gemv", "who": who, "shape": { "n": 8 }, "variant": evil, "samples_us": samples, "median_us": us, "best_us": us * 0.99,
                "bytes": 1_000_000, "operations": 1000, "joules": 0.25, "watts": 500.0 })
    };
    let text = [call, row("tilewright", 10.0), row("peer", 12.5)].map(|line| line.to_string()).join("\n");
    let file = folder.path().join("rows.jsonl");
    std::fs::write(&file, text).expect("writes");
    let Some(mut page) = open(&file, folder.path()) else { return };
    assert_eq!(page.eval("window.evil === undefined"), json!(true));
    page.eval("location.hash = '#row-0'");
    page.wait("document.querySelector('#detail').open");
    assert_eq!(page.visible("#detail .strip circle"), 4);
    assert_eq!(page.eval("document.querySelector('#samples').textContent"), json!("10.00 10.10 9.90 10.20"));
    assert_eq!(page.eval("document.querySelector('#command').textContent"), json!(evil));
    assert_eq!(page.eval("window.evil === undefined"), json!(true));
    page.eval("location.hash = '#/energy'");
    page.wait_for_view("energy");
    assert_eq!(page.visible("#energy tbody tr"), 2);
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
