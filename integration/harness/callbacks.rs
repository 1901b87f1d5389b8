//! The callbacks on an app's queues, read out of its memory: what a capture has hooked in.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pmdscope_testing::output;

/// What the inline functions of the ethdev library read, so that every program which receives has it
/// in its own memory; see `rte_ethdev_core.h`.
const SYMBOL: &str = "rte_eth_fp_ops";
const PORT_BYTES: u64 = 128;
/// Where a port keeps its lists of callbacks, for reception and transmission.
const LISTS_AT: [u64; 2] = [32, 96];
const POINTER: usize = 8;

/// Queues of the first `ports` ports with a callback, `queues` of them each in each direction.
pub fn hooked(pid: u32, ports: u16, queues: u16) -> Result<usize> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let table = address(pid)?;
    let mut hooked = 0;
    for port in 0..u64::from(ports) {
        for list_at in LISTS_AT {
            let list = pointer(&memory, table + port * PORT_BYTES + list_at)?;
            for queue in 0..u64::from(queues) {
                hooked += usize::from(pointer(&memory, list + queue * POINTER as u64)? != 0);
            }
        }
    }
    Ok(hooked)
}

fn pointer(memory: &File, at: u64) -> Result<u64> {
    let mut bytes = [0; POINTER];
    memory.read_exact_at(&mut bytes, at).with_context(|| format!("read {at:#x} of the app"))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn address(pid: u32) -> Result<u64> {
    let program = fs::read_link(format!("/proc/{pid}/exe"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let name = program.display().to_string();
    let first = maps.lines().find(|line| line.ends_with(&name)).context("program is not mapped")?;
    let base = first.split('-').next().context("no address in maps")?;
    Ok(u64::from_str_radix(base, 16)? + offset(&program)?)
}

/// The offset of the symbol from the start of the program, which is position-independent.
fn offset(program: &Path) -> Result<u64> {
    let output = output(Command::new("nm").arg("-D").arg(program)).context("no nm")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains(SYMBOL));
    let line = line.with_context(|| format!("{} has no {SYMBOL}", program.display()))?;
    let mut words = line.split_whitespace();
    let offset = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
    ensure!(words.next() == Some("B"), "{SYMBOL} is not in the program itself: {line}");
    offset.with_context(|| format!("no address in {line}"))
}
