//! What apps are called: file-prefixes often hold a pid, which would be a new name at every start.

use crate::discover::App;

/// Rules that turn file-prefixes into lasting names; without rules an app is called by its prefix.
#[derive(Clone, Debug, Default)]
pub struct Names {}

impl Names {
    /// The apps by their names; several that would share one are called by their directories.
    pub fn give(&self, apps: &[App]) -> Vec<App> {
        let shared = |app: &App| apps.iter().filter(|other| other.name == app.name).count() > 1;
        let name = |app: &App| {
            if shared(app) { app.dir.display().to_string() } else { app.name.clone() }
        };
        apps.iter().map(|app| App { name: name(app), ..app.clone() }).collect()
    }
}
