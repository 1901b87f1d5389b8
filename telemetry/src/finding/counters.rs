//! Lints for errors, discards and other counters of ports, in the words of their drivers.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::account::{CounterClass, PortAccount};
use crate::drivers::{BasicCounter, CounterKind, CounterPlace, CounterUnit};
use crate::model::{CounterRates, Model, PortRates};
use crate::sample::PortSample;

/// Fewer packets between two samples are worth a note only.
const FEW: f64 = 10.0;

/// Number of counters that one finding names.
const NAMED: usize = 4;

/// Bytes of a frame besides its MTU: addresses, type, and checksum.
const FRAME: u64 = 18;

/// The lint, and the packets, of a class of counters.
struct Judged {
    class: CounterClass,
    lint: Lint,
    threshold: &'static str,
    /// What to do if no table says it.
    advice: &'static str,
}

const JUDGED: [Judged; 8] = [
    Judged {
        class: CounterClass::Discards,
        lint: Lint::RxDiscards,
        threshold: "no packet is discarded on its way to the app",
        advice: "compare the PCIe link of the NIC (lspci -vv, LnkSta) with its speed, and see pmdscope netstat -s",
    },
    Judged {
        class: CounterClass::RxErrors,
        lint: Lint::RxErrors,
        threshold: "no packet is received with errors",
        advice: "compare with the counters of the switch port; check cable, transceiver and MTU (pmdscope netstat -s)",
    },
    Judged {
        class: CounterClass::TxErrors,
        lint: Lint::TxErrors,
        threshold: "every packet is sent",
        advice: "check the link and whether the peer takes packets (pause frames; for vhost and virtio, that it \
                 polls), the sizes, segments and offloads of the packets against what the driver can, and its log",
    },
    Judged {
        class: CounterClass::Filtered,
        lint: Lint::RxFiltered,
        threshold: "no packet is filtered by the NIC",
        advice: "if these packets are wanted, check MAC addresses, VLANs, promiscuous mode and flow rules of the port",
    },
    Judged {
        class: CounterClass::Limit,
        lint: Lint::AllowanceExceeded,
        threshold: "the traffic stays within what the instance is allowed",
        advice: "use a larger instance type, or spread the traffic over several",
    },
    Judged {
        class: CounterClass::Pause,
        lint: Lint::PauseFrames,
        threshold: "no pause frames",
        advice: "find who cannot keep up: of frames sent, this host (PCIe link, poll loops); of frames received, the \
                 switch or the hosts behind it",
    },
    Judged {
        class: CounterClass::Event,
        lint: Lint::DeviceEvents,
        threshold: "no faults or resets of the device",
        advice: "see the log of the app and of the kernel (dmesg) at this time, and the firmware of the NIC",
    },
    Judged {
        class: CounterClass::Unexplained,
        lint: Lint::UnexplainedCounter,
        threshold: "no counter rises that seems to count losses and that nothing explains",
        advice: "look the counter up in the source of the driver: pmdscope has no entry for it, so it may count \
                 losses, or be harmless",
    },
];

/// Returns all findings about counters of ports.
pub(super) fn evaluate(model: &Model, thresholds: &Thresholds) -> Vec<Finding> {
    let ports = model.sample.ports.iter().zip(&model.ports);
    let of_port = |(port, rates): (&PortSample, &PortRates)| {
        let account = PortAccount::of(rates);
        let found = |judged| judge(model, port, rates, &account, judged, thresholds);
        JUDGED.iter().filter_map(found).collect::<Vec<_>>()
    };
    ports.flat_map(of_port).collect()
}

fn judge(
    model: &Model,
    port: &PortSample,
    rates: &PortRates,
    account: &PortAccount<'_>,
    judged: &Judged,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let counters = account.counters(judged.class);
    let packets_ps = account.sum(judged.class);
    if counters.is_empty() && packets_ps <= 0.0 {
        return None;
    }
    let all_ps = match judged.class {
        CounterClass::TxErrors => account.offered_pps(),
        CounterClass::Limit => account.arrived_pps() + rates.tx_pps.unwrap_or(0.0),
        _ => account.arrived_pps(),
    };
    let share = if all_ps > 0.0 { (packets_ps / all_ps).min(1.0) } else { 0.0 };
    let mut evidence = headline(judged.class, packets_ps, all_ps, share, counters);
    evidence += &named(counters);
    evidence += &causes(counters);
    if counters.iter().any(|counter| counter.reason == "length") {
        evidence += &mtus(model, port);
    }
    let basic = basic(judged.class).and_then(|basic| rates.counters.table?.basic(basic));
    if counters.is_empty() {
        match basic {
            Some(basic) => {
                let _ = write!(evidence, ": {}; usual cause: {}", basic.counts, basic.cause);
            }
            None => evidence += "; no counter of the driver tells why",
        }
    }
    if let Some(driver) = &rates.counters.driver {
        let _ = write!(evidence, "; driver {driver}");
    }
    let own = counters.iter().filter_map(|counter| counter.known);
    let own = own.map(|known| &known.advice).chain(basic.map(|basic| &basic.advice));
    let advice = own.map(String::as_str).find(|advice| !advice.is_empty());
    let growth = packets_ps * model.interval_s.unwrap_or(0.0);
    let severity = severity(judged.class, growth, share, thresholds);
    Some(finding(
        model,
        judged.lint,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        judged.threshold,
        advice.unwrap_or(judged.advice),
    ))
}

/// Returns the basic counter of a class.
fn basic(class: CounterClass) -> Option<BasicCounter> {
    match class {
        CounterClass::RxErrors => Some(BasicCounter::Ierrors),
        CounterClass::TxErrors => Some(BasicCounter::Oerrors),
        _ => None,
    }
}

/// Returns the severity of this many packets since the previous sample, and their share of all.
fn severity(class: CounterClass, growth: f64, share: f64, thresholds: &Thresholds) -> Severity {
    let loses = match class {
        CounterClass::Filtered | CounterClass::Pause => return Severity::Info,
        CounterClass::Event => return Severity::Warning,
        CounterClass::Limit | CounterClass::Unexplained => false,
        _ => true,
    };
    if growth < FEW && share < thresholds.loss_ratio {
        return Severity::Info;
    }
    let critical = loses && growth >= FEW && share >= thresholds.loss_ratio;
    if critical { Severity::Critical } else { Severity::Warning }
}

fn headline(
    class: CounterClass,
    packets_ps: f64,
    all_ps: f64,
    share: f64,
    counters: &[&CounterRates],
) -> String {
    let percent = percent(share);
    match class {
        CounterClass::TxErrors => format!(
            "{packets_ps:.1} of {all_ps:.1} packets/s could not be sent or were dropped on their way out ({percent})"
        ),
        CounterClass::RxErrors => {
            format!("{packets_ps:.1} of {all_ps:.1} packets/s arrived with errors ({percent})")
        }
        CounterClass::Discards => {
            let place = counters.first().and_then(|counter| counter.place);
            format!(
                "{packets_ps:.1} of {all_ps:.1} packets/s were discarded {} ({percent})",
                discarded(place)
            )
        }
        CounterClass::Filtered => {
            format!("{packets_ps:.1} packets/s were filtered by the NIC and not delivered")
        }
        CounterClass::Limit => format!(
            "{packets_ps:.1} packets/s were above an allowance, and queued or dropped ({percent} of the traffic)"
        ),
        CounterClass::Pause => pauses(counters),
        CounterClass::Event => "the device had faults or resets".to_owned(),
        _ => "counters rise that seem to count losses, and that nothing explains".to_owned(),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 0.1 => format!("{percent:.1} %"),
        percent if percent > 0.0 => "less than 0.1 %".to_owned(),
        _ => "0 %".to_owned(),
    }
}

fn discarded(place: Option<CounterPlace>) -> &'static str {
    match place {
        Some(CounterPlace::Wire) => "in the network before the NIC",
        Some(CounterPlace::Mac) => "by the MAC of the NIC",
        Some(CounterPlace::Queue) => "at receive queues",
        Some(CounterPlace::Driver) => "by the driver",
        _ => "by the NIC before its queues",
    }
}

/// Says who slows whom.
fn pauses(counters: &[&CounterRates]) -> String {
    let rate = |kind| -> f64 {
        let of_kind = counters.iter().filter(|counter| counter.kind == Some(kind));
        of_kind.filter_map(|counter| counter.rate_ps).fold(0.0, f64::max)
    };
    let (sent, received) = (rate(CounterKind::PauseSent), rate(CounterKind::PauseReceived));
    let mut text = Vec::new();
    if sent > 0.0 {
        text.push(format!(
            "this NIC slows its link partner with {sent:.1} pause frames/s, because this host takes packets too slowly"
        ));
    }
    if received > 0.0 {
        text.push(format!(
            "the link partner slows what this port sends, with {received:.1} pause frames/s"
        ));
    }
    text.join("; ")
}

/// Names the counters that rise, the fastest first, each meaning once.
fn named(counters: &[&CounterRates]) -> String {
    let mut text = String::new();
    let mut told = Vec::new();
    for (at, counter) in counters.iter().take(NAMED).enumerate() {
        let unit = match counter.known.map(|known| known.unit) {
            Some(CounterUnit::Bytes) => " bytes/s",
            Some(CounterUnit::Ns) => " ns/s",
            _ => "/s",
        };
        let rate = counter.rate_ps.unwrap_or(0.0);
        let _ =
            write!(text, "{} {} {rate:.1}{unit}", if at == 0 { ":" } else { "," }, counter.name);
        if let Some(known) = counter.known.filter(|known| !told.contains(&known.counts.as_str())) {
            let _ = write!(text, " ({})", known.counts);
            told.push(&known.counts);
        }
    }
    match counters.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Returns the usual causes of the counters, of each place and reason the one of the fastest.
fn causes(counters: &[&CounterRates]) -> String {
    let (mut causes, mut told) = (Vec::<&str>::new(), Vec::new());
    for counter in counters.iter().take(NAMED) {
        let cause = counter.known.map_or("", |known| &known.cause);
        let about = (counter.place, counter.reason);
        if !cause.is_empty() && !told.contains(&about) && !causes.contains(&cause) {
            causes.push(cause);
            told.push(about);
        }
    }
    if causes.is_empty() {
        String::new()
    } else {
        format!("; usual cause: {}", causes.join("; or "))
    }
}

/// Names the MTU of the port, and those of the other ports of the app.
fn mtus(model: &Model, port: &PortSample) -> String {
    let frame = port.mtu.saturating_add(FRAME);
    let mut text = format!(
        "; the MTU of this port is {}, frames of up to {frame} bytes, while the sender's MTU is larger or its \
         frames are broken",
        port.mtu
    );
    let others = model.sample.ports.iter().filter(|other| other.mtu != port.mtu);
    let others: Vec<_> =
        others.take(NAMED).map(|other| format!("{} of {}", other.mtu, other.device)).collect();
    if !others.is_empty() {
        let _ = write!(text, " (other MTUs of the app: {})", others.join(", "));
    }
    text
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
