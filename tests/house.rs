//! The rules of the house that a compiler does not check.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below the rooms with that extension.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for room in [
        "src",
        "layout",
        "codegen",
        "kernels",
        "graph",
        "megakernel",
        "flow",
        "python",
        "tests",
        "examples",
        "benches",
        "docs",
    ] {
        let folder = root().join(room);
        if folder.is_dir() {
            walk(&folder, extension, &mut found);
        }
    }
    assert!(!found.is_empty(), "no .{extension} file: does the test look in the right place?");
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a text file")
}

/// A page without its fenced blocks.
fn prose(page: &str) -> String {
    let mut inside = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    };
    page.split_inclusive('\n').filter(outside).collect()
}

#[test]
fn every_source_file_opens_with_its_front_page() {
    let bare: Vec<PathBuf> = files("rs").into_iter().filter(|path| !read(path).starts_with("//!")).collect();
    assert!(bare.is_empty(), "these files do not start with `//!`: {bare:#?}");
}

/// An output is whole or absent, durable, and swept after SIGKILL because one module stages all.
#[test]
fn output_is_written_by_the_staging_modules_only() {
    let creates = ["File::create", "OpenOptions::new", "fs::write(", "fs::rename(", "fs::copy(", ".persist("];
    let allowed = [
        "src/staged.rs",
        "src/cli/output.rs",
        // Rows are appended, so that a search that ends early is continued; a cut line is removed.
        "src/cli/bench/journal.rs",
        // These fill a staged folder.
        "src/checkpoint/quantize/mod.rs",
        "src/checkpoint/quantize/write.rs",
    ];
    let own = files("rs").into_iter().filter(|path| path.starts_with(root().join("src")));
    let writes = |path: &PathBuf| {
        let text = read(path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        creates.iter().any(|call| code.contains(call))
    };
    let is_test = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "tests");
    let mut found: Vec<String> = own.filter(|path| writes(path) && !is_test(path)).map(|path| name(&path)).collect();
    found.sort();
    let mut expected = allowed.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected, "outputs go through `cli::output::CommandOutput` or `staged`");
}

#[test]
fn no_drawer_names() {
    let drawers = ["utils", "util", "common", "base", "misc", "helpers"];
    let named = |path: &PathBuf| path.file_stem().is_some_and(|stem| drawers.iter().any(|d| stem == *d));
    let found: Vec<PathBuf> = files("rs").into_iter().filter(named).collect();
    assert!(found.is_empty(), "name these after what they hold: {found:#?}");
}

/// Numbers of `DeviceOptions` that a caller sets, at most, besides the timeout `polls`. A number
/// that no user changes is one of the planner's `Thresholds`.
const MOST_DEVICE_NUMBERS: usize = 8;

#[test]
fn device_options_have_few_numbers_each_with_a_reason() {
    let text = read(&root().join("megakernel/src/vm/device/options.rs"));
    let (_, fields) = text.split_once("pub struct DeviceOptions {\n").expect("the file defines the options");
    let (fields, _) = fields.split_once("\n}\n").expect("the struct ends");
    let mut numbers = Vec::new();
    let mut reason = String::new();
    for line in fields.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            reason.push_str(words);
            continue;
        }
        let field = line.strip_prefix("pub ").and_then(|line| line.strip_suffix(": u32,"));
        let reason = std::mem::take(&mut reason);
        if let Some(field) = field.filter(|field| *field != "polls") {
            let advice = ["try ", "Smaller ", "Lower it", "Raise it", "Set 0"];
            assert!(advice.iter().any(|words| reason.contains(words)), "`{field}` says no reason to change it");
            numbers.push(field);
        }
    }
    assert!(numbers.len() <= MOST_DEVICE_NUMBERS, "{numbers:?}");
    let searched = text.split("        (\"").skip(1).filter_map(|rest| rest.split('"').next());
    assert_eq!(searched.collect::<Vec<_>>(), numbers, "`DeviceOptions::NUMBERS` has every number");
}

#[test]
fn every_dependency_has_a_reason() {
    let page = read(&root().join("docs/dependencies.md"));
    let mut missing = Vec::new();
    let rooms = ["layout", "codegen", "kernels", "graph", "megakernel", "flow", "python"]
        .map(|room| format!("{room}/Cargo.toml"));
    for manifest in rooms.iter().map(String::as_str).chain(["Cargo.toml"]) {
        let text = read(&root().join(manifest));
        let mut in_dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
                continue;
            }
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let ours = name.starts_with("tilewright");
            if in_dependencies && !name.is_empty() && !ours && !page.contains(&format!("`{name}`")) {
                missing.push(format!("{name} ({manifest})"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/dependencies.md does not name {missing:?}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    let front = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|page| root().join(page));
    for page in files("md").into_iter().chain(front) {
        let text = prose(&read(&page));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://");
            if is_file && !page.parent().expect("a folder").join(target).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The names of the device beside those of Mojo and CuTe; the layout crate's tests hold those of
/// the host.
#[test]
fn the_table_of_names_has_no_name_that_the_kernels_have_not() {
    let sources = |room: &str| -> String {
        let room = root().join("kernels/src").join(room);
        files("rs").iter().filter(|path| path.starts_with(&room)).map(|path| read(path)).collect()
    };
    let tile = sources("tile");
    let mma = sources("mma");
    let mut names = 0;
    for row in read(&root().join("docs/names.md")).lines().filter(|line| line.starts_with("| ")) {
        let device = row.split(" | ").nth(3).expect("a row has Mojo, CuTe, host and device");
        for path in device.split('`').skip(1).step_by(2) {
            let text = if path.starts_with("tile::") { &tile } else { &mma };
            let name = path.rsplit("::").next().expect("a name");
            let declared = |item: &&str| text.match_indices(&format!("pub {item} {name}")).count() > 0;
            assert!(["fn", "const fn", "struct"].iter().any(declared), "docs/names.md: `{path}` is not in kernels/src");
            names += 1;
        }
    }
    assert!(names >= 40, "{names} names of the device");
}

/// Pages that a program writes.
const GENERATED: [&str; 3] = ["docs/ptxas/", "docs/benchmarks.md", "docs/cli.md"];

/// Words of the pages, at most.
const MOST_WORDS: usize = 57_500;

/// A path as the repository names it: `docs/guide/README.md`.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).expect("a file of the repository").to_string_lossy().replace('\\', "/")
}

/// The pages that people write about the present, with their names.
fn pages() -> Vec<(String, String)> {
    let front = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|page| root().join(page));
    let all = files("md").into_iter().chain(front).map(|path| (name(&path), read(&path)));
    let written =
        |page: &str| !page.starts_with("docs/notebook/") && !GENERATED.iter().any(|made| page.starts_with(made));
    all.filter(|(page, _)| written(page) && (page.starts_with("docs/") || !page.contains('/'))).collect()
}

#[test]
fn the_pages_are_short_and_a_fifth_of_them_is_the_guide() {
    let words = |(_, text): &(String, String)| text.split_whitespace().count();
    let pages: Vec<_> = pages().into_iter().filter(|(page, _)| page.starts_with("docs/")).collect();
    let all: usize = pages.iter().map(words).sum();
    let guide: usize = pages.iter().filter(|(page, _)| page.starts_with("docs/guide/")).map(words).sum();
    assert!(all <= MOST_WORDS, "docs/ has {all} words outside the notebook and generated pages; at most {MOST_WORDS}");
    assert!(guide * 5 >= all, "the guide has {guide} of {all} words; at least a fifth");
}

/// Paragraphs, list items, headings and table cells of a page.
fn passages(page: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in prose(page).lines() {
        let text = line.trim();
        let item = text.starts_with(['*', '-', '#', '|', '>'])
            || text.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        if text.is_empty() || item {
            found.push(String::new());
        }
        if text.starts_with('|') {
            found.extend(text.split('|').map(str::to_owned));
            found.push(String::new());
        } else if let Some(last) = found.last_mut() {
            last.push(' ');
            last.push_str(text);
        }
    }
    found
}

/// The sentences of a passage; a stop inside of a name or a number ends none.
fn sentences(passage: &str) -> Vec<Vec<&str>> {
    let mut found = vec![Vec::new()];
    for word in passage.split_whitespace() {
        if let Some(sentence) = found.last_mut() {
            sentence.push(word);
        }
        if word.trim_end_matches(['*', ')', '`', '"', '_']).ends_with(['.', '!', '?']) {
            found.push(Vec::new());
        }
    }
    found
}

#[test]
fn no_sentence_has_more_than_40_words() {
    let mut long = Vec::new();
    for (page, text) in pages() {
        for passage in passages(&text) {
            let sentences = sentences(&passage).into_iter().filter(|sentence| sentence.len() > 40);
            long.extend(sentences.map(|words| format!("{page}: {} words: {} ..", words.len(), words[..8].join(" "))));
        }
    }
    assert!(long.is_empty(), "{} sentences: {long:#?}", long.len());
}

#[test]
fn no_page_of_the_present_quotes_a_commit() {
    let hash = |word: &&str| {
        let of_digits = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mixed =
            word.bytes().any(|byte| byte.is_ascii_digit()) && word.bytes().any(|byte| byte.is_ascii_alphabetic());
        (7..=40).contains(&word.len()) && of_digits && mixed
    };
    let mut quoted = Vec::new();
    for (page, text) in pages() {
        let text = prose(&text);
        let words = text.split(|character: char| !character.is_alphanumeric());
        quoted.extend(words.filter(hash).map(|word| format!("{page}: {word}")));
    }
    assert!(quoted.is_empty(), "{} commits: {quoted:#?}", quoted.len());
}

#[test]
fn sentences_name_who_acts() {
    // In two parts, so that this file is none of them.
    let vague = [("no", "body"), ("who", "ever"), ("so", " many")].map(|(a, b)| format!("{a}{b}"));
    let mut found = Vec::new();
    let front = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|page| root().join(page));
    let all = files("rs").into_iter().chain(files("md")).chain(front);
    for path in all.filter(|path| !name(path).starts_with("docs/notebook/")) {
        for (number, line) in read(&path).to_lowercase().lines().enumerate() {
            found.extend(
                vague
                    .iter()
                    .filter(|word| line.contains(*word))
                    .map(|word| format!("{}:{}: {word}", name(&path), number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{} places: {found:#?}", found.len());
}
