//! The page on the IR lists the instructions of the source.

use std::fmt::Write as _;
use std::path::Path;
use tilewright_codegen::ir::{Flag, InstRow, Needs, rows};

const BEGIN: &str = "<!-- rows: begin -->\n";
const END: &str = "<!-- rows: end -->";

/// With `TILEWRIGHT_BLESS` set, the list is written instead of compared.
#[test]
fn the_page_lists_the_rows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ir.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the list begins");
    let (listed, tail) = rest.split_once(END).expect("the list ends");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{}{END}{tail}", list())).unwrap();
    } else {
        assert!(listed == list(), "docs/ir.md lists other rows: run this test with TILEWRIGHT_BLESS=1");
    }
}

fn list() -> String {
    let mut out = String::new();
    let mut family = "";
    for row in rows() {
        if row.family != family {
            family = row.family;
            writeln!(out, "\n### {family}\n").unwrap();
            writeln!(
                out,
                "| instruction | operands | types | attributes | needs | effect |\n|---|---|---|---|---|---|"
            )
            .unwrap();
        }
        let operands: Vec<&str> = row.operands.iter().map(|spec| spec.name).collect();
        let types: Vec<&str> = row.args.iter().map(|(_, class)| class.noun()).collect();
        let needs = if row.needs == Needs::Sm80 { "" } else { row.needs.noun().trim_end_matches(" and later") };
        let mark = if row.is(Flag::Approx) { " !" } else { "" };
        let [operands, types, attrs] = [operands, types, row.attrs.to_vec()].map(|words| words.join(", "));
        let name = row.mnemonic;
        let effect = first_sentence(row).replace('|', "\\|");
        writeln!(out, "| `{name}`{mark} | {operands} | {types} | {attrs} | {needs} | {effect} |").unwrap();
    }
    out.push('\n');
    out
}

/// The first sentence of what a row says.
fn first_sentence(row: &InstRow) -> String {
    let doc = row.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let end = doc.find(". ").map_or(doc.len(), |end| end + 1);
    doc[..end].to_string()
}
