//! Only `ring` has mbarriers and copies that complete on them: no other module initialises one or
//! waits at one.

use super::tree::sources_outside;

/// The spellings of barriers and such copies.
const RAW: [&str; 4] = [".mbarriers(", ".bulk_load(", ".tensor_load(", ".arrive_expect_tx("];

/// Files that do it all the same, and why.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("attention/prefill/hopper.rs", "queries, which come once"),
    ("gallery/channels_first.rs", "one box, which comes once"),
    ("gemv/hopper/exchange.rs", "sums of a cluster, which come once"),
    ("tile/bulk.rs", "the boxes of a tile; the caller owns the barrier"),
];

#[test]
fn no_other_module_has_barriers_of_its_own() {
    let mut used = [false; EXCEPTIONS.len()];
    for (path, text) in sources_outside("ring") {
        let code = |line: &&str| !line.trim_start().starts_with("//");
        let Some(raw) = RAW.into_iter().find(|raw| text.lines().filter(code).any(|line| line.contains(raw))) else {
            continue;
        };
        let exception = EXCEPTIONS.iter().position(|(file, _)| path.ends_with(file));
        used[exception.unwrap_or_else(|| panic!("{} spells {raw}: fill a ring", path.display()))] = true;
    }
    assert_eq!(used, [true; EXCEPTIONS.len()], "an exception that is no longer needed is removed");
}
