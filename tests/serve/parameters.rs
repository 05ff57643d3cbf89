//! Every parameter is honoured, or refused by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::client::{Reply, get, post};
use super::{server, tiny};

const PROMPT: &str = "In the beginning";

/// A greedy completion with these parameters.
fn completion(more: &Value) -> Reply {
    let mut body = json!({ "prompt": PROMPT, "temperature": 0, "max_tokens": 12 });
    let fields = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    post(server().address, "/v1/completions", &body)
}

fn choice(more: &Value) -> Value {
    let reply = completion(more);
    assert_eq!(reply.status, 200, "{more}: {}", reply.text());
    reply.json()["choices"][0].clone()
}

fn text(more: &Value) -> String {
    choice(more)["text"].as_str().expect("a text").to_owned()
}

fn ids_of(text: &str) -> Vec<u64> {
    let reply = post(server().address, "/tokenize", &json!({ "prompt": text, "add_special_tokens": false })).json();
    reply["tokens"].as_array().expect("a list").iter().map(|id| id.as_u64().expect("a number")).collect()
}

/// The tokens of a greedy completion.
fn tokens(more: &Value) -> Vec<u64> {
    let mut more = more.clone();
    more["logprobs"] = 0.into();
    let tokens = choice(&more)["logprobs"]["tokens"].clone();
    tokens.as_array().expect("a list").iter().flat_map(|token| ids_of(token.as_str().expect("a text"))).collect()
}

#[test]
fn a_greedy_text_is_that_of_generate() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["generate", "--device", "cpu:1", "--max-new-tokens", "12", "--prompt", PROMPT, "--model"]);
    let output = command.arg(tiny("")).output().expect("it runs");
    let expected = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text(&json!({})) + "\n", expected);
    assert_eq!(
        text(&json!({ "model": "tiny", "user": "a\nb", "response_format": { "type": "text" } })) + "\n",
        expected
    );
}

#[test]
fn prompts_are_texts_or_tokens_one_or_several() {
    let whole = text(&json!({}));
    let ids = post(server().address, "/tokenize", &json!({ "prompt": PROMPT })).json()["tokens"].clone();
    assert_eq!(text(&json!({ "prompt": ids })), whole);
    for prompts in [json!([PROMPT, "And God said"]), json!([ids, ids_of("And God said")])] {
        let reply = completion(&json!({ "prompt": prompts, "n": 2 })).json();
        let choices = reply["choices"].as_array().expect("a list");
        let indices: Vec<_> = choices.iter().map(|choice| choice["index"].as_u64()).collect();
        assert_eq!(indices, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!((&choices[0]["text"], &choices[1]["text"]), (&json!(whole), &json!(whole)));
        assert_ne!(choices[2]["text"], json!(whole));
        assert_eq!(reply["usage"]["completion_tokens"], 48);
    }
}

#[test]
fn the_answer_has_openais_fields() {
    let reply = completion(&json!({})).json();
    assert_eq!(reply["object"], "text_completion");
    assert_eq!(reply["model"], "tiny");
    assert!(reply["id"].as_str().expect("a text").starts_with("cmpl-"));
    let prompt = ids_of(PROMPT).len() + 1;
    let usage = json!({ "prompt_tokens": prompt, "completion_tokens": 12, "total_tokens": prompt + 12 });
    assert_eq!(reply["usage"], usage);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["choices"][0]["logprobs"], Value::Null);
}

#[test]
fn max_tokens_and_min_tokens_bound_the_length() {
    let usage = |more: &Value| completion(more).json()["usage"]["completion_tokens"].clone();
    assert_eq!((usage(&json!({ "max_tokens": 3 })), usage(&json!({ "max_tokens": null }))), (json!(3), json!(16)));
    let first = tokens(&json!({}))[2];
    assert_eq!(usage(&json!({ "stop_token_ids": [first] })), json!(3));
    let later = usage(&json!({ "stop_token_ids": [first], "min_tokens": 5 }));
    assert!(later.as_u64().expect("a number") >= 5, "{later}");
}

#[test]
fn stop_texts_and_stop_tokens_end_the_text_before_them() {
    let whole = text(&json!({}));
    let stop: String = whole.chars().skip(7).take(4).collect();
    let expected = &whole[..whole.find(&stop).expect("it is there")];
    for given in [json!(stop), json!(["never", stop])] {
        let choice = choice(&json!({ "stop": given }));
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(expected), &json!("stop")));
        assert_eq!(choice["stop_reason"], json!(stop));
    }
    let ids = tokens(&json!({}));
    let at = ids.iter().position(|id| *id == ids[4]).expect("it is there");
    let choice = choice(&json!({ "stop_token_ids": [ids[4]] }));
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(ids[4])));
    assert_eq!(ids_of(choice["text"].as_str().expect("a text")), ids[..at]);
}

#[test]
fn ignore_eos_goes_on_after_the_models_last_token() {
    // The bias makes the model's end-of-sequence token the likeliest.
    let ends = json!({ "logit_bias": { "1": 100 } });
    let choice = choice(&ends);
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(""), &json!("stop")));
    assert_eq!(choice["stop_reason"], Value::Null);
    let reply = completion(&json!({ "logit_bias": { "1": 100 }, "ignore_eos": true })).json();
    assert_eq!(
        (&reply["usage"]["completion_tokens"], &reply["choices"][0]["finish_reason"]),
        (&json!(12), &json!("length"))
    );
    let least = completion(&json!({ "logit_bias": { "1": 100 }, "min_tokens": 4 })).json();
    assert_eq!(least["usage"]["completion_tokens"], 5);
}

#[test]
fn a_seed_repeats_a_random_text_and_choices_differ() {
    let random = json!({ "temperature": 1.5, "seed": -7, "n": 3, "max_tokens": 20 });
    let texts = |more: &Value| -> Vec<String> {
        let choices = completion(more).json()["choices"].clone();
        choices.as_array().expect("a list").iter().map(|choice| choice["text"].to_string()).collect()
    };
    let first = texts(&random);
    assert_eq!(first, texts(&random));
    assert_eq!(BTreeSet::from_iter(&first).len(), 3, "{first:?}");
    let unseeded = json!({ "temperature": 1.5, "max_tokens": 20 });
    assert_ne!(texts(&unseeded), texts(&unseeded));
}

/// With one token left to draw from, a random text is the greedy one.
#[test]
fn top_k_top_p_and_min_p_leave_the_likeliest_tokens() {
    let greedy = text(&json!({}));
    for least in [json!({ "top_k": 1 }), json!({ "top_p": 1e-6 }), json!({ "min_p": 1 })] {
        let mut random = least.clone();
        random["temperature"] = 2.into();
        assert_eq!(text(&random), greedy, "{least}");
    }
    for all in [json!({ "top_k": -1 }), json!({ "top_k": 0 }), json!({ "top_p": 1 }), json!({ "min_p": 0 })] {
        let mut random = all.clone();
        random["temperature"] = 2.into();
        random["seed"] = 3.into();
        assert_eq!(text(&random), text(&json!({ "temperature": 2, "seed": 3 })), "{all}");
    }
}

#[test]
fn penalties_and_biases_change_the_choice_of_tokens() {
    let long = |more: &Value| {
        let mut more = more.clone();
        more["max_tokens"] = 40.into();
        more
    };
    let plain = text(&long(&json!({})));
    for penalty in [
        json!({ "frequency_penalty": 2 }),
        json!({ "presence_penalty": 2 }),
        json!({ "repetition_penalty": 3 }),
        json!({ "logit_bias": { ids_of(&plain)[0].to_string(): -100 } }),
    ] {
        assert_ne!(text(&long(&penalty)), plain, "{penalty}");
    }
    let nothing = json!({ "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {} });
    assert_eq!(text(&long(&nothing)), plain);
}

#[test]
fn echo_repeats_the_prompt() {
    let whole = PROMPT.to_owned() + &text(&json!({}));
    assert_eq!(text(&json!({ "echo": true })), whole);
    let ids = post(server().address, "/tokenize", &json!({ "prompt": PROMPT })).json()["tokens"].clone();
    assert_eq!(text(&json!({ "echo": true, "prompt": ids })), whole);
    assert_eq!(text(&json!({ "echo": true, "max_tokens": 0 })), PROMPT);
    assert_eq!(text(&json!({ "best_of": 1 })), text(&json!({})));
}

#[test]
fn log_probabilities_are_those_of_the_tokens_of_the_text() {
    let choice = choice(&json!({ "logprobs": 3 }));
    let logprobs = &choice["logprobs"];
    let tokens: Vec<&str> = logprobs["tokens"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(json!(tokens.concat()), choice["text"]);
    let mut offset = 0;
    for (at, token) in tokens.iter().enumerate() {
        assert_eq!(logprobs["text_offset"][at], offset);
        offset += token.chars().count();
        let top = logprobs["top_logprobs"][at].as_object().expect("an object");
        assert_eq!(top.len(), 3);
        // The greedy token is the likeliest.
        let chosen = logprobs["token_logprobs"][at].as_f64().expect("a number");
        assert!(chosen < 0.0 && top.values().all(|other| other.as_f64().expect("a number") <= chosen));
        assert_eq!(top[*token].as_f64(), Some(chosen));
    }
}

/// The log probability of a token of the prompt is that of the same token where it is generated.
#[test]
fn echo_with_log_probabilities_lists_the_tokens_of_the_prompt() {
    let generated = choice(&json!({ "logprobs": 2, "max_tokens": 6 }));
    let text = PROMPT.to_owned() + generated["text"].as_str().expect("a text");
    let echoed = choice(&json!({ "prompt": text, "echo": true, "logprobs": 2, "max_tokens": 1 }))["logprobs"].clone();
    let prompt = ids_of(PROMPT).len() + 1;
    assert_eq!((&echoed["tokens"][0], &echoed["token_logprobs"][0]), (&json!("<|begin|>"), &Value::Null));
    assert_eq!((&echoed["top_logprobs"][0], &echoed["text_offset"][1]), (&Value::Null, &json!(0)));
    for at in 0..6 {
        for key in ["tokens", "token_logprobs", "top_logprobs"] {
            assert_eq!(echoed[key][prompt + at], generated["logprobs"][key][at], "{key} of {at}");
        }
        let offset = generated["logprobs"]["text_offset"][at].as_u64().expect("a number");
        assert_eq!(echoed["text_offset"][prompt + at], offset + PROMPT.len() as u64);
    }
    assert_eq!(echoed["tokens"].as_array().map(Vec::len), Some(prompt + 7));
    let mut streamed =
        json!({ "prompt": text, "echo": true, "logprobs": 2, "max_tokens": 1, "temperature": 0, "stream": true });
    let first = post(server().address, "/v1/completions", &streamed).events()[0]["choices"][0].clone();
    assert!(first["text"].as_str().expect("a text").starts_with(&text));
    assert_eq!(first["logprobs"], echoed);
    streamed["stream"] = false.into();
    assert_eq!(post(server().address, "/v1/completions", &streamed).json()["choices"][0]["logprobs"], echoed);
}

#[test]
fn texts_become_tokens_and_tokens_texts() {
    let address = server().address;
    let reply = post(address, "/tokenize", &json!({ "prompt": PROMPT, "model": "tiny" })).json();
    let ids = ids_of(PROMPT);
    assert_eq!((&reply["count"], &reply["max_model_len"]), (&json!(ids.len() + 1), &json!(256)));
    let reply = post(address, "/detokenize", &json!({ "tokens": ids, "model": "tiny" })).json();
    assert_eq!(reply, json!({ "prompt": PROMPT }));
    let reply = post(address, "/detokenize", &json!({ "tokens": [1 << 20] }));
    assert_eq!((reply.status, reply.error()["param"].clone()), (400, json!("tokens")));
}

#[test]
fn models_and_health_are_told() {
    let address = server().address;
    let list = get(address, "/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(get(address, "/v1/models/tiny").json(), list["data"][0]);
    assert_eq!(get(address, "/v1/models/huge/er").status, 404);
    assert_eq!(get(address, "/health").status, 200);
    assert_eq!(get(address, "/nowhere").error()["code"], "path_not_found");
    assert_eq!(get(address, "/v1/completions").status, 405);
}

#[test]
fn metrics_have_the_names_that_gateways_read() {
    text(&json!({}));
    let page = get(server().address, "/metrics");
    let value = |name: &str| {
        let line =
            page.text().lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap_or_else(|| panic!("{name}"));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    for name in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc"] {
        assert!(value(name) >= 0.0);
    }
    for name in [
        "vllm:time_to_first_token_seconds_count",
        "vllm:time_per_output_token_seconds_sum",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "tilewright:steps_total",
        "tilewright:kv_pages",
    ] {
        assert!(value(name) > 0.0, "{name}");
    }
    let page_of_docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/serve.md")).expect("a page");
    for line in page.text().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().expect("a name");
        assert!(page_of_docs.contains(&format!("`{name}`")), "docs/serve.md does not name {name}");
    }
}

/// Values that are refused, with the parameter that the error names.
#[test]
fn what_is_not_honoured_is_refused_by_name() {
    for (more, param) in [
        (json!({ "tempratur": 1 }), "tempratur"),
        (json!({ "suffix": "a" }), "suffix"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "temperature": "hot" }), "temperature"),
        (json!({ "temperature": -1 }), "temperature"),
        (json!({ "temperature": 1e39 }), "temperature"),
        (json!({ "top_p": 0 }), "top_p"),
        (json!({ "top_p": 1.1 }), "top_p"),
        (json!({ "top_k": -2 }), "top_k"),
        (json!({ "min_p": 2 }), "min_p"),
        (json!({ "frequency_penalty": 3 }), "frequency_penalty"),
        (json!({ "presence_penalty": -3 }), "presence_penalty"),
        (json!({ "repetition_penalty": 0 }), "repetition_penalty"),
        (json!({ "logit_bias": { "99999": 1 } }), "logit_bias"),
        (json!({ "logit_bias": { "1": 101 } }), "logit_bias"),
        (json!({ "stop": "" }), "stop"),
        (json!({ "stop": vec!["a"; 17] }), "stop"),
        (json!({ "stop": 3 }), "stop"),
        (json!({ "stop_token_ids": [99999] }), "stop_token_ids"),
        (json!({ "stop_token_ids": vec![3; 1025] }), "stop_token_ids"),
        (json!({ "n": 0 }), "n"),
        (json!({ "n": 129 }), "n"),
        (json!({ "n": 100, "prompt": ["a", "b"] }), "n"),
        (json!({ "best_of": 2 }), "best_of"),
        (json!({ "logprobs": 21 }), "logprobs"),
        (json!({ "logprobs": true }), "logprobs"),
        (json!({ "logprobs": 1, "echo": true, "max_tokens": 0 }), "max_tokens"),
        (json!({ "stream_options": { "include_usage": true } }), "stream_options"),
        (json!({ "stream": true, "stream_options": { "usage": true } }), "stream_options.usage"),
        (json!({ "response_format": { "type": "xml" } }), "response_format"),
        (json!({ "response_format": { "type": "json_schema" } }), "response_format.json_schema"),
        (json!({ "response_format": { "type": "json_object" }, "ignore_eos": true }), "ignore_eos"),
        (json!({ "structured_outputs": { "regex": "a" }, "min_tokens": 2 }), "min_tokens"),
        (json!({ "structured_outputs": {} }), "structured_outputs"),
        (json!({ "structured_outputs": { "regex": "a", "choice": ["a"] } }), "structured_outputs"),
        (json!({ "structured_outputs": { "ebnf": "a" } }), "structured_outputs.ebnf"),
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": [[]] }), "prompt"),
        (json!({ "prompt": { "text": "a" } }), "prompt"),
        (json!({ "prompt": vec!["a"; 129] }), "prompt"),
        (json!({ "model": "gpt-4" }), "model"),
    ] {
        let reply = completion(&more);
        let error = reply.error();
        assert!([400, 404].contains(&reply.status), "{more}: {error}");
        assert_eq!(error["param"], param, "{more}: {error}");
        assert!(error["message"].as_str().expect("a text").contains(param) || param == "model", "{more}: {error}");
    }
    let missing = post(server().address, "/v1/completions", &json!({})).error();
    assert_eq!((&missing["param"], &missing["type"]), (&json!("prompt"), &json!("invalid_request_error")));
    let long = completion(&json!({ "max_tokens": 10_000 })).error();
    assert_eq!(long["code"], "context_length_exceeded");
    assert_eq!(completion(&json!({ "prompt": "a ".repeat(100_000) })).error()["code"], "context_length_exceeded");
}

/// The endpoint's own list of its parameters is that of the page.
#[test]
fn the_page_has_every_parameter_and_no_other() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/serve.md")).expect("a page");
    for (path, heading) in [("/v1/completions", "completions"), ("/v1/chat/completions", "chat")] {
        let reply =
            super::client::exchange(server().address, super::client::written(path, "{\"?\": 1}", &[]).as_bytes());
        assert_eq!(reply.error()["param"], "?");
        let expected = accepted(path);
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let documented: BTreeSet<String> = rows
            .filter(|line| line.split('|').nth(2).is_some_and(|endpoints| endpoints.contains(heading)))
            .filter_map(|line| Some(line.split('`').nth(1)?.to_owned()))
            .collect();
        assert_eq!(documented, expected, "{path}");
    }
}

/// The parameters that an endpoint does not call unknown, of all that the page and the endpoints of
/// OpenAI and vLLM have.
fn accepted(path: &str) -> BTreeSet<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/serve.md")).expect("a page");
    let words = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    let others = ["suffix", "functions", "metadata", "store", "audio", "best_of", "length_penalty", "guided_json"];
    let names: BTreeSet<&str> = words.chain(others).collect();
    let unknown = |name: &str| {
        // An object is a value of no parameter but those that are read as they come.
        let reply = post(server().address, path, &json!({ name: { "?": { "?": 1 } } }));
        let error = reply.error();
        error["code"] == "unknown_parameter" && error["param"] == name
    };
    names.into_iter().filter(|name| !unknown(name)).map(str::to_owned).collect()
}
