//! The state of an app before a process attaches to it; it must be the same afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::machine::resident_bytes;
use crate::testpmd::Testpmd;

/// Time over which forwarding is measured.
const WINDOW: Duration = Duration::from_millis(150);
/// Share of the rate that must be back: a hook left behind leaves less than a third; load on the
/// sibling hyperthread takes less than this allows.
const RATE_BACK: f64 = 0.7;
/// Longest time until the app is as before.
const SETTLE: Duration = Duration::from_secs(10);
/// Packets in flight at any time: a burst on each queue.
const ON_THEIR_WAY: u64 = 64;
/// A callback struct in a heap, with the header of the allocator.
const CALLBACK_BYTES: u64 = 192;

/// An app that forwards, undisturbed.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// Packets per nanosecond of CPU time: a CPU that others use too does not count.
    pub rate: f64,
    /// Mbufs of the app's pool.
    pub mbufs_in_use: u64,
    /// Values that must be exactly the same.
    pub exact: Exact,
    /// Memory of the process outside of hugepages.
    pub resident: u64,
}

/// Values that never change in an app that only forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Promiscuous mode of each port.
    pub promiscuous: Vec<bool>,
    /// Names.
    pub memzones: BTreeSet<String>,
    /// Size, allocated bytes and allocations of the first heap.
    pub heap: [u64; 3],
    /// Number of hugepage files of the app.
    pub hugepages: usize,
    /// Names of the files in the runtime directory.
    pub files: BTreeSet<String>,
    /// Queues with a callback.
    pub hooks: usize,
}

impl Baseline {
    /// Measures an app that forwards.
    pub fn take(testpmd: &mut Testpmd) -> Result<Self> {
        Ok(Self {
            rate: rate(testpmd)?,
            mbufs_in_use: testpmd.mbufs_in_use()?,
            exact: Exact::take(testpmd)?,
            resident: resident_bytes(testpmd.pid())?,
        })
    }

    /// Waits until the app is as it was; an error states the difference.
    pub fn await_again(&self, testpmd: &mut Testpmd) -> Result<Duration> {
        self.await_like(testpmd, Self::compare)
    }

    /// The same, after another process has left memory behind that cannot be found.
    pub fn await_usable(&self, testpmd: &mut Testpmd) -> Result<Duration> {
        self.await_like(testpmd, |was, is| {
            ensure!(is.exact.hooks == was.exact.hooks, "{} queues have callbacks", is.exact.hooks);
            Self { exact: is.exact.clone(), ..was.clone() }.compare(is)
        })
    }

    fn await_like(
        &self,
        testpmd: &mut Testpmd,
        alike: impl Fn(&Self, &Self) -> Result<()>,
    ) -> Result<Duration> {
        let start = Instant::now();
        loop {
            if let Some(status) = testpmd.process.exited()? {
                bail!("testpmd ended ({status}):\n{}", testpmd.process.output());
            }
            let now = Self::take(testpmd)?;
            match alike(self, &now) {
                Ok(()) => return Ok(start.elapsed()),
                Err(error) if start.elapsed() > SETTLE => return Err(error),
                Err(_) => sleep(Duration::from_millis(50)),
            }
        }
    }

    fn compare(&self, now: &Self) -> Result<()> {
        let (was, is) = (&self.exact, &now.exact.without_callbacks_since(&self.exact));
        ensure!(was == is, "the app was {was:?} and is {is:?}");
        let (was, is) = (self.mbufs_in_use, now.mbufs_in_use);
        ensure!(was.abs_diff(is) <= ON_THEIR_WAY, "{was} mbufs in use before, then {is}");
        let (was, is) = (self.rate, now.rate);
        ensure!(is > was * RATE_BACK, "{was:.4} packets per ns of CPU before, then {is:.4}");
        Ok(())
    }
}

impl Exact {
    /// Less what DPDK leaves in the heap for each queue and direction of a capture.
    fn without_callbacks_since(&self, before: &Self) -> Self {
        let count = self.heap[2].saturating_sub(before.heap[2]);
        let [size, bytes, _] = self.heap;
        let heap = [size, bytes.saturating_sub(count * CALLBACK_BYTES), self.heap[2] - count];
        Self { heap, ..self.clone() }
    }

    fn take(testpmd: &Testpmd) -> Result<Self> {
        let ports = testpmd.ports()?;
        let promiscuous = |port: &u64| {
            let info = testpmd.ask(&format!("/ethdev/info,{port}"))?;
            Ok(info["promiscuous"].as_u64() == Some(1))
        };
        let heap = testpmd.ask("/eal/heap_info,0")?;
        let runtime = fs::read_dir(testpmd.runtime_dir())?;
        Ok(Self {
            promiscuous: ports.iter().map(promiscuous).collect::<Result<_>>()?,
            memzones: memzones(testpmd)?,
            heap: ["Heap_size", "Alloc_size", "Alloc_count"]
                .map(|field| heap[field].as_u64().unwrap_or(u64::MAX)),
            hugepages: testpmd.hugepages()?,
            files: names(runtime).collect(),
            hooks: testpmd.hooks()?,
        })
    }
}

fn names(dir: fs::ReadDir) -> impl Iterator<Item = String> {
    dir.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Names of an app's memzones.
fn memzones(testpmd: &Testpmd) -> Result<BTreeSet<String>> {
    let list = testpmd.ask("/eal/memzone_list")?;
    let ids = list.as_array().into_iter().flatten().filter_map(Value::as_u64);
    ids.map(|id| {
        let zone = testpmd.ask(&format!("/eal/memzone_info,{id}"))?;
        Ok(zone["Name"].as_str().unwrap_or_default().to_owned())
    })
    .collect()
}

fn rate(testpmd: &Testpmd) -> Result<f64> {
    let (packets, spent) = testpmd.forwarded()?;
    sleep(WINDOW);
    let (packets_then, spent_then) = testpmd.forwarded()?;
    ensure!(spent_then > spent, "no lcore of testpmd has run");
    Ok((packets_then - packets) as f64 / (spent_then - spent) as f64)
}
