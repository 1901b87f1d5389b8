//! Counters of ports, as `netstat -i` has those of the kernel's interfaces.

use pmdscope_render::number::{count, known};
use pmdscope_render::{Cell, Column, Subject, TextTable};
use pmdscope_telemetry::sample::{PortSample, counts_bytes};
use serde::Serialize;

use super::report_data::{AppCounters, ReportData};
use super::report_layout::ReportLayout;

/// Names of drivers for packets that they did not send for want of room or as broken.
const TX_DROPPED: [&str; 6] = [
    "tx_dropped_packets",
    "tx_drop_packets",
    "tx_drop_pkts",
    "tx_discard_pkts",
    "tx_discarded_packets",
    "tx_phy_discard_packets",
];

/// A port; counters that DPDK does not have, and values that were not reported, are `None`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct InterfaceRow<'a> {
    /// Name of the app, by default its file-prefix.
    app: &'a str,
    /// DPDK port id.
    port: u16,
    /// Device name, for instance `0000:03:00.0` or `net_vhost0`.
    device: &'a str,
    /// Maximum transmission unit, bytes.
    mtu: u64,
    /// Packets received since the counters were reset (`ipackets`).
    rx_ok: u64,
    /// Received packets with errors since the counters were reset (`ierrors`).
    rx_err: u64,
    /// Failed allocations of receive buffers since the counters were reset (`rx_nombuf`).
    rx_drp: u64,
    /// Packets that the NIC dropped because no receive descriptor was free, since the counters were reset
    /// (`imissed`).
    rx_ovr: u64,
    /// Packets sent since the counters were reset (`opackets`).
    tx_ok: u64,
    /// Packets that could not be sent since the counters were reset (`oerrors`).
    tx_err: u64,
    /// Packets that the driver dropped instead of sending, since the counters were reset; `None` if it does
    /// not count them.
    tx_drp: Option<u64>,
    /// Always `None`: DPDK has no such counter.
    tx_ovr: Option<u64>,
    /// Bytes received since the counters were reset; `None` if the driver does not count bytes.
    rx_bytes: Option<u64>,
    /// Bytes sent since the counters were reset; `None` if the driver does not count bytes.
    tx_bytes: Option<u64>,
    /// Whether the app has started the port.
    started: bool,
    /// Whether the link is up; `None` if not reported.
    link_up: Option<bool>,
    /// Link speed, Mbit/s; `None` if the link is down or the speed is unknown.
    link_mbps: Option<u64>,
    /// Whether the port is in promiscuous mode; `None` if not reported.
    promiscuous: Option<bool>,
    /// Ethernet address, as formatted by DPDK; `None` if not reported.
    mac: Option<&'a str>,
}

impl<'a> InterfaceRow<'a> {
    fn of(app: &'a str, sample: &'a PortSample) -> Self {
        let stats = &sample.stats;
        let bytes = |packets, bytes| Some(bytes).filter(|bytes| counts_bytes(packets, *bytes));
        let dropped = TX_DROPPED.iter().filter_map(|name| sample.xstats.get(name));
        Self {
            app,
            port: sample.id,
            device: &sample.device,
            mtu: sample.mtu,
            rx_ok: stats.rx_packets,
            rx_err: stats.rx_errors,
            rx_drp: stats.rx_nombuf,
            rx_ovr: stats.rx_missed,
            tx_ok: stats.tx_packets,
            tx_err: stats.tx_errors,
            tx_drp: dropped.reduce(u64::saturating_add),
            tx_ovr: None,
            rx_bytes: bytes(stats.rx_packets, stats.rx_bytes),
            tx_bytes: bytes(stats.tx_packets, stats.tx_bytes),
            started: sample.started,
            link_up: sample.link_up,
            link_mbps: sample.link_mbps,
            promiscuous: sample.promiscuous,
            mac: sample.mac.as_deref(),
        }
    }

    /// Promiscuous, running, up, in the letters of netstat; `?` after a flag that was not reported.
    fn flags(&self) -> String {
        let flag = |letter: &str, set: Option<bool>| match set {
            Some(true) => letter.to_owned(),
            Some(false) => String::new(),
            None => format!("{letter}?"),
        };
        let flags =
            [flag("M", self.promiscuous), flag("R", self.link_up), flag("U", Some(self.started))];
        match flags.concat() {
            none if none.is_empty() => "-".to_owned(),
            flags => flags,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let number = |value: u64| Cell::text(count(value));
        let maybe = |value: Option<u64>| Cell::text(known(value, count));
        vec![
            Cell::text(format!("{}:{}", self.app, self.port)),
            Cell::text(self.mtu.to_string()),
            number(self.rx_ok),
            number(self.rx_err),
            number(self.rx_drp),
            number(self.rx_ovr),
            number(self.tx_ok),
            number(self.tx_err),
            maybe(self.tx_drp),
            maybe(self.tx_ovr),
            Cell::text(self.flags()),
            Cell::text(self.device),
        ]
    }
}

/// All ports of all apps.
pub(super) fn all(counters: &AppCounters) -> Vec<InterfaceRow<'_>> {
    let apps = counters.samples();
    apps.flat_map(|(app, _, sample)| {
        sample.ports.iter().map(move |port| InterfaceRow::of(app, port))
    })
    .collect()
}

/// The report.
pub(super) fn text(data: &ReportData, layout: &ReportLayout) -> String {
    let columns = vec![
        Column::text("Iface"),
        Column::number("MTU").drop_at(2),
        Column::number("RX-OK"),
        Column::number("RX-ERR"),
        Column::number("RX-DRP"),
        Column::number("RX-OVR"),
        Column::number("TX-OK"),
        Column::number("TX-ERR"),
        Column::number("TX-DRP"),
        Column::number("TX-OVR"),
        Column::text("Flg").drop_at(1),
        Column::text("Device").drop_at(3),
    ];
    let mut table = TextTable::new("Interfaces", columns);
    let Some(counters) = &data.counters else { return layout.table(&table) };
    for interface in all(counters) {
        let subject = Subject::Port { app: interface.app.to_owned(), port: interface.port };
        table.push(subject, false, interface.cells());
    }
    table.notes = counters.silent();
    if table.rows.is_empty() && table.notes.is_empty() {
        table.notes.push("there are no ports".to_owned());
    }
    layout.table(&table)
}

#[cfg(test)]
mod tests;
