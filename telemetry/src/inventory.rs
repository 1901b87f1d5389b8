//! What ought to be there: apps and ports that somebody expects.
//!
//! An app that starts without its NICs is alive, answers, and does nothing. Only an expectation makes
//! that visible: the configuration's, else that of the app's own arguments, else one port.

/// The expected apps; those that are not named are judged by their own arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The apps that must run on this machine.
    pub apps: Vec<ExpectedApp>,
}

/// What is expected of one app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedApp {
    /// Its name, after mapping.
    pub name: String,
    /// Devices that must be among its ports, for instance `0000:03:00.0` or `net_vhost0`. Empty:
    /// those of its own arguments.
    pub ports: Vec<String>,
    /// Least number of ports; `None`: as many as `ports`, at least one.
    pub min_ports: Option<usize>,
    /// Ports that may have no link, or receive nothing though they did; `"*"` for all.
    pub may_be_idle: Vec<String>,
}

impl Inventory {
    /// What is expected of this app.
    pub fn app(&self, name: &str) -> Option<&ExpectedApp> {
        self.apps.iter().find(|app| app.name == name)
    }
}
