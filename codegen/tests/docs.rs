//! The page on the IR lists the rows as they are.

use std::fmt::Write as _;
use std::path::Path;
use tilewright_codegen::ir::{OperandSpec, Row, Rule, Space, rows};

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
            writeln!(out, "### {family}\n").unwrap();
        }
        let doc: Vec<&str> = row.doc.iter().map(|line| line.trim()).collect();
        writeln!(out, "* **`{}`** {}  \n  {}", row.mnemonic, signature(row), doc.join(" ")).unwrap();
    }
    out
}

fn signature(row: &Row) -> String {
    let args: Vec<String> = row.args.iter().map(|(name, class)| format!("{name}: {}", class.noun())).collect();
    let operands: Vec<String> = row.operands.iter().map(|spec| operand(row, spec)).collect();
    let flags: Vec<String> = row.flags.iter().map(|flag| format!("{flag:?}")).collect();
    let mut out = format!("({})", operands.join(", "));
    if !args.is_empty() {
        write!(out, " where {}", args.join(", ")).unwrap();
    }
    if !row.attrs.is_empty() {
        write!(out, "; attributes {}", row.attrs.join(", ")).unwrap();
    }
    write!(out, "; {}", row.needs.noun()).unwrap();
    if !flags.is_empty() {
        write!(out, "; {}", flags.join(" ")).unwrap();
    }
    out
}

fn operand(row: &Row, spec: &OperandSpec) -> String {
    let rule = match spec.rule {
        Rule::Arg(index) => row.args[index].0.to_string(),
        Rule::Bar(spaces) => format!("mbarrier in {}", names(spaces)),
        Rule::Wide => "twice as wide".into(),
        Rule::Is(ty) => ty.to_string(),
        Rule::In(spaces) => names(spaces),
        Rule::Any => "by the atom".into(),
    };
    format!("{} {:?} {rule}", spec.name, spec.role)
}

fn names(spaces: &[Space]) -> String {
    spaces.iter().map(|space| space.name()).collect::<Vec<_>>().join("/")
}
