//! Requests to servers on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ureq::http::StatusCode;

/// Longer than any answer may take; a server that hangs is an error.
const ANSWER: Duration = Duration::from_secs(30);

/// A response.
#[derive(Debug)]
pub struct Reply {
    /// The status, whatever it is.
    pub status: StatusCode,
    /// Its `Content-Type`.
    pub content_type: String,
    /// The whole body.
    pub body: String,
}

/// Asks for a path with these headers and query parameters, over a connection of its own.
pub fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    parameters: &[(&str, &str)],
) -> Result<Reply> {
    let config = ureq::config::Config::builder()
        .http_status_as_error(false)
        .timeout_global(Some(ANSWER))
        .max_idle_connections(0)
        .proxy(None)
        .build();
    let mut request = ureq::Agent::new_with_config(config).get(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    for (name, value) in parameters {
        request = request.query(*name, *value);
    }
    let mut response = request.call().with_context(|| format!("GET {path}"))?;
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    let content_type = kind.unwrap_or_default().to_owned();
    let body = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
    Ok(Reply { status: response.status(), content_type, body })
}
