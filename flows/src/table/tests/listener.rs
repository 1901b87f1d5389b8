//! Tests of reports to a listener.

use super::*;

type Heard = Arc<Mutex<Vec<(Flow, FlowEndReason)>>>;

#[derive(Debug)]
struct Record(Heard);

impl FlowListener for Record {
    fn flow(&mut self, flow: &Flow, apps: &[String], reason: FlowEndReason) {
        assert_eq!(apps[usize::from(flow.app)], "app");
        self.0.lock().unwrap().push((flow.clone(), reason));
    }

    fn tick(&mut self, now_ns: u64, sample: u32) {
        assert!(now_ns >= BEGIN && sample >= 1);
    }

    fn finish(&mut self) {}
}

fn recorded(
    idle: Option<u64>,
    active: Option<u64>,
    capacity: usize,
) -> (FlowTable, LatestSnapshot, Heard) {
    let [idle, active] = [idle, active].map(|time| time.map(Duration::from_secs));
    let told = Heard::default();
    let listener: Option<Box<dyn FlowListener>> = Some(Box::new(Record(Arc::clone(&told))));
    let (table, latest) =
        table(FlowTableSettings { capacity, idle, active, listener, inner: true, windows: true });
    (table, latest, told)
}

/// Returns reason, packets, and times of the first and last packet in seconds, of all reports since the
/// last call.
fn heard(told: &Heard) -> Vec<(FlowEndReason, u64, u64, u64)> {
    let second = |ns: u64| (ns - BEGIN) / SECOND;
    let told = std::mem::take(&mut *told.lock().unwrap());
    let heard = told.iter().map(|(flow, reason)| {
        (*reason, flow.total().packets, second(flow.first_ns), second(flow.last_ns))
    });
    heard.collect()
}

#[test]
fn a_listener_gets_each_increment_with_its_reason() {
    let (mut table, latest, told) = recorded(Some(15), Some(60), CAPACITY);
    let frame = udp((9, 5000), (1, 53), 30);
    for second in 0..70 {
        put(&mut table, &frame, second * SECOND);
        tick(&mut table, second);
    }
    assert_eq!(heard(&told), [(FlowEndReason::Active, 61, 0, 60)]);
    (70..84).for_each(|second| tick(&mut table, second));
    assert_eq!(heard(&told), []);
    tick(&mut table, 84);
    assert_eq!(heard(&told), [(FlowEndReason::Idle, 9, 61, 69)]);
    let other = latest.get().other;
    assert_eq!((other.expirations, other.expired.packets), (1, 70));
    // The idle timeout expired before a sweep: the next packet begins another conversation.
    put(&mut table, &frame, 90 * SECOND);
    put(&mut table, &frame, 120 * SECOND);
    table.finish().unwrap();
    assert_eq!(
        heard(&told),
        [(FlowEndReason::Idle, 1, 90, 90), (FlowEndReason::Forced, 1, 120, 120)]
    );
    assert_eq!(latest.get().flows.len(), 1);
}

#[test]
fn the_end_of_tcp_is_reported_once_after_its_last_packets() {
    let (mut table, latest, told) = recorded(None, None, CAPACITY);
    let (client, server) = ((9, 5000), (1, 80));
    put(&mut table, &tcp(client, server, "S", 1), 0);
    put(&mut table, &tcp(client, server, "FA", 2), 0);
    put(&mut table, &tcp(server, client, "FA", 7), 0);
    tick(&mut table, 0);
    assert_eq!(heard(&told), []);
    put(&mut table, &tcp(client, server, "A", 3), 1);
    tick(&mut table, 2);
    assert_eq!(heard(&told), [(FlowEndReason::End, 4, 0, 0)]);
    tick(&mut table, 3);
    table.finish().unwrap();
    assert_eq!(heard(&told), []);
    assert_eq!(latest.get().flows.len(), 1);
}

#[test]
fn a_listener_gets_the_ends_of_a_tunnel() {
    let (mut table, _latest, told) = recorded(None, None, CAPACITY);
    let inner = [udp((9, 5000), (1, 53), 30), udp((1, 53), (9, 5000), 30)];
    for (frame, (from, to)) in inner.iter().zip([(77, 78), (78, 77)]) {
        let payload = [&[8, 0, 0, 0, 0, 0, 7, 0][..], frame].concat();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ip(from), ip(to), 64);
        let mut outer = Vec::new();
        builder.udp(40_000, 4789).write(&mut outer, &payload).unwrap();
        put(&mut table, &outer, 0);
    }
    put(&mut table, &inner[0], 0);
    table.finish().unwrap();
    let told = std::mem::take(&mut *told.lock().unwrap());
    let ends = told.iter().map(|(flow, _)| (flow.total().packets, flow.tunnel_ends));
    // The packets are received by the local end.
    let expected = [(2, Some([78, 77].map(|host| IpAddr::from(ip(host))))), (1, None)];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

#[test]
fn increments_of_a_listener_add_up_to_the_totals() {
    let (mut table, _latest, told) = recorded(None, None, 4);
    for number in 0..500_u16 {
        put(&mut table, &udp((9, number % 37), (1, 53), 30), u64::from(number) * SECOND / 10);
    }
    table.finish().unwrap();
    let heard = heard(&told);
    assert_eq!(heard.iter().map(|(_, packets, ..)| packets).sum::<u64>(), 500);
    assert!(heard.iter().any(|(reason, ..)| *reason == FlowEndReason::Resources));
    assert_eq!(heard.iter().filter(|(reason, ..)| *reason == FlowEndReason::Forced).count(), 4);
}

#[test]
fn a_record_starts_with_its_earliest_packet_though_times_go_back() {
    let (mut table, _latest, told) = recorded(None, None, CAPACITY);
    let frame = udp((9, 5000), (1, 53), 30);
    for second in [5, 3, 4] {
        put(&mut table, &frame, second * SECOND);
    }
    table.finish().unwrap();
    assert_eq!(heard(&told), [(FlowEndReason::Forced, 3, 3, 5)]);
    // After a report, only what was not reported counts.
    put(&mut table, &frame, 9 * SECOND);
    put(&mut table, &frame, 8 * SECOND);
    table.finish().unwrap();
    assert_eq!(heard(&told), [(FlowEndReason::Forced, 2, 8, 9)]);
}
