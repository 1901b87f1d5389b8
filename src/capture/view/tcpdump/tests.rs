use std::sync::Mutex;

use jiff::tz::TimeZone;
use pmdscope_packets::{CaptureInterface, DIR_RX, DIR_TX, Packet, PacketSink, SectionOrigin};
use pmdscope_testing::{current_test, skip_without};

use super::*;
use crate::capture::view::child::find;
use crate::capture::view::link_types::TcpdumpPerLinkType;
use crate::capture::view::stage::View;
use crate::capture::view::timestamp::{Clock, Stamps};
use crate::fixture::parse_args;

const NS: u64 = 1_780_000_000_123_456_789;

/// A buffer that outlives the decoder.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// UDP from 10.0.0.1.1234 to 10.0.0.2.9999.
fn udp(payload: &[u8]) -> Vec<u8> {
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    let (total, length) = (28 + payload.len() as u16, 8 + payload.len() as u16);
    [
        &header[..],
        &total.to_be_bytes(),
        &[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 4, 210, 0x27, 0x0f],
        &length.to_be_bytes(),
        &[0, 0],
        payload,
    ]
    .concat()
}

/// What a view shows of packets that come in and go out in turn; nothing, with a report, without
/// tcpdump.
fn shown(flags: &str, clock: Clock, packets: &[Vec<u8>]) -> Option<String> {
    let Some(program) = find("tcpdump") else {
        skip_without(&current_test(), "tcpdump");
        return None;
    };
    let args: ViewArgs = parse_args("view", flags).unwrap();
    let stamps = Stamps::new(clock, args.nano, TimeZone::UTC);
    let prefix = LinePrefix { number: args.number, stamps, named: true };
    let (page, prefix) = (Page::default(), Arc::new(Mutex::new(prefix)));
    let out = page.clone();
    let at_once = args.line_buffered;
    let start = move |at_once: bool| {
        let mut command = Command::new(&program);
        command.args(super::flags(&args)).args(["-Z", "root"]).args(at_once.then_some(AT_ONCE));
        Tcpdump::start(command, at_once, Arc::clone(&prefix), Box::new(out.clone()))
    };
    let decoder = TcpdumpPerLinkType::new(Box::new(start), at_once).unwrap();
    let mut view = View::new(Box::new(decoder), true);
    view.section(&SectionOrigin::default()).unwrap();
    for name in ["rte:0", "rte:1"] {
        let interface = CaptureInterface {
            name: name.to_owned(),
            description: String::new(),
            filter: String::new(),
            comment: String::new(),
            options: Vec::new(),
            snaplen: 262_144,
            linktype: 1,
        };
        view.interface(&interface).unwrap();
    }
    for (id, data) in packets.iter().enumerate() {
        let dir = if id % 2 == 0 { DIR_RX } else { DIR_TX };
        let (len, ns) = (data.len() as u32, NS + id as u64 * 1_500);
        let (id, queue, lcore, weight, dropped, comment) = (id as u64, None, None, 1, 0, "");
        let (interface, options) = ((id % 2) as u32, &[]);
        let packet = Packet {
            interface,
            ns,
            data,
            len,
            dir,
            queue,
            lcore,
            weight,
            dropped,
            id,
            comment,
            options,
        };
        view.packet(&packet).unwrap();
    }
    view.finish().unwrap();
    let bytes = page.0.lock().unwrap().clone();
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn lines_begin_with_time_interface_and_direction() {
    let packets = [udp(b"x"), udp(b"yy")];
    let Some(text) = shown("-n --nano", Clock::Epoch, &packets) else { return };
    assert_eq!(
        text,
        "1780000000.123456789 rte:0 In  IP 10.0.0.1.1234 > 10.0.0.2.9999: UDP, length 1\n\
         1780000000.123458289 rte:1 Out IP 10.0.0.1.1234 > 10.0.0.2.9999: UDP, length 2\n"
    );
}

#[test]
fn lines_that_come_in_blocks_are_the_same() {
    let packets = (0..3_000).map(|size| udp(&vec![b'x'; size % 700])).collect::<Vec<_>>();
    let Some(at_once) = shown("-n -l", Clock::Epoch, &packets) else { return };
    let in_blocks = shown("-n", Clock::Epoch, &packets).unwrap();
    assert_eq!(in_blocks.lines().count(), 3_000);
    assert!(at_once == in_blocks);
}

#[test]
fn further_lines_of_a_packet_are_left_alone() {
    let packets = [udp(b"x"), udp(b"yy")];
    let Some(text) = shown("-n -v -X -#", Clock::None, &packets) else { return };
    let expected = "    1  rte:0 In  IP (tos 0x0, ttl 64, id 0, offset 0, flags [DF], proto UDP (17), \
         length 29, bad cksum 0 (->26ce)!)\n    10.0.0.1.1234 > 10.0.0.2.9999: UDP, length 1\n\
         \t0x0000:  4500 001d 0000 4000 4011 0000 0a00 0001  E.....@.@.......\n\
         \t0x0010:  0a00 0002 04d2 270f 0009 0000 78         ......'.....x\n    2  rte:1 Out IP ";
    assert!(text.starts_with(expected), "{text}\n---\n{expected}");
    assert_eq!(text.lines().filter(|line| line.contains(" rte:")).count(), 2);
}

#[test]
fn a_packet_cannot_pass_for_another() {
    let spoof = udp(b"\n1.000000000 IP spoofed\n2.123456789 IP spoofed\n\x1b[2J");
    let packets = [spoof.clone(), spoof, udp(b"x")];
    let Some(text) = shown("-n -A", Clock::None, &packets) else { return };
    assert_eq!(text.lines().filter(|line| line.starts_with("rte:")).count(), 3, "{text}");
    assert!(text.contains("\n1.000000000 IP spoofed\n"), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn nothing_to_show_is_no_failure() {
    assert_eq!(shown("-n", Clock::Day, &[]).unwrap_or_default(), "");
}

#[test]
fn a_decoder_that_fails_says_why() {
    let Some(program) = find("tcpdump") else {
        return skip_without(&current_test(), "tcpdump");
    };
    let start = move |at_once: bool| {
        let mut command = Command::new(&program);
        command.args(["-r", "-", "--no-such-option"]);
        let stamps = Stamps::new(Clock::Day, false, TimeZone::UTC);
        let prefix = LinePrefix { number: false, stamps, named: false };
        Tcpdump::start(command, at_once, Arc::new(Mutex::new(prefix)), Box::new(Page::default()))
    };
    let decoder = TcpdumpPerLinkType::new(Box::new(start), true).unwrap();
    let mut view = View::new(Box::new(decoder), true);
    let begin = std::time::Instant::now();
    while !view.done() {
        assert!(begin.elapsed().as_secs() < 60, "nobody noticed");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let error = format!("{:#}", anyhow::Error::from(view.finish().unwrap_err()));
    assert!(error.contains("tcpdump") && error.contains("no-such-option"), "{error}");
}

#[test]
fn only_the_secret_marks_a_packet() {
    assert_eq!(split_mark(b"12.000000007 IP a", ".000000007 "), Some((12, &b"IP a"[..])));
    for line in ["12.000000008 IP", " 12.000000007 IP", ".000000007 IP", "99999999999.000000007 IP"]
    {
        assert_eq!(split_mark(line.as_bytes(), ".000000007 "), None, "{line}");
    }
}
