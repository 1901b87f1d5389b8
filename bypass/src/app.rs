//! Finds the DPDK app that polls a queue, by its `--vdev` option or by its open file descriptor of the
//! XDP program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::name::InterfaceName;

/// Default file-prefix of DPDK.
const DEFAULT_PREFIX: &str = "rte";

/// A running app that polls a queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassApp {
    /// Process id.
    pub pid: u32,
    /// File-prefix of the app.
    pub prefix: String,
    /// Name of the device in the app, such as `net_af_xdp0`.
    pub device: String,
}

/// A device of `net_af_xdp` on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AfXdpDevice {
    device: String,
    interface: String,
    queues: std::ops::Range<u32>,
}

/// Returns the app of this network namespace that polls the queue; `None` if there is none, or if it is
/// not visible.
pub(crate) fn find(interface: &InterfaceName, queue: u32, namespace: u64) -> Option<BypassApp> {
    processes().find_map(|pid| of_process(pid, interface, queue, namespace))
}

/// Finds the same app again, if it still runs.
pub(crate) fn again(
    app: &BypassApp,
    interface: &InterfaceName,
    queue: u32,
    namespace: u64,
) -> Option<BypassApp> {
    of_process(app.pid, interface, queue, namespace).filter(|found| found == app)
}

fn of_process(
    pid: u32,
    interface: &InterfaceName,
    queue: u32,
    namespace: u64,
) -> Option<BypassApp> {
    // `cmdline` is empty for kernel threads and zombies.
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let arguments = arguments(&line);
    let device = devices(&arguments)
        .into_iter()
        .find(|device| device.interface == interface.as_str() && device.queues.contains(&queue))?;
    let inside = fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns.ino() == namespace);
    let prefix = option(&arguments, "--file-prefix").next().unwrap_or(DEFAULT_PREFIX).to_owned();
    inside.then_some(BypassApp { pid, prefix, device: device.device })
}

/// Returns a process that has this BPF program open. The driver keeps it open from start to end, so
/// that process runs the program even if its command line does not show it.
pub(crate) fn holder(program: u32) -> Option<u32> {
    processes().find(|pid| holds(*pid, program).unwrap_or(false))
}

fn holds(pid: u32, program: u32) -> Option<bool> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let path = entry.ok()?.path();
        if fs::read_link(&path).is_ok_and(|target| target == Path::new("anon_inode:bpf-prog")) {
            let number = path.file_name()?.to_string_lossy().into_owned();
            let info =
                fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
            if program_of(&info) == Some(program) {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// Returns the program id in a file of `/proc/PID/fdinfo`.
fn program_of(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns the arguments in a file `/proc/PID/cmdline`.
fn arguments(line: &[u8]) -> Vec<String> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    line.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

/// Returns the values of an EAL option, given as `--option value` or `--option=value` before the `--`
/// that ends EAL's options.
fn option<'a>(arguments: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let arguments = &arguments[..end];
    arguments.iter().enumerate().filter_map(move |(at, argument)| {
        let rest = argument.strip_prefix(name)?;
        if rest.is_empty() {
            arguments.get(at + 1).map(String::as_str)
        } else {
            rest.strip_prefix('=')
        }
    })
}

fn devices(arguments: &[String]) -> Vec<AfXdpDevice> {
    option(arguments, "--vdev").filter_map(device).collect()
}

/// Parses `net_af_xdp0,iface=eth0,start_queue=2,queue_count=1,...`.
fn device(text: &str) -> Option<AfXdpDevice> {
    let mut parts = text.split(',');
    let device = parts.next().filter(|name| name.starts_with("net_af_xdp"))?.to_owned();
    let (mut interface, mut start, mut count) = (None, 0, 1);
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "iface" => interface = Some(value.to_owned()),
            "start_queue" => start = value.parse().ok()?,
            "queue_count" => count = value.parse().ok()?,
            _ => {}
        }
    }
    Some(AfXdpDevice {
        device,
        interface: interface?,
        queues: start..u32::saturating_add(start, count),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_device_and_the_prefix_are_on_the_command_line() {
        let line = b"dpdk-testpmd\0-l\x000,1\0--file-prefix\0dns\0--vdev=net_af_xdp0,iface=eth0,start_queue=2,\
            queue_count=1,xdp_prog=/a.o\0--vdev\0net_tap0\0--\0--vdev=net_af_xdp1,iface=eth1\0";
        let arguments = arguments(line);
        let eth0 = AfXdpDevice {
            device: "net_af_xdp0".to_owned(),
            interface: "eth0".to_owned(),
            queues: 2..3,
        };
        assert_eq!(devices(&arguments), [eth0]);
        assert_eq!(option(&arguments, "--file-prefix").collect::<Vec<_>>(), ["dns"]);
    }

    #[test]
    fn queues_default_to_the_first_one() {
        assert_eq!(device("net_af_xdp,iface=e").unwrap().queues, 0..1);
        assert_eq!(device("net_af_xdp,start_queue=1"), None);
        assert_eq!(device("net_af_packet,iface=e"), None);
        assert_eq!(device("net_af_xdp,iface=e,start_queue=x"), None);
    }

    #[test]
    fn the_program_of_a_descriptor_is_read() {
        assert_eq!(program_of("pos:\t0\nprog_type:\t6\nprog_id:\t3826\n"), Some(3826));
        assert_eq!(program_of("map_id:\t5\n"), None);
    }

    proptest! {
        #[test]
        fn any_command_line_is_understood_or_ignored(line in any::<Vec<u8>>(), text in "net_af_xdp[,=a-z_0-9]{0,40}") {
            let _ = devices(&arguments(&line));
            let _ = (device(&text), program_of(&text));
        }
    }
}
