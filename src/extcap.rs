//! pmdscope as an extcap program of Wireshark.
//!
//! Wireshark calls every program in its extcap directory with options that differ between versions,
//! so unknown options are ignored. A capture is that of `pmdscope capture`, into a pipe.

mod call;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use pmdscope_packets::filter::FilterCompiler;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use self::call::Call;
use crate::attach::policy::AttachPolicy;
use crate::attach::running::{RunningApp, running};
use crate::attach::transport::Preflight;
use crate::config::ConfigArg;
use crate::{capture, output};

/// How long Wireshark may take to open its end of the pipe.
const READER: Duration = Duration::from_secs(5);

/// What Wireshark offers to set before a capture.
const CONFIG: &str = "\
arg {number=0}{call=--queue}{display=Queue}{type=integer}{range=-1,65535}{default=-1}\
{tooltip=Queue of the port; -1 is all queues}
arg {number=1}{call=--direction}{display=Direction}{type=selector}\
{tooltip=As seen by the application}
value {arg=1}{value=inout}{display=Received and sent}{default=true}
value {arg=1}{value=in}{display=Received}{default=false}
value {arg=1}{value=out}{display=Sent}{default=false}
arg {number=2}{call=--snaplen}{display=Bytes per packet}{type=integer}{range=0,262144}{default=0}\
{tooltip=Most bytes kept of a packet; 0 is all}
arg {number=3}{call=--sample}{display=One packet in}{type=integer}{range=1,2147483647}{default=1}\
{tooltip=Keep one packet in so many of those that pass the filter; 1 is all}
arg {number=4}{call=--ring-size}{display=Memory per polling core}{type=selector}\
{tooltip=Larger rings bridge longer pauses of this computer}
value {arg=4}{value=default}{display=16 MiB}{default=true}
value {arg=4}{value=64K}{display=64 KiB}{default=false}
value {arg=4}{value=256K}{display=256 KiB}{default=false}
value {arg=4}{value=1M}{display=1 MiB}{default=false}
value {arg=4}{value=4M}{display=4 MiB}{default=false}
value {arg=4}{value=8M}{display=8 MiB}{default=false}
value {arg=4}{value=64M}{display=64 MiB}{default=false}
";

const LINK_TYPES: &str = "dlt {number=1}{name=EN10MB}{display=Ethernet}\n";

/// The options of `pmdscope capture`, without the command before them.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: capture::Args,
}

/// Answers Wireshark, if it is Wireshark that calls.
pub(crate) fn answer(arguments: &[OsString]) -> Option<Result<ExitCode>> {
    let call = Call::parse(arguments)?;
    Some(reply(&call))
}

fn reply(call: &Call) -> Result<ExitCode> {
    if call.has("capture") {
        return record(call);
    }
    let text = if call.has("extcap-interfaces") {
        list()?
    } else if call.has("extcap-config") {
        CONFIG.to_owned()
    } else if call.has("extcap-dlts") {
        LINK_TYPES.to_owned()
    } else {
        call.value("extcap-capture-filter").map(judge_filter).unwrap_or_default()
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Nothing means that the filter is valid.
fn judge_filter(expression: &str) -> String {
    let error = FilterCompiler::default().compile_for_app(expression).err();
    error.map(|error| format!("{error}\n")).unwrap_or_default()
}

/// A port that packets can be had from.
struct Interface {
    /// How Wireshark calls it.
    id: String,
    app: String,
    port: u16,
    device: String,
}

fn interfaces() -> Result<Vec<Interface>> {
    let settings = ConfigArg::default().load()?.settings;
    let running = running(&settings)?;
    let offering = running.iter().filter(|one| Preflight::of(one, AttachPolicy::Safe).is_ok());
    Ok(offering.flat_map(interfaces_of).collect())
}

fn interfaces_of(running: &RunningApp) -> Vec<Interface> {
    let ports = running.sample.as_ref().map_or(&[][..], |sample| &sample.ports);
    let interface = |port: &pmdscope_telemetry::sample::PortSample| Interface {
        id: id(&running.app.name, port.id),
        app: running.app.name.clone(),
        port: port.id,
        device: port.device.clone(),
    };
    ports.iter().map(interface).collect()
}

/// A name for Wireshark, which has rules for names; different ports have different ones.
fn id(app: &str, port: u16) -> String {
    let letter = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("+{byte:02x}")
        }
    };
    format!("pmdscope_{}_{port}", app.bytes().map(letter).collect::<String>())
}

fn list() -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let help = env!("CARGO_PKG_REPOSITORY");
    let head = format!("extcap {{version={version}}}{{help={help}}}{{display=pmdscope}}\n");
    Ok(interfaces()?.iter().fold(head, |text, interface| text + &sentence(interface)))
}

fn sentence(interface: &Interface) -> String {
    let Interface { id, app, port, device } = interface;
    // Braces would end the value.
    let display = format!("{app}: port {port} ({device})")
        .replace(|letter: char| letter.is_control() || "{}".contains(letter), "_");
    format!("interface {{value={id}}}{{display={display}}}\n")
}

fn record(call: &Call) -> Result<ExitCode> {
    let fifo = call.value("fifo").context("--capture needs --fifo")?;
    let result = capture(call, fifo);
    if result.is_err() {
        end(Path::new(fifo));
    }
    result
}

fn capture(call: &Call, fifo: &str) -> Result<ExitCode> {
    let id = call.value("extcap-interface").context("--capture needs --extcap-interface")?;
    let interface = interfaces()?
        .into_iter()
        .find(|interface| interface.id == id)
        .with_context(|| format!("there is no port {id}: its application has ended"))?;
    let line = Line::try_parse_from(words(call, &interface, fifo))?;
    capture::run(&line.args)
}

/// Wireshark waits until its pipe was opened, however the capture ended.
fn end(fifo: &Path) {
    let deadline = Instant::now() + READER;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    while open(fifo, flags, Mode::empty()).is_err_and(|error| error == Errno::NXIO) {
        if Instant::now() > deadline {
            return;
        }
        sleep(Duration::from_millis(20));
    }
}

/// The same capture as a command line.
fn words(call: &Call, interface: &Interface, fifo: &str) -> Vec<String> {
    let given = |name, none: &str| call.value(name).filter(|value| *value != none);
    let queue = given("queue", "-1").map(|queue| format!(":{queue}")).unwrap_or_default();
    let port = format!("{}{queue}", interface.port);
    let direction = call.value("direction").unwrap_or("inout");
    let fixed = [
        "capture",
        "--quiet",
        "--exit-with-app",
        "-U",
        // Wireshark may give the pipe any name.
        "--pcapng",
        "-w",
        fifo,
        "-a",
        &interface.app,
        "-i",
        &port,
        "-Q",
        direction,
    ];
    let mut words = fixed.map(str::to_owned).to_vec();
    let optional = [
        ("--snapshot-length", given("snaplen", "0")),
        ("--sample", given("sample", "1")),
        ("--ring-size", given("ring-size", "default")),
    ];
    for (option, value) in optional {
        words.extend(value.map(|value| format!("{option}={value}")));
    }
    words
        .extend(["--", call.value("extcap-capture-filter").unwrap_or_default()].map(str::to_owned));
    words
}

#[cfg(test)]
mod tests;
