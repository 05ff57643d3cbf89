//! Why a request gets no answer: the status of the response, and OpenAI's error object as its body.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use thiserror::Error;

use crate::chain;
use crate::checkpoint::TokenizerError;
use crate::engine::EngineError;

/// Seconds after which a client may try again when the queue is full.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request is refused or fails.
#[derive(Clone, Debug, Error)]
pub enum ApiError {
    /// The body is not JSON, or has another form.
    #[error("the body is not a request: {reason}")]
    Body {
        /// The part of the body that is wrong.
        param: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
    /// A parameter that the endpoint does not have.
    #[error("`{param}` is not a parameter of this endpoint; leave it out")]
    Unknown {
        /// The parameter.
        param: String,
    },
    /// A parameter with a value that is not accepted.
    #[error("`{param}` {reason}")]
    Parameter {
        /// The parameter.
        param: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// More tokens than a sequence may hold.
    #[error(
        "the prompt has {prompt} tokens and {new} new ones are asked for, which is more than the {context} of a sequence; \
         ask for fewer, or shorten the prompt"
    )]
    Context {
        /// Tokens of the prompt.
        prompt: usize,
        /// Most new tokens.
        new: usize,
        /// Most tokens of a sequence.
        context: usize,
    },
    /// A model that is not served.
    #[error("the model {name:?} is not served here; this server has {served:?}")]
    Model {
        /// The model that was asked for.
        name: String,
        /// The model that there is.
        served: String,
    },
    /// No key, or a wrong one.
    #[error("a valid API key is needed; give it as `Authorization: Bearer KEY`")]
    Key,
    /// A path that leads nowhere.
    #[error("there is no {path:?}; docs/serve.md lists the endpoints")]
    Path {
        /// The path.
        path: String,
    },
    /// A method that the path does not have.
    #[error("this endpoint does not take the method {method}")]
    Method {
        /// The method.
        method: String,
    },
    /// A body with too many bytes.
    #[error("the body has more than {limit} bytes; send a shorter one")]
    BodySize {
        /// Most bytes.
        limit: usize,
    },
    /// A body that did not arrive in time.
    #[error("the body did not arrive within {seconds} s")]
    SlowBody {
        /// The timeout.
        seconds: u64,
    },
    /// The deadline of the request passed.
    #[error("the answer was not complete after {seconds} s, the longest time of a request here")]
    Deadline {
        /// The timeout.
        seconds: u64,
    },
    /// The client reads more slowly than the model writes.
    #[error("the stream was not read, so the request was cancelled")]
    SlowReader,
    /// A thread of the server stopped.
    #[error("the request could not be handled; the server's log says why")]
    Stopped,
    /// The engine refuses the request, or failed.
    #[error("{}", chain(.0))]
    Engine(Arc<EngineError>),
}

/// The class of an error, as OpenAI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    InvalidRequest,
    NotFound,
    Authentication,
    RateLimit,
    Timeout,
    Server,
}

impl ErrorClass {
    fn name(self) -> &'static str {
        match self {
            ErrorClass::InvalidRequest => "invalid_request_error",
            ErrorClass::NotFound => "not_found_error",
            ErrorClass::Authentication => "authentication_error",
            ErrorClass::RateLimit => "rate_limit_error",
            ErrorClass::Timeout => "timeout_error",
            ErrorClass::Server => "server_error",
        }
    }
}

impl ApiError {
    /// A parameter whose value is not accepted.
    pub fn parameter(param: impl Into<String>, reason: impl Into<String>) -> ApiError {
        ApiError::Parameter { param: param.into(), reason: reason.into() }
    }

    /// OpenAI's error object.
    pub fn object(&self) -> Value {
        let (_, class, code) = self.kind();
        json!({ "error": { "message": self.to_string(), "type": class.name(), "param": self.param(), "code": code } })
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// Status, class and code.
    fn kind(&self) -> (StatusCode, ErrorClass, Option<&'static str>) {
        let invalid = |code| (StatusCode::BAD_REQUEST, ErrorClass::InvalidRequest, code);
        match self {
            ApiError::Body { .. } => invalid(None),
            ApiError::Unknown { .. } => invalid(Some("unknown_parameter")),
            ApiError::Parameter { .. } => invalid(Some("invalid_value")),
            ApiError::Context { .. } => invalid(Some("context_length_exceeded")),
            ApiError::Model { .. } => (StatusCode::NOT_FOUND, ErrorClass::NotFound, Some("model_not_found")),
            ApiError::Key => (StatusCode::UNAUTHORIZED, ErrorClass::Authentication, Some("invalid_api_key")),
            ApiError::Path { .. } => (StatusCode::NOT_FOUND, ErrorClass::NotFound, Some("path_not_found")),
            ApiError::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, ErrorClass::InvalidRequest, None),
            ApiError::BodySize { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorClass::InvalidRequest, None),
            ApiError::SlowBody { .. } => (StatusCode::REQUEST_TIMEOUT, ErrorClass::Timeout, None),
            ApiError::Deadline { .. } => (StatusCode::GATEWAY_TIMEOUT, ErrorClass::Timeout, None),
            ApiError::SlowReader => (StatusCode::REQUEST_TIMEOUT, ErrorClass::Timeout, None),
            ApiError::Stopped => (StatusCode::INTERNAL_SERVER_ERROR, ErrorClass::Server, None),
            ApiError::Engine(error) => of_engine(error),
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            ApiError::Body { param, .. } => param.as_deref(),
            ApiError::Unknown { param } | ApiError::Parameter { param, .. } => Some(param),
            ApiError::Model { .. } => Some("model"),
            _ => None,
        }
    }
}

/// What the engine refuses is the client's fault; what fails while it runs is the server's.
fn of_engine(error: &EngineError) -> (StatusCode, ErrorClass, Option<&'static str>) {
    let invalid = |code| (StatusCode::BAD_REQUEST, ErrorClass::InvalidRequest, code);
    match error {
        EngineError::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorClass::RateLimit, Some("queue_full")),
        EngineError::PromptTooLong { .. }
        | EngineError::PromptText { .. }
        | EngineError::RequestContext { .. }
        | EngineError::RequestPages { .. } => invalid(Some("context_length_exceeded")),
        EngineError::Chat(_)
        | EngineError::Tokenizer(_)
        | EngineError::Sampling(_)
        | EngineError::EmptyPrompt
        | EngineError::TokenId { .. }
        | EngineError::Penalty { .. }
        | EngineError::MinP { .. }
        | EngineError::Bias { .. }
        | EngineError::Processor { .. }
        | EngineError::Stop(_) => invalid(None),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, ErrorClass::Server, None),
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        ApiError::Engine(Arc::new(error))
    }
}

impl From<TokenizerError> for ApiError {
    fn from(error: TokenizerError) -> ApiError {
        EngineError::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut response = (status, [json], self.object().to_string()).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_openais_object() {
        let object = ApiError::Unknown { param: "tempratur".to_owned() }.object();
        let expected = "`tempratur` is not a parameter of this endpoint; leave it out";
        let expected = json!({ "error": {
            "message": expected, "type": "invalid_request_error", "param": "tempratur", "code": "unknown_parameter"
        } });
        assert_eq!(object, expected);
    }

    #[test]
    fn a_full_queue_asks_to_try_again() {
        let response = ApiError::from(EngineError::QueueFull { waiting: 3 }).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
}
