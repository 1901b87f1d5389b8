//! Ways to drop the flood: the filter, and rules of the kernel's own packet filters for the same
//! prefix.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use serde_json::Value;

/// Sources of the flood.
const PREFIX: &str = "198.19.0.0/16";

/// One way to drop packets of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropper {
    /// A program that only drops, to measure the cost of sender and wire.
    Floor,
    Native,
    Generic,
    NftIngress,
    NftPrerouting,
    Iptables,
}

impl Dropper {
    pub(crate) const ALL: [Self; 6] = [
        Self::Floor,
        Self::Native,
        Self::Generic,
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Iptables,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "XDP_DROP and nothing else",
            Self::Native => "filter, native",
            Self::Generic => "filter, generic",
            Self::NftIngress => "nftables, netdev ingress",
            Self::NftPrerouting => "nftables, inet prerouting (raw)",
            Self::Iptables => "iptables, raw PREROUTING",
        }
    }

    /// The program that must be installed.
    pub(crate) fn program(self) -> Option<&'static str> {
        match self {
            Self::Floor | Self::Native | Self::Generic => None,
            Self::NftIngress | Self::NftPrerouting => Some("nft"),
            Self::Iptables => Some("iptables"),
        }
    }

    /// Starts to drop on the far side.
    pub(crate) fn begin(self, pair: &NamespacePair, pmdscope: &Path, floor: &Path) -> Result<()> {
        let filter = |mode| {
            let words = ["xdp", "attach", INTERFACE, "--mode", mode, "--deny", PREFIX];
            far(pair, pmdscope, &words).map(drop)
        };
        let nft = |chain: &str| {
            let rule = format!("ip saddr {PREFIX} counter drop");
            let (family, hook) = chain.split_once(' ').context("chain")?;
            let text = format!(
                "table {family} bench {{ chain flood {{ type filter hook {hook}; {rule}; }}; }}"
            );
            far(pair, "nft", &[&text]).map(drop)
        };
        match self {
            Self::Floor => {
                let object = floor.to_str().context("path")?;
                let program = ["xdpdrv", "obj", object, "sec", "xdp"];
                far(pair, "ip", &[&["link", "set", "dev", INTERFACE][..], &program].concat())
                    .map(drop)
            }
            Self::Native => filter("native"),
            Self::Generic => filter("generic"),
            Self::NftIngress => nft(&format!("netdev ingress device {INTERFACE} priority 0")),
            Self::NftPrerouting => nft("inet prerouting priority -300"),
            Self::Iptables => {
                let words = ["-t", "raw", "-A", "PREROUTING", "-s", PREFIX, "-j", "DROP"];
                far(pair, "iptables", &words).map(drop)
            }
        }
    }

    /// Packets that it has dropped; `None` if they are not counted.
    pub(crate) fn dropped(self, pair: &NamespacePair, pmdscope: &Path) -> Result<Option<u64>> {
        let dropped = match self {
            Self::Floor => return Ok(None),
            Self::Native | Self::Generic => {
                let out = far(pair, pmdscope, &["xdp", "status", INTERFACE, "--json"])?;
                let status: Value = serde_json::from_str(&out)?;
                let verdicts = status["filters"][0]["verdicts"].as_array().context("verdicts")?;
                let denied = verdicts.iter().find(|verdict| verdict["reason"] == "denied");
                denied.and_then(|verdict| verdict["packets"].as_u64()).context("denied")
            }
            Self::NftIngress | Self::NftPrerouting => {
                let out = far(pair, "nft", &["list", "ruleset"])?;
                let counter = out.split("counter packets ").nth(1).context("no counter")?;
                let packets = counter.split(' ').next().unwrap_or_default();
                packets.parse().with_context(|| out.clone())
            }
            Self::Iptables => {
                let out = far(pair, "iptables", &["-t", "raw", "-nvxL", "PREROUTING"])?;
                let rule = out.lines().find(|line| line.contains("DROP")).context("no rule")?;
                let packets = rule.split_whitespace().next().unwrap_or_default();
                packets.parse().with_context(|| out.clone())
            }
        };
        dropped.map(Some)
    }

    /// Stops it.
    pub(crate) fn end(self, pair: &NamespacePair, pmdscope: &Path) -> Result<()> {
        match self {
            Self::Floor => far(pair, "ip", &["link", "set", "dev", INTERFACE, "xdpdrv", "off"]),
            Self::Native | Self::Generic => far(pair, pmdscope, &["xdp", "detach", INTERFACE]),
            Self::NftIngress | Self::NftPrerouting => far(pair, "nft", &["flush", "ruleset"]),
            Self::Iptables => far(pair, "iptables", &["-t", "raw", "-F"]),
        }
        .map(drop)
    }
}

/// Runs a program on the far side, and returns its output.
pub(crate) fn far(
    pair: &NamespacePair,
    program: impl AsRef<Path>,
    args: &[&str],
) -> Result<String> {
    let program = program.as_ref();
    let out = pair.command(Side::Far, program).args(args).output()?;
    let told = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{} {}: {told}", program.display(), args.join(" "));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
