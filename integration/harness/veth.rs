//! A pair of Ethernet interfaces of the kernel, joined by a wire.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::process::run_to_success;

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Two interfaces: what one sends, the other receives. Dropping it removes both.
pub struct Veth {
    names: [String; 2],
}

impl Veth {
    /// Makes a pair that is up, and on which the kernel itself sends nothing.
    ///
    /// # Errors
    /// When the kernel has no such interfaces, or does not let us make them.
    pub fn new() -> Result<Self> {
        let (pid, serial) = (std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|end| format!("pv{pid}.{serial}{end}"));
        let pair = Self { names };
        let [near, far] = &pair.names;
        ip(&["link", "add", near, "type", "veth", "peer", "name", far])?;
        for name in &pair.names {
            let quiet = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            if Path::new(&quiet).exists() {
                std::fs::write(&quiet, "1").with_context(|| quiet)?;
            }
            ip(&["link", "set", name, "up"])?;
        }
        Ok(pair)
    }

    /// Sets the MTU of both ends, and gives an address to the far end: the first one. The kernel sends
    /// from it to the second without ARP.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn address(&self, mtu: u32) -> Result<[Ipv4Addr; 2]> {
        let [near, far] = &self.names;
        for name in [near, far] {
            ip(&["link", "set", name, "mtu", &mtu.to_string()])?;
        }
        let ends = [Ipv4Addr::new(198, 18, 76, 1), Ipv4Addr::new(198, 18, 76, 2)];
        let [own, other] = ends.map(|end| end.to_string());
        ip(&["addr", "add", &format!("{own}/24"), "dev", far])?;
        let mac = "02:70:6d:64:76:02";
        ip(&["neigh", "add", &other, "lladdr", mac, "dev", far, "nud", "permanent"])?;
        Ok(ends)
    }

    /// The end for the app.
    pub fn near(&self) -> &str {
        &self.names[0]
    }

    /// The end for the sender.
    pub fn far(&self) -> &str {
        &self.names[1]
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = ip(&["link", "delete", self.near()]);
    }
}

fn ip(args: &[&str]) -> Result<()> {
    run_to_success(Command::new("ip").args(args)).map(drop)
}
