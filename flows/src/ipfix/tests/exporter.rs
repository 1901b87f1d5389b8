//! Tests of exporters and their collectors.

use super::*;

/// A collector on this host.
fn collector() -> (UdpSocket, String) {
    collector_at("127.0.0.1:0").unwrap()
}

fn collector_at(address: &str) -> Option<(UdpSocket, String)> {
    let socket = UdpSocket::bind(address).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    Some((socket, address))
}

fn settings(collectors: &[&str], patient: bool) -> IpfixSettings {
    IpfixSettings {
        collectors: collectors.iter().map(|text| text.parse().unwrap()).collect(),
        domain: DOMAIN,
        refresh: Duration::from_secs(600),
        message: MESSAGE,
        sample: 1,
        patient,
    }
}

fn exporter(collectors: &[&str], patient: bool) -> (IpfixExporter, ExportStatus) {
    start(&settings(collectors, patient)).unwrap()
}

fn busy_flow() -> Flow {
    let mut flow = flow("10.0.0.1 1", "10.0.0.2 2");
    flow.rx.from_remote = counts(1, 60);
    flow
}

#[test]
fn all_collectors_get_the_same() {
    let ipv6 = collector_at("[::1]:0").unwrap_or_else(|| {
        skip(&current_test(), "IPv6: this host has no [::1]");
        collector()
    });
    let (collectors, addresses): (Vec<_>, Vec<_>) = [collector(), ipv6].into_iter().unzip();
    let (mut exporter, status) = exporter(&[&addresses[0], &addresses[1]], false);
    exporter.flow(&busy_flow(), &apps(), FlowEndReason::End);
    exporter.tick(0, 1);
    exporter.finish();
    let receive = |socket: &UdpSocket| {
        let mut buffer = [0; 2000];
        let size = socket.recv(&mut buffer).unwrap();
        buffer[..size].to_vec()
    };
    let [first, second] = [&collectors[0], &collectors[1]].map(|c| [receive(c), receive(c)]);
    assert_eq!(first, second);
    let counts = status.counts();
    assert_eq!((counts.flows, counts.records, counts.messages), (1, 1, 4));
    assert_eq!(counts.bytes, 2 * first.concat().len() as u64);
    assert_eq!((counts.dropped, counts.failed), (0, 0));
}

#[test]
fn each_run_is_a_session_whose_numbers_begin_with_0() {
    let (socket, address) = collector();
    let run = || {
        let (mut exporter, _) = exporter(&[&address], false);
        for _ in 0..2 {
            exporter.flow(&busy_flow(), &apps(), FlowEndReason::Active);
            exporter.tick(0, 1);
        }
        // Templates with three options, and two conversations.
        let heads = [(); 3].map(|()| {
            let mut buffer = [0; 2000];
            let (_, from) = socket.recv_from(&mut buffer).unwrap();
            (from, u32::from_be_bytes(buffer[8..12].try_into().unwrap()))
        });
        assert!(heads.iter().all(|(from, _)| *from == heads[0].0), "{heads:?}");
        assert_eq!(heads.map(|(_, sequence)| sequence), [0, 3, 4]);
        (exporter, heads[0].0)
    };
    let ((_first, before), (_second, after)) = (run(), run());
    assert_ne!(before, after);
}

#[test]
fn an_unreachable_collector_is_counted_and_reported_once() {
    let (socket, address) = collector();
    drop(socket);
    let (mut exporter, status) = exporter(&[&address], false);
    for _ in 0..20 {
        exporter.flow(&busy_flow(), &apps(), FlowEndReason::End);
        exporter.tick(0, 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    exporter.finish();
    let counts = status.counts();
    assert!(counts.failed > 0, "{counts:?}");
    assert_eq!((counts.records, counts.dropped), (20, 0));
    let notices = status.notices();
    assert!(notices.len() == 1 && notices[0].contains(&address), "{notices:?}");
    assert_eq!(status.notices(), [""; 0]);
}

#[test]
fn a_collector_that_returns_gets_the_templates() {
    let (socket, address) = collector();
    drop(socket);
    let (mut exporter, _) = exporter(&[&address], false);
    let deadline = Instant::now() + Duration::from_secs(5);
    for _ in 0..5 {
        exporter.flow(&busy_flow(), &apps(), FlowEndReason::End);
        exporter.tick(0, 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    let socket = UdpSocket::bind(&address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 2000];
    while Instant::now() < deadline {
        exporter.flow(&busy_flow(), &apps(), FlowEndReason::End);
        exporter.tick(0, 1);
        let size = socket.recv(&mut buffer).unwrap();
        if buffer[..size][16..18] == [0, 2] {
            return;
        }
    }
    panic!("no templates");
}

#[test]
fn more_than_can_be_sent_is_dropped_at_once() {
    let (_socket, address) = collector();
    let counters = Arc::new(ExportCounters::default());
    let mut queue = SendQueue::start(&settings(&[&address], false), 4, &counters).unwrap();
    // If the queue waited for space, no message would be dropped.
    (0..2000).for_each(|_| queue.put(Datagram { bytes: vec![0; 100], records: 3 }));
    queue.finish();
    let counts = ExportStatus(counters).counts();
    assert_eq!(counts.messages * 3 + counts.dropped, 2000 * 3);
    assert!(counts.dropped > 0 && counts.messages >= 4, "{counts:?}");
    assert!(queue.is_announcement_wanted() && !queue.is_announcement_wanted());
}

#[test]
fn files_wait_for_room_in_the_queue() {
    let (socket, address) = collector();
    let reader = std::thread::spawn(move || {
        let (mut buffer, mut bytes) = ([0; 2000], 0);
        while let Ok(size) = socket.recv(&mut buffer) {
            bytes += size as u64;
            if buffer[16..18] == [1, 3] {
                break;
            }
        }
        bytes
    });
    let (mut exporter, status) = exporter(&[&address], true);
    (0..40_000).for_each(|_| exporter.flow(&busy_flow(), &apps(), FlowEndReason::End));
    exporter.tick(0, 1);
    // A record of the last template marks the end.
    let mut last = flow("::1 1", "::2 2");
    last.unknown.from_local = counts(1, 60);
    exporter.flow(&last, &apps(), FlowEndReason::Forced);
    exporter.finish();
    assert_eq!((status.counts().dropped, status.counts().failed), (0, 0));
    // On a busy machine the reader does not keep up, and its socket buffer overflows.
    let received = reader.join().unwrap();
    assert!(received > 0 && received <= status.counts().bytes, "{received} of {status:?}");
}
