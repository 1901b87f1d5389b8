//! All metrics by group: name, labels and help text.

mod app;
mod interface;
mod lcore;
mod memory;
mod port;

pub use app::*;
pub use interface::*;
pub use lcore::*;
pub use memory::*;
pub use port::*;

use crate::family::MetricDescriptor;

/// Declares metrics, each as a static, and a list of them.
macro_rules! metrics {
    ($list:ident: $($metric:ident = $kind:ident $name:literal [$($label:literal)*] $help:literal;)+) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub static $metric: $crate::family::MetricDescriptor = $crate::family::MetricDescriptor {
                name: $name,
                kind: $crate::family::MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )+
        pub(super) static $list: &[&$crate::family::MetricDescriptor] = &[$(&$metric),+];
    };
}
use metrics;

/// Metrics of one kind of object.
#[derive(Debug)]
pub struct MetricGroup {
    /// Title of the group.
    pub title: &'static str,
    /// The metrics, in the order in which they are exported.
    pub metrics: &'static [&'static MetricDescriptor],
}

/// All metrics, in the order in which they are exported.
pub static GROUPS: &[MetricGroup] = &[
    MetricGroup { title: "Exporter", metrics: app::EXPORTER },
    MetricGroup { title: "Apps", metrics: app::APP },
    MetricGroup { title: "PCI devices", metrics: port::PCI },
    MetricGroup { title: "Ports", metrics: port::PORT },
    MetricGroup { title: "Queues", metrics: port::QUEUE },
    MetricGroup { title: "Mempools", metrics: memory::POOL },
    MetricGroup { title: "Leaks", metrics: memory::LEAK },
    MetricGroup { title: "Rings", metrics: memory::RING },
    MetricGroup { title: "Heaps", metrics: memory::HEAP },
    MetricGroup { title: "Lcores", metrics: lcore::LCORE },
    MetricGroup { title: "Stolen time", metrics: lcore::STOLEN },
    MetricGroup { title: "Captures", metrics: lcore::CAPTURE },
    MetricGroup { title: "Interfaces of the kernel", metrics: interface::INTERFACE },
];

/// All metrics, in the order in which they are exported.
pub fn all() -> impl Iterator<Item = &'static MetricDescriptor> {
    GROUPS.iter().flat_map(|group| group.metrics.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::family::MetricKind;

    #[test]
    fn names_are_unique_also_as_families() {
        let mut names = BTreeSet::new();
        for metric in all() {
            assert!(names.insert(metric.family()), "{}", metric.name);
        }
    }

    #[test]
    fn names_follow_the_conventions() {
        for MetricDescriptor { name, kind, labels, help } in all() {
            assert!(name.starts_with("dpdk_"), "{name}");
            assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == MetricKind::Info, "{name}");
            assert!(!labels.contains(&"le"), "{name}");
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\', '"', '|']),
                "{name}: {help}"
            );
        }
    }

    #[test]
    fn help_names_only_metrics_that_exist() {
        let names: BTreeSet<_> = all().map(|metric| metric.name).collect();
        for metric in all() {
            let words = metric.help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| word.starts_with("dpdk_")) {
                assert!(names.contains(word), "{}: {word}", metric.name);
            }
        }
    }

    #[test]
    fn units_come_from_names() {
        assert_eq!(PORT_RECEIVE_BYTES.unit(), Some("bytes"));
        assert_eq!(PORT_LINK_SPEED.unit(), Some("bytes_per_second"));
        assert_eq!(LCORE_POLL_GAP.unit(), Some("seconds"));
        assert_eq!(PORT_RECEIVE_PACKETS.unit(), None);
    }
}
