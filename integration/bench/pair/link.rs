//! The links and the sizes of packets.

use std::fmt::Display;
use std::path::Path;

/// A virtual link of two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// `net_memif`: the server reflects.
    Memif,
    /// `net_virtio_user` generates, `net_vhost` reflects.
    Vhost,
}

impl Link {
    pub(crate) const ALL: [Self; 2] = [Self::Memif, Self::Vhost];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memif => "memif",
            Self::Vhost => "vhost",
        }
    }

    /// EAL arguments of the reflecting side, with this many descriptors per queue, a power of two.
    pub(crate) fn server(self, socket: &Path, descriptors: u32) -> Vec<String> {
        let socket = socket.display();
        let device = match self {
            Self::Memif => memif("server", socket, descriptors),
            Self::Vhost => format!("net_vhost0,iface={socket},queues=1"),
        };
        vec!["--vdev".to_owned(), device]
    }

    /// EAL arguments of the generating side.
    pub(crate) fn client(self, socket: &Path, descriptors: u32) -> Vec<String> {
        let socket = socket.display();
        let device = match self {
            Self::Memif => memif("client", socket, descriptors),
            Self::Vhost => {
                format!("net_virtio_user0,path={socket},queues=1,queue_size={descriptors}")
            }
        };
        let mut args = vec!["--vdev".to_owned(), device];
        if self == Self::Vhost {
            // vhost-user passes one file descriptor per memory segment, eight at most.
            args.push("--single-file-segments".to_owned());
        }
        args
    }
}

fn memif(role: &str, socket: impl Display, descriptors: u32) -> String {
    let log2 = descriptors.ilog2();
    format!("net_memif0,role={role},socket={socket},socket-abstract=no,rsize={log2}")
}

/// How testpmd generates packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestpmdTraffic {
    /// `flowgen`, which sends one size, with `--txpkts`: four bytes less, for the FCS.
    Flowgen(&'static str),
    /// [`IMIX`] from a file in memory: `net_pcap` with `infinite_rx`, forwarded by `io`.
    Replay,
}

/// The frames that the generator sends in turn with `--size imix`.
pub(crate) const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

/// Sizes of frames. Those here are without FCS, as DPDK counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    Small,
    Mix,
    Large,
}

impl Size {
    pub(crate) const ALL: [Self; 3] = [Self::Small, Self::Mix, Self::Large];

    /// Its name in `--only`.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Small => "64",
            Self::Mix => "imix",
            Self::Large => "1500",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "64 B",
            Self::Mix => "IMIX",
            Self::Large => "1500 B",
        }
    }

    /// `--size` of the generator.
    pub(crate) fn generator(self) -> &'static str {
        match self {
            Self::Small => "60",
            Self::Mix => "imix",
            Self::Large => "1496",
        }
    }

    /// What testpmd generates it with.
    pub(crate) fn testpmd(self) -> TestpmdTraffic {
        match self {
            Self::Small => TestpmdTraffic::Flowgen("64"),
            Self::Mix => TestpmdTraffic::Replay,
            Self::Large => TestpmdTraffic::Flowgen("1500"),
        }
    }
}
