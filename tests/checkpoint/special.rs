//! The files beside `tokenizer.json` and `config.json`: special tokens that it lacks, settings of
//! generation, templates.

use std::fs;

use serde_json::{Value, json};
use tilewright::checkpoint::{ChatError, ChatMessage, ChatValue, Conversation, GenerationSettings};

use crate::folder::{Folder, byte_level_tokenizer};

/// The synthetic checkpoint, whose vocabulary of 32 leaves eight rows of the embedding free.
fn folder(file: &str, text: Value) -> Folder {
    let folder = Folder::synthetic();
    folder.write(file, text.to_string());
    folder
}

fn token(content: &str, special: bool) -> Value {
    json!({"content": content, "special": special, "lstrip": false, "rstrip": false, "single_word": false,
        "normalized": false})
}

/// Ids of a text, and the text of the ids.
fn read(folder: &Folder, text: &str) -> (Vec<u32>, String) {
    let checkpoint = folder.open().unwrap();
    let ids = checkpoint.tokenizer().encode(text).unwrap();
    let text = checkpoint.tokenizer().decode(&ids).unwrap();
    (ids, text)
}

#[test]
fn special_tokens_of_tokenizer_config_become_tokens() {
    let bare = read(&Folder::synthetic(), "the");
    assert_eq!(bare, (vec![0, 31], "the".to_owned()));
    let added = json!({"added_tokens_decoder": {"33": token("<plain>", false), "32": token("<turn>", true)}});
    let folder = folder("tokenizer_config.json", added);
    assert_eq!(read(&folder, "the<turn>the<plain>"), (vec![0, 31, 32, 31, 33], "thethe<plain>".to_owned()));
    assert!(folder.open().unwrap().notes().is_empty());
}

#[test]
fn added_tokens_become_tokens_and_the_map_makes_them_special() {
    let folder = folder("added_tokens.json", json!({"<b>": 33, "<a>": 32}));
    assert_eq!(read(&folder, "<a><b>"), (vec![0, 32, 33], "<a><b>".to_owned()));
    folder.write(
        "special_tokens_map.json",
        json!({"additional_special_tokens": ["<a>", token("<b>", true)]}).to_string(),
    );
    assert_eq!(read(&folder, "<a>the<b>"), (vec![0, 32, 31, 33], "the".to_owned()));
}

/// A token of the vocabulary that only the map calls special is found in a text as it is, and left
/// out of decoded text.
#[test]
fn a_token_of_the_vocabulary_becomes_special() {
    let folder = folder("special_tokens_map.json", json!({"sep_token": "th"}));
    assert_eq!(read(&folder, "the"), (vec![0, 30, 7], "e".to_owned()));
}

#[test]
fn a_special_token_without_an_id_is_said() {
    let folder =
        folder("special_tokens_map.json", json!({"pad_token": {"content": "[PAD]"}, "bos_token": "<|begin|>"}));
    folder.write("tokenizer_config.json", json!({"pad_token": "[PAD]", "unk_token": null}).to_string());
    let notes = folder.open().unwrap().notes().to_vec();
    assert_eq!(notes, [r#"tokenizer_config.json has pad_token "[PAD]", which no vocabulary has; it is left out"#]);
}

#[test]
fn ids_that_contradict_the_tokenizer_are_refused() {
    let error = |file: &str, text: Value| folder(file, text).error();
    insta::assert_snapshot!(error("added_tokens.json", json!({"the": 32})), @r#"tokenizer DIR/tokenizer.json cannot be used: token "the" has id 32 in added_tokens.json; by tokenizer.json it is 31; they must agree"#);
    insta::assert_snapshot!(error("added_tokens.json", json!({"<new>": 5})), @r#"tokenizer DIR/tokenizer.json cannot be used: token "<new>" has id 5 in added_tokens.json; by tokenizer.json that is the id of "c"; they must agree"#);
    insta::assert_snapshot!(error("added_tokens.json", json!({"<new>": 34})), @r#"tokenizer DIR/tokenizer.json cannot be used: token "<new>" has id 34 in added_tokens.json; by tokenizer.json it is 32; they must agree"#);
    insta::assert_snapshot!(error("added_tokens.json", json!({"<new>": 40})), @r#"tokenizer DIR/tokenizer.json cannot be used: token "<new>" has id 40; the embedding has 40 rows, so ids must be less"#);
    insta::assert_snapshot!(error("tokenizer_config.json", json!({"added_tokens_decoder": {"32": token("<a>", true)}, "chat_template": 7})), @"configuration DIR/tokenizer_config.json cannot be used: key chat_template is 7; it must be a text, or a list of texts with names (`name` and `template`)");
}

#[test]
fn malformed_files_are_refused() {
    let error = |file: &str, text: Value| folder(file, text).error();
    insta::assert_snapshot!(error("added_tokens.json", json!({"<new>": -1})), @"configuration DIR/added_tokens.json cannot be used: key <new> is -1; it must be a token id");
    insta::assert_snapshot!(error("special_tokens_map.json", json!(["<s>"])), @r#"configuration DIR/special_tokens_map.json cannot be used: configuration is ["<s>"]; it must be a JSON object"#);
    insta::assert_snapshot!(error("special_tokens_map.json", json!({"bos_token": 1})), @"configuration DIR/special_tokens_map.json cannot be used: key bos_token is 1; it must be a token, as text or as an object with its content");
    insta::assert_snapshot!(error("tokenizer_config.json", json!({"added_tokens_decoder": {"x": "<a>"}})), @r#"configuration DIR/tokenizer_config.json cannot be used: key added_tokens_decoder.x is "<a>"; it must be a token with its content, under its id"#);
    let folder = Folder::synthetic();
    folder.write("tokenizer_config.json", "{");
    insta::assert_snapshot!(folder.error(), @"file DIR/tokenizer_config.json is not valid JSON: EOF while parsing an object at line 1 column 1");
}

#[test]
fn settings_of_generation_are_said_whether_they_are_applied_or_not() {
    let open = |text: Value| folder("generation_config.json", text).open().unwrap();
    let checkpoint =
        open(json!({"eos_token_id": 1, "repetition_penalty": 1.1, "suppress_tokens": [5, 6], "temperature": 0.7,
        "no_repeat_ngram_size": 3, "min_length": 9}));
    let settings = checkpoint.generation();
    assert_eq!((settings.repetition_penalty, settings.no_repeat_ngram_size), (Some(1.1), 3));
    assert_eq!(settings.suppress_tokens, [5, 6]);
    assert_eq!(checkpoint.notes().len(), 2);
    insta::assert_snapshot!(checkpoint.notes()[0], @"generation_config.json has no_repeat_ngram_size 3 and repetition_penalty 1.1 and suppress_tokens [5,6]; `generate` applies them to logits, on the host");
    insta::assert_snapshot!(checkpoint.notes()[1], @"generation_config.json has min_length 9, which transformers applies; not applied here");
    // What does not fit is not applied.
    let odd = open(json!({"repetition_penalty": -1.0, "suppress_tokens": ["a"], "no_repeat_ngram_size": 2.5}));
    assert_eq!(odd.generation(), &GenerationSettings::default());
    insta::assert_snapshot!(odd.notes()[0], @r#"generation_config.json has no_repeat_ngram_size 2.5 and repetition_penalty -1.0 and suppress_tokens ["a"], which transformers applies; not applied here"#);
    let neutral = json!({"eos_token_id": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "suppress_tokens": null,
        "bad_words_ids": [], "num_beams": 1, "do_sample": true, "top_p": 0.9, "transformers_version": "5"});
    let neutral = open(neutral);
    assert!(neutral.notes().is_empty() && *neutral.generation() == GenerationSettings::default());
}

#[test]
fn an_end_that_is_null_is_said() {
    let folder = folder("generation_config.json", json!({"eos_token_id": null}));
    let checkpoint = folder.open().unwrap();
    assert_eq!(checkpoint.eos_ids(), [1]);
    insta::assert_snapshot!(checkpoint.notes().join("; "), @"generation_config.json has eos_token_id null; the text ends with token 1 of config.json");
    folder.edit("config.json", |config| config["eos_token_id"] = Value::Null);
    let checkpoint = folder.open().unwrap();
    assert!(checkpoint.eos_ids().is_empty());
    insta::assert_snapshot!(checkpoint.notes().join("; "), @"generation_config.json has eos_token_id null, so no token ends the text");
}

/// An adapter would change the weights, so the folder without it is another model.
#[test]
fn a_folder_with_an_adapter_is_refused() {
    let folder = folder("adapter_config.json", json!({"base_model_name_or_path": "someone/base", "r": 8}));
    insta::assert_snapshot!(folder.error(), @r#"folder DIR holds an adapter (adapter_config.json) of base model "someone/base", which would be left out; merge it into its base model, or remove adapter_config.json to run the base model alone"#);
    folder.remove("config.json");
    assert!(folder.error().contains("holds an adapter"));
}

#[cfg(unix)]
#[test]
fn links_that_lead_to_nothing_are_said() {
    let folder = Folder::synthetic();
    for file in ["generation_config.json", "tokenizer_config.json", "model.safetensors", "config.json"] {
        let kept = fs::read(folder.path(file)).unwrap_or_default();
        let _ = fs::remove_file(folder.path(file));
        std::os::unix::fs::symlink("../blobs/0a1b", folder.path(file)).unwrap();
        let expected = format!("file DIR/{file} is a link to ../blobs/0a1b, which does not exist; download that file");
        assert!(folder.error().starts_with(&expected), "{}", folder.error());
        fs::remove_file(folder.path(file)).unwrap();
        if !kept.is_empty() {
            folder.write(file, kept);
        }
    }
    folder.open().unwrap();
}

#[test]
fn a_template_is_taken_from_its_own_file_or_the_tokenizers() {
    let say = |folder: &Folder| {
        let checkpoint = folder.open().unwrap();
        let template = checkpoint.chat_template().ok_or(ChatError::None)?;
        template.render(&Conversation::new([ChatMessage::new("user", "hi")]))
    };
    let folder = Folder::synthetic();
    assert_eq!(say(&folder), Err(ChatError::None));
    let text = "{{ bos_token }}{{ messages[0].content }}{{ pad_token }}";
    let list = json!([{"name": "tool_use", "template": "tools"}, {"name": "default", "template": text}]);
    for template in [json!(text), list] {
        let config = json!({"chat_template": template, "bos_token": {"content": "<|begin|>"}});
        folder.write("tokenizer_config.json", config.to_string());
        assert_eq!(say(&folder).unwrap(), "<|begin|>hi");
    }
    folder.write("special_tokens_map.json", json!({"bos_token": "<|end|>", "pad_token": "<|pad|>"}).to_string());
    assert_eq!(say(&folder).unwrap(), "<|begin|>hi<|pad|>", "tokenizer_config.json has the first say");
    folder.write("chat_template.jinja", "own: {{ messages[0]['role'] }}");
    assert_eq!(say(&folder).unwrap(), "own: user");
    // The text has its special tokens already: none is added.
    let ids = folder.open().unwrap().tokenizer().encode_plain("<|begin|>the").unwrap();
    assert_eq!(ids, [0, 31]);
}

/// The choice of transformers: `tool_use` if there are tools, else `default`; without either, only
/// a conversation fails.
#[test]
fn named_templates_are_chosen_by_the_conversation() {
    let say = |folder: &Folder, conversation: &Conversation| {
        folder.open().expect("a checkpoint").chat_template().expect("has templates").render(conversation)
    };
    let plain = Conversation::new([ChatMessage::new("user", "hi")]);
    let with_tools = Conversation { tools: Some(ChatValue::from_json("[]").expect("JSON")), ..plain.clone() };
    let named = |names: &[&str]| {
        let list: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "template": format!("as {name}")})).collect();
        folder("tokenizer_config.json", json!({"chat_template": list}))
    };
    let both = named(&["default", "tool_use", "rag"]);
    assert_eq!(say(&both, &plain).as_deref(), Ok("as default"));
    assert_eq!(say(&both, &with_tools).as_deref(), Ok("as tool_use"));
    let none = named(&["tool_use", "rag"]);
    assert_eq!(say(&none, &with_tools).as_deref(), Ok("as tool_use"));
    let error = say(&none, &plain).expect_err("has no default");
    insta::assert_snapshot!(error, @r#"chat template of tokenizer_config.json has no template named "default", only "rag", "tool_use"; leave --chat out to continue the prompt as it is"#);
    assert_eq!(read(&none, "the").0, [0, 31]);
    fs::create_dir(both.path("additional_chat_templates")).expect("a folder");
    both.write("additional_chat_templates/tool_use.jinja", "own tools");
    both.write("chat_template.jinja", "own");
    assert_eq!(say(&both, &plain).as_deref(), Ok("own"));
    assert_eq!(say(&both, &with_tools).as_deref(), Ok("own tools"));
}

/// Tokens that a folder lists as its tokenizer has them change nothing.
#[test]
fn files_that_agree_change_nothing() {
    let listed = byte_level_tokenizer()["added_tokens"].as_array().unwrap().clone();
    let listed: serde_json::Map<_, _> = listed.into_iter().map(|token| (token["id"].to_string(), token)).collect();
    let folder = folder("tokenizer_config.json", json!({"added_tokens_decoder": listed, "eos_token": "<|end|>"}));
    folder.write("added_tokens.json", json!({"<|begin|>": 0}).to_string());
    for text in ["the cat", "<|begin|>x<|end|>", ""] {
        assert_eq!(read(&folder, text), read(&Folder::synthetic(), text));
    }
}
