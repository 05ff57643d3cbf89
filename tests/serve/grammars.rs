//! Texts that follow a grammar: whatever the model prefers, they are of the form that was asked for.

use fancy_regex::Regex;
use serde_json::{Value, json};

use super::client::{Reply, get, post};
use super::server;

/// A completion at random, with these parameters.
fn completion(seed: u64, more: &Value) -> Reply {
    let mut body = json!({ "prompt": "In the beginning", "temperature": 1.5, "max_tokens": 240, "seed": seed });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    post(server().address, "/v1/completions", &body)
}

/// The text of a completion, which its grammar ended.
fn text(seed: u64, more: &Value) -> String {
    let reply = completion(seed, more);
    assert_eq!(reply.status, 200, "{more}: {}", reply.text());
    let choice = &reply.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "seed {seed}, {more}: {choice}");
    choice["text"].as_str().expect("a text").to_owned()
}

/// A schema whose texts end soon.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "count": { "type": "integer", "minimum": 3, "maximum": 47 },
            "light": { "enum": ["day", "night"] },
            "kinds": { "type": "array", "items": { "$ref": "#/$defs/kind" }, "minItems": 1, "maxItems": 3 },
        },
        "required": ["count", "light", "kinds"],
        "additionalProperties": false,
        "$defs": { "kind": { "type": "string", "pattern": "^[a-z]{1,4}$" } },
    })
}

/// Whether a text matches a pattern.
fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).expect("a pattern").is_match(text).expect("it ends")
}

fn follows_the_schema(text: &str) {
    let found: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(found.as_object().map(serde_json::Map::len), Some(3), "{text}");
    assert!(found["count"].as_u64().is_some_and(|count| (3..=47).contains(&count)), "{text}");
    assert!(["day", "night"].contains(&found["light"].as_str().unwrap_or_default()), "{text}");
    let kinds = found["kinds"].as_array().expect("a list");
    assert!((1..=3).contains(&kinds.len()), "{text}");
    assert!(kinds.iter().all(|kind| matches("^[a-z]{1,4}$", kind.as_str().unwrap_or_default())), "{text}");
}

#[test]
fn a_schema_is_followed() {
    let named = json!({ "type": "json_schema", "json_schema": { "name": "day", "schema": schema(), "strict": true } });
    for seed in 0..6 {
        follows_the_schema(&text(seed, &json!({ "response_format": named })));
        follows_the_schema(&text(seed, &json!({ "structured_outputs": { "json": schema() } })));
    }
    // Every choice has a state of its own, and a stream gives the same.
    let mut compact = schema();
    compact["x-guidance"] = json!({ "whitespace_flexible": false });
    let more = json!({ "structured_outputs": { "json": compact }, "n": 4 });
    let reply = completion(7, &more).json();
    let texts: Vec<String> = reply["choices"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|choice| choice["text"].as_str().expect("a text").to_owned())
        .collect();
    texts.iter().for_each(|text| follows_the_schema(text));
    assert!(texts.iter().any(|text| *text != texts[0]), "{texts:?}");
    let mut streamed = vec![String::new(); 4];
    let mut body = more.clone();
    body["stream"] = true.into();
    for event in completion(7, &body).events() {
        for choice in event["choices"].as_array().into_iter().flatten() {
            let at = choice["index"].as_u64().expect("a number") as usize;
            streamed[at] += choice["text"].as_str().unwrap_or_default();
        }
    }
    assert_eq!(streamed, texts);
}

#[test]
fn patterns_choices_and_grammars_are_followed() {
    for seed in 0..6 {
        let found = text(seed, &json!({ "structured_outputs": { "regex": "[0-9]{2,5}-(ab|c)" } }));
        assert!(matches("^[0-9]{2,5}-(ab|c)$", &found), "{found}");
        let found =
            text(seed, &json!({ "structured_outputs": { "choice": ["the earth", "a \"sea\"\n", "Licht: \u{e4}"] } }));
        assert!(["the earth", "a \"sea\"\n", "Licht: \u{e4}"].contains(&found.as_str()), "{found:?}");
        let lark = "start: \"<\" word (\",\" word)~0..2 \">\"\nword: /[a-c]{1,3}/";
        let found = text(seed, &json!({ "structured_outputs": { "grammar": lark } }));
        assert!(matches("^<[a-c]{1,3}(,[a-c]{1,3}){0,2}>$", &found), "{found}");
    }
}

/// With a greedy choice the text is the likeliest of that form: logits are masked, not drawn anew.
#[test]
fn a_grammar_combines_with_what_else_chooses_tokens() {
    let more = json!({ "temperature": 0, "structured_outputs": { "regex": "[a-z ]{8,20}" } });
    let first = text(1, &more);
    assert_eq!(first, text(2, &more));
    let mut stopped = more.clone();
    stopped["stop"] = first[2..4].into();
    assert_eq!(text(1, &stopped), first[..2]);
    let mut short = more;
    short["max_tokens"] = 1.into();
    assert_eq!(completion(1, &short).json()["choices"][0]["finish_reason"], "length");
}

#[test]
fn what_is_no_grammar_is_refused_by_name() {
    let deep = "(".repeat(5000);
    let long = "a".repeat(2 << 20);
    for (more, param) in [
        (json!({ "structured_outputs": { "regex": "(" } }), "structured_outputs"),
        (json!({ "structured_outputs": { "regex": deep } }), "structured_outputs"),
        (json!({ "structured_outputs": { "grammar": deep } }), "structured_outputs"),
        (json!({ "structured_outputs": { "grammar": long } }), "structured_outputs"),
        (json!({ "structured_outputs": { "grammar": "begin: /a/" } }), "structured_outputs"),
        (json!({ "structured_outputs": { "choice": [] } }), "structured_outputs"),
        (json!({ "structured_outputs": { "json": { "type": "shape" } } }), "structured_outputs"),
        (json!({ "structured_outputs": { "json": { "$ref": "#/$defs/none" } } }), "structured_outputs"),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": { "type": 3 } } } }),
            "response_format",
        ),
    ] {
        let reply = completion(1, &more);
        let shown: String = more.to_string().chars().take(80).collect();
        assert_eq!((reply.status, &reply.error()["param"]), (400, &json!(param)), "{shown}: {}", reply.text());
    }
    // Its automaton grows as it is read, and is cut off.
    let large = completion(1, &json!({ "structured_outputs": { "regex": "((a{1,1000}){1,1000}){1,1000}" } }));
    let error = large.error();
    assert_eq!((large.status, &error["type"]), (400, &json!("invalid_request_error")), "{error}");
    assert!(!error["message"].as_str().expect("a text").contains('\n'), "{error}");
    // The server goes on.
    assert_eq!(get(server().address, "/health").status, 200);
}
