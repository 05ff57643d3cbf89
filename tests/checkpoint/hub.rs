//! Models in a folder that is laid out as the Hugging Face cache.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;

use tilewright::checkpoint::{Checkpoint, HubCache};

use crate::folder::Folder;

const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";
const REPOSITORY: &str = "models--some-org--Tiny_1.5";
const NAME: &str = "some-org/Tiny_1.5";

/// A cache with one model, whose snapshot has links to files elsewhere in the cache.
fn cache() -> (Folder, HubCache) {
    let folder = Folder::empty();
    let snapshot = folder.path(&format!("{REPOSITORY}/snapshots/{REVISION}"));
    for made in [&snapshot, &folder.path(&format!("{REPOSITORY}/refs")), &folder.path(&format!("{REPOSITORY}/blobs"))] {
        fs::create_dir_all(made).expect("a folder");
    }
    let whole = Folder::synthetic();
    for (at, entry) in fs::read_dir(whole.path("")).expect("a checkpoint").enumerate() {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), folder.path(&format!("{REPOSITORY}/blobs/{at}"))).expect("copies");
        symlink(format!("../../blobs/{at}"), snapshot.join(entry.file_name())).expect("links");
    }
    fs::write(folder.path(&format!("{REPOSITORY}/refs/main")), REVISION).expect("writes");
    let cache = HubCache::at(folder.path(""));
    (folder, cache)
}

/// The error of looking for a name, the cache's path written as `CACHE/`.
fn error(folder: &Folder, cache: &HubCache, name: &str) -> String {
    let error = cache.find(name).expect_err("it is not there").to_string();
    error.replace(&*folder.path("").to_string_lossy(), "CACHE/")
}

#[test]
fn a_name_is_the_snapshot_of_its_main_ref() {
    let (_folder, cache) = cache();
    let found = cache.find(NAME).expect("it is there");
    assert!(found.ends_with(format!("{REPOSITORY}/snapshots/{REVISION}")), "{}", found.display());
    assert!(Checkpoint::open(&found, &mut |_| ()).is_ok());
    assert_eq!(tilewright::checkpoint::hub_name(&found).as_deref(), Some(NAME));
}

#[test]
fn an_absent_model_says_where_it_was_looked_for_and_what_to_download() {
    let (folder, cache) = cache();
    insta::assert_snapshot!(error(&folder, &cache, "other/model"), @"`other/model` is neither a folder nor in the Hugging Face cache at CACHE/; `hf download other/model` downloads it");
    insta::assert_snapshot!(error(&folder, &HubCache::default(), "other/model"), @"`other/model` is neither a folder nor in the Hugging Face cache; HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME are unset");
}

/// No name leads out of the cache.
#[test]
fn names_that_are_not_org_and_model_are_refused() {
    let (folder, cache) = cache();
    fs::create_dir_all(folder.path("models--..--x")).expect("a folder");
    for name in ["../x", "a/..", "a/b/c", "a", "", "/", "a/", "/b", "a//b", "a/b--c", "a\\b/c", "a b/c", ".a/b", "a/é"]
    {
        let found = error(&folder, &cache, name);
        assert_eq!(found, format!("`{name}` is neither a folder nor the name of a model, ORG/MODEL"));
    }
    let long = format!("a/{}", "b".repeat(97));
    assert!(error(&folder, &cache, &long).contains("nor the name of a model"));
}

#[test]
fn a_broken_ref_is_refused() {
    let (folder, cache) = cache();
    let main = folder.path(&format!("{REPOSITORY}/refs/main"));
    for text in ["", "\n", "../../../elsewhere", "a/b", "..", &"a".repeat(1 << 20)] {
        fs::write(&main, text).expect("writes");
        let found = error(&folder, &cache, NAME);
        let expected =
            format!("the ref CACHE/{REPOSITORY}/refs/main names no revision; `hf download {NAME}` writes it anew");
        assert_eq!(found, expected);
    }
    fs::write(&main, "fedcba").expect("writes");
    insta::assert_snapshot!(error(&folder, &cache, NAME), @"the snapshot CACHE/models--some-org--Tiny_1.5/snapshots/fedcba is missing; `hf download some-org/Tiny_1.5` downloads it");
    fs::remove_file(&main).expect("removes");
    assert!(error(&folder, &cache, NAME).contains("refs/main names no revision"));
}

#[test]
fn a_dangling_link_is_refused() {
    let (folder, cache) = cache();
    let blobs = folder.path(&format!("{REPOSITORY}/blobs"));
    let blob = fs::read_dir(blobs).expect("blobs").next().expect("a blob").expect("a blob").path();
    fs::remove_file(blob).expect("removes");
    let found = error(&folder, &cache, NAME);
    assert!(found.starts_with(&format!("the link CACHE/{REPOSITORY}/snapshots/{REVISION}/")), "{found}");
    assert!(found.ends_with(&format!("leads to no file; `hf download {NAME}` downloads it again")), "{found}");
}

#[test]
fn the_first_variable_that_is_set_names_the_cache() {
    let variables = [("HF_HUB_CACHE", "/a", "/a"), ("HF_HOME", "/b", "/b/hub")];
    let rest = [("XDG_CACHE_HOME", "/c", "/c/huggingface/hub"), ("HOME", "/d", "/d/.cache/huggingface/hub")];
    let all = [&variables[..], &rest].concat();
    for first in 0..all.len() {
        let value = |name: &str| {
            // A variable that is set to nothing counts as unset.
            let at = all.iter().position(|(known, ..)| *known == name)?;
            Some(if at < first { "".into() } else { all[at].1.into() })
        };
        assert_eq!(HubCache::of(value), HubCache::at(all[first].2));
    }
    assert_eq!(HubCache::of(|_| None), HubCache::default());
}
