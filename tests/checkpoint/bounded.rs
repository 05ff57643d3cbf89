//! Files that ask for more memory than they could fill: refused before anything is allocated.

use serde_json::{Value, json};

use crate::folder::Folder;

fn error(change: impl FnOnce(&mut Value)) -> String {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", change);
    folder.error()
}

fn replace(pattern: Value, times: usize) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": "a".repeat(times)})
}

#[test]
fn a_table_that_says_it_is_longer_than_it_is() {
    // Four bytes, all ones: a part of 4 GiB, of which the reader makes 8.
    let table = json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="});
    insta::assert_snapshot!(error(|file| file["normalizer"] = table.clone()), @"tokenizer DIR/tokenizer.json cannot be used: precompiled_charsmap has 4 bytes, and begins with a part of 4294967295 by its first four; it is damaged");
    let nested =
        json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence", "normalizers": [table]}]});
    assert!(error(|file| file["normalizer"] = nested).contains("precompiled_charsmap has"));
}

#[test]
fn texts_that_grow_without_bound() {
    let nine: Vec<Value> = (0..9).map(|_| replace(json!({"String": "a"}), 100)).collect();
    let sequence = json!({"type": "Sequence", "normalizers": nine});
    insta::assert_snapshot!(error(|file| file["normalizer"] = sequence.clone()), @"tokenizer DIR/tokenizer.json cannot be used: normalizer may make a text 1000000000000000000 times as long; at most 4096 times is allowed");
    let nested = json!({"type": "Sequence", "normalizers": [sequence, {"type": "NFC"}]});
    assert!(error(|file| file["normalizer"] = nested).contains("normalizer may make a text"));
    let expressions: Vec<Value> = (0..3).map(|_| replace(json!({"Regex": "b*"}), 20)).collect();
    let decoder = json!({"type": "Sequence", "decoders": expressions});
    insta::assert_snapshot!(error(|file| file["decoder"] = decoder), @"tokenizer DIR/tokenizer.json cannot be used: decoder may make a text 9261 times as long; at most 4096 times is allowed");
}

/// A program would have tasks for each head.
#[test]
fn heads_beyond_number() {
    let folder = Folder::synthetic();
    folder.edit("config.json", |config| {
        for key in ["num_attention_heads", "num_key_value_heads"] {
            config[key] = json!(1 << 20);
        }
        config["head_dim"] = json!(64);
    });
    insta::assert_snapshot!(folder.error(), @"configuration DIR/config.json cannot be used: key num_hidden_layers times num_key_value_heads is 2097152; it must be 1 to 131072");
}

#[test]
fn tables_and_texts_within_bounds_are_the_readers_business() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |file| file["normalizer"] = replace(json!({"String": "th"}), 12));
    folder.open().unwrap();
}
