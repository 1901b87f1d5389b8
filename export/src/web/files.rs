//! The files of the web configuration, which only the collector reads: they may belong to root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::config::{TlsServerConfig, WebConfig};
use super::{WebError, WebPolicy};
use crate::journal;

/// Minimum time between two checks whether files have changed.
pub(super) const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the network process is told of the files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebUpdate {
    /// Increases with each change.
    pub(crate) version: u64,
    /// The configuration, with certificates and keys instead of the names of their files; `None` if the
    /// network process has it.
    pub(super) config: Option<WebConfig>,
}

/// The web configuration, read again when it changes.
pub(crate) struct WebFiles {
    path: Option<PathBuf>,
    loaded: LoadedConfig,
    version: u64,
    checked: Instant,
    /// Why the changed files are not used.
    reload_error: Option<String>,
}

/// A configuration that can be used.
struct LoadedConfig {
    /// With the contents of its files.
    config: WebConfig,
    policy: WebPolicy,
    /// Files that were read, with their versions before that.
    files: Vec<(PathBuf, Option<FileVersion>)>,
}

impl LoadedConfig {
    fn read(path: &Path) -> Result<Self, WebError> {
        let failed = |reason| WebError { path: path.to_owned(), reason };
        let mut files = vec![with_version(path)];
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let mut config = WebConfig::parse(&text, dir).map_err(failed)?;
        files.extend(
            config
                .tls_server_config
                .iter()
                .flat_map(TlsServerConfig::files)
                .map(|file| with_version(file)),
        );
        // Before the contents replace the names of files, which errors name.
        let policy = WebPolicy::new(&config).map_err(failed)?;
        config
            .tls_server_config
            .as_mut()
            .map_or(Ok(()), TlsServerConfig::inline)
            .map_err(failed)?;
        Ok(Self { config, policy, files })
    }

    fn is_current(&self) -> bool {
        self.files.iter().all(|(path, version)| FileVersion::of(path) == *version)
    }
}

/// Attributes that change when a file is modified.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl WebFiles {
    /// Reads the files; without a path, all clients may connect without TLS and password.
    ///
    /// # Errors
    /// Fails if a file cannot be used.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, WebError> {
        let loaded = if let Some(path) = path {
            LoadedConfig::read(path)?
        } else {
            let config = WebConfig::default();
            let policy = WebPolicy::new(&config)
                .map_err(|reason| WebError { path: PathBuf::new(), reason })?;
            LoadedConfig { config, policy, files: Vec::new() }
        };
        let path = path.map(Path::to_owned);
        Ok(Self { path, loaded, version: 1, checked: Instant::now(), reload_error: None })
    }

    /// Returns the configuration, if it is not the one that is known.
    pub(crate) fn update(&mut self, known: u64) -> WebUpdate {
        if self.checked.elapsed() >= FILE_CHECK_INTERVAL / 2 {
            self.refresh();
        }
        let config = (known != self.version).then(|| self.loaded.config.clone());
        WebUpdate { version: self.version, config }
    }

    /// Returns why the changed files are not used; `None` if they are.
    pub(crate) fn reload_error(&self) -> Option<&str> {
        self.reload_error.as_deref()
    }

    fn refresh(&mut self) {
        let Some(path) = &self.path else { return };
        self.checked = Instant::now();
        // A configuration with an error may refer to files that are created later.
        if self.reload_error.is_none() && self.loaded.is_current() {
            return;
        }
        let read = LoadedConfig::read(path);
        let accepted = read.and_then(|new| match self.loaded.policy.lost_by(&new.policy) {
            None => Ok(new),
            Some(lost) => {
                let reason = format!("{lost} is gone; protection is only taken away by a restart");
                Err(WebError { path: path.clone(), reason })
            }
        });
        match accepted {
            Ok(loaded) => {
                self.loaded = loaded;
                self.version += 1;
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
        let mut web = WebFiles::open(Some(&path)).unwrap();
        let mut refresh = |text: &str| {
            fs::write(&path, text).unwrap();
            web.refresh();
            (web.loaded.policy.basic_auth.is_disabled(), web.reload_error.clone())
        };
        for text in ["", "# users\n", "basic_auth_users:", "basic_auth_users: {}"] {
            let (open, reload_error) = refresh(text);
            assert!(
                !open && reload_error.is_some_and(|why| why.contains("basic_auth_users")),
                "{text}"
            );
        }
        assert_eq!(refresh(&USERS.replace("ann", "bob")), (false, None));
        assert!(WebFiles::open(Some(&path)).is_ok());
    }

    #[test]
    fn a_change_is_passed_once_and_as_the_network_process_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.yml");
        fs::write(&path, USERS).unwrap();
        let mut web = WebFiles::open(Some(&path)).unwrap();
        let first = web.update(0);
        let passed = serde_json::to_string(&first).unwrap();
        let read: WebUpdate = serde_json::from_str(&passed).unwrap();
        assert_eq!((read.version, &read.config), (1, &first.config));
        assert!(web.update(1).config.is_none());
        fs::write(&path, USERS.replace("ann", "bob")).unwrap();
        web.refresh();
        let second = web.update(1);
        assert!(second.version == 2 && second.config.is_some());
    }
}
