//! `tilewright layout` as a user meets it: files without an end, pictures, numbers beyond what is
//! held.

use std::fs;
use std::process::{Command, Output};

fn layout(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewright")).arg("layout").args(args).output().expect("the program starts")
}

/// The one line of a refusal, which exits with 2 and prints nothing else.
fn refusal(args: &[&str]) -> String {
    let output = layout(args);
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
    assert!(output.stdout.is_empty() && line.lines().count() == 1, "{args:?}: {line}");
    line
}

#[cfg(unix)]
#[test]
fn a_file_of_cases_without_an_end_is_refused() {
    assert_eq!(
        refusal(&["check", "/dev/zero"]),
        "error: /dev/zero has more than 1048576 bytes in line 1; split the file\n"
    );
}

#[test]
fn a_file_of_cases_beyond_the_bound_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("blank.jsonl");
    let line = [vec![b' '; (1 << 20) - 1], b"\n".to_vec()].concat();
    fs::write(&path, line.repeat(65)).expect("a file");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(
        refusal(&["check", path]),
        format!("error: {path} has more than 67108864 bytes in all; split the file\n")
    );
}

#[test]
fn numbers_that_wrapped_are_refused() {
    for expression in [
        "inner_product(4294967296,4294967296)",
        "product_each(((4294967296,4294967296),2))",
        "crd2idx(9223372036854775807,8:8)",
        "slice_and_offset((9223372036854775807,_),(8,8):(8,64))",
        "S<3,4,3> o 9223372036854775807 o (8,8):(1,8)",
    ] {
        assert!(refusal(&["eval", expression]).contains("is beyond 60 bits"), "{expression}");
    }
    assert!(refusal(&["show", "S<3,4,3> o 9223372036854775807 o (8,8):(1,8)"]).contains("is beyond 60 bits"));
}

#[test]
fn a_mode_that_an_integer_does_not_have_is_refused() {
    assert_eq!(
        refusal(&["eval", "replace(8:1, 1, 2:8)"]),
        "error: replace: there is no mode 1; the layout has 1, counted from 0\n"
    );
}

#[test]
fn a_thread_layout_beyond_a_picture_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("threads.svg");
    let path = path.to_str().expect("UTF-8");
    let line = refusal(&["show", "(4,4):(4,1)", "--svg", path, "--thread", "(1073741824,4):(4,1)"]);
    assert_eq!(line, "error: show --thread would list 4294967296 values; at most 65536 are listed\n");
    assert!(!fs::exists(path).expect("a folder to look into"), "no file for a refusal");
}

/// Colours that every viewer knows, and a mode that the umask leaves, as of any file that a program
/// writes.
#[cfg(unix)]
#[test]
fn a_picture_has_hex_colours_and_the_mode_that_the_umask_leaves() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    for (umask, mode) in [("022", 0o644), ("077", 0o600), ("002", 0o664)] {
        let path = folder.path().join(format!("{umask}.svg"));
        let script = format!("umask {umask}; exec \"$0\" layout show '(4,8):(8,1)' --bank 4 --svg \"$1\"");
        let status = Command::new("sh").arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_tilewright")).arg(&path).status();
        assert!(status.expect("a shell").success());
        assert_eq!(fs::metadata(&path).expect("a picture").permissions().mode() & 0o777, mode, "umask {umask}");
        let picture = fs::read_to_string(&path).expect("text");
        assert!(!picture.contains("hsl("), "{picture}");
        let cells: Vec<&str> = picture.lines().filter(|line| line.starts_with("<rect class=\"cell\"")).collect();
        let fills: Vec<&str> =
            cells.iter().map(|cell| cell.split("fill=\"").nth(1).unwrap().split('"').next().unwrap()).collect();
        assert_eq!(fills.len(), 32);
        let hex =
            |fill: &&str| fill.len() == 7 && fill.starts_with('#') && fill[1..].bytes().all(|b| b.is_ascii_hexdigit());
        assert!(fills.iter().all(hex), "{fills:?}");
    }
}

/// A picture can be read without its command: what it shows, along which modes, and what the
/// colours mean, on a light page or a dark one.
#[test]
fn a_picture_has_a_title_axes_a_legend_and_a_dark_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("layout.svg");
    let show = |arguments: &[&str]| {
        let output = layout(&[&["show"], arguments, &["--svg", path.to_str().expect("UTF-8")]].concat());
        assert!(output.status.success(), "{output:?}");
        fs::read_to_string(&path).expect("a picture")
    };
    let tiles = show(&["(4,8):(8,1)", "--tile", "2,4"]);
    for part in [
        "<title>Layout (4,8):(8,1)</title>",
        ">mode 0</text>",
        ">mode 1</text>",
        "marker-end=\"url(#head)\"",
        "colours: tiles of 2 × 4</text>",
        ">tile 3</text>",
        "@media (prefers-color-scheme:dark)",
    ] {
        assert!(tiles.contains(part), "{part} is missing in {tiles}");
    }
    let banks = show(&["S<3,0,3> o 0 o (8,8):(8,1)", "--bank", "16"]);
    assert!(
        banks.contains("banks of shared memory, elements of 16 bytes") && banks.contains(">bank 4</text>"),
        "{banks}"
    );
    assert!(banks.contains("<title>Layout S&lt;3,0,3&gt; o 0 o (8,8):(8,1)</title>"), "{banks}");
    assert!(!banks.contains("S<"), "the notation of a swizzle is escaped: {banks}");
    let threads = show(&["(2,4):(4,1)", "--thread", "(4,2):(2,1)"]);
    assert!(threads.contains("T thread, V value") && threads.contains(">T3V1</text>"), "{threads}");
    let row = show(&["8:2"]);
    assert!(row.contains(">index</text>") && !row.contains(">mode 0</text>"), "{row}");
}

/// A line describes the error; if a part of the expression was refused, carets under it follow.
#[test]
fn carets_stand_under_the_part_that_was_refused() {
    let failed = |expression: &str| {
        let output = layout(&["eval", expression]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{expression}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert_eq!(
        failed("append(8:1, upcast(8:3, 2))"),
        "error: upcast: 2 does not divide 3; use a divisor of 3\n  append(8:1, upcast(8:3, 2))\n              ^^^^^^^^^^^^^^\n"
    );
    assert_eq!(
        failed("coalesce((2,3"),
        "error: column 14: expected ',' or ')', found the end\n  coalesce((2,3\n               ^\n"
    );
    assert_eq!(
        failed("flatten(coalesc(8:1))"),
        "error: no operation is called `coalesc`; `tilewright layout eval --help` lists them\n  \
         flatten(coalesc(8:1))\n          ^^^^^^^\n"
    );
    assert_eq!(
        failed("(4,8):(8,1) o (2,3):1"),
        "error: layout: shape (2 integers) and stride (1 integers) are not nested alike; give one stride per extent, in the same \
         parentheses\n  (4,8):(8,1) o (2,3):1\n                ^^^^^^^\n"
    );
    // The whole expression: nothing to point at.
    assert_eq!(failed(" upcast(8:3, 2) ").lines().count(), 1);
    // A long expression is shown around the part.
    let long = format!("flatten(({}):({}), {})", vec!["2"; 30].join(","), vec!["1"; 30].join(","), "upcast(8:3, 2)");
    let text = failed(&long);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("  ...") && lines[1].chars().count() < 110, "{text}");
    let carets = lines[2].find('^').expect("carets");
    assert_eq!(&lines[1][carets..], "upcast(8:3, 2))");
}
