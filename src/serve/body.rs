//! Bodies of requests, with a bound on their bytes and on the time until they are there.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use tokio::time::timeout;

use super::error::ApiError;
use super::options::ServeLimits;

/// Reads a body.
///
/// # Errors
/// It is too long, does not arrive in time, or its connection ends.
pub async fn read_body(body: Body, limits: &ServeLimits) -> Result<Vec<u8>, ApiError> {
    let limit = limits.body;
    if body.size_hint().lower() > limit as u64 {
        return Err(ApiError::BodySize { limit });
    }
    match timeout(limits.read, whole(body, limit)).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::SlowBody { seconds: limits.read.as_secs() }),
    }
}

async fn whole(mut body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut read = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| ApiError::Body { param: None, reason: error.to_string() })?;
        if let Ok(data) = frame.into_data() {
            if data.len() > limit - read.len() {
                return Err(ApiError::BodySize { limit });
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
        let limits = ServeLimits { body: limit, read: Duration::from_millis(20), ..ServeLimits::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(read_body(body, &limits))
    }

    #[test]
    fn a_body_is_read_up_to_its_limit() {
        assert_eq!(read(Body::from("four"), 4).ok(), Some(b"four".to_vec()));
        assert!(matches!(read(Body::from("four."), 4), Err(ApiError::BodySize { limit: 4 })));
    }
}
