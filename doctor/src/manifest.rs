//! The manifest of a collected tree: its apps, and files that could not be read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::app::AppFacts;
use crate::error::DoctorError;

/// Name of the manifest, in the root of the tree.
pub(crate) const MANIFEST: &str = "pmdscope-doctor.json";

/// The manifest of a collected tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// [`SCHEMA`].
    pub(crate) schema: u32,
    /// Wall clock at the collection, nanoseconds since the epoch.
    pub(crate) collected_realtime_ns: u64,
    /// Files that could not be read; those that are absent and not listed here did not exist.
    pub(crate) unreadable: BTreeSet<String>,
    /// CPUs on which apps will poll, as the user named them.
    #[serde(default)]
    pub(crate) cpus: Option<String>,
    /// The apps; `None` in a tree that was not collected by pmdscope.
    pub(crate) apps: Option<Vec<AppFacts>>,
}

impl Manifest {
    /// Parses the text of [`MANIFEST`].
    pub(crate) fn parse(text: &str) -> Result<Self, DoctorError> {
        let path = PathBuf::from(MANIFEST);
        let manifest: Self = serde_json::from_str(text)
            .map_err(|why| DoctorError::Damaged { path: path.clone(), why })?;
        if manifest.schema > SCHEMA {
            return Err(DoctorError::Newer { path, schema: manifest.schema });
        }
        Ok(manifest)
    }

    pub(crate) fn is_unreadable(&self, path: &str) -> bool {
        self.unreadable.contains(path)
    }
}
