//! Which app is meant by a name.

use super::namespaces;
use super::unreadable::unreadable;
use super::{DiscoverOptions, DiscoveredApp, FindError, Reachability, discover};

/// Returns the only live app with this name, file-prefix (and `:N`) or runtime directory; without a
/// name, the only live app.
///
/// # Errors
/// When there is none, when there are several, or when it cannot be queried.
pub fn find(name: Option<&str>, options: &DiscoverOptions) -> Result<DiscoveredApp, FindError> {
    choose(name, discover(&DiscoverOptions { stale: false, ..options.clone() }), options)
}

/// Returns the only live app of that name among `running`; without a name, the only live one.
pub(crate) fn choose(
    name: Option<&str>,
    running: Vec<DiscoveredApp>,
    options: &DiscoverOptions,
) -> Result<DiscoveredApp, FindError> {
    if options.stop.is_set() {
        return Err(FindError::Interrupted);
    }
    match name {
        None if running.is_empty() => Err(no_app(options)),
        None => one_live(running),
        Some(name) => match named(name, &running) {
            apps if apps.is_empty() => {
                let (name, unreadable) = (name.to_owned(), unreadable(options));
                Err(FindError::Unknown { name, running, unreadable })
            }
            apps => one_live(apps),
        },
    }
}

/// Returns the error of a search that found nothing.
pub(crate) fn no_app(options: &DiscoverOptions) -> FindError {
    let (roots, unreadable) = (options.roots.clone(), unreadable(options));
    let hidden = options.proc.as_deref().is_some_and(namespaces::are_hidden);
    FindError::NoApp { roots, unreadable, hidden }
}

/// Returns the apps of that name: those that tools call so, otherwise those with that file-prefix,
/// directory or socket. A name that only begins so is another one.
pub(crate) fn named(name: &str, running: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
    let exact = running.iter().filter(|app| app.name == name);
    let exact: Vec<DiscoveredApp> = exact.cloned().collect();
    if exact.is_empty() {
        return running.iter().filter(|app| app.is_called(name)).cloned().collect();
    }
    exact
}

/// Returns the only live one of these apps, of which there is at least one.
pub(crate) fn one_live(mut apps: Vec<DiscoveredApp>) -> Result<DiscoveredApp, FindError> {
    if apps.iter().any(|app| app.state == Reachability::Live) {
        apps.retain(|app| app.state == Reachability::Live);
    }
    match <[DiscoveredApp; 1]>::try_from(apps) {
        Ok([app]) => live(app),
        Err(apps) => Err(FindError::Several(apps)),
    }
}

fn live(app: DiscoveredApp) -> Result<DiscoveredApp, FindError> {
    match app.state {
        Reachability::Live => Ok(app),
        Reachability::NoTelemetry => Err(FindError::NoTelemetry(app.into())),
        Reachability::Unreachable(reason) => Err(FindError::Unreachable(app.into(), reason)),
        Reachability::Stale => {
            let (running, unreadable) = (Vec::new(), Vec::new());
            Err(FindError::Unknown { name: app.name, running, unreadable })
        }
    }
}
