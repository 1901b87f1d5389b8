//! The apps that a request is about.

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScrapeScope {
    /// All apps.
    All,
    /// The app of that name.
    App(String),
    /// Which apps there are, not how they are.
    Names,
}

impl ScrapeScope {
    /// Whether it is about the interfaces of the host.
    pub(super) fn includes_interfaces(&self) -> bool {
        !matches!(self, Self::App(_))
    }

    /// Whether it is about that app.
    pub(super) fn includes(&self, app: &str) -> bool {
        match self {
            Self::All => true,
            Self::App(name) => name == app,
            Self::Names => false,
        }
    }
}
