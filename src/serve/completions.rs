//! `/v1/completions`: texts that are continued as they are.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{Answer, Head, Streaming, finish, respond};
use super::app::{App, RequestId, blocking};
use super::body::read_body;
use super::error::ApiError;
use super::generation::{Ended, Job, Piece};
use super::logprobs::TextLogprobs;
use super::parameters::{CompletionBody, MOST_CHOICES, Prompt, StreamOptions, check_logprobs, no_token, read};

/// Tokens of a completion where the request does not say, as OpenAI has it.
const DEFAULT_TOKENS: usize = 16;

/// Handles a request.
pub async fn completions(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body(body, &app.options.limits).await?;
    let asked = blocking(&app, move |app| Asked::new(app, id, read(&body)?)).await?;
    let Asked { job, echoed, streaming } = asked;
    let per_prompt = job.choosing.choices;
    let echoed: Vec<String> = echoed.into_iter().flat_map(|text| vec![text; per_prompt]).collect();
    let choices = job.start(&app).await?;
    let head = Head { id: app.unique("cmpl-"), model: app.options.model.clone() };
    respond(Completions { app, states: echoed.into_iter().map(TextState::new).collect() }, head, choices, streaming)
        .await
}

/// A request that was read and checked.
struct Asked {
    job: Job,
    /// The text before each prompt's choices.
    echoed: Vec<String>,
    streaming: Option<Streaming>,
}

impl Asked {
    fn new(app: &App, id: RequestId, mut body: CompletionBody) -> Result<Asked, ApiError> {
        app.check_model(body.model.as_deref())?;
        id.log_user(body.user.as_deref());
        let choosing = body.shared().choosing(app.engine.checkpoint())?;
        if body.best_of.is_some_and(|best_of| best_of != choosing.choices) {
            return Err(ApiError::parameter("best_of", "must equal `n`: no choice is left out"));
        }
        let echo = body.echo.unwrap_or_default();
        let logprobs = body.logprobs.map(|count| check_logprobs("logprobs", count)).transpose()?;
        if echo && logprobs.is_some() {
            return Err(ApiError::parameter("logprobs", "must be left out with `echo`: prompts have none here"));
        }
        let (prompts, texts) = prompts(app, body.prompt, echo)?;
        let max_tokens = Some(body.max_tokens.unwrap_or(DEFAULT_TOKENS));
        let job = Job { id, prompts, choosing, max_tokens, logprobs };
        Ok(Asked { job, echoed: texts, streaming: streaming(body.stream, body.stream_options)? })
    }
}

/// How an answer streams, if it does.
///
/// # Errors
/// Options of a stream without one.
pub fn streaming(stream: Option<bool>, options: Option<StreamOptions>) -> Result<Option<Streaming>, ApiError> {
    match (stream.unwrap_or_default(), options) {
        (true, options) => Ok(Some(Streaming { usage: options.unwrap_or_default().include_usage })),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(ApiError::parameter("stream_options", "is for streams; set `stream` to true")),
    }
}

/// The tokens of prompts, and the texts to repeat before their choices.
fn prompts(app: &App, prompt: Prompt, echo: bool) -> Result<(Vec<Vec<u32>>, Vec<String>), ApiError> {
    let count = match &prompt {
        Prompt::Text(_) | Prompt::Ids(_) => 1,
        Prompt::Texts(texts) => texts.len(),
        Prompt::IdLists(lists) => lists.len(),
    };
    if count > MOST_CHOICES {
        return Err(ApiError::parameter("prompt", format!("has {count} prompts; at most {MOST_CHOICES} are taken")));
    }
    let (ids, texts) = match prompt {
        Prompt::Text(text) => (vec![app.engine.prompt_ids(&text)?], vec![text]),
        Prompt::Texts(texts) => {
            let ids = texts.iter().map(|text| app.engine.prompt_ids(text)).collect::<Result<_, _>>()?;
            (ids, texts)
        }
        Prompt::Ids(ids) => decoded(app, vec![ids], echo)?,
        Prompt::IdLists(lists) => decoded(app, lists, echo)?,
    };
    if ids.is_empty() || ids.iter().any(Vec::is_empty) {
        return Err(ApiError::parameter("prompt", "must have at least one token"));
    }
    let texts = if echo { texts } else { vec![String::new(); ids.len()] };
    Ok((ids, texts))
}

/// Lists of tokens, and their texts where they are repeated.
fn decoded(app: &App, lists: Vec<Vec<u32>>, echo: bool) -> Result<(Vec<Vec<u32>>, Vec<String>), ApiError> {
    let texts = lists.iter().filter(|_| echo).map(|ids| text(app, "prompt", ids)).collect::<Result<_, _>>()?;
    Ok((lists, texts))
}

/// The text of tokens.
///
/// # Errors
/// The model has no such token, or the tokenizer cannot decode them.
pub fn text(app: &App, param: &str, ids: &[u32]) -> Result<String, ApiError> {
    let vocab = app.engine.spec().vocab;
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => Err(no_token(param, id, vocab)),
        None => Ok(app.engine.tokenizer().decode(ids)?),
    }
}

/// Answers of this endpoint.
struct Completions {
    app: Arc<App>,
    states: Vec<TextState>,
}

/// A choice so far.
struct TextState {
    /// The text that is repeated before it, until its first part.
    echo: String,
    /// Characters of the tokens so far.
    characters: usize,
    /// Log probabilities of tokens whose text is held back.
    held: Option<TextLogprobs>,
}

/// A part of a choice.
struct TextPart {
    text: String,
    logprobs: Option<TextLogprobs>,
    end: Option<Ended>,
}

impl TextState {
    fn new(echo: String) -> TextState {
        TextState { characters: echo.chars().count(), echo, held: None }
    }
}

impl Answer for Completions {
    type Part = TextPart;

    const OBJECTS: [&'static str; 2] = ["text_completion"; 2];

    fn parts(&mut self, piece: Piece) -> Vec<TextPart> {
        let Some(state) = self.states.get_mut(piece.choice) else { return Vec::new() };
        let tokenizer = self.app.engine.tokenizer();
        let logprobs = piece.token.and_then(|token| TextLogprobs::of(tokenizer, &token, state.characters));
        if let Some((logprobs, characters)) = logprobs {
            state.characters += characters;
            match &mut state.held {
                Some(held) => held.join(logprobs),
                none => *none = Some(logprobs),
            }
        }
        let text = std::mem::take(&mut state.echo) + &piece.text;
        if text.is_empty() && piece.end.is_none() {
            return Vec::new();
        }
        vec![TextPart { text, logprobs: state.held.take(), end: piece.end }]
    }

    fn join(whole: &mut TextPart, later: TextPart) {
        whole.text += &later.text;
        match (&mut whole.logprobs, later.logprobs) {
            (Some(logprobs), Some(later)) => logprobs.join(later),
            (logprobs, Some(later)) => *logprobs = Some(later),
            (_, None) => {}
        }
        whole.end = later.end;
    }

    fn choice(index: usize, whole: &TextPart) -> Value {
        let (finish_reason, stop_reason) = finish(whole.end.as_ref());
        json!({
            "index": index,
            "text": whole.text,
            "logprobs": whole.logprobs,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
        })
    }

    fn chunk(index: usize, part: &TextPart) -> Value {
        Completions::choice(index, part)
    }
}
