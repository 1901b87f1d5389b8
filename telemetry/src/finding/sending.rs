//! Lints for packets that are not sent: drivers that accept none, or only some.

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::model::{Model, PortRates};
use crate::sample::PortSample;
use crate::sending::{SilentApp, UnsentPackets};

/// Refused packets count as lost if the app does not send this share of the received packets: an app
/// that retries refused packets sends what it receives.
const LOST: f64 = 0.05;

/// Returns findings about ports that do not send what they are offered, and about an app that sends nothing.
pub(super) fn evaluate(model: &Model, thresholds: &Thresholds) -> Vec<Finding> {
    let ports = model.sample.ports.iter().zip(&model.ports);
    let mut findings: Vec<_> = ports
        .filter_map(|(port, rates)| {
            let unsent = rates.unsent.as_ref()?;
            stuck(model, port, unsent).or_else(|| refused(model, port, unsent, thresholds))
        })
        .collect();
    // A stuck port is more specific than a silent app.
    if !findings.iter().any(|finding| finding.lint == Lint::TxStuck) {
        findings.extend(model.silent.as_ref().map(|silent| silent_app(model, silent)));
    }
    findings
}

fn stuck(model: &Model, port: &PortSample, unsent: &UnsentPackets) -> Option<Finding> {
    let seconds = unsent.stuck_s?;
    let (received, sent) = forwarded(model);
    let evidence = format!(
        "nothing was sent by port {} for {seconds:.1} s: {:.0} packets/s are offered and the driver accepts \
         none, so the app frees or retries them; {received:.0}/s are received, {sent:.0}/s sent",
        port.id, unsent.offered_pps
    );
    let advice = "the peer no longer accepts packets: for vhost, virtio and memif, check whether the peer \
                  polls its receive queue; for a NIC, check the link partner, pause frames (xstats) and \
                  the app's log; stopping and starting the port resets its rings";
    let severity = Severity::Critical;
    let threshold = "a port that is offered packets sends some within 1.5 s";
    Some(finding(
        model,
        Lint::TxStuck,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        threshold,
        advice,
    ))
}

fn refused(
    model: &Model,
    port: &PortSample,
    unsent: &UnsentPackets,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let share = unsent.refused_pps / unsent.offered_pps;
    if unsent.refused_pps <= 0.0 || share <= thresholds.tx_refused {
        return None;
    }
    let (received, sent) = forwarded(model);
    let lost = received - sent > LOST * received;
    let evidence = format!(
        "{:.0} of {:.0} packets/s offered to port {} were not accepted ({:.1} %, over {:.1} s): the app {}; \
         {received:.0}/s are received, {sent:.0}/s sent",
        unsent.refused_pps,
        unsent.offered_pps,
        port.id,
        share * 100.0,
        unsent.seconds,
        if lost { "frees them or falls behind" } else { "retries them until they are accepted" }
    );
    let threshold = format!(
        "more than {:.0} % of the offered packets refused; a warning if {:.0} % of the received packets are \
         not sent",
        thresholds.tx_refused * 100.0,
        LOST * 100.0
    );
    let advice = "the transmit ring is full: the peer or the link is slower than the app; check link \
                  speed and pause frames, enlarge the ring, send larger bursts, or use more queues. An \
                  app that retries refused packets loses none";
    let severity = if lost { Severity::Warning } else { Severity::Info };
    Some(finding(
        model,
        Lint::TxRefused,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        &threshold,
        advice,
    ))
}

/// Returns the packets per second that the app receives and sends, on all ports.
fn forwarded(model: &Model) -> (f64, f64) {
    let sum = |of: fn(&PortRates) -> Option<f64>| model.sum_of_ports(of).unwrap_or_default();
    (sum(|rates| rates.rx_pps), sum(|rates| rates.tx_pps))
}

fn silent_app(model: &Model, silent: &SilentApp) -> Finding {
    let why = match silent.offered_none {
        Some(true) => "the app offers none to its drivers",
        Some(false) => "no driver accepts them",
        None => "without libpmdscope it is unknown whether the app offers any",
    };
    let ring = if silent.filled_ring {
        ", as many as fill a transmit ring whose peer takes none"
    } else {
        ""
    };
    let evidence = format!(
        "nothing was sent for {:.1} s, while {:.0} packets/s were received; {} were sent before that{ring}; {why}",
        silent.seconds,
        silent.received as f64 / silent.seconds,
        silent.sent_before
    );
    let matters = silent.is_forwarder || silent.filled_ring;
    let severity = if matters { Severity::Warning } else { Severity::Info };
    let advice = "the app drops or keeps what it receives: check its neighbour and route tables, the worker \
                  after its queues, and whether the peer accepts packets (vhost, virtio, memif)";
    let threshold = "an app that forwards also sends while it receives";
    finding(model, Lint::TxStuck, severity, FindingSubject::App, evidence, threshold, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::QueueDirection;
    use crate::sample::tests::{empty_sample, port, queue};

    /// Returns the findings after three seconds in which 28,000 packets/s were received. In each
    /// quarter of a second `offered` packets were offered, if the library reports it, and after the
    /// first second this percentage of 7,000 packets was sent.
    fn watched(offered: Option<u64>, sent_percent: u64) -> Vec<Finding> {
        let mut tracker = ModelTracker::default();
        let mut findings = Vec::new();
        for quarter in 0..=12_u64 {
            let mut sample = empty_sample();
            sample.monotonic_ns += quarter * 250_000_000;
            sample.ports = vec![port(0, quarter * 7000)];
            let late = quarter.saturating_sub(4) * 70 * sent_percent;
            sample.ports[0].stats.tx_packets = quarter.min(4) * 7000 + late;
            if let Some(offered) = offered {
                let mut tx = queue(0, [1, 0, quarter * offered]);
                tx.direction = QueueDirection::Tx;
                sample.queues = vec![tx];
            }
            findings = evaluate(&tracker.update(sample), &LintRules::default());
        }
        findings
    }

    #[test]
    fn a_port_that_accepts_nothing_is_found_with_both_rates() {
        let findings = watched(Some(7000), 0);
        let [stuck] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((stuck.lint, stuck.severity), (Lint::TxStuck, Severity::Critical));
        assert!(
            stuck.evidence.starts_with("nothing was sent by port 0 for 2.0 s: 28000 packets/s")
        );
        assert!(stuck.evidence.ends_with("28000/s are received, 0/s sent"), "{stuck:?}");
    }

    #[test]
    fn a_port_that_refuses_packets_is_found_with_the_share() {
        let findings = watched(Some(7000), 50);
        let [refused] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((refused.lint, refused.severity), (Lint::TxRefused, Severity::Warning));
        assert!(refused.evidence.contains("of 28000 packets/s offered to port 0"), "{refused:?}");
        assert!(refused.evidence.contains("frees them or falls behind"), "{refused:?}");
        assert_eq!(watched(Some(7000), 100), []);
    }

    #[test]
    fn refused_packets_that_are_sent_later_are_information() {
        let findings = watched(Some(1_000_000), 98);
        let [again] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((again.lint, again.severity), (Lint::TxRefused, Severity::Info));
        assert!(again.evidence.contains("retries them until they are accepted"), "{again:?}");
    }

    #[test]
    fn a_stock_app_that_stops_sending_is_found_without_a_cause() {
        let findings = watched(None, 0);
        let [silent] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((silent.lint, silent.severity), (Lint::TxStuck, Severity::Warning));
        assert!(silent.evidence.contains("while 28000 packets/s were received; 28000 were sent"));
        assert!(
            silent.evidence.ends_with("it is unknown whether the app offers any"),
            "{silent:?}"
        );
    }
}
