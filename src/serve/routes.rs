//! Paths and their handlers; what is done for every request.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::app::{App, RequestId};
use super::chat::chat_completions;
use super::completions::completions;
use super::error::ApiError;
use super::texts::{detokenize, model_of, models, tokenize};

/// All paths.
pub fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model_of))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// Paths that need no key: those of load balancers and of monitors.
const OPEN: [&str; 2] = ["/health", "/metrics"];

/// Most characters of a path in the log.
const LOGGED: usize = 200;

/// Names and logs a request, and checks its key.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = app.request(request.headers());
    let method = request.method().clone();
    let path: String = request.uri().path().chars().take(LOGGED).collect();
    request.extensions_mut().insert(id.clone());
    let key = if OPEN.contains(&path.as_str()) { Ok(()) } else { app.options.keys.check(request.headers()) };
    let mut response = match key {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    if let Ok(name) = HeaderValue::from_str(&id.name) {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), name);
    }
    log(&id, &method, &path, response.status());
    response
}

fn log(id: &RequestId, method: &Method, path: &str, status: StatusCode) {
    let seconds = id.arrived.elapsed().as_secs_f64();
    let status = status.as_u16();
    match OPEN.contains(&path) {
        true => tracing::debug!(request = &*id.name, %method, path, status, seconds, "answered"),
        false => tracing::info!(request = &*id.name, %method, path, status, seconds, "answered"),
    }
}

/// Whether requests are run.
async fn health(State(app): State<Arc<App>>) -> StatusCode {
    if app.server.is_running() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.text(&app.options.model, &app.server.load());
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"))], text).into_response()
}

async fn no_path(uri: Uri) -> ApiError {
    ApiError::Path { path: uri.path().chars().take(LOGGED).collect() }
}

async fn no_method(method: Method) -> ApiError {
    ApiError::Method { method: method.to_string() }
}
