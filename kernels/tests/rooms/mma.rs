//! Only `mma` issues matrix instructions: no other module names one or moves its fragments.

use super::tree::sources_outside;

/// The spellings of an instruction, or of a move of its fragments.
const RAW: [&str; 5] = ["MmaAtom", "WgmmaAtom", ".ldmatrix::<", ".stmatrix::<", ".wgmma_rs("];

/// Files that do it all the same, each with what it spells and why.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    ("kv/shared.rs", ".ldmatrix::<", "a buffer's tile gives out its fragments by itself, by the address of a vector"),
    ("attention/prefill/hopper.rs", ".stmatrix::<", "results leave by way of the queries' panels, with a factor a row"),
];

#[test]
fn no_other_module_issues_a_matrix_instruction() {
    let mut used = [false; EXCEPTIONS.len()];
    for (path, text) in sources_outside("mma") {
        for raw in RAW.into_iter().filter(|raw| text.contains(raw)) {
            let exception = EXCEPTIONS.iter().position(|(file, what, _)| path.ends_with(file) && *what == raw);
            let Some(exception) = exception else {
                panic!("{} spells {raw}: multiply through tilewright_kernels::mma", path.display());
            };
            used[exception] = true;
        }
    }
    assert_eq!(used, [true; EXCEPTIONS.len()], "an exception that is no longer needed is removed");
}
