//! `generate`: prompts from files and standard input, chats, stop texts, notes, damaged weights.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use half::bf16;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{failure, run, stdout, tiny};

/// A copy of tiny-llama to which files are added.
fn model() -> TempDir {
    copy(&tiny(""))
}

/// A copy of a model.
fn copy(model: &Path) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for file in
        ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
    {
        fs::copy(model.join(file), dir.path().join(file)).expect("copies");
    }
    dir
}

fn args<'a>(model: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let all = [&["generate", "--model", model.to_str().expect("UTF-8")], more].concat();
    if more.contains(&"--max-new-tokens") { all } else { [&all[..], &["--max-new-tokens", "12"]].concat() }
}

/// The result equals that of a checkpoint that was quantised before.
#[test]
fn weights_are_quantised_while_loading() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("w4a16");
    let [dense, out] = [&tiny(""), &made].map(|path| path.to_str().expect("UTF-8").to_owned());
    stdout(&["quantize", "--model", &dense, "--out", &out, "--scheme", "w4a16"], b"");
    let prompt = ["--prompt", "In the beginning", "--max-new-tokens", "6"];
    let quantised = [&prompt[..], &["--weights", "w4a16"]].concat();
    assert_eq!(stdout(&args(&tiny(""), &quantised), b""), stdout(&args(&made, &prompt), b""));
    assert!(failure(&args(&made, &quantised), b"").contains("quantised modules already"));
    assert!(failure(&args(&made, &["--prompt", "a", "--weights", "w3"]), b"").contains("`w3` is not a scheme"));
}

#[test]
fn a_prompt_from_a_file_or_standard_input_is_that_of_the_command_line() {
    let expected = stdout(&args(&tiny(""), &["--prompt", "In the beginning"]), b"");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prompt");
    for text in ["In the beginning", "In the beginning\n", "In the beginning\r\n"] {
        assert_eq!(stdout(&args(&tiny(""), &["--prompt-file", "-"]), text.as_bytes()), expected);
        fs::write(&path, text).expect("a file");
        let path = path.to_str().expect("UTF-8");
        assert_eq!(stdout(&args(&tiny(""), &["--prompt-file", path]), b""), expected);
    }
    // One end of line is the file's, a second one the prompt's.
    let json = |input: &[u8]| {
        let text = stdout(&args(&tiny(""), &["--json", "--prompt-file", "-"]), input);
        serde_json::from_str::<Value>(&text).expect("JSON")["prompt_ids"].clone()
    };
    assert_ne!(json(b"And\n\n"), json(b"And\n"));
}

#[test]
fn prompts_that_are_none_are_refused() {
    let from = |file, input: &[u8]| failure(&args(&tiny(""), &["--prompt-file", file]), input);
    assert!(from("-", b"").contains("the prompt is empty"));
    assert!(from("-", b"\n").contains("the prompt is empty"));
    assert!(
        from("-", b"ab\xff").contains("standard input` cannot be read: it is not UTF-8 text (first bad byte at 2)")
    );
    assert!(from("no/such/file", b"").contains("no/such/file"));
    assert!(from("/dev/zero", b"").contains("more than 262144 bytes"), "256 bytes for each of 1024 positions");
    assert!(failure(&args(&tiny(""), &["--prompt", "a", "--prompt-file", "-"]), b"").contains("cannot be used with"));
    assert!(failure(&args(&tiny(""), &["--prompt", "a", "--system", "b"]), b"").contains("--chat"));
    assert!(failure(&args(&tiny(""), &["--prompt", "a", "--stop", ""]), b"").contains("a stop text is empty"));
}

/// The text before the stop text, wherever tokens begin and end, streamed or not, and no token
/// after it.
#[test]
fn a_stop_text_ends_the_text_before_it() {
    let model = tiny("");
    let prompt = |stops: &[&str], json: bool| {
        let stops: Vec<&str> = stops.iter().flat_map(|stop| ["--stop", *stop]).collect();
        let more = [&["--prompt", "In the beginning", "--max-new-tokens", "24"], &stops[..]].concat();
        stdout(&args(&model, &if json { [&more[..], &["--json"]].concat() } else { more }), b"")
    };
    let whole = prompt(&[], false);
    let whole = whole.strip_suffix('\n').expect("a line");
    let tokens = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["token_ids"].as_array().unwrap().len();
    let all_tokens = tokens(&prompt(&[], true));
    // Three characters somewhere: their borders are those of tokens or not.
    let characters: Vec<char> = whole.chars().collect();
    for at in [3, 8, 14] {
        let stop: String = characters[at..at + 3].iter().collect();
        let expected = &whole[..whole.find(&stop).expect("it is there")];
        assert_eq!(prompt(&[&stop, "no such text"], false), format!("{expected}\n"), "{stop:?}");
        let object: Value = serde_json::from_str(&prompt(&["no such text", &stop], true)).expect("JSON");
        assert_eq!(object["text"], json!(expected), "{stop:?}");
        assert!(object["token_ids"].as_array().expect("ids").len() < all_tokens, "{stop:?}");
    }
    // What may be the beginning of a stop text and is not comes out in the end.
    let last = format!("{}never", &whole[whole.len() - 2..]);
    assert_eq!(prompt(&[&last], false), format!("{whole}\n"));
}

#[test]
fn a_chat_is_what_the_template_makes_of_it() {
    let dir = model();
    let template = "{%- if messages[0].role == 'system' %}{{ messages[0].content }}: {% endif -%}\n\
        {{ bos_token }}{{ messages[-1]['content'].strip() }}{% if add_generation_prompt %} the{% endif %}";
    fs::write(dir.path().join("chat_template.jinja"), template).expect("writes");
    let ids = |args: &[&str]| {
        let object: Value = serde_json::from_str(&stdout(args, b"")).expect("JSON");
        (object["prompt_ids"].clone(), object["text"].clone())
    };
    let chat = ids(&args(dir.path(), &["--json", "--chat", "--prompt", " In the beginning  "]));
    // The template writes the first token; the tokenizer adds it by itself to a plain prompt.
    assert_eq!(chat, ids(&args(dir.path(), &["--json", "--prompt", "In the beginning the"])));
    let with_system = ids(&args(dir.path(), &["--json", "--chat", "--system", "Moses", "--prompt", "In"])).0;
    let expected = ids(&args(dir.path(), &["--json", "--prompt", "x"])).0;
    assert!(with_system.as_array().expect("ids").len() > expected.as_array().expect("ids").len());

    let refuses = "{{ raise_exception('roles must ' ~ 'alternate') }}";
    fs::write(dir.path().join("chat_template.jinja"), refuses).expect("writes");
    let line = failure(&args(dir.path(), &["--chat", "--prompt", "a"]), b"");
    assert_eq!(line, "error: chat template of chat_template.jinja refuses the messages: roles must alternate\n");
    let line = failure(&args(&tiny(""), &["--chat", "--prompt", "a"]), b"");
    assert!(line.contains("has no chat template"), "{line}");
}

/// The name of a special token ends the text at the token, which has no text of its own.
#[test]
fn a_stop_text_may_be_a_special_token() {
    let dir = model();
    // 13 is the first comma of the continuation; here it is a special token by the name that the
    // vocabulary has for it.
    let tokenizer: Value = serde_json::from_slice(&fs::read(tiny("tokenizer.json")).expect("reads")).expect("JSON");
    let vocab = tokenizer["model"]["vocab"].as_object().expect("a vocabulary");
    let comma = vocab.iter().find_map(|(token, id)| (*id == json!(13)).then_some(token)).expect("token 13");
    let map = json!({"additional_special_tokens": [comma]});
    fs::write(dir.path().join("special_tokens_map.json"), map.to_string()).expect("writes");
    let more = ["--prompt", "In the beginning", "--json", "--max-new-tokens", "24", "--stop", comma.as_str()];
    let object: Value = serde_json::from_str(&stdout(&args(dir.path(), &more), b"")).expect("JSON");
    let ids = object["token_ids"].as_array().expect("ids");
    assert_eq!((ids.len(), ids.last()), (12, Some(&json!(13))));
}

/// Rewrites the weights.
fn rewrite(dir: &Path, change: impl Fn(&str, &[u8]) -> (Dtype, Vec<u8>)) {
    let path = dir.join("model.safetensors");
    let bytes = fs::read(&path).expect("reads");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let made: Vec<_> = tensors
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let (dtype, data) = change(&name, view.data());
            (name, dtype, view.shape().to_vec(), data)
        })
        .collect();
    let views = made.iter().map(|(name, dtype, shape, data)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), data).expect("as many bytes as the shape says"))
    });
    let file = serialize(views, None).expect("serialises");
    fs::remove_file(&path).expect("removes");
    fs::write(path, file).expect("writes");
}

#[test]
fn weights_that_are_no_numbers_are_said() {
    // A weight that is not a number, and a norm that makes every logit infinite.
    for (tensor, number) in [("model.layers.1.mlp.down_proj.weight", bf16::NAN), ("model.norm.weight", bf16::INFINITY)]
    {
        let dir = model();
        rewrite(dir.path(), |name, data| {
            let mut data = data.to_vec();
            if name == tensor {
                data[..2].copy_from_slice(&number.to_le_bytes());
            }
            (Dtype::BF16, data)
        });
        for device in ["cpu", "sim"] {
            let line = failure(&args(dir.path(), &["--prompt", "And", "--device", device]), b"");
            let expected = "are not numbers (NaN), or infinite; the weights are damaged";
            assert!(line.contains(expected), "{tensor}, {device}: {line}");
        }
    }
}

/// The embedding of the first new token is NaN, and so are the logits after it; the output projection
/// of tiny-qwen3 is another matrix. A device chooses the
/// next token itself: the persistent kernel greedily, with proposals and at random, and a graph of
/// launches.
#[test]
fn a_token_after_which_no_token_is_the_likeliest_ends_the_text_with_an_error() {
    let prompt = ["--prompt", "In the beginning", "--json"];
    let sim = [&prompt[..], &["--device", "sim"]].concat();
    let with = |more: &[&'static str]| [&sim[..], more].concat();
    let ways = [
        sim.clone(),
        with(&["--speculate"]),
        with(&["--temperature", "0.7", "--top-k", "1"]),
        with(&["--deterministic", "--prompt-chunk", "32"]),
    ];
    let model = tiny("").join("../tiny-qwen3");
    let text = stdout(&args(&model, &with(&["--max-new-tokens", "1"])), b"");
    let healthy: Value = serde_json::from_str(&text).expect("JSON");
    let [prompt_ids, new] = ["prompt_ids", "token_ids"].map(|key| healthy[key].as_array().expect("ids").clone());
    assert!(!prompt_ids.contains(&new[0]), "{healthy}");
    let token = new[0].as_u64().expect("an id") as usize;
    let dir = copy(&model);
    rewrite(dir.path(), |name, data| {
        let mut data = data.to_vec();
        if name == "model.embed_tokens.weight" {
            let row = 128 * 2;
            let nan = bf16::NAN.to_le_bytes();
            data[token * row..][..row].chunks_exact_mut(2).for_each(|x| x.copy_from_slice(&nan));
        }
        (Dtype::BF16, data)
    });
    let position = prompt_ids.len();
    for way in ways {
        let line = failure(&args(dir.path(), &way), b"");
        let expected =
            format!("the logits after position {position} are not numbers (NaN), or infinite; the weights are");
        assert!(line.contains(&expected), "{way:?}: {line}");
    }
    // The reference machine refuses the task.
    let line = failure(&args(dir.path(), &[&prompt[..], &["--device", "cpu"]].concat()), b"");
    assert!(line.contains("row 0: the logits are not numbers (NaN), or infinite; the weights are damaged"), "{line}");
}

#[test]
fn wide_weights_on_a_device_that_rounds_them_are_said() {
    let dir = model();
    rewrite(dir.path(), |_, data| {
        let wide = data.chunks_exact(2).flat_map(|x| bf16::from_le_bytes([x[0], x[1]]).to_f32().to_le_bytes());
        (Dtype::F32, wide.collect())
    });
    let on = |device| run(&args(dir.path(), &["--prompt", "And", "--max-new-tokens", "1", "--device", device]), b"");
    let all = args(dir.path(), &["--prompt", "And"]);
    assert_eq!(stdout(&all, b""), stdout(&args(&tiny(""), &["--prompt", "And"]), b""));
    let output = on("sim");
    let note = "note: 29 matrices are f32; they are rounded to bf16 on this device\n";
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), (note, Some(0)));
}

#[test]
fn what_a_checkpoint_wants_of_each_token_it_gets_and_what_it_does_not_get_is_in_the_same_line() {
    let dir = model();
    let settings = json!({"eos_token_id": 1, "repetition_penalty": 1.2, "no_repeat_ngram_size": 1, "suppress_tokens": [270],
        "min_length": 2});
    fs::write(dir.path().join("generation_config.json"), settings.to_string()).expect("writes");
    let output = run(&args(dir.path(), &["--prompt", "In the beginning", "--json"]), b"");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.starts_with("note: ") && line.lines().count() == 1, "{line}");
    assert!(line.contains("no_repeat_ngram_size 1 and repetition_penalty 1.2 and suppress_tokens [270]"), "{line}");
    assert!(line.contains("min_length 2, which transformers applies; not applied here"), "{line}");
    // Without the settings the first token is 270; with them no token comes twice.
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ids = |key: &str| object[key].as_array().expect("ids").clone();
    let all = [ids("prompt_ids"), ids("token_ids")].concat();
    assert!(!ids("token_ids").contains(&json!(270)) && ids("token_ids").len() == 12);
    let different: std::collections::BTreeSet<u64> = ids("token_ids").iter().filter_map(Value::as_u64).collect();
    assert!(different.len() == 12 && ids("prompt_ids").iter().all(|id| all.iter().filter(|x| *x == id).count() == 1));
    // What is asked for wins.
    let plain = args(dir.path(), &["--prompt", "And", "--no-repeat-ngram", "0", "--repetition-penalty", "1"]);
    assert!(run(&plain, b"").status.success());
}

/// The JSON of one prompt says why it ended, and which stop condition was met.
#[test]
fn the_json_of_one_prompt_says_why_it_ended() {
    let json = |more: &[&str]| {
        let more = [&["--prompt", "In the beginning", "--json"], more].concat();
        serde_json::from_str::<Value>(&stdout(&args(&tiny(""), &more), b"")).expect("JSON")
    };
    let length = json(&["--max-new-tokens", "3"]);
    assert_eq!(
        [&length["finish_reason"], &length["stop"], &length["prompt"]],
        [&json!("length"), &Value::Null, &json!(0)]
    );
    let stop: String = length["text"].as_str().expect("a text").chars().take(2).collect();
    let stopped = json(&["--stop", "no such text", "--stop", &stop]);
    assert_eq!(stopped["finish_reason"], json!("stop"));
    assert_eq!(stopped["stop"], json!({"kind": "stop_text", "text": stop}));
    assert_eq!(stopped["text"], json!(""));
    let batched = json(&["--max-new-tokens", "3", "--deterministic"]);
    assert_eq!([&batched["finish_reason"], &batched["prompt"]], [&json!("length"), &json!(0)]);
    // The first token as the end of a sequence.
    let model = model();
    let end = length["token_ids"][0].clone();
    fs::write(model.path().join("generation_config.json"), json!({"eos_token_id": end}).to_string()).expect("writes");
    let more = ["--prompt", "In the beginning", "--json"];
    let ended: Value = serde_json::from_str(&stdout(&args(model.path(), &more), b"")).expect("JSON");
    assert_eq!((&ended["finish_reason"], &ended["stop"]["kind"]), (&json!("stop"), &json!("end_token")));
    assert_eq!(ended["stop"]["id"], end);
}

/// A text that ends because the model has no further position ends for a reason of its own; the
/// prompt has to leave one of them.
#[test]
fn a_text_ends_at_the_last_position_that_it_is_given() {
    let json = |more: &[&str]| {
        let more = [&["--prompt", "In the beginning", "--json"], more].concat();
        serde_json::from_str::<Value>(&stdout(&args(&tiny(""), &more), b"")).expect("JSON")
    };
    let ids = |object: &Value, key: &str| object[key].as_array().expect("ids").clone();
    let whole = json(&[]);
    assert_eq!(whole["finish_reason"], json!("length"));
    let prompt = ids(&whole, "prompt_ids").len();
    let most = prompt + 5;
    for more in [&[][..], &["--deterministic"]] {
        let capped = json(&[&["--max-context", &most.to_string()], more].concat());
        assert_eq!([&capped["finish_reason"], &capped["stop"]], [&json!("positions"), &Value::Null], "{more:?}");
        // The token after the last position is chosen, and not fed.
        assert_eq!(ids(&capped, "token_ids")[..], ids(&whole, "token_ids")[..6], "{more:?}");
    }
    let refused = |more: &[&str]| failure(&args(&tiny(""), &[&["--prompt", "In the beginning"], more].concat()), b"");
    let short = (prompt - 1).to_string();
    let line = refused(&["--max-context", &short]);
    assert!(line.contains(&format!("the prompt has {prompt} tokens, the model has {short} positions")), "{line}");
    assert!(refused(&["--max-context", "0"]).contains("--max-context"));
}

/// `--max-context` runs a model that computes longer texts in another way, with the results of the
/// model without that.
#[test]
fn a_model_runs_within_the_context_that_it_is_given() {
    let model = model();
    let path = model.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).expect("reads")).expect("JSON");
    config["rope_parameters"] = json!({"rope_theta": 10000.0, "rope_type": "dynamic", "factor": 2.0,
        "original_max_position_embeddings": 512});
    fs::write(&path, config.to_string()).expect("writes");
    let prompt = ["--prompt", "In the beginning"];
    let within = |tokens: &'static str| args(model.path(), &[&prompt[..], &["--max-context", tokens]].concat());
    for command in [args(model.path(), &prompt), within("513")] {
        let line = failure(&command, b"");
        assert!(line.contains("(--max-context 512 runs it within those)"), "{line}");
    }
    assert_eq!(stdout(&within("512"), b""), stdout(&args(&tiny(""), &prompt), b""));
}

/// Whole conversations, tools and template variables reach the template.
#[test]
fn conversations_of_a_file_and_template_variables() {
    let model = model();
    let template = "{% for m in messages %}{{ m.role }}{{ m.tool_calls | tojson if m.tool_calls }}{{ m.content }}{% endfor %}\
                    {{ tools | tojson }}{{ mode | default('none') }}";
    fs::write(model.path().join("chat_template.jinja"), template).expect("writes");
    let ids = |more: &[&str], input: &[u8]| {
        let more = [more, &["--json", "--max-new-tokens", "1"]].concat();
        serde_json::from_str::<Value>(&stdout(&args(model.path(), &more), input)).expect("JSON")["prompt_ids"].clone()
    };
    let plain = |text: &str| ids(&["--prompt", text], b"");
    let messages = r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "",
        "tool_calls": [{"b": 1, "a": "<"}]}], "tools": [{"name": "f"}]}"#;
    let found = ids(&["--messages", "-", "--template-var", "mode=\"fast\""], messages.as_bytes());
    // The prompt of a text has a token at its beginning that the template would have to write.
    let expected = plain(r#"userhiassistant[{"b": 1, "a": "<"}][{"name": "f"}]fast"#);
    assert_eq!(found.as_array().expect("ids"), &expected.as_array().expect("ids")[1..]);
    let chat = ids(&["--prompt", "hi", "--chat", "--template-var", "mode=7"], b"");
    assert_eq!(chat.as_array().expect("ids"), &plain("userhinull7").as_array().expect("ids")[1..]);
    let refused = |more: &[&str], input: &[u8]| failure(&args(model.path(), more), input);
    let line = refused(&["--prompt", "hi", "--template-var", "mode=7"], b"");
    assert!(line.contains("give --chat or --messages with it"), "{line}");
    assert!(refused(&["--prompt", "a", "--chat", "--template-var", "mode=fast"], b"").contains("double quotes"));
    assert!(refused(&["--prompt", "a", "--chat", "--template-var", "tools=[]"], b"").contains("given by --messages"));
    assert!(refused(&["--messages", "-", "--prompt", "a"], b"").contains("cannot be used with"));
    let line = refused(&["--messages", "-"], b"[{}]");
    assert!(line.contains("conversation `standard input` cannot be used: messages[0].role must be a text"), "{line}");
}

/// A template that would render without end is one line and exit code 2.
#[test]
fn a_hostile_template_is_refused_in_one_line() {
    let model = model();
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hostile_chat/ns_cycle.jinja");
    fs::copy(template, model.path().join("chat_template.jinja")).expect("copies");
    let line = failure(&args(model.path(), &["--prompt", "hi", "--chat"]), b"");
    assert!(line.contains("template"), "{line}");
}

/// A prompt of 60 MB for a model of 1,024 positions is refused while it is read, in little memory.
#[test]
fn a_prompt_is_read_no_further_than_the_model_has_positions() {
    let long = vec![b'a'; 60 << 20];
    let line = failure(&args(&tiny(""), &["--prompt-file", "-"]), &long);
    assert!(line.contains("it has more than 262144 bytes"), "{line}");
    let template = "{% for i in range(300) %}{{ messages[0].content }}{% endfor %}";
    let model = model();
    fs::write(model.path().join("chat_template.jinja"), template).expect("writes");
    let prompt = "word ".repeat(200);
    let line = failure(&args(model.path(), &["--prompt", &prompt, "--chat"]), b"");
    assert!(line.contains("the prompt has 300000 bytes; at most 262144 are accepted"), "{line}");
}

/// A checkpoint that is truncated while its weights are mapped: one line and exit code 2.
#[test]
fn a_checkpoint_truncated_in_use_is_one_line() {
    let model = model();
    let more = ["--prompt", "In the beginning", "--max-new-tokens", "900", "--device", "cpu:1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(args(model.path(), &more)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut byte = [0];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut byte).expect("the text begins");
    let weights = fs::OpenOptions::new().write(true).open(model.path().join("model.safetensors")).expect("opens");
    weights.set_len(4096).expect("truncates");
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: ") && text.contains("became shorter") && text.lines().count() == 1, "{text}");
}
