//! Streams of completions: joined, they are the whole answer.

use serde_json::{Value, json};

use super::client::post;
use super::server;

const PATH: &str = "/v1/completions";

/// The texts, log probabilities and ends of the choices of a stream.
fn joined(events: &[Value], choices: usize) -> Vec<Value> {
    let mut all = vec![json!({ "text": "", "tokens": [], "finish_reason": null, "stop_reason": null }); choices];
    for event in events {
        for choice in event["choices"].as_array().expect("a list") {
            let whole = &mut all[choice["index"].as_u64().expect("a number") as usize];
            assert_eq!(whole["finish_reason"], Value::Null, "nothing follows the end");
            let text = whole["text"].as_str().expect("a text").to_owned() + choice["text"].as_str().expect("a text");
            whole["text"] = text.into();
            let tokens = choice["logprobs"]["tokens"].as_array().cloned().unwrap_or_default();
            whole["tokens"].as_array_mut().expect("a list").extend(tokens);
            whole["finish_reason"] = choice["finish_reason"].clone();
            whole["stop_reason"] = choice["stop_reason"].clone();
        }
    }
    all
}

#[test]
fn a_stream_joined_is_the_whole_answer() {
    let plain = json!({ "prompt": "In the beginning", "temperature": 0, "max_tokens": 24 });
    for more in [
        json!({}),
        json!({ "n": 3, "temperature": 1.2, "seed": 5 }),
        json!({ "prompt": ["And God said", "And the"], "echo": true }),
        json!({ "logprobs": 2 }),
        json!({ "stop": [" of", "the c"] }),
        json!({ "stop_token_ids": [300, 301, 302, 262] }),
        json!({ "max_tokens": 0, "echo": true }),
        json!({ "logit_bias": { "1": 100 } }),
    ] {
        let mut body = plain.clone();
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let whole = post(server().address, PATH, &body).json();
        let whole_choices = whole["choices"].as_array().expect("a list");
        body["stream"] = true.into();
        let events = post(server().address, PATH, &body).events();
        for (choice, expected) in joined(&events, whole_choices.len()).iter().zip(whole_choices) {
            let tokens = expected["logprobs"]["tokens"].as_array().cloned().unwrap_or_default();
            assert_eq!(choice["tokens"], json!(tokens), "{more}");
            for key in ["text", "finish_reason", "stop_reason"] {
                assert_eq!(choice[key], expected[key], "{key} with {more}");
            }
        }
        assert!(events.iter().all(|event| event.get("usage").is_none() && event["object"] == "text_completion"));
    }
}

#[test]
fn the_last_chunk_has_the_usage_where_it_is_asked_for() {
    let mut body = json!({ "prompt": "In the", "temperature": 0, "max_tokens": 5 });
    let usage = post(server().address, PATH, &body).json()["usage"].clone();
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let events = post(server().address, PATH, &body).events();
    let (last, others) = events.split_last().expect("chunks");
    assert_eq!((&last["usage"], &last["choices"]), (&usage, &json!([])));
    assert!(others.iter().all(|event| event["usage"] == Value::Null && event.get("usage").is_some()));
    let ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Bytes that are no whole character are never a chunk: each chunk is valid JSON, which `events`
/// reads, and U+FFFD stands only where the whole answer has it.
#[test]
fn a_stream_splits_no_character() {
    for seed in 0..8 {
        let mut body = json!({ "prompt": "\u{5149}\u{1f600}", "temperature": 60, "seed": seed, "max_tokens": 30, "ignore_eos": true });
        let whole = post(server().address, PATH, &body).json();
        body["stream"] = true.into();
        let events = post(server().address, PATH, &body).events();
        assert_eq!(joined(&events, 1)[0]["text"], whole["choices"][0]["text"], "seed {seed}");
    }
}
