//! Subjects of findings.

use std::fmt;

use serde::{Serialize, Serializer};

/// The subject of a finding. Text and JSON contain only its name, which is empty for the app itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingSubject {
    /// The app itself.
    #[default]
    App,
    /// A port that the app has or should have, by its device.
    Port(String),
    /// A PCI device that is not a port, by its address.
    Device(String),
    /// A mempool.
    Pool(String),
    /// A heap of the EAL.
    Heap(String),
    /// A software ring.
    Ring(String),
    /// A place that lost or misused mbufs of a pool.
    Site {
        /// Name of the pool.
        pool: String,
        /// The place, without the directories of a source file.
        site: String,
    },
    /// A polling lcore, by its id.
    Lcore(u32),
    /// An interface of the kernel.
    Interface(String),
    /// A subject of a recording, of unknown kind.
    Recorded(String),
}

impl FindingSubject {
    /// Whether it is the app itself.
    pub fn is_app(&self) -> bool {
        *self == Self::App
    }

    /// Returns the mempool, if it is the subject or the subject is one of its sites.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::Pool(pool) | Self::Site { pool, .. } => Some(pool),
            _ => None,
        }
    }

    /// Parses the output of [`ToString`]; the text alone does not distinguish a port from a pool.
    pub fn recorded(text: String) -> Self {
        if text.is_empty() { Self::App } else { Self::Recorded(text) }
    }
}

impl fmt::Display for FindingSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::App => Ok(()),
            Self::Port(name)
            | Self::Device(name)
            | Self::Pool(name)
            | Self::Heap(name)
            | Self::Ring(name)
            | Self::Interface(name)
            | Self::Recorded(name) => f.write_str(name),
            Self::Site { pool, site } => write!(f, "{pool} {site}"),
            Self::Lcore(lcore) => write!(f, "lcore {lcore}"),
        }
    }
}

impl Serialize for FindingSubject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_text() {
        let site = FindingSubject::Site { pool: "mb".into(), site: "app.c:18".into() };
        for (subject, text) in [
            (FindingSubject::App, ""),
            (FindingSubject::Port("net_vhost0".into()), "net_vhost0"),
            (FindingSubject::Device("0000:03:00.0".into()), "0000:03:00.0"),
            (FindingSubject::Pool("mb".into()), "mb"),
            (FindingSubject::Ring("out".into()), "out"),
            (FindingSubject::Interface("eth0".into()), "eth0"),
            (site, "mb app.c:18"),
            (FindingSubject::Lcore(2), "lcore 2"),
            (FindingSubject::recorded(String::new()), ""),
            (FindingSubject::recorded("net_vhost0".into()), "net_vhost0"),
        ] {
            assert_eq!(subject.to_string(), text);
            assert_eq!(serde_json::to_value(&subject).unwrap(), text);
            assert_eq!(subject.is_app(), text.is_empty());
        }
    }
}
