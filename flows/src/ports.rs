//! Ports of apps, or interfaces of files, and packets lost on them.

use std::collections::HashMap;

use pmdscope_packets::{CaptureInterface, InterfaceStatistics, Packet};

/// An interface of the current section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InterfacePort {
    /// Number of the app.
    pub(super) app: u16,
    /// DPDK port, or number of the interface in the file.
    pub(super) id: u16,
    pub(super) linktype: u16,
    /// Index into `PortTable::losses`.
    name: usize,
}

/// Packets lost on the interfaces of one name, in all sections. Gaps between packets and counters say
/// the same, but counters also include losses after the last packet, and files may lack either.
#[derive(Clone, Copy, Debug, Default)]
struct LossCounts {
    gaps: u64,
    /// Sum of counters before they were reset.
    past: u64,
    told: u64,
}

/// All interfaces of the current section, and the names of all sections.
#[derive(Debug, Default)]
pub(super) struct PortTable {
    /// Interfaces of the current section.
    all: Vec<InterfacePort>,
    apps: Vec<String>,
    app_numbers: HashMap<String, u16>,
    names: HashMap<String, usize>,
    losses: Vec<LossCounts>,
}

impl PortTable {
    /// Begins a section.
    pub(super) fn begin(&mut self) {
        self.all.clear();
    }

    pub(super) fn add(&mut self, interface: &CaptureInterface) {
        let number = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        let name = match interface.name.as_str() {
            // Plain pcap files and pcapng files of other tools have no names.
            "" => format!("interface {number}"),
            name => name.to_owned(),
        };
        let (app, id) = split(&name).unwrap_or((&name, number));
        let app = self.app(app);
        let next = self.losses.len();
        let name = *self.names.entry(name).or_insert(next);
        if name == next {
            self.losses.push(LossCounts::default());
        }
        self.all.push(InterfacePort { app, id, linktype: interface.linktype, name });
    }

    /// Returns the number of an app; apps beyond the 65,536th share the last number.
    fn app(&mut self, name: &str) -> u16 {
        if let Some(&number) = self.app_numbers.get(name) {
            return number;
        }
        let Ok(number) = u16::try_from(self.apps.len()) else { return u16::MAX };
        self.apps.push(name.to_owned());
        self.app_numbers.insert(name.to_owned(), number);
        number
    }

    /// Returns the port of a packet, and adds the losses before the packet.
    #[inline]
    pub(super) fn of(&mut self, packet: &Packet<'_>) -> Option<InterfacePort> {
        let port = *self.all.get(packet.interface as usize)?;
        if packet.dropped > 0 {
            let gaps = &mut self.losses[port.name].gaps;
            *gaps = gaps.saturating_add(packet.dropped);
        }
        Some(port)
    }

    pub(super) fn tell(&mut self, statistics: &InterfaceStatistics) {
        let port = self.all.get(statistics.interface as usize);
        let (Some(port), Some(dropped)) = (port, statistics.dropped) else { return };
        let lost = &mut self.losses[port.name];
        if dropped < lost.told {
            lost.past = lost.past.saturating_add(lost.told);
        }
        lost.told = dropped;
    }

    pub(super) fn apps(&self) -> &[String] {
        &self.apps
    }

    pub(super) fn lost(&self) -> u64 {
        let lost = |lost: &LossCounts| lost.gaps.max(lost.past.saturating_add(lost.told));
        self.losses.iter().map(lost).fold(0, u64::saturating_add)
    }
}

/// Splits a name `APP:PORT`.
fn split(name: &str) -> Option<(&str, u16)> {
    let (app, port) = name.rsplit_once(':')?;
    Some((app, port.parse().ok()?)).filter(|(app, _)| !app.is_empty())
}
