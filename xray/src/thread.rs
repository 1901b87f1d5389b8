//! Threads of an app, as reported by its process or its core file.

/// A thread of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppThread {
    /// Its id, as seen by the app itself: in a container it differs from that of the host.
    pub id: u32,
    /// It is the first thread of the process.
    pub is_main: bool,
    /// Its name; empty if it is not known, as in a core file.
    pub name: String,
}
