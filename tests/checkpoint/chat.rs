//! Chat templates beside what Jinja2 makes of them, and templates that are broken.

use std::collections::BTreeMap;

use serde::Deserialize;
use tilewright::checkpoint::{ChatError, ChatTemplate, Message};

/// `tests/data/chat.json`: templates, conversations, and the texts that Jinja2 makes with the settings of transformers.
#[derive(Deserialize)]
struct Golden {
    parts: BTreeMap<String, String>,
    templates: BTreeMap<String, String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<(String, String)>,
    text: Option<String>,
    refused: Option<String>,
}

const FILE: &str = "chat_template.jinja";

fn render(source: &str) -> Result<String, ChatError> {
    ChatTemplate::new(FILE, source, BTreeMap::new()).render(&[Message::new("user", "hi")])
}

#[test]
fn templates_give_the_texts_of_jinja() {
    let golden: Golden = serde_json::from_str(include_str!("../data/chat.json")).expect("JSON");
    assert_eq!(golden.cases.len(), 32);
    for case in &golden.cases {
        let parts =
            [("bos_token", golden.parts["bos_token"].clone()), ("eos_token", golden.parts["eos_token"].clone())];
        let template = ChatTemplate::new(FILE, &golden.templates[&case.template], parts.into());
        let messages: Vec<Message> = case.messages.iter().map(|(role, text)| Message::new(role, text)).collect();
        let found = template.render(&messages);
        match (&case.text, &case.refused) {
            (Some(text), _) => assert_eq!(found.as_deref(), Ok(text.as_str()), "{} of {messages:?}", case.template),
            (None, reason) => {
                let reason = reason.clone().expect("a text or a refusal");
                assert_eq!(found, Err(ChatError::Refused { file: FILE, reason }), "{}", case.template);
            }
        }
    }
}

#[test]
fn broken_templates_are_one_line() {
    let error = |source: &str| render(source).expect_err("it is broken");
    insta::assert_snapshot!(error("a\n{% for m in messages %}"), @"chat template of chat_template.jinja cannot be read: syntax error: unexpected end of input, expected end of block (line 2)");
    insta::assert_snapshot!(error("{{ messages | tojson }}"), @"chat template of chat_template.jinja cannot be run: unknown filter: filter tojson is unknown (line 1)");
    insta::assert_snapshot!(error("{{ no_function() }}"), @"chat template of chat_template.jinja cannot be run: unknown function: no_function is unknown (line 1)");
    insta::assert_snapshot!(error("{{ messages[0].nothing.more }}"), @"chat template of chat_template.jinja cannot be run: undefined value: `messages[0].nothing` is undefined (line 1)");
    insta::assert_snapshot!(error("{{ raise_exception('only tools') }}"), @"chat template of chat_template.jinja refuses the messages: only tools");
    insta::assert_snapshot!(error("{{ strftime_now('%!') }}"), @r#"chat template of chat_template.jinja cannot be run: invalid operation: strftime_now has no format "%!" (line 1)"#);
    insta::assert_snapshot!(error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"), @"chat template of chat_template.jinja cannot be run: engine ran out of fuel (line 1)");
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
