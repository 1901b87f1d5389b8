//! Authentication and TLS by the web configuration, which is reloaded when it changes.
//!
//! The collector reads the files, and passes their contents to the network process.

mod auth;
mod config;
mod files;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::{HeaderName, HeaderValue};
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::collector_client::CollectorClient;
use crate::journal;
use crate::message::{Content, Question};
pub(crate) use auth::{AuthTimeout, BasicAuth};
use config::{ClientAuth, WebConfig};
use files::FILE_CHECK_INTERVAL;
pub(crate) use files::{WebFiles, WebUpdate};

/// Why the web configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("web configuration {}: {reason}", path.display())]
pub struct WebError {
    path: PathBuf,
    reason: String,
}

/// The policy of the web configuration.
pub(crate) struct WebPolicy {
    /// TLS, if enabled.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Passwords.
    pub(crate) basic_auth: BasicAuth,
    /// Headers of all answers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    requires_client_cert: bool,
    allowed_clients: Vec<String>,
}

impl WebPolicy {
    /// Returns what a configuration says, and reads the files that it names.
    ///
    /// # Errors
    /// Returns a sentence that says what cannot be used.
    fn new(config: &WebConfig) -> Result<Self, String> {
        let headers = config.http_server_config.headers.iter().map(header);
        let headers = headers.collect::<Result<_, _>>()?;
        let basic_auth = BasicAuth::new(&config.basic_auth_users)?;
        let section = config.tls_server_config.as_ref();
        Ok(Self {
            tls: section.map(tls::acceptor).transpose()?,
            basic_auth,
            headers,
            requires_client_cert: section
                .is_some_and(|tls| tls.client_auth_type == ClientAuth::RequireAndVerifyClientCert),
            allowed_clients: section.map(|tls| tls.client_allowed_sans.clone()).unwrap_or_default(),
        })
    }

    /// Returns whether only clients with a certificate may connect.
    pub(crate) fn requires_client_cert(&self) -> bool {
        self.requires_client_cert
    }

    /// Returns the protection that a new policy removes: a file that is being written may look like that.
    fn lost_by(&self, new: &Self) -> Option<&'static str> {
        if self.tls.is_some() && new.tls.is_none() {
            Some("TLS")
        } else if !self.basic_auth.is_disabled() && new.basic_auth.is_disabled() {
            Some("basic_auth_users")
        } else if self.requires_client_cert && !new.requires_client_cert {
            Some("client_auth_type")
        } else if !self.allowed_clients.is_empty() && new.allowed_clients.is_empty() {
            Some("client_allowed_sans")
        } else {
            None
        }
    }

    /// Returns whether a client with this certificate may connect.
    pub(crate) fn allows(&self, certificates: Option<&[CertificateDer<'_>]>) -> bool {
        let leaf = certificates.and_then(<[_]>::first);
        self.allowed_clients.is_empty()
            || leaf.is_some_and(|leaf| tls::is_for(leaf, &self.allowed_clients))
    }
}

fn header((name, value): (&String, &String)) -> Result<(HeaderName, HeaderValue), String> {
    let name: HeaderName = name.parse().map_err(|_| format!("headers: invalid name {name:?}"))?;
    let value =
        value.parse().map_err(|_| format!("headers: invalid value of {name}: {value:?}"))?;
    Ok((name, value))
}

/// The policy of the network process.
pub(crate) struct CurrentWebPolicy {
    collector: Arc<CollectorClient>,
    /// It may change.
    changes: bool,
    state: Mutex<PolicyState>,
}

struct PolicyState {
    policy: Arc<WebPolicy>,
    version: u64,
    checked: Instant,
}

impl CurrentWebPolicy {
    /// Gets the policy from the collector.
    ///
    /// # Errors
    /// Returns why there is none.
    pub(crate) async fn open(
        collector: Arc<CollectorClient>,
        changes: bool,
    ) -> Result<Self, String> {
        let (version, policy) = update(&collector, 0).await?;
        let policy = policy.ok_or_else(|| "the collector gives none".to_owned())?;
        let state = PolicyState { policy: Arc::new(policy), version, checked: Instant::now() };
        Ok(Self { collector, changes, state: Mutex::new(state) })
    }

    /// Returns the current policy, after the files were read again if they have changed.
    pub(crate) async fn policy(&self) -> Arc<WebPolicy> {
        let mut state = self.state.lock().await;
        if self.changes && state.checked.elapsed() >= FILE_CHECK_INTERVAL {
            state.checked = Instant::now();
            match update(&self.collector, state.version).await {
                Ok((version, Some(policy))) => {
                    (state.version, state.policy) = (version, Arc::new(policy));
                }
                Ok((_, None)) => {}
                Err(why) => journal::warn(&format!(
                    "web configuration: {why}; the last good one stays in use"
                )),
            }
        }
        Arc::clone(&state.policy)
    }
}

/// Returns the version, and the policy unless it is the known one.
async fn update(
    collector: &Arc<CollectorClient>,
    known: u64,
) -> Result<(u64, Option<WebPolicy>), String> {
    let answer = collector.ask(Question::Web { known }).await.map_err(|error| error.to_string())?;
    let (Content::Web, Some(document)) = answer else {
        return Err("the collector cannot pass it".to_owned());
    };
    let text = document.read().map_err(|error| error.to_string())?;
    let WebUpdate { version, config } =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok((version, config.map(|config| WebPolicy::new(&config)).transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_protection_is_named() {
        let guarded = |requires_client_cert, allowed: &[&str]| {
            let mut policy = WebPolicy::new(&WebConfig::default()).unwrap();
            policy.requires_client_cert = requires_client_cert;
            policy.allowed_clients = allowed.iter().map(|name| (*name).to_owned()).collect();
            policy
        };
        assert_eq!(guarded(false, &[]).lost_by(&guarded(true, &["a"])), None);
        assert_eq!(guarded(true, &["a"]).lost_by(&guarded(true, &["b"])), None);
        let lost = |new| guarded(true, &["a"]).lost_by(&new);
        assert_eq!(lost(guarded(false, &["a"])), Some("client_auth_type"));
        assert_eq!(lost(guarded(true, &[])), Some("client_allowed_sans"));
    }
}
