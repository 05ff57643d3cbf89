//! Every rule has an invalid case, and its text stays in the language of its readers.

use tilewright_megakernel::validate::Kind;

const CASES: [&str; 7] = [
    include_str!("devices.rs"),
    include_str!("limits.rs"),
    include_str!("cells.rs"),
    include_str!("tables.rs"),
    include_str!("ops.rs"),
    include_str!("races.rs"),
    include_str!("../../src/validate/tables.rs"),
];
const MODULE_DOCS: &str = include_str!("../../src/validate/mod.rs");
const GUIDE: &str = include_str!("../../../docs/validate.md");

#[test]
fn every_kind_has_a_case_and_a_line_in_the_docs() {
    for kind in Kind::NAMES {
        let quoted = format!("\"{kind}\"");
        let named = format!("Kind::{kind}");
        assert!(CASES.iter().any(|file| file.contains(&quoted) || file.contains(&named)), "no invalid case for {kind}");
        assert!(MODULE_DOCS.contains(&format!("`{kind}`")), "{kind} is not in the module docs");
        assert!(GUIDE.contains(&format!("`{kind}`")), "{kind} is not in docs/validate.md");
    }
}

/// The snapshots of all texts, as the other files hold them: none names a Rust type or prints a
/// debug form.
#[test]
fn texts_name_no_internal_types() {
    let words =
        ["Some(", "None", "BufferId", "TaskId", "CounterId", "SmId", "Region {", "Span {", "usize", "Kind::", "Vec"];
    let mut texts = 0;
    for file in CASES {
        for line in file.lines() {
            let Some(text) =
                line.split("@r#\"").nth(1).or_else(|| line.trim_start().starts_with("task t").then_some(line))
            else {
                continue;
            };
            texts += 1;
            assert!(words.iter().all(|word| !text.contains(word)), "{text}");
        }
    }
    assert!(texts > 50, "the snapshots are where this test looks for them: {texts}");
}
