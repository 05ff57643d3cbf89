//! Answers: whole, or as a stream of server-sent events. Both are made of the same parts, so that a
//! stream joined is the whole answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::app::seconds;
use super::error::ApiError;
use super::generation::{Choices, Ended, Piece, Usage};

/// How an endpoint writes its answers.
pub trait Answer: Send + Unpin + 'static {
    /// A part of a choice.
    type Part: Send;

    /// The objects of a whole answer and of a chunk, by the field `object`.
    const OBJECTS: [&'static str; 2];

    /// The parts that a piece gives, in order; perhaps none.
    fn parts(&mut self, piece: Piece) -> Vec<Self::Part>;

    /// Appends a later part of the same choice.
    fn join(whole: &mut Self::Part, later: Self::Part);

    /// A part as the choice of a whole answer.
    fn choice(index: usize, whole: &Self::Part) -> Value;

    /// A part as the choice of a chunk.
    fn chunk(index: usize, part: &Self::Part) -> Value;
}

/// The fields that an answer and its chunks have besides choices.
pub struct Head {
    /// Its name.
    pub id: String,
    /// The name of the model.
    pub model: String,
}

/// How an answer streams.
#[derive(Clone, Copy, Debug)]
pub struct Streaming {
    /// Whether the last chunk has the number of tokens.
    pub usage: bool,
}

/// Answers a request whose choices are generated.
///
/// # Errors
/// An answer that does not stream: generation failed.
pub async fn respond<A: Answer>(
    answer: A,
    head: Head,
    choices: Choices,
    streaming: Option<Streaming>,
) -> Result<Response, ApiError> {
    match streaming {
        Some(streaming) => Ok(stream(answer, &head, choices, streaming)),
        None => whole(answer, &head, choices).await,
    }
}

/// Waits for all choices.
async fn whole<A: Answer>(mut answer: A, head: &Head, mut choices: Choices) -> Result<Response, ApiError> {
    let mut joined: Vec<Option<A::Part>> = Vec::new();
    while let Some(piece) = choices.next().await {
        let piece = piece?;
        let at = piece.choice;
        joined.resize_with(joined.len().max(at + 1), || None);
        for part in answer.parts(piece) {
            match &mut joined[at] {
                Some(whole) => A::join(whole, part),
                none => *none = Some(part),
            }
        }
    }
    let texts = joined.iter().enumerate().filter_map(|(index, part)| Some(A::choice(index, part.as_ref()?)));
    let body = json!({
        "id": head.id,
        "object": A::OBJECTS[0],
        "created": seconds(),
        "model": head.model,
        "choices": texts.collect::<Vec<_>>(),
        "usage": choices.usage.object(),
    });
    Ok(axum_json(&body))
}

/// A response with a JSON body.
pub fn axum_json(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.to_string()).into_response()
}

impl Usage {
    fn object(&self) -> Value {
        let Usage { prompt, completion } = *self;
        json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
    }
}

/// The fields `finish_reason` and `stop_reason` of a choice.
pub fn finish(end: Option<&Ended>) -> (Value, Value) {
    match end {
        None => (Value::Null, Value::Null),
        Some(Ended::Stop) => ("stop".into(), Value::Null),
        Some(Ended::StopText(text)) => ("stop".into(), text.as_str().into()),
        Some(Ended::StopToken(id)) => ("stop".into(), (*id).into()),
        Some(Ended::Length) => ("length".into(), Value::Null),
    }
}

fn stream<A: Answer>(answer: A, head: &Head, choices: Choices, streaming: Streaming) -> Response {
    let common = json!({ "id": head.id, "object": A::OBJECTS[1], "created": seconds(), "model": head.model });
    let events = EventStream { answer, choices, common, usage: streaming.usage, ended: false };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Body::new(events)).into_response()
}

/// Most bytes of a frame before it is sent, though more could join it.
const FRAME: usize = 16 << 10;

/// The body of a stream.
struct EventStream<A> {
    answer: A,
    choices: Choices,
    /// The fields that all chunks have.
    common: Value,
    usage: bool,
    ended: bool,
}

impl<A: Answer> EventStream<A> {
    /// Writes a chunk with these choices.
    fn chunk(&self, choices: Vec<Value>, usage: Option<Value>, out: &mut String) {
        let mut chunk = self.common.clone();
        chunk["choices"] = choices.into();
        if self.usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        event(&chunk, out);
    }

    /// Writes what comes next.
    fn write(&mut self, next: Option<Result<Piece, ApiError>>, out: &mut String) {
        match next {
            Some(Ok(piece)) => {
                let index = piece.choice;
                for part in self.answer.parts(piece) {
                    self.chunk(vec![A::chunk(index, &part)], None, out);
                }
            }
            Some(Err(error)) => event(&error.object(), out),
            None => {
                if self.usage {
                    self.chunk(Vec::new(), Some(self.choices.usage.object()), out);
                }
                out.push_str("data: [DONE]\n\n");
                self.ended = true;
            }
        }
    }
}

fn event(object: &Value, out: &mut String) {
    out.push_str("data: ");
    out.push_str(&object.to_string());
    out.push_str("\n\n");
}

impl<A: Answer> HttpBody for EventStream<A> {
    type Data = Bytes;
    type Error = Infallible;

    /// All that is there now is one frame.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut out = String::new();
        while !self.ended && out.len() < FRAME {
            match self.choices.poll_next(context) {
                Poll::Ready(next) => self.write(next, &mut out),
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        match out.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Ready(Some(Ok(Frame::data(out.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
