//! Chat templates compared with what Jinja2 makes of them, and templates that are malformed or
//! hostile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde::Deserialize;
use tilewright::checkpoint::{ChatError, ChatMessage, ChatTemplate, ChatValue, Conversation};

const FILE: &str = "chat_template.jinja";

fn render_as(source: &str, conversation: &Conversation) -> Result<String, ChatError> {
    let tokens = [("bos_token", "<s>".to_owned()), ("eos_token", "</s>".to_owned())];
    ChatTemplate::new(FILE, source, tokens.into()).render(conversation)
}

fn render(source: &str) -> Result<String, ChatError> {
    let conversation = Conversation::new([ChatMessage::new("user", "hi")]);
    ChatTemplate::new(FILE, source, BTreeMap::new()).render(&conversation)
}

/// The texts of a folder of the tests, by the names of the files without their extension.
fn texts(folder: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.map(|path| (name(&path), fs::read_to_string(&path).expect("a text"))).collect()
}

/// The result of Jinja2 for a template and a conversation: a text, a refusal, or neither if it
/// failed.
#[derive(Deserialize)]
struct Expected {
    text: Option<String>,
    refused: Option<String>,
}

/// `tests/golden/chat/make.py` makes the expected texts by Jinja2 with the arguments of
/// transformers.
#[test]
fn templates_in_the_style_of_published_models_render_as_by_jinja2() {
    let expected: BTreeMap<String, BTreeMap<String, Expected>> =
        serde_json::from_str(include_str!("../golden/chat/expected.json")).expect("JSON");
    let variables: BTreeMap<String, BTreeMap<String, ChatValue>> =
        serde_json::from_str(include_str!("../golden/chat/variables.json")).expect("JSON");
    let templates = texts("golden/chat/templates");
    let conversations = texts("golden/chat/conversations");
    assert!(expected.keys().eq(templates.keys()) && templates.len() >= 40, "run make.py again");
    let mut wrong = Vec::new();
    let mut rendered = 0;
    for (name, of_template) in &expected {
        assert!(of_template.keys().eq(conversations.keys()), "run make.py again");
        for (which, expected) in of_template {
            let mut conversation = Conversation::from_json(&conversations[which]).expect(which);
            conversation.variables = variables.get(which).cloned().unwrap_or_default();
            let found = render_as(&templates[name], &conversation);
            let is_right = match (&expected.text, &expected.refused) {
                (Some(text), _) => found.as_deref() == Ok(text),
                (None, Some(reason)) => {
                    matches!(&found, Err(ChatError::Refused { reason: found, .. }) if found == reason)
                }
                // Where Python fails on a type, the engine may be lenient.
                (None, None) => true,
            };
            rendered += usize::from(is_right);
            if !is_right {
                wrong.push(format!("{name} of {which}:\n{:?}\n{found:?}\n", expected.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), wrong.len() + rendered, wrong.join("\n"));
}

#[test]
fn tools_and_documents_are_none_when_absent_and_variables_override_tokens() {
    let conversation = Conversation::new([ChatMessage::new("user", "hi")]);
    let source = "{{ tools is none }} {{ documents is none }} {{ enable_thinking is defined }} {{ eos_token }}";
    assert_eq!(render_as(source, &conversation).as_deref(), Ok("True True False </s>"));
    let given = conversation.clone().with_variable("enable_thinking", false).with_variable("eos_token", "<end>");
    assert_eq!(render_as(source, &given).as_deref(), Ok("True True True <end>"));
    let tools =
        Conversation { tools: Some(ChatValue::from_json(r#"[{"b": 1, "a": "<é>"}]"#).expect("JSON")), ..conversation };
    assert_eq!(render_as("{{ tools | tojson }}", &tools).as_deref(), Ok(r#"[{"b": 1, "a": "<é>"}]"#));
}

/// Every template of `tests/data/hostile_chat`, and others of its kinds, is one error line within
/// seconds.
#[test]
fn hostile_templates_are_one_line_in_bounded_time() {
    let chain = |one: &str| format!("{{{{ messages{} }}}}", one.repeat(120_000 / one.len()));
    let mut hostile = texts("data/hostile_chat");
    assert_eq!(hostile.len(), 6);
    for one in ["|trim", "~'a'", ".a", "[0]", " and 1", "-1", "()"] {
        hostile.insert(format!("a chain of {one}"), chain(one));
    }
    let nested = |open: &str, close: &str| format!("{{{{ {}1{} }}}}", open.repeat(50_000), close.repeat(50_000));
    for (open, close) in [("not ", ""), ("-", ""), ("(", ")"), ("[", "]"), ("{1:", "}"), ("f(", ")")] {
        hostile.insert(format!("nested {open}"), nested(open, close));
    }
    let ns = "{% set ns = namespace(x=[], s='aaaaaaaa') %}";
    let more = [
        ("cycle in a list", "{% set ns.x = [[ns]] %}{{ ns.x }}"),
        ("cycle in a map", "{% set ns.x = {'a': ns} %}{{ ns }}"),
        ("cycle by a tuple target", "{% set a, ns.x = 1, ns %}{{ ns }}"),
        ("cycle by a block", "{% set ns.x | default(ns, true) %}{% endset %}{{ ns }}"),
        ("two namespaces", "{% set m = namespace() %}{% set m.x = ns %}{% set ns.x = m %}{{ ns }}"),
        ("doubling texts", "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"),
        (
            "doubling by join",
            "{% for i in range(60) %}{% set ns.s = ','.join([ns.s, ns.s, ns.s]) %}{% endfor %}{{ ns.s }}",
        ),
        (
            "doubling by format",
            "{% for i in range(60) %}{% set ns.s = '%s%s' | format(ns.s, ns.s) %}{% endfor %}{{ ns.s }}",
        ),
        ("a wide str.format", "{{ '{:>999999999}'.format(1) }}"),
        ("a wide argument of str.format", "{{ '{:>{}}'.format(1, 999999999) }}"),
        ("splits", "{% for i in range(23) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s.split('a') | length }}"),
        ("lines", "{% for i in range(60) %}{% set ns.s = ns.s ~ '\n' ~ ns.s %}{% endfor %}{{ ns.s.splitlines() }}"),
        ("a product", "{{ 'a' * 99999999999 }}"),
        ("nested lists as JSON", "{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}"),
        ("indented JSON", "{{ range(99999) | list | tojson(indent=' ' * 100000) }}"),
        ("endless macros", "{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}"),
        ("endless loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        ("a long date", "{{ strftime_now('%c' * 100000) }}"),
    ];
    hostile.extend(more.map(|(name, source)| (name.to_owned(), format!("{ns}{source}"))));
    hostile.insert("elifs".to_owned(), format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(20_000)));
    hostile.insert("a large template".to_owned(), "a".repeat(10 << 20));
    hostile.insert("nested blocks".to_owned(), "{% if 1 %}".repeat(20_000));
    for (name, source) in hostile {
        let started = Instant::now();
        let error = render(&source).expect_err(&name).to_string();
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
        assert!(error.len() < 400, "{name}: {error}");
        assert!(started.elapsed() < Duration::from_secs(20), "{name} took {:?}", started.elapsed());
    }
}

/// Nesting that the template's own text spells out is bounded by its size alone.
#[test]
fn values_nested_by_a_long_template_fit_the_stack() {
    let assignments: String = (0..9000).map(|at| format!("{{% set a{} = [a{at}] %}}\n", at + 1)).collect();
    let text = render(&format!("{{% set a0 = [1] %}}{assignments}{{{{ a9000 }}}}{{{{ a9000 == a8999 }}}}"));
    assert!(text.expect("renders").ends_with("]False"));
}

#[test]
fn a_long_conversation_is_within_the_bounds() {
    let long = "word ".repeat(100_000);
    let turns = (0..40).map(|at| ChatMessage::new(if at % 2 == 0 { "user" } else { "assistant" }, &long));
    let template = &texts("golden/chat/templates")["im_thinking"];
    let text = render_as(template, &Conversation::new(turns)).expect("renders");
    assert!(text.len() > 20_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("TILEWRIGHT_LONG").is_some() { 20_000 } else { 400 }))]

    /// Parts of the golden and the hostile templates, cut and joined anywhere: a text or one line,
    /// never a panic.
    #[test]
    fn mutated_templates_render_or_fail_on_one_line(
        cuts in prop::collection::vec((0usize..64, 0usize..4000, 0usize..200), 1..8),
        joint in prop::sample::select(vec!["", "{% set ns.x = ns %}", "{{", "%}", "|tojson", "'", "{% raw %}", "{#", "~"]),
    ) {
        let golden = texts("golden/chat/templates");
        let hostile = texts("data/hostile_chat");
        let sources: Vec<&String> = golden.values().chain(hostile.values()).collect();
        let piece = |&(which, at, len): &(usize, usize, usize)| -> String {
            let source = sources[which % sources.len()];
            source.chars().skip(at % source.len()).take(len).collect()
        };
        let source = cuts.iter().map(piece).collect::<Vec<_>>().join(joint);
        if let Err(error) = render(&source) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn any_text_renders_or_fails_on_one_line(source in "(\\{\\{|\\}\\}|\\{%|%\\}|\\PC|ns|set|for|in|messages|\\||~|\\.|\\(|\\)){0,60}") {
        if let Err(error) = render(&source) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}

#[test]
fn conversations_of_another_form_are_named() {
    let error = |text: &str| Conversation::from_json(text).expect_err("is malformed").to_string();
    insta::assert_snapshot!(error("{"), @"the messages are not valid JSON: EOF while parsing an object at line 1 column 1");
    insta::assert_snapshot!(error("7"), @r#"the conversation must be a list of messages, or an object with "messages""#);
    insta::assert_snapshot!(error(r#"["hi"]"#), @"messages[0] must be an object with a role");
    insta::assert_snapshot!(error(r#"[{"role": "user"}, {"content": "hi"}]"#), @r#"messages[1].role must be a text, such as "user""#);
    insta::assert_snapshot!(error(r#"{"messages": [], "tools": {}}"#), @"tools must be a list, or null");
    insta::assert_snapshot!(error(r#"{"messages": [], "enable_thinking": true}"#), @r#"key "enable_thinking" must be messages, tools, documents or add_generation_prompt (a template's own variables are given with --template-var, or as `Conversation::variables`)"#);
    insta::assert_snapshot!(error(r#"[{"role": "user", "role": "user"}]"#), @r#"the messages are not valid JSON: key "role" appears twice at line 1 column 24"#);
    assert!(error(&"[".repeat(100_000)).contains("recursion limit exceeded"));
}

#[test]
fn broken_templates_are_one_line() {
    let error = |source: &str| render(source).expect_err("it is broken");
    insta::assert_snapshot!(error("a\n{% for m in messages %}"), @"chat template of chat_template.jinja cannot be read: syntax error: unexpected end of input, expected end of block (line 2)");
    insta::assert_snapshot!(error("{{ no_function() }}"), @"chat template of chat_template.jinja cannot be run: unknown function: no_function is unknown (line 1)");
    insta::assert_snapshot!(error("{{ messages[0].nothing.more }}"), @"chat template of chat_template.jinja cannot be run: undefined value: `messages[0].nothing` is undefined (line 1)");
    insta::assert_snapshot!(error("{{ raise_exception('only tools') }}"), @"chat template of chat_template.jinja refuses the messages: only tools");
    insta::assert_snapshot!(error("{{ strftime_now('%!') }}"), @r#"chat template of chat_template.jinja cannot be run: invalid operation: strftime_now has no format "%!" (line 1)"#);
    insta::assert_snapshot!(error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"), @"chat template of chat_template.jinja cannot be run: it does more work than a conversation of this size allows (line 1)");
    assert!(error("{% include 'x' %}").to_string().lines().count() == 1);
}

#[test]
fn the_date_is_that_of_today() {
    let year = render("{{ strftime_now('%Y') }}").expect("renders");
    assert!(year.len() == 4 && year.parse::<u32>().expect("a year") >= 2026, "{year}");
    let date = render("{{ strftime_now('%d %b %Y') }}").expect("renders");
    assert_eq!((date.len(), date.matches(' ').count()), (11, 2), "{date}");
}

#[test]
fn blocks_that_mark_what_an_assistant_said_change_nothing() {
    let marked = "{% for m in messages %}{%- generation -%} {{ m.content }}\n{%- endgeneration %}.{% endfor %}";
    let plain = "{% for m in messages %}{%- if true -%} {{ m.content }}\n{%- endif %}.{% endfor %}";
    assert_eq!(render(marked), render(plain));
    assert_eq!(render("{% unfinished"), render("{% unfinished"));
    assert_eq!(render("{{ 'generation' }}{% if false %}{% endif %}"), Ok("generation".to_owned()));
}
