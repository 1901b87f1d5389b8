//! Sends as fast as the kernel can, on one CPU: a BPF program redirects packets that the kernel makes.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use libbpf_rs::{ObjectBuilder, ProgramInput};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;

/// Sends packets out of an interface of this namespace, and prints the time in nanoseconds.
/// Arguments: object, interface, packets, whether sources are forged.
pub(crate) fn send(args: &[String]) -> Result<()> {
    let [object, interface, packets, forged] = args else { bail!("send: wrong arguments") };
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let index = netdevice::name_to_index(&socket, interface)?;
    let mut object = ObjectBuilder::default().open_file(object)?;
    let constants = [index, u32::from(forged == "true")].map(u32::to_ne_bytes).concat();
    let mut maps = object.maps_mut();
    let is_constants = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".rodata");
    let mut rodata = maps.find(|map| is_constants(map.name())).context("no .rodata")?;
    rodata.set_initial_value(&constants)?;
    drop(maps);
    let object = object.load()?;
    let program = object.progs_mut().next().context("no program")?;
    let frame = frame();
    let input = ProgramInput {
        data_in: Some(&frame),
        repeat: packets.parse()?,
        flags: LIVE_FRAMES,
        ..ProgramInput::default()
    };
    let started = Instant::now();
    program.test_run(input).context("BPF_F_TEST_XDP_LIVE_FRAMES (Linux 5.18 and later)")?;
    println!("{}", started.elapsed().as_nanos());
    Ok(())
}

/// A datagram from 198.19.0.1, 60 bytes with its Ethernet header.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    // The id is the complement of the last two bytes of the source.
    let mut ip = vec![0x45, 0, 0, 46, 0xff, 0xfe, 0, 0, 64, 17, 0, 0, 198, 19, 0, 1, 198, 18, 0, 2];
    let sum = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let [.., high, low] = (!sum).to_be_bytes();
    (ip[10], ip[11]) = (high, low);
    frame.extend(ip);
    frame.extend([4, 0, 0, 9, 0, 26, 0, 0]);
    frame.resize(60, 0xab);
    frame
}
