//! Functions, and the activities to which they belong.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// In the receive function of a port, or in a function that it calls.
    DriverRx,
    /// In the transmit function of a port, or in a function that it calls.
    DriverTx,
    /// Elsewhere in a driver: in a function that is neither, or that has an unknown caller.
    Driver,
    /// In the libraries of mempools and mbufs, but not called by a driver.
    Mempool,
    /// In another library of DPDK.
    Dpdk,
    /// In libpmdscope.
    Pmdscope,
    /// In the kernel: system calls, page faults, interrupts.
    Kernel,
    /// In the app's own code, in its own libraries, or in the C library that these call.
    App,
    /// In code that belongs to no file, or that is unknown.
    Unknown,
}

impl Activity {
    /// All activities, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::DriverRx,
        Self::DriverTx,
        Self::Driver,
        Self::Mempool,
        Self::Dpdk,
        Self::Pmdscope,
        Self::Kernel,
        Self::App,
        Self::Unknown,
    ];

    /// Returns its name for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::DriverRx => "driver RX",
            Self::DriverTx => "driver TX",
            Self::Driver => "driver, RX or TX unknown",
            Self::Mempool => "mempool, mbuf",
            Self::Dpdk => "other DPDK library",
            Self::Pmdscope => "libpmdscope",
            Self::Kernel => "kernel",
            Self::App => "app",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The owner of the code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Code of one activity.
    Activity(Activity),
    /// The C library and similar libraries, which work for their caller, as do functions of DPDK's
    /// headers.
    Caller,
}

/// Returns the owner of the functions of a file.
pub(crate) fn owner_of_module(name: &str) -> Owner {
    const DRIVERS: [&str; 8] = [
        "librte_net_",
        "librte_bus_",
        "librte_common_",
        "librte_vhost",
        "librte_pmd_",
        "libmlx",
        "libibverbs",
        "libxdp",
    ];
    const SYSTEM: [&str; 9] = [
        "libc.",
        "libc-",
        "libm.",
        "libpthread",
        "librt.",
        "ld-linux",
        "libgcc_s",
        "libstdc++",
        "[vdso]",
    ];
    const MEMPOOL: [&str; 3] = ["librte_mempool", "librte_mbuf", "librte_stack"];
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if begins(&SYSTEM) {
        Owner::Caller
    } else if begins(&DRIVERS) {
        Owner::Activity(Activity::Driver)
    } else if begins(&MEMPOOL) {
        Owner::Activity(Activity::Mempool)
    } else if name.starts_with("librte_") {
        Owner::Activity(Activity::Dpdk)
    } else if name.starts_with("libpmdscope.") {
        Owner::Activity(Activity::Pmdscope)
    } else {
        Owner::Activity(Activity::App)
    }
}

/// Returns the owner of a function of a file, also by its name: for apps that are linked
/// statically, and for functions that were inlined into the app from DPDK's headers.
pub(crate) fn owner_of_function(module: Owner, name: &str, inlined: bool) -> Owner {
    const MEMPOOL: [&str; 5] =
        ["rte_mempool_", "rte_pktmbuf_", "rte_mbuf_", "common_ring_mp_", "common_ring_sp_"];
    if module != Owner::Activity(Activity::App) {
        return module;
    }
    let plain = name.trim_start_matches('_');
    if MEMPOOL.iter().any(|prefix| plain.starts_with(prefix)) {
        return Owner::Activity(Activity::Mempool);
    }
    match plain {
        "rte_eth_rx_burst" => Owner::Activity(Activity::DriverRx),
        "rte_eth_tx_burst" | "rte_eth_tx_buffer" => Owner::Activity(Activity::DriverTx),
        _ if plain.starts_with("pmdscope_") && !plain.contains("::") => {
            Owner::Activity(Activity::Pmdscope)
        }
        _ if plain.starts_with("rte_") && inlined => Owner::Caller,
        _ if plain.starts_with("mm_") && inlined => Owner::Caller,
        _ if plain.starts_with("rte_") || plain.starts_with("eal_") => {
            Owner::Activity(Activity::Dpdk)
        }
        _ => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_app_unless_they_are_known() {
        let of = |name| match owner_of_module(name) {
            Owner::Activity(activity) => Some(activity),
            Owner::Caller => None,
        };
        assert_eq!(of("librte_net_null.so.23.0"), Some(Activity::Driver));
        assert_eq!(of("librte_net.so.23"), Some(Activity::Dpdk));
        assert_eq!(of("librte_mempool_ring.so.23"), Some(Activity::Mempool));
        assert_eq!(of("librte_hash.so.23"), Some(Activity::Dpdk));
        assert_eq!(of("libpmdscope.so.0"), Some(Activity::Pmdscope));
        assert_eq!(of("libc.so.6"), None);
        assert_eq!(of("[vdso]"), None);
        assert_eq!(of("dpdk-testpmd"), Some(Activity::App));
        assert_eq!(of("libcustomer.so"), Some(Activity::App));
    }

    #[test]
    fn functions_of_dpdk_within_the_app_are_known_by_name() {
        let app = Owner::Activity(Activity::App);
        let of = |name, inlined| owner_of_function(app, name, inlined);
        assert_eq!(of("parse_http", false), app);
        assert_eq!(of("rte_pktmbuf_free_seg", true), Owner::Activity(Activity::Mempool));
        assert_eq!(of("__rte_mempool_generic_get", true), Owner::Activity(Activity::Mempool));
        assert_eq!(of("rte_rdtsc", true), Owner::Caller);
        assert_eq!(of("rte_hash_lookup", false), Owner::Activity(Activity::Dpdk));
        assert_eq!(of("rte_eth_rx_burst", true), Owner::Activity(Activity::DriverRx));
        assert_eq!(of("pmdscope_poll", false), Owner::Activity(Activity::Pmdscope));
        assert_eq!(of("pmdscope_like::poll", false), app, "a function in Rust");
        let driver = Owner::Activity(Activity::Driver);
        assert_eq!(owner_of_function(driver, "rte_pktmbuf_alloc", true), driver);
    }

    #[test]
    fn activities_are_listed_once() {
        let mut all = Activity::ALL.to_vec();
        all.dedup();
        assert_eq!(all.len(), Activity::ALL.len());
        assert!(all.is_sorted());
    }
}
