//! Chats by a checkpoint's own template: reasoning, calls of functions, and what is refused.

use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Reply, post};
use super::script::Script;
use super::{TestServer, server};

/// In the form of Qwen 3's template.
const QWEN: Script = Script {
    template: "{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}\
        {%- for message in messages %}[{{ message.role }}]{{ message.content }}\
        {%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.arguments | tojson }}</tool_call>{% endfor %}\
        {%- endfor %}{% if not enable_thinking | default(true) %}</think>{% endif %}<|reply|>",
    pieces: &[
        "<think>",
        "\nLet me",
        " see.\n",
        "</think>",
        "\n\n",
        "It may be ",
        // The two bytes of an \u{e9}, as a byte-level vocabulary writes them.
        "n\u{c3}",
        "\u{a9}on",
        ".\n",
        "<tool_call>",
        "\n{\"name\": \"time\",",
        " \"arguments\": {\"zone\": \"UTC\", \"am\": true}}\n",
        "</tool_call>",
    ],
    special: &[],
};

/// In the form of Mistral's template.
const MISTRAL: Script = Script {
    template: "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
        {% if false %}[TOOL_CALLS]{% endif %}<|reply|>",
    pieces: &[
        "[TOOL_CALLS]",
        "[{\"name\": \"time\", \"arguments\": {}},",
        " {\"name\": \"now\", \"arguments\": {\"a\": 1}}]",
    ],
    special: &["[TOOL_CALLS]"],
};

/// In the form of Llama 3's template.
const LLAMA: Script = Script {
    template: "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
        {% if false %}<|python_tag|>{% endif %}<|reply|>",
    pieces: &["<|python_tag|>", "{\"name\": \"time\", \"parameters\": ", "{}}"],
    special: &["<|python_tag|>"],
};

struct Scripted {
    server: TestServer,
    _folder: TempDir,
}

fn scripted(script: &Script) -> Scripted {
    let folder = script.folder();
    Scripted { server: TestServer::new(folder.path(), |_| ()), _folder: folder }
}

fn qwen() -> &'static Scripted {
    static SERVER: OnceLock<Scripted> = OnceLock::new();
    SERVER.get_or_init(|| scripted(&QWEN))
}

fn tools() -> Value {
    let time =
        json!({ "type": "function", "function": { "name": "time", "parameters": { "zone": { "type": "string" } } } });
    json!([time])
}

fn ask(scripted: &Scripted, more: &Value) -> Reply {
    let mut body = json!({ "messages": [{ "role": "user", "content": "What time is it?" }], "temperature": 0 });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    post(scripted.server.address, "/v1/chat/completions", &body)
}

fn choice(scripted: &Scripted, more: &Value) -> Value {
    let reply = ask(scripted, more);
    assert_eq!(reply.status, 200, "{more}: {}", reply.text());
    reply.json()["choices"][0].clone()
}

fn without_ids(message: &Value) -> Value {
    let mut message = message.clone();
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        assert!(call["id"].as_str().is_some_and(|id| id.len() >= 9), "{call}");
        call["id"] = Value::Null;
    }
    message
}

fn call(name: &str, arguments: &str) -> Value {
    json!({ "id": null, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// The message that the deltas of a stream make.
fn joined(events: &[Value]) -> (Value, Value) {
    let mut message = json!({ "role": null, "content": null });
    let mut finish = Value::Null;
    for event in events {
        let Some(choice) = event["choices"].get(0) else { continue };
        assert_eq!((&choice["index"], &event["object"]), (&json!(0), &json!("chat.completion.chunk")));
        for (key, value) in choice["delta"].as_object().expect("an object") {
            match (value, message.get_mut(key)) {
                (Value::String(more), Some(Value::String(text))) => text.push_str(more),
                (Value::Array(calls), _) => {
                    for call in calls {
                        let mut call = call.clone();
                        let index = call.as_object_mut().and_then(|call| call.remove("index"));
                        let all = message["tool_calls"].as_array().map_or(0, Vec::len);
                        assert_eq!(index, Some(json!(all)));
                        match &mut message["tool_calls"] {
                            Value::Array(all) => all.push(call),
                            none => *none = json!([call]),
                        }
                    }
                }
                (value, _) => message[key] = value.clone(),
            }
        }
        finish = choice["finish_reason"].clone();
    }
    (message, finish)
}

#[test]
fn a_reply_has_reasoning_content_and_calls() {
    let choice = choice(qwen(), &json!({ "tools": tools() }));
    let expected = json!({
        "role": "assistant",
        "reasoning_content": "Let me see.",
        "content": "It may be n\u{e9}on.",
        "tool_calls": [call("time", "{\"zone\":\"UTC\",\"am\":true}")],
    });
    assert_eq!((without_ids(&choice["message"]), &choice["finish_reason"]), (expected, &json!("tool_calls")));
}

#[test]
fn a_stream_joined_is_the_whole_reply() {
    for more in [json!({ "tools": tools() }), json!({}), json!({ "stop": "on" }), json!({ "logprobs": true })] {
        let whole = choice(qwen(), &more);
        let mut streamed = more.clone();
        streamed["stream"] = true.into();
        let events = ask(qwen(), &streamed).events();
        assert!(events.len() > 4, "{events:?}");
        let (message, finish) = joined(&events);
        assert_eq!((without_ids(&message), finish), (without_ids(&whole["message"]), whole["finish_reason"].clone()));
        let logprobs: Vec<Value> = events
            .iter()
            .flat_map(|event| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
            .collect();
        let expected = whole["logprobs"]["content"].as_array().cloned().unwrap_or_default();
        assert_eq!(logprobs, expected, "{more}");
        assert_eq!(expected.is_empty(), more.get("logprobs").is_none());
    }
}

#[test]
fn without_tools_a_call_is_text() {
    for more in [json!({}), json!({ "tools": tools(), "tool_choice": "none" })] {
        let choice = choice(qwen(), &more);
        let content = choice["message"]["content"].as_str().expect("a text");
        assert!(content.contains("<tool_call>") && choice["message"].get("tool_calls").is_none(), "{content}");
        assert_eq!(choice["finish_reason"], "stop");
    }
}

#[test]
fn calls_of_mistral_and_llama_begin_with_special_tokens() {
    let mistral = scripted(&MISTRAL);
    let both = [call("time", "{}"), call("now", "{\"a\":1}")];
    let message = choice(&mistral, &json!({ "tools": tools() }))["message"].clone();
    assert_eq!(without_ids(&message), json!({ "role": "assistant", "content": null, "tool_calls": both }));
    assert!(
        message["tool_calls"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|call| call["id"].as_str().is_some_and(|id| id.len() == 9))
    );
    let single = choice(&mistral, &json!({ "tools": tools(), "parallel_tool_calls": false }))["message"].clone();
    assert_eq!(without_ids(&single)["tool_calls"], json!([both[0]]));
    let llama = scripted(&LLAMA);
    let message = choice(&llama, &json!({ "tools": tools(), "tool_choice": "auto" }))["message"].clone();
    assert_eq!(without_ids(&message)["tool_calls"], json!([call("time", "{}")]));
}

/// The text of a conversation, as the template makes it.
fn prompt(body: &Value) -> String {
    let address = qwen().server.address;
    let tokens = post(address, "/tokenize", body);
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    let text = post(address, "/detokenize", &json!({ "tokens": tokens.json()["tokens"] })).json();
    text["prompt"].as_str().expect("a text").to_owned()
}

#[test]
fn templates_get_history_tools_and_variables() {
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "time", "arguments": "{\"zone\": \"UTC\"}" } });
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "What time" }, { "type": "text", "text": "is it?" }] },
        { "role": "assistant", "content": null, "tool_calls": [call], "refusal": null, "annotations": [] },
        { "role": "tool", "tool_call_id": "call_1", "content": "noon" },
    ]);
    let expected =
        "[system]Be brief.[user]What time\nis it?[assistant]<tool_call>{\"zone\": \"UTC\"}</tool_call>[tool]noon";
    assert_eq!(prompt(&json!({ "messages": messages })), expected);
    let kwargs = json!({ "enable_thinking": false });
    let short = json!([{ "role": "user", "content": "a" }]);
    assert_eq!(prompt(&json!({ "messages": short, "chat_template_kwargs": kwargs })), "[user]a</think>");
    let tool = "<tools>{\"type\": \"function\", \"function\": {\"name\": \"b\"}}</tools>[user]a";
    // Keys of a tool keep their order.
    let tools = json!([{ "function": { "name": "b" }, "type": "function" }]);
    let body = format!(
        "{{\"messages\": {short}, \"tools\": [{{\"type\": \"function\", \"function\": {{\"name\": \"b\"}}}}]}}"
    );
    let reply =
        super::client::exchange(qwen().server.address, super::client::written("/tokenize", &body, &[]).as_bytes());
    let text = post(qwen().server.address, "/detokenize", &json!({ "tokens": reply.json()["tokens"] })).json();
    assert_eq!(text["prompt"], tool);
    assert_ne!(prompt(&json!({ "messages": short, "tools": tools })), tool);
}

#[test]
fn lengths_and_choices_of_chats() {
    let reply = ask(qwen(), &json!({ "n": 2, "max_completion_tokens": 3 })).json();
    assert_eq!(reply["usage"]["completion_tokens"], 6);
    for index in 0..2 {
        assert_eq!(reply["choices"][index]["finish_reason"], "length");
        assert_eq!(reply["choices"][index]["message"]["reasoning_content"], "Let me see.");
    }
    assert_eq!(reply["object"], "chat.completion");
    // Without a number the reply goes on to its end.
    assert_eq!(ask(qwen(), &json!({})).json()["choices"][0]["finish_reason"], "stop");
    let top = choice(qwen(), &json!({ "logprobs": true, "top_logprobs": 2, "max_tokens": 2 }))["logprobs"].clone();
    assert_eq!(top["content"][0]["token"], "<think>");
    assert_eq!(top["content"][0]["bytes"], json!(b"<think>"));
    assert_eq!(top["content"][0]["top_logprobs"].as_array().map(Vec::len), Some(2));
}

#[test]
fn what_chats_do_not_honour_is_refused_by_name() {
    let function = json!({ "type": "function", "function": { "name": "time" } });
    let strict = json!([{ "type": "function", "function": { "name": "time", "strict": true } }]);
    for (more, param) in [
        (json!({ "functions": [] }), "functions"),
        (json!({ "prompt": "a" }), "prompt"),
        (json!({ "echo": true }), "echo"),
        (json!({ "logprobs": 3 }), "logprobs"),
        (json!({ "top_logprobs": 3 }), "top_logprobs"),
        (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
        (json!({ "max_tokens": 1, "max_completion_tokens": 1 }), "max_tokens"),
        (json!({ "response_format": { "type": "json_schema", "json_schema": {} } }), "response_format.json_schema"),
        (json!({ "tool_choice": "auto" }), "tool_choice"),
        (json!({ "tools": tools(), "tool_choice": "required" }), "tool_choice"),
        (json!({ "tools": tools(), "tool_choice": function }), "tool_choice"),
        (json!({ "tools": strict }), "tools[0].function.strict"),
        (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": [{ "role": "user", "content": "a", "weight": 1 }] }), "messages[0].weight"),
        (json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }), "messages[0].content"),
        (json!({ "messages": [{ "role": "user", "content": "a", "refusal": "no" }] }), "messages[0].refusal"),
    ] {
        let reply = ask(qwen(), &more);
        let error = reply.error();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{more}: {error}");
    }
    // tiny-llama has no template.
    let body = json!({ "messages": [{ "role": "user", "content": "a" }] });
    let reply = post(server().address, "/v1/chat/completions", &body);
    assert_eq!((reply.status, reply.error()["param"].clone()), (400, json!("messages")));
    // A conversation that the template refuses is the client's fault.
    let llama = scripted(&Script { template: "{{ raise_exception('no') }}", ..LLAMA });
    let refused = ask(&llama, &json!({}));
    assert_eq!(refused.status, 400);
    assert!(refused.error()["message"].as_str().expect("a text").contains("refuses the messages: no"));
    let without = ask(&llama, &json!({ "tools": tools() }));
    assert_eq!(without.error()["param"], "tools");
}
