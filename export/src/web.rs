//! Authentication and TLS by the web configuration, which is reloaded when it changes.

mod auth;
mod config;
mod tls;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::{HeaderName, HeaderValue};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::journal;
pub(crate) use auth::{AuthTimeout, BasicAuth};
use config::{ClientAuth, WebConfig};

/// Minimum time between two checks whether files have changed.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
    /// Files that were read, with their versions before that.
    files: Vec<(PathBuf, Option<FileVersion>)>,
}

impl WebPolicy {
    fn load(path: &Path) -> Result<Self, WebError> {
        let failed = |reason| WebError { path: path.to_owned(), reason };
        let file = with_version(path);
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let config = WebConfig::parse(&text, dir).map_err(failed)?;
        Self::of(config, vec![file]).map_err(failed)
    }

    fn of(
        config: WebConfig,
        mut files: Vec<(PathBuf, Option<FileVersion>)>,
    ) -> Result<Self, String> {
        let headers = config.http_server_config.headers.iter().map(header);
        let headers = headers.collect::<Result<_, _>>()?;
        let basic_auth = BasicAuth::new(&config.basic_auth_users)?;
        let Some(section) = config.tls_server_config else {
            let (requires_client_cert, allowed_clients) = (false, Vec::new());
            return Ok(Self {
                tls: None,
                basic_auth,
                headers,
                requires_client_cert,
                allowed_clients,
                files,
            });
        };
        files.extend(section.files().map(|path| with_version(path)));
        let tls = Some(tls::acceptor(&section)?);
        let requires_client_cert =
            section.client_auth_type == ClientAuth::RequireAndVerifyClientCert;
        let allowed_clients = section.client_allowed_sans;
        Ok(Self { tls, basic_auth, headers, requires_client_cert, allowed_clients, files })
    }

    /// Returns whether only clients with a certificate may connect.
    pub(crate) fn requires_client_cert(&self) -> bool {
        self.requires_client_cert
    }

    /// Returns the new policy, unless it removes protection: a file that is being written may look like
    /// that.
    fn replaced_by(&self, new: Self, path: &Path) -> Result<Self, WebError> {
        let lost = if self.tls.is_some() && new.tls.is_none() {
            "TLS"
        } else if !self.basic_auth.is_disabled() && new.basic_auth.is_disabled() {
            "basic_auth_users"
        } else if self.requires_client_cert && !new.requires_client_cert {
            "client_auth_type"
        } else if !self.allowed_clients.is_empty() && new.allowed_clients.is_empty() {
            "client_allowed_sans"
        } else {
            return Ok(new);
        };
        let reason = format!("{lost} is gone; protection is only taken away by a restart");
        Err(WebError { path: path.to_owned(), reason })
    }

    fn is_current(&self) -> bool {
        self.files.iter().all(|(path, version)| FileVersion::of(path) == *version)
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

/// The web configuration, reloaded when it changes.
pub(crate) struct ReloadingWebPolicy {
    path: Option<PathBuf>,
    state: Mutex<PolicyState>,
}

struct PolicyState {
    policy: Arc<WebPolicy>,
    checked: Instant,
    /// Why the changed files are not used.
    reload_error: Option<String>,
}

/// Attributes that change when a file is modified.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl ReloadingWebPolicy {
    /// Reads the file; without a file, all clients may connect without TLS and password.
    ///
    /// # Errors
    /// Fails if the file, or one that it refers to, cannot be used.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, WebError> {
        let policy = match path {
            Some(path) => WebPolicy::load(path)?,
            None => WebPolicy::of(WebConfig::default(), Vec::new())
                .map_err(|reason| WebError { path: PathBuf::new(), reason })?,
        };
        let state =
            PolicyState { policy: Arc::new(policy), checked: Instant::now(), reload_error: None };
        Ok(Self { path: path.map(Path::to_owned), state: Mutex::new(state) })
    }

    /// Returns the current policy, after the files were read again if they have changed.
    pub(crate) fn policy(&self) -> Arc<WebPolicy> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path
            && state.checked.elapsed() >= FILE_CHECK_INTERVAL
        {
            state.refresh(path);
        }
        Arc::clone(&state.policy)
    }

    /// Returns why the changed files are not used; `None` if they are.
    pub(crate) fn reload_error(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).reload_error.clone()
    }
}

impl PolicyState {
    fn refresh(&mut self, path: &Path) {
        self.checked = Instant::now();
        // A configuration with an error may refer to files that are created later.
        if self.reload_error.is_none() && self.policy.is_current() {
            return;
        }
        match WebPolicy::load(path).and_then(|new| self.policy.replaced_by(new, path)) {
            Ok(policy) => {
                self.policy = Arc::new(policy);
                self.reload_error = None;
                journal::note(&format!("web configuration {} was read again", path.display()));
            }
            Err(error) => {
                let error = error.to_string();
                if self.reload_error.as_ref() != Some(&error) {
                    journal::warn(&format!("{error}; the last good one stays in use"));
                }
                self.reload_error = Some(error);
            }
        }
    }
}

impl FileVersion {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(Self { inode: file.ino(), size: file.size(), modified })
    }
}

fn with_version(path: &Path) -> (PathBuf, Option<FileVersion>) {
    (path.to_owned(), FileVersion::of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "basic_auth_users: {ann: $2y$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy}";

    #[test]
    fn a_half_written_file_disables_no_protection() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.yml");
        fs::write(&path, USERS).unwrap();
        let web = ReloadingWebPolicy::open(Some(&path)).unwrap();
        let refresh = |text: &str| {
            fs::write(&path, text).unwrap();
            web.state.lock().unwrap().refresh(&path);
            (web.policy().basic_auth.is_disabled(), web.reload_error())
        };
        for text in ["", "# users\n", "basic_auth_users:", "basic_auth_users: {}"] {
            let (open, reload_error) = refresh(text);
            assert!(
                !open && reload_error.is_some_and(|why| why.contains("basic_auth_users")),
                "{text}"
            );
        }
        assert_eq!(refresh(&USERS.replace("ann", "bob")), (false, None));
        assert!(ReloadingWebPolicy::open(Some(&path)).is_ok());
    }

    #[test]
    fn a_reload_does_not_remove_protection() {
        let files = Vec::new;
        let guarded = |requires_client_cert, allowed: &[&str]| {
            let mut policy = WebPolicy::of(WebConfig::default(), files()).unwrap();
            policy.requires_client_cert = requires_client_cert;
            policy.allowed_clients = allowed.iter().map(|name| (*name).to_owned()).collect();
            policy
        };
        let path = Path::new("web.yml");
        let lost = |old: WebPolicy, new| old.replaced_by(new, path).err().map(|e| e.to_string());
        assert_eq!(lost(guarded(false, &[]), guarded(true, &["a"])), None);
        assert_eq!(lost(guarded(true, &["a"]), guarded(true, &["b"])), None);
        for (new, what) in
            [(guarded(false, &["a"]), "client_auth_type"), (guarded(true, &[]), "allowed_sans")]
        {
            assert!(lost(guarded(true, &["a"]), new).unwrap().contains(what));
        }
    }
}
