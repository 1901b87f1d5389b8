//! The scope of a request.

/// The apps that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScrapeScope {
    /// All apps.
    All,
    /// The app with this name.
    App(String),
    /// Only the names of apps, without querying them.
    Names,
}

impl ScrapeScope {
    /// Returns whether the interfaces of the host are in scope.
    pub(super) fn includes_interfaces(&self) -> bool {
        !matches!(self, Self::App(_))
    }

    /// Returns whether an app is queried.
    pub(super) fn includes(&self, app: &str) -> bool {
        match self {
            Self::All => true,
            Self::App(name) => name == app,
            Self::Names => false,
        }
    }
}
