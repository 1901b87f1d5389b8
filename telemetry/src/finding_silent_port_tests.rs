//! Tests of findings about ports without a link, and about ports that stop receiving.

use super::*;

fn may_be_idle(port: &str) -> ExpectedApp {
    ExpectedApp { name: "app".into(), may_be_idle: vec![port.into()], ..ExpectedApp::default() }
}

#[test]
fn a_started_port_without_link() {
    let mut sample = healthy();
    sample.ports[0].link_up = Some(false);
    assert_eq!(
        lints(&judged([sample.clone()])),
        [(Lint::LinkDown, Severity::Warning, port_of("net_null0"))]
    );
    assert_eq!(judged_as([sample.clone()], may_be_idle("net_null0")), []);
    assert_eq!(judged_as([sample.clone()], may_be_idle("net_null1")).len(), 1);
    sample.ports[0].link_up = None;
    assert_eq!(judged([sample]), []);
}

/// Returns one sample per second: `busy_s` seconds with traffic, then `silent_s` without.
fn gone_quiet(busy_s: u64, silent_s: u64) -> Vec<Sample> {
    let second = |second: u64| {
        let mut sample = healthy();
        sample.monotonic_ns = (1 + second) * 1_000_000_000;
        sample.ports = vec![port(0, second.min(busy_s) * 5000)];
        sample
    };
    (0..=busy_s + silent_s).map(second).collect()
}

#[test]
fn a_port_that_stops_receiving_is_found_after_ten_seconds() {
    assert_eq!(judged(gone_quiet(60, 9)), []);
    let findings = judged(gone_quiet(60, 10));
    assert_eq!(lints(&findings), [(Lint::RxFlat, Severity::Warning, port_of("net_null0"))]);
    assert_eq!(findings[0].evidence, "0 packets received in 10 s; 5000/s before that");
    assert_eq!(judged(gone_quiet(60, 2700)).len(), 1, "45 minutes later");
    assert_eq!(judged_as(gone_quiet(60, 10), may_be_idle("*")), []);
    let mut unlinked = gone_quiet(60, 10);
    for sample in &mut unlinked {
        sample.ports[0].link_up = Some(false);
    }
    assert_eq!(
        lints(&judged(unlinked)),
        [(Lint::LinkDown, Severity::Warning, port_of("net_null0"))]
    );
}

#[test]
fn a_port_that_could_not_receive_gets_more_time() {
    let down = |port: &mut PortSample| port.link_up = Some(false);
    let stopped = |port: &mut PortSample| port.started = false;
    for obstacle in [down, stopped] {
        let interrupted = |after_s: u64| {
            let mut samples = gone_quiet(60, 300 + after_s);
            samples[70..=360].iter_mut().for_each(|sample| obstacle(&mut sample.ports[0]));
            judged(samples)
        };
        assert_eq!(interrupted(9), []);
        let findings = interrupted(10);
        assert_eq!(lints(&findings), [(Lint::RxFlat, Severity::Warning, port_of("net_null0"))]);
        assert_eq!(findings[0].evidence, "0 packets received in 10 s; 5000/s before that");
    }
}

#[test]
fn a_short_observation_of_a_silent_port_uses_the_mean_since_the_start() {
    let look = |packets, seconds: u64| {
        let at = |quarter: u64| {
            let mut sample = healthy();
            sample.app.start_realtime_ns = sample.realtime_ns - 1_000_000_000_000;
            sample.monotonic_ns += quarter * 250_000_000;
            sample.ports = vec![port(0, packets)];
            sample
        };
        judged((0..=seconds * 4).map(at).collect::<Vec<_>>())
    };
    let findings = look(5_000_000_000, 2);
    assert_eq!(
        lints(&findings),
        [(Lint::RxFlat, Severity::Info, port_of("net_null0"))],
        "a pause, perhaps"
    );
    let evidence = "0 packets received in 2 s; 5000000/s on average since the app started";
    assert_eq!(findings[0].evidence, evidence);
    let findings = look(5_000_000_000, 10);
    assert_eq!(lints(&findings), [(Lint::RxFlat, Severity::Warning, port_of("net_null0"))]);
    assert_eq!(look(5_000_000_000, 0), []);
    assert_eq!(look(100_000, 2), [], "200 packets may be missing by chance");
    assert_eq!(look(0, 2), []);
}
