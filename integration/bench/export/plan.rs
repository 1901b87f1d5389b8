//! The measurements to make.

use std::fmt;

use pmdscope_integration::site::Idle;

/// A number of apps of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExportCase {
    pub(crate) apps: usize,
    pub(crate) idle: Idle,
}

impl fmt::Display for ExportCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { apps, idle: Idle { ports, queues, linked } } = self;
        let many = if *apps == 1 { String::new() } else { format!("{apps} apps of ") };
        write!(f, "{many}{ports} x {queues}{}", if *linked { ", libpmdscope" } else { "" })
    }
}

/// Ports of one app, queues of each port. Debian builds DPDK for 32 ports at most.
const SHAPES: &[(u16, u16)] = &[(1, 1), (4, 4), (16, 16), (32, 64)];
const QUICK_SHAPES: &[(u16, u16)] = &[(1, 1), (16, 16)];
/// Ports and queues of each of several apps.
const SEVERAL: (u16, u16) = (4, 4);

/// All cases, the larger ones last.
pub(crate) fn cases(quick: bool) -> Vec<ExportCase> {
    let case =
        |apps, (ports, queues), linked| ExportCase { apps, idle: Idle { ports, queues, linked } };
    let shapes = if quick { QUICK_SHAPES } else { SHAPES };
    let several: &[usize] = if quick { &[5] } else { &[5, 20] };
    let one = shapes.iter().flat_map(|&shape| [false, true].map(|linked| case(1, shape, linked)));
    let many = several.iter().flat_map(|&n| [false, true].map(|linked| case(n, SEVERAL, linked)));
    one.chain(many).collect()
}

/// The cases of which only cold scrapes are measured.
pub(crate) fn cold_cases() -> Vec<ExportCase> {
    let case = |&(ports, queues)| {
        [false, true].map(|linked| ExportCase { apps: 1, idle: Idle { ports, queues, linked } })
    };
    QUICK_SHAPES.iter().flat_map(case).collect()
}

/// Scrapes of each kind in one round: fewer if each takes longer.
pub(crate) fn scrapes(case: &ExportCase, quick: bool) -> usize {
    let ports = case.apps * usize::from(case.idle.ports);
    let most = if quick { 100 } else { 200 };
    (most / ports.max(1).div_ceil(8)).max(20)
}

/// Scrapes of each kind after a rest.
pub(crate) fn rested_scrapes(quick: bool) -> usize {
    if quick { 11 } else { 21 }
}
