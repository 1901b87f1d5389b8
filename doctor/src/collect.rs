//! Copies the files that the checks read into a directory, for `doctor --root` on another machine.

use std::io;
use std::path::Path;

use pmdscope_files::{Directory, FileMode};
use pmdscope_telemetry::realtime_ns;

use crate::SCHEMA;
use crate::app::AppFacts;
use crate::error::DoctorError;
use crate::facts::HostFacts;
use crate::manifest::{MANIFEST, Manifest};
use crate::mirror::Mirror;
use crate::tree::HostTree;

/// Copies the files of this machine that the checks read, and the facts about `apps`, into the
/// directory `into`, which is created. `HostTree::open(into)` opens the copy, on any machine. If
/// `apps` is `None`, the checks of apps are skipped there.
///
/// Reads a few thousand small files of `/proc`, `/sys` and `/etc`, and changes nothing outside of
/// `into`. Files that cannot be read are noted in the copy, and are not an error.
///
/// # Errors
/// When `into` cannot be written.
pub fn collect(into: &Path, apps: Option<&[AppFacts]>) -> Result<(), DoctorError> {
    collect_from(Path::new("/"), into, apps)
}

pub(crate) fn collect_from(
    root: &Path,
    into: &Path,
    apps: Option<&[AppFacts]>,
) -> Result<(), DoctorError> {
    let unwritable = |path: &Path, why| DoctorError::Unwritable { path: path.into(), why };
    Directory::create(into).map_err(|why| unwritable(into, why))?;
    let tree = HostTree::mirrored(root, Mirror::new(into))?;
    // Reads all facts, so that the copy has exactly the files that the checks need.
    drop(HostFacts::read(&tree, apps.unwrap_or_default(), None));
    let Some(mirror) = tree.into_mirror() else { return Ok(()) };
    let unreadable =
        mirror.finish().map_err(|(path, why)| DoctorError::Unwritable { path, why })?;
    let manifest = Manifest {
        schema: SCHEMA,
        collected_realtime_ns: realtime_ns(),
        unreadable,
        cpus: None,
        apps: apps.map(<[AppFacts]>::to_vec),
    };
    let path = into.join(MANIFEST);
    let text =
        serde_json::to_vec(&manifest).map_err(|why| unwritable(&path, io::Error::other(why)))?;
    pmdscope_files::write(&path, &text, FileMode::default()).map_err(|why| unwritable(&path, why))
}
