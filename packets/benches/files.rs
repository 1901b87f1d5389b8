//! The cost of writing a packet to a file: `cargo bench -p pmdscope-packets --bench files`.
//!
//! Measures the CPU time of the capture thread and of the writer thread, for a file in memory
//! (`/dev/shm`) and for `/dev/null`, which leaves encoding and queueing. Arguments select files by
//! parts of their names: `-- .zst`.

// Sizes are small, and numbers are truncated to bytes.
#![allow(clippy::cast_possible_truncation)]

use std::time::{Duration, Instant};

use pmdscope_packets::file::{CaptureFiles, FileFormat, FileSettings};
use pmdscope_packets::{
    CaptureInterface, DIR_RX, ETHERNET, MAX_SNAPLEN, Packet, PacketSink, SectionOrigin, SinkError,
};
use rustix::time::ClockId;

/// Bytes of each run, so that the file fits into memory.
const BYTES: u64 = 1 << 30;
const BYTES_COMPRESSED: u64 = 1 << 28;
const RUNS: usize = 5;
/// Unwritten bytes at most: few enough to stay in the cache, but with compression more than a frame.
const AHEAD: u64 = 2 << 20;
const AHEAD_COMPRESSED: u64 = 32 << 20;
/// Bytes that packets are cut from; with compression, they repeat only after a long distance.
const NOISE: usize = 4 << 10;
const NOISE_COMPRESSED: usize = 16 << 20;

fn main() -> Result<(), SinkError> {
    let (options, names): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    if !options.iter().any(|option| option == "--bench") {
        println!("run by cargo bench");
        return Ok(());
    }
    println!("ns/packet: encode and queue, write, both, wall clock; median of {RUNS}");
    let mut cases = Vec::new();
    for size in [64, 1500] {
        for format in [FileFormat::Pcapng, FileFormat::Pcap { nanos: true }] {
            for path in ["/dev/null", "/dev/shm/pmdscope-bench"] {
                cases.push((FileSettings { format, ..FileSettings::new(path) }, size));
            }
        }
    }
    for (name, compression_threads) in [("zst", 0), ("zst", 1), ("zst", 2), ("gz", 0)] {
        let settings = FileSettings::new(format!("/dev/shm/pmdscope-bench.{name}"));
        cases.push((FileSettings { compression_threads, ..settings }, 1500));
    }
    for (settings, size) in cases {
        let path = settings.path.to_string_lossy();
        if names.is_empty() || names.iter().any(|name| path.contains(name)) {
            run(&settings, size)?;
        }
    }
    Ok(())
}

fn run(settings: &FileSettings, size: usize) -> Result<(), SinkError> {
    let mut runs = (0..RUNS).map(|_| once(settings, size)).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (capture, both, wall, lost) = runs[RUNS / 2];
    let write = both - capture;
    let (path, format) = (settings.path.display(), settings.format);
    let threads = settings.compression_threads;
    println!(
        "{size:5} B {format:?} {path}, {threads} more threads: {capture:.1} {write:.1} {both:.1} {wall:.1}, lost {lost:.1} %"
    );
    Ok(())
}

/// Returns the nanoseconds per packet by CPU time of the capture thread, CPU time of the process and
/// wall clock, and the percentage of lost packets.
fn once(settings: &FileSettings, size: usize) -> Result<(f64, f64, f64, f64), SinkError> {
    let path = settings.path.as_path();
    let compressed = settings.path.extension().is_some();
    let bytes = if compressed { BYTES_COMPRESSED } else { BYTES };
    let count = bytes / (size as u64 + 64);
    let (noisy, ahead) =
        if compressed { (NOISE_COMPRESSED, AHEAD_COMPRESSED) } else { (NOISE, AHEAD) };
    let data = noise(noisy + size);
    let mut files = CaptureFiles::create(settings)?;
    files.section(&SectionOrigin::default())?;
    files.interface(&CaptureInterface {
        name: "bench:0".to_owned(),
        description: String::new(),
        filter: String::new(),
        comment: String::new(),
        options: Vec::new(),
        snaplen: MAX_SNAPLEN,
        linktype: ETHERNET,
    })?;
    let begin = Instant::now();
    let (thread, process) = (cpu(ClockId::ThreadCPUTime), cpu(ClockId::ProcessCPUTime));
    for id in 0..count {
        if id % 1024 == 0 {
            wait_for(&files, id.saturating_sub(ahead / size as u64));
        }
        files.packet(&Packet {
            interface: 0,
            ns: 1_780_000_000_000_000_000 + id,
            data: &data[id as usize * 1500 % noisy..][..size],
            len: size as u32,
            dir: DIR_RX,
            queue: Some(0),
            lcore: None,
            weight: 1,
            dropped: 0,
            id,
            comment: "",
            options: &[],
        })?;
    }
    let thread = cpu(ClockId::ThreadCPUTime) - thread;
    files.finish()?;
    let process = cpu(ClockId::ProcessCPUTime) - process;
    let wall = begin.elapsed().as_nanos() as f64;
    let progress = files.progress();
    drop(files);
    if path.starts_with("/dev/shm") {
        // The file would use memory.
        let _ = std::fs::remove_file(path);
    }
    let count = count as f64;
    let lost = 100.0 * progress.lost as f64 / count;
    Ok((thread / count, process / count, wall / count, lost))
}

/// Waits until the writer has caught up enough that no packet is lost.
fn wait_for(files: &CaptureFiles, packets: u64) {
    while files.progress().written < packets {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Returns bytes that compress about as well as packets: half of them are zero.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state & 0x8000_0000 == 0 { 0 } else { (state >> 16) as u8 }
    };
    (0..size).map(|_| next()).collect()
}

fn cpu(clock: ClockId) -> f64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
