//! `/tokenize` and `/detokenize`, in vLLM's form, and `/v1/models`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::axum_json;
use super::app::{App, blocking};
use super::body::read_body;
use super::chat::{conversation, prompt};
use super::completions::text;
use super::error::ApiError;
use super::messages::{Message, tools};
use super::parameters::read;
use crate::checkpoint::ChatValue;

/// The body of `/tokenize`: a text or a conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    add_special_tokens: Option<bool>,
    messages: Option<Vec<Message>>,
    tools: Option<Vec<ChatValue>>,
    add_generation_prompt: Option<bool>,
    chat_template_kwargs: Option<BTreeMap<String, ChatValue>>,
}

/// The body of `/detokenize`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DetokenizeBody {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// Gives the tokens of a text or of a conversation.
pub async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(body, &app.options.limits).await?;
    let ids = blocking(&app, move |app| ids(app, read(&body)?)).await?;
    let count = ids.len();
    Ok(axum_json(&json!({ "count": count, "max_model_len": app.context(), "tokens": ids })))
}

fn ids(app: &App, body: TokenizeBody) -> Result<Vec<u32>, ApiError> {
    app.check_model(body.model.as_deref())?;
    let of_chat = body.tools.is_some() || body.add_generation_prompt.is_some() || body.chat_template_kwargs.is_some();
    let whole = match (body.prompt, body.messages) {
        (Some(_), None) if of_chat => {
            return Err(ApiError::parameter("prompt", "takes no parameters of a conversation"));
        }
        (Some(text), None) if body.add_special_tokens == Some(false) => return Ok(app.engine.plain_ids(&text)?),
        (Some(text), None) => return Ok(app.engine.prompt_ids(&text)?),
        (None, Some(_)) if body.add_special_tokens == Some(true) => {
            let reason = "must not be true with `messages`: the template writes special tokens";
            return Err(ApiError::parameter("add_special_tokens", reason));
        }
        (None, Some(messages)) => {
            let tools = tools(body.tools.unwrap_or_default())?;
            let mut whole = conversation(messages, tools, body.chat_template_kwargs.unwrap_or_default());
            whole.add_generation_prompt = body.add_generation_prompt.unwrap_or(whole.add_generation_prompt);
            whole
        }
        _ => return Err(ApiError::parameter("prompt", "or `messages` is needed, and not both")),
    };
    Ok(app.engine.tokenizer().encode_plain(&prompt(app, whole)?)?)
}

/// Gives the text of tokens.
pub async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(body, &app.options.limits).await?;
    let text = blocking(&app, move |app| {
        let DetokenizeBody { model, tokens } = read(&body)?;
        app.check_model(model.as_deref())?;
        text(app, "tokens", &tokens)
    });
    Ok(axum_json(&json!({ "prompt": text.await? })))
}

/// Lists the model.
pub async fn models(State(app): State<Arc<App>>) -> Response {
    axum_json(&json!({ "object": "list", "data": [model(&app)] }))
}

/// Describes the model of that name, which may have slashes.
pub async fn model_of(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, ApiError> {
    app.check_model(Some(&name))?;
    Ok(axum_json(&model(&app)))
}

fn model(app: &App) -> Value {
    json!({
        "id": app.options.model,
        "object": "model",
        "created": app.started,
        "owned_by": "tilewright",
        "max_model_len": app.context(),
    })
}
