//! The changes that a bypass made, stored in files so that a later command can undo them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pmdscope_files::{Directory, FileMode, PART, Place};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::BypassError;
use crate::name::InterfaceName;

/// Default directory of state files.
pub const DEFAULT_STATE_DIRECTORY: &str = "/run/pmdscope-bypass";

/// Format version of state files.
const VERSION: u32 = 1;

/// How packets of the selected flows are steered to the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case")]
pub(crate) enum Steering {
    /// By rules of the NIC; with its earlier settings.
    Ntuple { rules_before: Vec<u32>, enabled_before: bool, rss_before: Option<Vec<u32>> },
    /// The NIC cannot steer, for this reason.
    Unsupported { reason: String },
}

/// One bypass: the request, and the earlier settings of the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BypassState {
    version: u32,
    pub(crate) interface: InterfaceName,
    pub(crate) index: u32,
    /// Inode of the network namespace.
    pub(crate) network_namespace: u64,
    pub(crate) queue: u32,
    pub(crate) flows: Vec<String>,
    /// File-prefix of the app that is expected to use the queue; any app if `None`.
    pub(crate) app: Option<String>,
    pub(crate) promiscuous_before: bool,
    pub(crate) mtu_before: u32,
    pub(crate) steering: Steering,
}

impl BypassState {
    pub(crate) fn new(interface: InterfaceName, index: u32, network_namespace: u64) -> Self {
        Self {
            version: VERSION,
            interface,
            index,
            network_namespace,
            queue: 0,
            flows: Vec::new(),
            app: None,
            promiscuous_before: false,
            mtu_before: 0,
            steering: Steering::Unsupported { reason: String::new() },
        }
    }
}

/// The directory of state files. There is one file, and one object file, per interface.
#[derive(Clone, Debug)]
pub struct StateDirectory(PathBuf);

impl Default for StateDirectory {
    fn default() -> Self {
        Self(DEFAULT_STATE_DIRECTORY.into())
    }
}

/// A lock; while it is held, no other command changes bypasses.
pub(crate) struct StateLock(#[expect(dead_code, reason = "held until dropped")] File);

impl StateDirectory {
    /// Uses another directory.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the path of the XDP program with its settings, for an interface of this namespace.
    pub(crate) fn object(&self, interface: &InterfaceName, namespace: u64) -> PathBuf {
        self.0.join(format!("{interface}.{namespace}.o"))
    }

    fn file(&self, interface: &InterfaceName, namespace: u64) -> PathBuf {
        self.0.join(format!("{interface}.{namespace}.json"))
    }

    /// Waits until no other command changes bypasses, and returns the lock.
    pub(crate) fn lock(&self) -> Result<StateLock, BypassError> {
        let failed = |source| BypassError::File { what: "make", path: self.0.clone(), source };
        Directory::create(&self.0).map_err(failed)?;
        let path = self.0.join("lock");
        let failed = |source| BypassError::File { what: "lock", path: path.clone(), source };
        let opened = Place::of(&path).and_then(|place| place.open_in_place(FileMode::default()));
        let file = opened.map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(StateLock(file))
    }

    /// Reads the state of an interface; `None` if it has no bypass.
    pub(crate) fn read(
        &self,
        interface: &InterfaceName,
        namespace: u64,
    ) -> Result<Option<BypassState>, BypassError> {
        let path = self.file(interface, namespace);
        match fs::read(&path) {
            Ok(bytes) => {
                parse(&bytes).map(Some).map_err(|reason| BypassError::BadState { path, reason })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(BypassError::File { what: "read", path, source }),
        }
    }

    /// Reads all states, of this network namespace and others, by name.
    pub(crate) fn list(&self) -> Result<Vec<BypassState>, BypassError> {
        let failed = |source| BypassError::File { what: "list", path: self.0.clone(), source };
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut states = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match fs::read(&path) {
                Ok(bytes) => states
                    .push(parse(&bytes).map_err(|reason| BypassError::BadState { path, reason })?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(BypassError::File { what: "read", path, source }),
            }
        }
        states.sort_by(|a, b| a.interface.cmp(&b.interface));
        Ok(states)
    }

    pub(crate) fn write(&self, state: &BypassState) -> Result<(), BypassError> {
        let bytes = serde_json::to_vec_pretty(state).unwrap_or_default();
        Self::replace(&self.file(&state.interface, state.network_namespace), &bytes)
    }

    pub(crate) fn write_object(
        &self,
        state: &BypassState,
        object: &[u8],
    ) -> Result<(), BypassError> {
        Self::replace(&self.object(&state.interface, state.network_namespace), object)
    }

    /// Replaces a file atomically: a killed command leaves either the old or the new file. It has no
    /// secrets: exporters read states, and apps the object, as users of their own.
    fn replace(path: &Path, bytes: &[u8]) -> Result<(), BypassError> {
        pmdscope_files::replace(path, bytes, FileMode::PUBLIC).map_err(|source| BypassError::File {
            what: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// Removes the state of an interface; it need not exist.
    pub(crate) fn remove(
        &self,
        interface: &InterfaceName,
        namespace: u64,
    ) -> Result<(), BypassError> {
        let state = self.file(interface, namespace);
        // The state is removed last, because the other files are found through it.
        let object = self.object(interface, namespace);
        let unfinished = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(PART);
            PathBuf::from(name)
        };
        for path in [unfinished(&object), unfinished(&state), object, state] {
            match pmdscope_files::remove(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(BypassError::File { what: "remove", path, source }),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<BypassState, String> {
    let state: BypassState = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if state.version == VERSION { Ok(state) } else { Err(format!("version {}", state.version)) }
}

/// Returns the inode of the network namespace of this process.
pub(crate) fn network_namespace() -> Result<u64, BypassError> {
    let path = Path::new("/proc/self/ns/net");
    let metadata = fs::metadata(path);
    metadata.map(|metadata| metadata.ino()).map_err(|source| BypassError::File {
        what: "read",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(name: &str) -> BypassState {
        let mut state = BypassState::new(name.parse().unwrap(), 5, 4_026_531_840);
        state.flows = vec!["udp:53".to_owned()];
        state.steering = Steering::Ntuple {
            rules_before: vec![3],
            enabled_before: false,
            rss_before: Some(vec![0, 1]),
        };
        state
    }

    #[test]
    fn what_was_written_is_read_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDirectory::new(directory.path().join("bypass"));
        assert_eq!(states.list().unwrap(), []);
        let _lock = states.lock().unwrap();
        let state = state("eth0");
        states.write(&state).unwrap();
        states.write_object(&state, b"ELF").unwrap();
        assert_eq!(states.list().unwrap(), std::slice::from_ref(&state));
        assert_eq!(
            states.read(&state.interface, state.network_namespace).unwrap(),
            Some(state.clone())
        );
        assert_eq!(states.read(&state.interface, 1).unwrap(), None);
        for _ in 0..2 {
            states.remove(&state.interface, state.network_namespace).unwrap();
            assert_eq!(states.list().unwrap(), []);
        }
    }

    #[test]
    fn a_state_of_a_later_version_is_refused() {
        let text = serde_json::to_string(&state("eth0")).unwrap();
        assert!(parse(text.as_bytes()).is_ok());
        assert!(parse(text.replace("\"version\":1", "\"version\":2").as_bytes()).is_err());
        assert!(parse(text.replace("eth0", "../x").as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_file_is_understood_or_refused(bytes in any::<Vec<u8>>()) {
            prop_assert!(parse(&bytes).is_err());
        }
    }
}
