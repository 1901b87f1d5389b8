//! tshark as a decoder: it reads pcapng, so it knows interfaces and times itself.

use std::io::Write;
use std::process::Command;

use pmdscope_packets::{CaptureInterface, Packet, SectionOrigin, SinkError, pcapng};

use super::ViewArgs;
use super::child::Running;
use super::lines::append;
use super::stage::{Batch, Decoder};
use crate::exit::Usage;
use crate::output::one_line;

const NAME: &str = "tshark";

pub(super) struct Tshark {
    running: Running,
    interfaces: usize,
    buffer: Vec<u8>,
}

/// The arguments for what people want to see, as far as tshark can show it.
pub(super) fn flags(args: &ViewArgs, named: bool) -> Result<Vec<String>, Usage> {
    let foreign = args.link_header
        || args.quick
        || args.ascii > 0
        || args.absolute_tcp_sequence_numbers
        || args.dont_verify_checksums
        || args.no_domain
        || args.packet_type.is_some()
        || args.asdot
        || args.mesh
        || args.nfs_handles;
    if foreign {
        return Err(Usage(
            "--decoder tshark does not support -e, -q, -A, -S, -K, -N, -T, -b, -H and -u: leave them \
             out, or use --decoder tcpdump",
        ));
    }
    let mut flags = ["-r", "-", "-l"].map(str::to_owned).to_vec();
    flags.extend((args.numeric > 0).then(|| "-n".to_owned()));
    flags.extend((args.verbose > 0).then(|| "-V".to_owned()));
    flags.extend((args.hex > 0 || args.hex_ascii > 0).then(|| "-x".to_owned()));
    let time = match args.time {
        0 | 1 => "a",
        2 => "e",
        3 => "dd",
        4 => "ad",
        _ => "r",
    };
    flags.extend(["-t", time, "-o"].map(str::to_owned));
    flags.push(format!("gui.column.format:{}", columns(args, named)));
    Ok(flags)
}

fn columns(args: &ViewArgs, named: bool) -> String {
    let direction = "%Cus:frame.packet_flags_direction:0:R";
    let all = [
        ("No.", "%m", args.number),
        ("Time", "%t", args.time != 1),
        ("Interface", "%Cus:frame.interface_name:0:R", named),
        ("Direction", direction, named),
        ("Source", "%s", true),
        ("Destination", "%d", true),
        ("Protocol", "%p", true),
        ("Length", "%L", true),
        ("Info", "%i", true),
    ];
    let shown = all.iter().filter(|(_, _, on)| *on);
    shown.map(|(name, format, _)| format!("\"{name}\",\"{format}\"")).collect::<Vec<_>>().join(",")
}

impl Tshark {
    /// Starts a command that is tshark with [`flags`].
    pub(super) fn start(command: Command, out: Box<dyn Write + Send>) -> anyhow::Result<Self> {
        let running = Running::start(NAME, command, Box::new(append), out)?;
        let mut buffer = Vec::new();
        pcapng::write_section(&mut buffer, &SectionOrigin::default());
        Ok(Self { running, interfaces: 0, buffer })
    }

    fn feed(&mut self) -> Result<(), SinkError> {
        let bytes = std::mem::take(&mut self.buffer);
        self.running.feed(NAME, &bytes)
    }
}

/// With texts that end no line: tshark prints a line feed in a name as it is.
fn on_one_line(interface: &CaptureInterface) -> CaptureInterface {
    CaptureInterface {
        name: one_line(&interface.name),
        description: one_line(&interface.description),
        filter: one_line(&interface.filter),
        comment: one_line(&interface.comment),
        ..*interface
    }
}

impl Decoder for Tshark {
    fn decode(&mut self, batch: &Batch) -> Result<(), SinkError> {
        for interface in batch.interfaces.iter().skip(self.interfaces) {
            pcapng::write_interface(&mut self.buffer, &on_one_line(interface));
        }
        self.interfaces = batch.interfaces.len();
        for (head, data) in batch.packets() {
            let packet = Packet {
                interface: head.interface as u32,
                ns: head.ns,
                data,
                len: head.len,
                dir: head.dir,
                queue: head.queue,
                lcore: None,
                weight: 1,
                dropped: 0,
                id: head.id,
                comment: "",
            };
            pcapng::write_packet(&mut self.buffer, &packet);
        }
        self.feed()
    }

    fn gone(&mut self) -> bool {
        self.running.gone()
    }

    fn end(mut self: Box<Self>) -> Result<(), SinkError> {
        // Whether it is still there is told by its end.
        let _ = self.feed();
        self.running.end()
    }
}
