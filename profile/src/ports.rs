//! The functions that receive and send for ports, which `rte_eth_rx_burst()` and
//! `rte_eth_tx_burst()` call.
//!
//! They are static functions of drivers, which have no symbols in a stripped library. Since DPDK
//! 21.11 their addresses are in the exported table `rte_eth_fp_ops`, by port. The table is read,
//! never written, and without stopping the process. Its layout has changed between releases, so
//! pointers are used only if they point to what a known layout has there.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::ops::Range;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::module::{DataSymbol, Module};

/// Name of the exported table.
const TABLE: &str = "rte_eth_fp_ops";

/// Bytes of the entry of a port: a cache line of 64 bytes for RX, and one for TX.
const ENTRY_BYTES: usize = 128;

/// Words of the entry of a port.
const ENTRY_WORDS: usize = ENTRY_BYTES / size_of::<u64>();

/// Most bytes of a table that are read: 4096 ports.
const MOST_TABLE_BYTES: u64 = 4096 * ENTRY_BYTES as u64;

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortDirection {
    Rx,
    Tx,
}

/// A function that receives or sends for some ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortFunction {
    pub(crate) direction: PortDirection,
    /// Ports that share it, in ascending order.
    pub(crate) ports: Vec<u16>,
    /// Its addresses in the process.
    pub(crate) range: Range<u64>,
}

/// Returns the functions of these ports, or the reason why they are unknown.
pub(crate) fn port_functions(
    pid: u32,
    modules: &[Module],
    ports: &[u16],
) -> Result<Vec<PortFunction>, String> {
    // The linker may have moved the table from the library to the executable (a copy relocation);
    // then the one in the library is not used.
    let executable = modules.iter().filter(|module| module.is_executable);
    let library = modules.iter().filter(|module| module.name.starts_with("librte_ethdev"));
    let mut tables = executable.chain(library).filter_map(|module| module.variable(TABLE));
    let table = tables
        .next()
        .ok_or_else(|| format!("the app has no symbol {TABLE}: DPDK before 21.11, or stripped"))?;
    let functions = functions(&read(pid, table)?, modules, ports);
    if functions.is_empty() && !ports.is_empty() {
        return Err(format!("{TABLE} is not laid out as in any known release of DPDK"));
    }
    Ok(functions)
}

/// Returns the functions of ports in a table.
fn functions(words: &[u64], modules: &[Module], ports: &[u16]) -> Vec<PortFunction> {
    let function = |address: u64| modules.iter().find_map(|module| module.function(address));
    let mut functions: BTreeMap<(PortDirection, u64, u64), Vec<u16>> = BTreeMap::new();
    for port in ports {
        let begin = usize::from(*port) * ENTRY_WORDS;
        let entry = words.get(begin..begin + ENTRY_WORDS).unwrap_or_default();
        let Some(bursts) = bursts(entry, |address| function(address).is_some()) else { continue };
        for (direction, burst) in [PortDirection::Rx, PortDirection::Tx].into_iter().zip(bursts) {
            if let Some(range) = function(burst) {
                functions.entry((direction, range.start, range.end)).or_default().push(*port);
            }
        }
    }
    let of =
        |((direction, start, end), ports)| PortFunction { direction, ports, range: start..end };
    functions.into_iter().map(of).collect()
}

fn read(pid: u32, table: DataSymbol) -> Result<Vec<u64>, String> {
    let size = usize::try_from(table.size.min(MOST_TABLE_BYTES)).unwrap_or_default();
    if size == 0 || !size.is_multiple_of(ENTRY_BYTES) {
        return Err(format!("{TABLE} has {size} bytes, no multiple of {ENTRY_BYTES}"));
    }
    let mut bytes = vec![0; size];
    let base = usize::try_from(table.address).map_err(|error| error.to_string())?;
    let pid = Pid::from_raw(i32::try_from(pid).map_err(|error| error.to_string())?);
    let length = process_vm_readv(
        pid,
        &mut [IoSliceMut::new(&mut bytes)],
        &[RemoteIoVec { base, len: size }],
    )
    .map_err(|error| {
        format!("cannot read {TABLE} of the app ({error}): that needs CAP_SYS_PTRACE")
    })?;
    bytes.truncate(length);
    let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    Ok(words.collect())
}

/// Returns `rx_pkt_burst` and `tx_pkt_burst` of an entry. Up to 23.03 each line begins with
/// functions, and has two pointers to data from its fourth word on; later the two pointers come
/// first.
fn bursts(entry: &[u64], is_function: impl Fn(u64) -> bool) -> Option<[u64; 2]> {
    let halves = [entry.get(..ENTRY_WORDS / 2)?, entry.get(ENTRY_WORDS / 2..)?];
    let functions = |line: &[u64], at: usize, data: usize| {
        let pointers = line.get(data..data + 2)?;
        let burst = *line.get(at)?;
        (is_function(burst) && !pointers.iter().any(|word| is_function(*word))).then_some(burst)
    };
    let bursts =
        |at, data| Some([functions(halves[0], at, data)?, functions(halves[1], at, data)?]);
    bursts(0, 3).or_else(|| bursts(2, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RX: u64 = 0x1000;
    const TX: u64 = 0x1100;
    const OTHER: u64 = 0x1200;
    const DATA: u64 = 0x9000;

    fn is_function(address: u64) -> bool {
        (0x1000..0x2000).contains(&address)
    }

    #[test]
    fn both_layouts_are_understood() {
        let old = [RX, OTHER, OTHER, DATA, DATA, 0, 0, 0, TX, OTHER, OTHER, DATA, DATA, 0, 0, 0];
        assert_eq!(bursts(&old, is_function), Some([RX, TX]));
        let new = [DATA, DATA, RX, OTHER, OTHER, OTHER, 0, 0, DATA, DATA, TX, OTHER, 0, 0, 0, 0];
        assert_eq!(bursts(&new, is_function), Some([RX, TX]));
        // A driver need not have the other functions.
        let bare = [DATA, DATA, RX, 0, 0, 0, 0, 0, DATA, DATA, TX, 0, 0, 0, 0, 0];
        assert_eq!(bursts(&bare, is_function), Some([RX, TX]));
    }

    #[test]
    fn nothing_else_is_believed() {
        assert_eq!(bursts(&[0; ENTRY_WORDS], is_function), None);
        assert_eq!(bursts(&[RX; ENTRY_WORDS], is_function), None);
        assert_eq!(bursts(&[DATA; ENTRY_WORDS], is_function), None);
        assert_eq!(bursts(&[RX; 3], is_function), None);
    }

    #[test]
    fn an_app_without_the_table_is_told() {
        assert!(port_functions(1, &[], &[0]).unwrap_err().contains("rte_eth_fp_ops"));
    }
}
