//! Files that ask for more memory than they could fill, or for endless work: refused before either
//! is spent.

use serde_json::{Value, json};
use tilewright::checkpoint::Tokenizer;

use crate::folder::{Folder, byte_level_tokenizer};

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

/// A pattern that backtracks without end, ten thousand steps, a text of 50 MB that is prepended:
/// refused in one line.
#[test]
fn tokenizers_that_would_take_endless_work_are_refused() {
    let with = |part: &str, value: serde_json::Value| {
        let mut tokenizer = byte_level_tokenizer();
        tokenizer[part] = value;
        Tokenizer::from_json(tokenizer.to_string().as_bytes(), 40)
    };
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let error = |part: &str, value: serde_json::Value| with(part, value).expect_err("is refused").to_string();
    let many = vec![split("a"); 10_000];
    insta::assert_snapshot!(error("pre_tokenizer", json!({"type": "Sequence", "pretokenizers": many})), @"file has 10003 steps; at most 256 are read");
    insta::assert_snapshot!(error("normalizer", json!({"type": "Prepend", "prepend": "a".repeat(50 << 20)})), @"normalizer may make a text 52428801 times as long; at most 4096 times is allowed");
    insta::assert_snapshot!(error("pre_tokenizer", split(&"a".repeat(20_000))), @"file has 20000 bytes of a regular expression; at most 16384 are read");
    let ids: Vec<u32> = vec![1; 2000];
    let template = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}], "pair": [],
        "special_tokens": {"a": {"id": "a", "ids": ids, "tokens": vec!["a"; 2000]}}});
    insta::assert_snapshot!(error("post_processor", template), @"file has 2000 tokens that are added to each text; at most 1024 are read");
    // The crate would take the pattern for one that does not match.
    let tokenizer = with("pre_tokenizer", split("((?=a)a|(?=a)a)+b")).expect("is read");
    assert!(tokenizer.encode("the").is_ok());
    let started = std::time::Instant::now();
    let error = tokenizer.encode(&format!("{}!", "a".repeat(4000))).expect_err("gives up").to_string();
    assert!(error.contains("gives up on the text of 4001 bytes"), "{error}");
    assert!(started.elapsed().as_secs() < 30);
}
