//! The command line of `pmdscope netstat`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use pmdscope_flows::filter::{FilterSyntaxError, FlowFilter};
use pmdscope_flows::{CAPACITY, FlowTableSettings};
use pmdscope_telemetry::Thresholds;

use super::ipfix::{IpfixArgs, IpfixExport};
use super::resolver::NameResolver;
use super::row_filter::ConversationFilter;
use crate::attach::policy::AttachArgs;
use crate::capture::Direction;
use crate::exit::Usage;
use crate::file_kind::FileKind;
use crate::number::whole;
use crate::sampling::SamplingMode;
use crate::session::AppArg;
use crate::source::{AtArg, ReplayArg};
use crate::{completions, duration};

/// Default time to count packets.
const WATCH: Duration = Duration::from_secs(2);
/// Time between two reports of `-c`.
const INTERVAL: Duration = Duration::from_secs(1);
/// Default share of a core.
const CPU_BUDGET: f64 = 0.25;
/// Default number of rows.
pub(super) const ROWS: usize = 50;
/// Maximum number of conversations: some GiB of memory.
const MOST_FLOWS: u64 = 1 << 24;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportView {
    Conversations,
    Interfaces,
    Statistics,
    Queues,
    Listen,
}

/// Order of conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ConversationSort {
    /// All bytes
    Bytes,
    /// All packets
    Packets,
    /// Received bytes
    Rx,
    /// Sent bytes
    Tx,
    /// Bits per second
    Rate,
    /// Oldest first
    Age,
    /// Silent for the shortest time first
    Last,
    /// Local address and port
    Local,
    /// Remote address and port
    Remote,
    /// Protocol
    Proto,
    /// State of TCP
    State,
}

/// Options about rows, of which only conversations and listeners have many.
const ROW_OPTIONS: [&str; 10] =
    ["sort", "reverse", "top", "all", "v4", "v6", "tcp", "udp", "sctp", "asked"];
/// Options about packets and times, which do not apply to counters of ports.
const PACKET_OPTIONS: [&str; 8] =
    ["seconds", "direction", "sample", "cpu_budget", "flows", "outer", "no_pdump", "force_pdump"];

const EXAMPLES: &str = "\
Examples:
  pmdscope netstat                        conversations, counted for two seconds
  pmdscope netstat -a fwd -c              one app, updated every second until ^C
  pmdscope netstat --for 30s --sort rate -N 10 udp port 53
                                          the ten fastest that match a filter of tcpdump
  pmdscope netstat state established and dport = :443
  pmdscope netstat --where 'dst [2001:db8::/32]:443 or vlan 42'
                                          those that match a filter of ss
  pmdscope netstat --sample 1 --json      JSON, without sampling
  pmdscope netstat -i                     port counters of all apps
  pmdscope netstat --queues --port fwd:0  RSS balance, and the flows of a hot queue
  pmdscope netstat -l                     listening ports
  pmdscope netstat -s                     packets by protocol
  pmdscope netstat -r dump.pcapng.zst     conversations of a capture file
  tcpdump -U -w - | pmdscope netstat -c -r -
                                          of a live pipe, updated every second
  pmdscope netstat --queues -r incident.jsonl.zst --at -90s
                                          port and queue counters of a recording

JSON: one document, or with -c one line per interval: {\"schema\":1, \"view\", \"begin_ns\", \"now_ns\",
\"sample\", \"total\":{\"packets\",\"bytes\",\"standard_error\"}, \"lost\", ...} and by view \"flows\",
\"listeners\", \"protocols\", \"queues\", \"interfaces\". Unknown values are null. docs/netstat.md
describes the fields.

Signals: INT, TERM and HUP stop counting and print the report. The second one exits at once.

Exit status: 0 ok, 1 failed or no app can be captured from, 2 wrong usage or configuration.";

/// Show conversations, ports and queues of DPDK apps
///
/// The equivalent of netstat(8) and ss(8) for DPDK apps. Counts the packets of running apps for two
/// seconds, or those of capture files. At high rates it samples one packet in N: counts are then
/// estimates, shown with their standard error.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(after_help = "EXPRESSION: pcap-filter(7), --where FILTER: ss(8). All: pmdscope netstat --help", after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Packet filter, see pcap-filter(7)
    ///
    /// With sport, dport, state or exclude it is a filter of ss(8), as that of --where.
    #[arg(value_name = "EXPRESSION", hide_short_help = true)]
    filter: Vec<String>,

    #[command(flatten)]
    pub(super) app: AppArg,

    /// Only this port or queue, such as fwd:0 or fwd:0:3
    ///
    /// IFACE is PREFIX:PORT[:QUEUE]. PREFIX is the app, PORT a port number or device name. May be
    /// repeated.
    #[arg(long = "port", alias = "on", value_name = "IFACE", hide_short_help = true,
          add = completions::interfaces())]
    pub(super) interfaces: Vec<String>,

    /// Read a capture, recording or bundle; -: stdin
    ///
    /// Packets of pcap or pcapng, also compressed with gzip, Zstandard or LZ4; may be repeated; -c follows a
    /// pipe. Of a recording, -i and --queues show the counters. Of a bundle, -i and --at show those of its
    /// recording; everything else is of its captures.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath, group = "recorded",
          conflicts_with_all = ["interfaces", "cpu_budget", "no_pdump", "force_pdump", "replay"],
          add = completions::files())]
    pub(super) read: Vec<PathBuf>,

    /// Former name of -r for a recording
    #[arg(id = "replay", long = "replay", value_name = "FILE", hide = true, group = "recorded")]
    former_replay: Option<PathBuf>,

    /// The recording of either.
    #[arg(skip)]
    pub(super) replay: ReplayArg,

    #[command(flatten)]
    pub(super) at: AtArg,

    /// Port counters, like netstat -i
    #[arg(short, long = "interfaces", group = "view", help_heading = "Views",
          conflicts_with_all = ROW_OPTIONS, conflicts_with_all = PACKET_OPTIONS, conflicts_with = "resolve")]
    interface_counters: bool,

    /// Packets by protocol, like netstat -s
    #[arg(short, long, group = "view", help_heading = "Views", conflicts_with_all = ROW_OPTIONS,
          conflicts_with = "resolve")]
    statistics: bool,

    /// Packets per queue (RSS balance)
    ///
    /// Names the conversations that overload a hot queue. Shows receive queues; -Q out shows transmit
    /// queues.
    #[arg(long, group = "view", help_heading = "Views", conflicts_with_all = ROW_OPTIONS)]
    queues: bool,

    /// Listening ports
    ///
    /// TCP ports that answered a SYN; UDP and SCTP ports that were contacted first.
    #[arg(short, long, group = "view", help_heading = "Views",
          conflicts_with_all = ["sort", "reverse"])]
    listen: bool,

    /// Time to count, such as 500ms or 1m [default: 2s]
    ///
    /// 100ms to 7d. A number without a unit is in seconds.
    #[arg(long = "for", value_name = "TIME", value_parser = watch, conflicts_with = "continuous")]
    seconds: Option<Duration>,

    /// Report every interval until ^C
    ///
    /// Counts are totals since the start, rates are those of the last second.
    #[arg(short, long, conflicts_with = "replay")]
    pub(super) continuous: bool,

    /// Interval of -c, 1s to 1h [default: 1s]
    #[arg(short = 'I', long, hide_short_help = true, value_name = "TIME", value_parser = interval, requires = "continuous")]
    interval: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Sort by bytes, packets, rx, tx, rate, ...
    ///
    /// KEY is bytes, packets, rx or tx (bytes received or sent), rate (bit/s), age (oldest first), last
    /// (most recent packet first), local, remote, proto or state.
    #[arg(long, value_enum, value_name = "KEY", hide_possible_values = true, default_value_t = ConversationSort::Bytes,
          help_heading = "Rows")]
    pub(super) sort: ConversationSort,

    /// Reverse the order
    #[arg(long, hide_short_help = true, help_heading = "Rows")]
    pub(super) reverse: bool,

    /// Show at most N rows [default: 50]
    ///
    /// With -c on a terminal, the default is what fits.
    #[arg(short = 'N', long, value_name = "N", value_parser = whole::<u32>(1..=u32::MAX.into()),
          help_heading = "Rows")]
    top: Option<u32>,

    /// Show all rows
    #[arg(long, conflicts_with = "top", hide_short_help = true, help_heading = "Rows")]
    pub(super) all: bool,

    /// Accepted for netstat compatibility: addresses are numeric unless --resolve is given
    #[arg(short, long, conflicts_with = "resolve", hide_short_help = true, help_heading = "Rows")]
    numeric: bool,

    /// Show names of hosts and services
    ///
    /// Sends one query to the name server for each address that is shown. Addresses without an answer
    /// after 3 seconds, or with -c by the next report, stay numeric.
    #[arg(long, hide_short_help = true, help_heading = "Rows")]
    resolve: bool,

    #[command(flatten)]
    pub(super) row_filter: ConversationFilter,

    /// Direction: in, out or inout (default)
    ///
    /// in is received by the app, out is sent. --queues of running apps defaults to in. From a file, in
    /// and out select packets with a recorded direction.
    #[arg(
        short = 'Q',
        long,
        value_enum,
        value_name = "DIR",
        hide_short_help = true,
        hide_possible_values = true,
        help_heading = "Packets"
    )]
    direction: Option<Direction>,

    /// Sample one packet in N, or auto
    ///
    /// auto keeps counting within --cpu-budget; 1 counts every packet.
    #[arg(
        long,
        value_name = "auto|N",
        default_value = "auto",
        hide_short_help = true,
        conflicts_with = "replay",
        help_heading = "Packets"
    )]
    pub(super) sample: SamplingMode,

    /// CPU limit of counting, of one core [default: 25%]
    #[arg(long, value_name = "PERCENT", value_parser = share,
          hide_short_help = true, conflicts_with = "replay", help_heading = "Packets")]
    cpu_budget: Option<f64>,

    /// Maximum number of conversations
    ///
    /// When the table is full, conversations with few packets are evicted and counted as other.
    #[arg(long, value_name = "N", default_value_t = CAPACITY as u64, conflicts_with = "replay",
          hide_short_help = true, value_parser = whole::<u64>(64..=MOST_FLOWS), help_heading = "Packets")]
    flows: u64,

    /// Count outer headers of tunnels (VXLAN, GTP-U, GRE, ...), not inner ones
    #[arg(long, hide_short_help = true, conflicts_with = "replay", help_heading = "Packets")]
    pub(super) outer: bool,

    #[command(flatten, next_help_heading = "Packets")]
    pub(super) attach: AttachArgs,

    #[command(flatten)]
    pub(super) ipfix: IpfixArgs,
}

impl Args {
    /// Finds out what the file of `-r` is: a recording has counters, all others have packets.
    pub(crate) fn find_recording(&mut self) {
        let kind = match self.read.as_slice() {
            [only] => FileKind::of(only),
            _ => None,
        };
        let is_recording = match kind {
            Some(FileKind::Recording) => true,
            Some(FileKind::Bundle) => self.view() == ReportView::Interfaces || self.at.at.is_some(),
            Some(FileKind::Capture) | None => false,
        };
        let recording = if is_recording { self.read.pop() } else { self.former_replay.take() };
        self.replay.replay = recording;
    }

    /// The thresholds of a hot queue.
    ///
    /// # Errors
    ///
    /// When the configuration is wrong.
    pub(super) fn thresholds(&self) -> anyhow::Result<Thresholds> {
        Ok(self.app.settings()?.rules.thresholds)
    }

    /// Refuses what makes sense one by one, but not together.
    pub(super) fn check(&self) -> Result<(), Usage> {
        let counters_only = self.view() == ReportView::Interfaces;
        let about_packets = !self.interfaces.is_empty() || !self.filter.is_empty();
        if self.continuous && matches!(self.filter.as_slice(), [one] if one.parse::<u64>().is_ok())
        {
            return Err(Usage(
                "-c takes no number: -c -I TIME sets the interval, --for TIME reports once",
            ));
        }
        self.check_read()?;
        if self.reads_files() && counters_only {
            return Err(Usage("-i shows port counters, and capture files have none: leave out -r"));
        }
        let is_file = |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file());
        if self.continuous && (self.read.len() > 1 || self.read.iter().any(is_file)) {
            return Err(Usage(
                "-c follows one pipe, such as -r -: leave out -c to read files to their end",
            ));
        }
        if counters_only && about_packets {
            return Err(Usage(
                "-i shows port counters and takes no filter or queue: leave them out; -a names an app",
            ));
        }
        if self.replays() && !matches!(self.view(), ReportView::Interfaces | ReportView::Queues) {
            return Err(Usage(
                "a recording has no packets: use -r with -i or --queues, or give it captured packets",
            ));
        }
        if self.replays() && about_packets {
            return Err(Usage("a recording has no packets: leave out --port and the filter"));
        }
        let has_rows = matches!(self.view(), ReportView::Conversations | ReportView::Listen);
        if self.positional_of_ss().is_some() && !has_rows {
            return Err(Usage(
                "a filter of ss selects conversations, which this view has not: use one of tcpdump, such as \
                 'udp port 53'",
            ));
        }
        if self.positional_of_ss().is_some() && self.row_filter.asked.is_some() {
            return Err(Usage("two filters of ss: join them by 'and' in --where"));
        }
        if self.cpu_budget.is_some() && self.sample != SamplingMode::Auto {
            return Err(Usage("--cpu-budget needs --sample auto"));
        }
        if self.replays() && self.attach.is_given() {
            return Err(Usage(
                "a recording is read without apps: leave out --no-pdump, --force-pdump and --peek",
            ));
        }
        if self.ipfix.is_given() && (counters_only || self.replays()) {
            return Err(Usage(
                "--ipfix exports conversations, which need packets: leave out -i, and -r of a recording",
            ));
        }
        Ok(())
    }

    /// Refuses what a file of captured packets, or a recording, cannot have.
    fn check_read(&self) -> Result<(), Usage> {
        let is_sampled = self.sample != SamplingMode::Auto;
        if self.reads_files() && (self.app.app.is_some() || self.seconds.is_some() || is_sampled) {
            return Err(Usage(
                "-r reads all packets of a capture: leave out -a, --for and --sample; a filter selects",
            ));
        }
        if self.reads_files() && self.at.at.is_some() {
            return Err(Usage(
                "--at is a time in a recording or bundle, and -r reads a capture: leave out --at",
            ));
        }
        let counts = self.cpu_budget.is_some() || self.flows != CAPACITY as u64 || self.outer;
        if self.replays() && (self.continuous || is_sampled || counts) {
            return Err(Usage(
                "a recording is not counted: leave out -c, --sample, --cpu-budget, --flows and --outer",
            ));
        }
        Ok(())
    }

    /// Share of a core that counting may take.
    pub(super) fn cpu_budget(&self) -> f64 {
        self.cpu_budget.unwrap_or(CPU_BUDGET)
    }

    /// What to show.
    pub(super) fn view(&self) -> ReportView {
        match self {
            Self { interface_counters: true, .. } => ReportView::Interfaces,
            Self { statistics: true, .. } => ReportView::Statistics,
            Self { queues: true, .. } => ReportView::Queues,
            Self { listen: true, .. } => ReportView::Listen,
            _ => ReportView::Conversations,
        }
    }

    /// Packets come from files.
    pub(super) fn reads_files(&self) -> bool {
        !self.read.is_empty()
    }

    /// Counters come from a recording.
    pub(super) fn replays(&self) -> bool {
        self.replay.replay.is_some()
    }

    /// The filter of packets.
    pub(super) fn expression(&self) -> String {
        Some(self.filter.join(" ")).filter(|text| !FlowFilter::is_of_ss(text)).unwrap_or_default()
    }

    fn positional_of_ss(&self) -> Option<String> {
        Some(self.filter.join(" ")).filter(|text| FlowFilter::is_of_ss(text))
    }

    /// The filter of conversations, by --where or in place of that of packets.
    ///
    /// # Errors
    ///
    /// When the latter is wrong.
    pub(super) fn asked(&self) -> Result<Option<FlowFilter>, FilterSyntaxError> {
        let positional = self.positional_of_ss();
        let positional = positional.map(|text| FlowFilter::parse(&text)).transpose()?;
        Ok(positional.or_else(|| self.row_filter.asked.clone()))
    }

    /// How long to look; `None` until stopped, as an export does by default.
    pub(super) fn watch(&self, exports: bool) -> Option<Duration> {
        self.seconds.or((!self.continuous && !exports).then_some(WATCH))
    }

    /// Time between two reports.
    pub(super) fn interval(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }

    /// Most rows that were asked for.
    pub(super) fn rows(&self) -> Option<usize> {
        self.top.and_then(|top| usize::try_from(top).ok())
    }

    /// What looks up names, if they are wanted.
    pub(super) fn resolver(&self) -> anyhow::Result<Option<NameResolver>> {
        NameResolver::for_option(self.resolve)
    }

    /// How to count.
    pub(super) fn table(&self, export: Option<IpfixExport>) -> FlowTableSettings {
        let settings = FlowTableSettings {
            capacity: usize::try_from(self.flows).unwrap_or(CAPACITY),
            inner: !self.outer,
            windows: self.continuous && self.view() == ReportView::Conversations,
            ..FlowTableSettings::default()
        };
        match export {
            None => settings,
            Some(IpfixExport { listener, idle, active, .. }) => FlowTableSettings {
                listener: Some(listener),
                idle: Some(idle),
                active: Some(active),
                ..settings
            },
        }
    }

    /// The direction of packets to count: RSS is about received ones, but files need not contain
    /// the direction.
    pub(super) fn direction(&self) -> Direction {
        let received = self.queues && !self.reads_files();
        let usual = if received { Direction::In } else { Direction::Inout };
        self.direction.unwrap_or(usual)
    }
}

/// Reads a time; a number alone is one of seconds.
fn watch(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(7 * 86_400);
    duration::within(text, range, "2s, 500ms or 1m")
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(3600);
    duration::within(text, range, "1s or 5m")
}

/// Reads a share in percent.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent = percent.filter(|percent| (1.0..=100.0).contains(percent));
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "expected a percentage from 1 to 100".to_owned())
}

#[cfg(test)]
mod tests;
