//! `/v1/chat/completions`: conversations, by the checkpoint's own template.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{Answer, Head, Streaming, finish, respond};
use super::app::{App, RequestId, blocking};
use super::body::read_body;
use super::completions::streaming;
use super::error::ApiError;
use super::generation::{Ended, Job, Piece};
use super::logprobs::ChatLogprob;
use super::messages::{Message, tools};
use super::parameters::{ChatBody, ToolChoice, check_logprobs, read};
use super::parts::{FunctionCall, ReplyPart};
use super::reply::{CallFormat, ReplyFormat, ReplyParser};
use crate::checkpoint::{ChatValue, Conversation};
use crate::engine::TextRules;

/// Handles a request.
pub async fn chat_completions(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body(body, &app.options.limits).await?;
    let asked = blocking(&app, move |app| Asked::new(app, id, read(&body)?)).await?;
    let Asked { job, format, end_of_prompt, single_call, streaming } = asked;
    let states = (0..job.choosing.choices).map(|_| ChatState::new(format, &end_of_prompt)).collect();
    let choices = job.start(&app).await?;
    let head = Head { id: app.unique("chatcmpl-"), model: app.options.model.clone() };
    respond(Chats { rules: CallRules { app, format, single_call }, states }, head, choices, streaming).await
}

/// A request that was read and checked.
struct Asked {
    job: Job,
    format: ReplyFormat,
    /// The last characters of the prompt.
    end_of_prompt: String,
    /// Whether calls after the first are left out.
    single_call: bool,
    streaming: Option<Streaming>,
}

/// Characters of a prompt's end that say whether the model already thinks.
const END_OF_PROMPT: usize = 16;

impl Asked {
    fn new(app: &App, id: RequestId, mut body: ChatBody) -> Result<Asked, ApiError> {
        app.check_model(body.model.as_deref())?;
        id.log_user(body.user.as_deref());
        let mut choosing = body.shared().choosing(app.engine.checkpoint())?;
        let logprobs = logprobs(body.logprobs, body.top_logprobs)?;
        let streaming = streaming(body.stream, body.stream_options)?;
        let max_tokens = match (body.max_completion_tokens, body.max_tokens) {
            (Some(_), Some(_)) => {
                return Err(ApiError::parameter("max_tokens", "must be left out with `max_completion_tokens`"));
            }
            (newer, older) => newer.or(older),
        };
        let tools = chosen_tools(body.tools, body.tool_choice)?;
        // Without tools, what looks like a call is text.
        let format = ReplyFormat { calls: app.format.calls.filter(|_| tools.is_some()), ..app.format };
        if tools.is_some() && format.calls.is_none() {
            let reason =
                "cannot be used: the checkpoint's chat template has no calls, or writes them in an unknown way";
            return Err(ApiError::parameter("tools", reason));
        }
        let kwargs = body.chat_template_kwargs.unwrap_or_default();
        let text = prompt(app, conversation(body.messages, tools, kwargs))?;
        let marks = format.marks(app.engine.tokenizer());
        choosing.text = TextRules { shown: marks, ..choosing.text };
        let prompts = vec![app.engine.tokenizer().encode_plain(&text)?];
        let begin = text.char_indices().rev().nth(END_OF_PROMPT).map_or(0, |(at, _)| at);
        let end_of_prompt = text[begin..].to_owned();
        let single_call = body.parallel_tool_calls == Some(false);
        let job = Job { id, prompts, choosing, max_tokens, logprobs };
        Ok(Asked { job, format, end_of_prompt, single_call, streaming })
    }
}

/// A conversation as a template reads it.
pub fn conversation(
    messages: Vec<Message>,
    tools: Option<ChatValue>,
    variables: impl IntoIterator<Item = (String, ChatValue)>,
) -> Conversation {
    let mut conversation = Conversation::new(messages.into_iter().map(Message::into_chat));
    conversation.tools = tools;
    for (name, value) in variables {
        if name == "add_generation_prompt" {
            conversation.add_generation_prompt = value == true.into();
        }
        conversation.variables.insert(name, value);
    }
    conversation
}

/// The text of a conversation.
///
/// # Errors
/// As [`Engine::chat_ids`](crate::Engine::chat_ids).
pub fn prompt(app: &App, conversation: Conversation) -> Result<String, ApiError> {
    if conversation.messages.is_empty() {
        return Err(ApiError::parameter("messages", "must have at least one message"));
    }
    if app.engine.checkpoint().chat_template().is_none() {
        let reason = "cannot be used: the checkpoint has no chat template; /v1/completions continues texts";
        return Err(ApiError::parameter("messages", reason));
    }
    Ok(app.engine.chat_text(&conversation)?)
}

fn logprobs(wanted: Option<bool>, top: Option<usize>) -> Result<Option<usize>, ApiError> {
    match (wanted.unwrap_or_default(), top) {
        (true, top) => Ok(Some(check_logprobs("top_logprobs", top.unwrap_or_default())?)),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::parameter("top_logprobs", "is for log probabilities; set `logprobs` to true"))
        }
    }
}

/// The tools that the model may call.
fn chosen_tools(given: Option<Vec<ChatValue>>, choice: Option<ToolChoice>) -> Result<Option<ChatValue>, ApiError> {
    let tools = tools(given.unwrap_or_default())?;
    let refused = |reason: &str| Err(ApiError::parameter("tool_choice", reason));
    match choice {
        None => Ok(tools),
        Some(ToolChoice::Mode(mode)) => match mode.as_str() {
            "none" => Ok(None),
            "auto" if tools.is_none() => refused("needs `tools`"),
            "auto" => Ok(tools),
            "required" => refused("must be \"auto\" or \"none\": a call is not enforced"),
            _ => refused("must be \"auto\" or \"none\""),
        },
        Some(ToolChoice::Function(named)) => {
            let name = named.get("function").and_then(|function| function.get("name"));
            let name = name.as_ref().and_then(ChatValue::as_str).unwrap_or_default();
            refused(&format!("must be \"auto\" or \"none\": the call of {name:?} is not enforced"))
        }
    }
}

/// Answers of this endpoint.
struct Chats {
    rules: CallRules,
    states: Vec<ChatState>,
}

/// How calls are named, and how many there may be.
struct CallRules {
    app: Arc<App>,
    format: ReplyFormat,
    single_call: bool,
}

/// A choice so far.
struct ChatState {
    parser: ReplyParser,
    calls: usize,
    has_begun: bool,
    /// Log probabilities of tokens whose text is held back.
    held: Vec<ChatLogprob>,
}

/// A part of a choice.
#[derive(Default)]
struct ChatPart {
    begins: bool,
    content: Option<String>,
    reasoning: Option<String>,
    calls: Vec<Call>,
    logprobs: Vec<ChatLogprob>,
    end: Option<Ended>,
    /// Whether the choice has calls, where it ends.
    called: bool,
}

/// A call of a choice.
struct Call {
    id: String,
    index: usize,
    function: FunctionCall,
}

impl ChatState {
    fn new(format: ReplyFormat, prompt: &str) -> ChatState {
        ChatState { parser: ReplyParser::new(format, prompt), calls: 0, has_begun: false, held: Vec::new() }
    }
}

impl CallRules {
    /// The identity of a call: nine letters and digits where templates of Mistral want them.
    fn call_id(&self) -> String {
        match self.format.calls {
            Some(CallFormat::ToolCalls) => self.app.unique("")[..9].to_owned(),
            _ => self.app.unique("call_"),
        }
    }

    fn part(&self, state: &mut ChatState, part: ReplyPart) -> Option<ChatPart> {
        match part {
            ReplyPart::Content(text) => Some(ChatPart { content: Some(text), ..ChatPart::default() }),
            ReplyPart::Reasoning(text) => Some(ChatPart { reasoning: Some(text), ..ChatPart::default() }),
            ReplyPart::Call(_) if self.single_call && state.calls > 0 => None,
            ReplyPart::Call(function) => {
                let index = state.calls;
                state.calls += 1;
                Some(ChatPart { calls: vec![Call { id: self.call_id(), index, function }], ..ChatPart::default() })
            }
        }
    }
}

impl Answer for Chats {
    type Part = ChatPart;

    const OBJECTS: [&'static str; 2] = ["chat.completion", "chat.completion.chunk"];

    fn parts(&mut self, piece: Piece) -> Vec<ChatPart> {
        let Some(state) = self.states.get_mut(piece.choice) else { return Vec::new() };
        let mut replies = state.parser.push(&piece.text);
        if piece.end.is_some() {
            replies.extend(state.parser.finish());
        }
        let tokenizer = self.rules.app.engine.tokenizer();
        state.held.extend(piece.token.and_then(|token| ChatLogprob::of(tokenizer, &token)));
        let begins = !std::mem::replace(&mut state.has_begun, true);
        let mut parts: Vec<ChatPart> = Vec::new();
        parts.extend(begins.then(|| ChatPart { begins, ..ChatPart::default() }));
        parts.extend(replies.into_iter().filter_map(|reply| self.rules.part(state, reply)));
        if piece.end.is_some() {
            parts.push(ChatPart { end: piece.end, called: state.calls > 0, ..ChatPart::default() });
        }
        if let Some(last) = parts.last_mut().filter(|part| !part.begins) {
            last.logprobs = std::mem::take(&mut state.held);
        }
        parts
    }

    fn join(whole: &mut ChatPart, later: ChatPart) {
        let append = |text: &mut Option<String>, later: Option<String>| match (text.as_mut(), later) {
            (Some(text), Some(later)) => text.push_str(&later),
            (None, later) => *text = later,
            (Some(_), None) => {}
        };
        append(&mut whole.content, later.content);
        append(&mut whole.reasoning, later.reasoning);
        whole.calls.extend(later.calls);
        whole.logprobs.extend(later.logprobs);
        whole.end = later.end.or(whole.end.take());
        whole.called |= later.called;
    }

    fn choice(index: usize, whole: &ChatPart) -> Value {
        let calls: Vec<Value> = whole.calls.iter().map(Call::object).collect();
        let content = whole.content.as_deref().or(calls.is_empty().then_some(""));
        let mut message = json!({ "role": "assistant", "content": content });
        if let Some(reasoning) = &whole.reasoning {
            message["reasoning_content"] = reasoning.as_str().into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        with_end(json!({ "index": index, "message": message }), whole)
    }

    fn chunk(index: usize, part: &ChatPart) -> Value {
        let mut delta = json!({});
        if part.begins {
            delta = json!({ "role": "assistant", "content": "" });
        }
        if let Some(content) = &part.content {
            delta["content"] = content.as_str().into();
        }
        if let Some(reasoning) = &part.reasoning {
            delta["reasoning_content"] = reasoning.as_str().into();
        }
        if !part.calls.is_empty() {
            delta["tool_calls"] = part.calls.iter().map(Call::delta).collect::<Vec<_>>().into();
        }
        with_end(json!({ "index": index, "delta": delta }), part)
    }
}

/// Adds log probabilities and the reason of the end.
fn with_end(mut choice: Value, part: &ChatPart) -> Value {
    let (finish_reason, stop_reason) = finish(part.end.as_ref());
    let logprobs = (!part.logprobs.is_empty()).then(|| json!({ "content": part.logprobs }));
    choice["logprobs"] = logprobs.unwrap_or_default();
    choice["finish_reason"] = if part.called && finish_reason == "stop" { "tool_calls".into() } else { finish_reason };
    choice["stop_reason"] = stop_reason;
    choice
}

impl Call {
    fn object(&self) -> Value {
        let Call { id, function: FunctionCall { name, arguments }, .. } = self;
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    fn delta(&self) -> Value {
        let mut delta = self.object();
        delta["index"] = self.index.into();
        delta
    }
}
