//! The cost of counting a packet in the table of conversations:
//! `cargo bench -p pmdscope-flows --bench flows`.
//!
//! Measures the CPU time of the thread for frames of 64 bytes of a given number of conversations, in
//! random order, as in a capture. For comparison: the same without the table, and with `etherparse`.
//! Also measures how long snapshots and sweeps of a full table delay the capture (alone:
//! `-- --snapshots`), and the memory that 10 million conversations take (`-- --flood`).

// Sizes are small, and bytes are cut from numbers.
#![allow(clippy::cast_possible_truncation)]

use std::hint::black_box;
use std::time::Duration;

use etherparse::LaxSlicedPacket;
use pmdscope_flows::{CAPACITY, FlowTable, FlowTableSettings, LatestSnapshot};
use pmdscope_packets::{
    CallbackSink, CaptureInterface, DIR_RX, ETHERNET, InterfaceStatistics, NullSink, Packet,
    PacketSink, SectionOrigin, SinkError, SinkEvent,
};
use rustix::time::ClockId;

const PACKETS: u64 = 4_000_000;
const BEGIN: u64 = 1_780_000_000_000_000_000;
const RUNS: usize = 5;
/// Frames that are built at once. They stay in the CPU cache, as a burst that was just read from a
/// ring.
const BURST: usize = 1024;

fn main() -> Result<(), SinkError> {
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("run by cargo bench");
        return Ok(());
    }
    // Measures only one number of flows, for a profiler.
    let only = std::env::args().skip_while(|arg| arg != "--flows").nth(1);
    if let Some(flows) = only.and_then(|flows| flows.parse().ok()) {
        let (mut table, _latest) = table(CAPACITY);
        return show("profiled", || Ok(feed(&mut table, flows)?.0));
    }
    if std::env::args().any(|arg| arg == "--snapshots") {
        return pauses();
    }
    // Runs first: the peak memory is that of the whole process.
    flood()?;
    if std::env::args().any(|arg| arg == "--flood") {
        return Ok(());
    }
    println!("ns/packet, million packets/s; median of {RUNS} (least, most)");
    show("no table", || Ok(feed(&mut NullSink::default(), 1024)?.0))?;
    let mut etherparse = CallbackSink::new(|event| {
        if let SinkEvent::Packet(packet) = event {
            let _ = black_box(LaxSlicedPacket::from_ethernet(packet.data));
        }
        Ok(())
    });
    show("etherparse alone", || Ok(feed(&mut etherparse, 1024)?.0))?;
    for flows in [1, 1 << 10, 1 << 16, 1 << 20] {
        for capacity in [CAPACITY, 1 << 20] {
            let label = format!("{flows} flows, {capacity} kept");
            show(&label, || {
                let (mut table, _latest) = table(capacity);
                feed(&mut table, flows)?;
                Ok(feed(&mut table, flows)?.0)
            })?;
        }
    }
    show("a flood of forged flows", || {
        let (mut table, _latest) = table(CAPACITY);
        Ok(feed(&mut table, u64::MAX)?.0)
    })?;
    pauses()
}

fn pauses() -> Result<(), SinkError> {
    for capacity in [CAPACITY, 1 << 20] {
        snapshots(capacity)?;
        looks(capacity)?;
    }
    Ok(())
}

fn show(label: &str, mut run: impl FnMut() -> Result<f64, SinkError>) -> Result<(), SinkError> {
    let mut runs = (0..RUNS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(f64::total_cmp);
    let (median, least, most) = (runs[RUNS / 2], runs[0], runs[RUNS - 1]);
    println!("{label:32} {median:6.1} ({least:.1}, {most:.1}) {:7.2}", 1000.0 / median);
    Ok(())
}

/// Measures the memory that forged conversations of one packet each take, with a snapshot after every
/// million.
fn flood() -> Result<(), SinkError> {
    let (mut table, latest) = table(CAPACITY);
    begin(&mut table)?;
    let mut frame = frame();
    for million in 1..=10_u64 {
        for number in (million - 1) * 1_000_000..million * 1_000_000 {
            // Multiples of an odd number are all different.
            name(&mut frame, number.wrapping_mul(0x9e37_79b9_7f4b) & 0xffff_ffff_ffff);
            let ns = BEGIN + number * 1000;
            table.packet(&Packet { ns, ..packet(&frame) })?;
        }
        let held = latest.get();
        table.counters(&[]);
        drop(held);
        // From the third million on, two snapshots exist.
        if [1, 3, 10].contains(&million) {
            println!("{million:2} million conversations: at most {} KiB resident", most_resident());
        }
    }
    let snapshot = latest.get();
    let kept = snapshot.flows.len() as u64;
    println!("kept {kept}, evicted {}", snapshot.other.evictions);
    assert_eq!(kept + snapshot.other.evictions, 10_000_000);
    Ok(())
}

/// Returns `VmHWM` of this process, in KiB.
fn most_resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    most.map_or("unknown", |most| most.trim().trim_end_matches(" kB")).to_owned()
}

/// Measures how long a snapshot of a full table delays packets, in milliseconds: its longest part, and
/// all parts together. A reader holds the previous snapshot meanwhile.
fn snapshots(capacity: usize) -> Result<(), SinkError> {
    let (mut table, latest) = table(capacity);
    let (_, ns) = feed(&mut table, capacity as u64 * 16)?;
    let mut times = (0..10)
        .map(|second| {
            let held = latest.get();
            let packet = Packet { ns: ns + second * 1_000_000_000, ..packet(&[0; 60]) };
            table.packet(&packet)?;
            let begin = cpu();
            table.counters(&[]);
            let mut all = cpu() - begin;
            let mut longest = all;
            while latest.get().now_ns < packet.ns {
                let begin = cpu();
                table.flush()?;
                let part = cpu() - begin;
                (all, longest) = (all + part, longest.max(part));
            }
            drop(held);
            Ok((longest / 1e6, all / 1e6))
        })
        .collect::<Result<Vec<_>, SinkError>>()?;
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let flows = latest.get().flows.len();
    let (median, most) = (times[5], times[9]);
    println!(
        "snapshot of {flows} flows: {:.1} ms at once (at most {:.1}), {:.1} in all",
        median.0, most.0, median.1
    );
    Ok(())
}

/// Measures how long a sweep of a full table for expired conversations delays packets, in milliseconds.
fn looks(capacity: usize) -> Result<(), SinkError> {
    let idle = Some(Duration::from_secs(3600));
    // No snapshots are made, because nothing reads them.
    let (mut table, _) =
        FlowTable::new(FlowTableSettings { capacity, idle, ..FlowTableSettings::default() });
    let (_, ns) = feed(&mut table, capacity as u64 * 16)?;
    let mut times = Vec::new();
    for second in 1..=10 {
        let end_ns = ns + second * 1_000_000_000;
        let begin = cpu();
        table.counters(&[InterfaceStatistics { end_ns, ..InterfaceStatistics::default() }]);
        times.push((cpu() - begin) / 1e6);
    }
    times.sort_by(f64::total_cmp);
    println!("look at {capacity} flows: {:.1} ms (at most {:.1})", times[5], times[9]);
    Ok(())
}

fn table(capacity: usize) -> (FlowTable, LatestSnapshot) {
    FlowTable::new(FlowTableSettings { capacity, ..FlowTableSettings::default() })
}

fn packet(data: &[u8]) -> Packet<'_> {
    Packet {
        interface: 0,
        ns: BEGIN,
        data,
        len: 64,
        dir: DIR_RX,
        queue: Some(0),
        lcore: Some(1),
        weight: 1,
        dropped: 0,
        id: 0,
        comment: "",
        options: &[],
    }
}

fn begin(target: &mut dyn PacketSink) -> Result<(), SinkError> {
    target.section(&SectionOrigin::default())?;
    target.interface(&CaptureInterface {
        name: "bench:0".to_owned(),
        description: String::new(),
        filter: String::new(),
        comment: String::new(),
        options: Vec::new(),
        snaplen: 128,
        linktype: ETHERNET,
    })
}

/// Gives a frame its own source address and port from 48 bits.
fn name(frame: &mut [u8; 60], flow: u64) {
    frame[26..30].copy_from_slice(&(flow as u32).to_be_bytes());
    frame[34..36].copy_from_slice(&((flow >> 32) as u16).to_be_bytes());
}

/// Returns the nanoseconds per packet, and the time of the last packet.
fn feed(target: &mut dyn PacketSink, flows: u64) -> Result<(f64, u64), SinkError> {
    begin(target)?;
    let mut frames = vec![frame(); BURST];
    let (mut time, mut ns, mut state) = (0.0, BEGIN, 1_u64);
    for _ in 0..PACKETS / BURST as u64 {
        for frame in &mut frames {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let flow = if flows == u64::MAX { state >> 16 } else { (state >> 32) % flows };
            name(frame, flow);
        }
        let begin = cpu();
        for frame in &frames {
            ns += 100;
            target.packet(&Packet { ns, ..packet(frame) })?;
        }
        time += cpu() - begin;
    }
    Ok((time / PACKETS as f64, ns))
}

/// Returns a TCP segment with data, from address 0.0.0.0 and port 0.
fn frame() -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
    frame[36..38].copy_from_slice(&443_u16.to_be_bytes());
    frame[46..50].copy_from_slice(&[0x50, 0x10, 1, 0]);
    frame
}

fn cpu() -> f64 {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
