//! `pmdscope export`: metrics for Prometheus and OTLP receivers, readiness for probes.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use pmdscope_export::address::ListenAddress;
use pmdscope_export::text::TextFormat;
use pmdscope_export::{ExportOptions, ExportProcess};

use crate::session::AppArg;
use crate::{duration, interfaces, output, session};

/// Export metrics of DPDK apps to Prometheus and OTLP
///
/// Serves Prometheus metrics and readiness probes over HTTP. Options override the configuration file.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(after_help = "\
Examples:
  pmdscope export                          serve http://127.0.0.1:9177/metrics
  pmdscope export --otlp http://localhost:4318
  curl -f 'localhost:9177/ready?app=fwd'   succeeds if the app fwd is healthy")]
#[command(after_long_help = "\
Examples:
  pmdscope export                                serve http://127.0.0.1:9177/metrics
  pmdscope export --listen :9177 --web-config web.yml
                                                 all addresses, with TLS and passwords
  pmdscope export --listen unix:/run/pmdscope/export.sock
  pmdscope export --otlp http://localhost:4318   also push to an OTLP receiver
  pmdscope export -a fwd                         one app, now or once it starts
  pmdscope export --once | promtool check metrics
  curl -f 'localhost:9177/ready?app=fwd'         succeeds if the app fwd is healthy

Pages: /metrics, /metrics?app=NAME, /metrics/exporter, /ready, /ready?app=NAME,
  /healthz, /sd, /

SIGHUP: read the thresholds of the configuration file again.

Exit status: 0 terminated by SIGTERM or SIGINT, or printed with --once; 1 failed,
for example because an address is in use; 2 wrong usage or configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    /// Listen here [default: 127.0.0.1:9177]
    ///
    /// ADDRESS is HOST:PORT, :PORT (all addresses), unix:PATH, or systemd (the sockets of a .socket
    /// unit). May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<ListenAddress>,

    /// Web configuration file: TLS and passwords
    ///
    /// The format is that of the Prometheus exporter toolkit.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    web_config: Option<PathBuf>,

    /// Scrape timeout [default: 5s]
    ///
    /// A shorter timeout announced by Prometheus takes precedence.
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeout: Option<Duration>,

    /// Push metrics to this OTLP receiver
    ///
    /// An http or https URL. /v1/metrics is appended to a URL without a path.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,

    /// OTLP push interval [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    otlp_interval: Option<Duration>,

    /// Trace what takes the CPU from lcores
    ///
    /// Interrupts, softirqs and other threads. Needs root (CAP_BPF and CAP_PERFMON) and bpftrace.
    /// Without them, the counters of /proc are used, which have the times of the scheduler only; a
    /// note says so. Overrides
    /// `interrupts` of the configuration.
    #[arg(long, conflicts_with = "once")]
    interrupts: bool,

    /// Count mempools and rings in the memory of apps
    ///
    /// For apps without libpmdscope. Needs root or CAP_SYS_PTRACE, or the user of the app where the kernel
    /// allows it. Overrides `xray` of the configuration.
    #[arg(long)]
    xray: bool,

    /// Print the effective configuration and exit
    #[arg(long, conflicts_with = "once")]
    print_config: bool,

    /// Print the metrics once and exit
    #[arg(long, conflicts_with_all = ["listen", "web_config", "otlp", "otlp_interval"])]
    once: bool,

    #[arg(
        help = "With --once: print OpenMetrics 1.0",
        long_help = "With --once: print OpenMetrics 1.0, not the Prometheus text format 0.0.4"
    )]
    #[arg(long, requires = "once")]
    openmetrics: bool,

    /// Be one of the two processes. Used by the exporter itself
    #[arg(long, value_name = "PROCESS", hide = true, conflicts_with_all = ["once", "print_config"])]
    process: Option<Process>,
}

/// The processes of the exporter.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Process {
    Collector,
    Network,
}

/// The same range as in the configuration file, so that what is printed can be loaded.
fn time(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    duration::within(text, range, "500ms, 5s or 1m")
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if matches!(args.process, Some(Process::Network)) {
        pmdscope_export::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut config = args.app.config.load()?;
    config.settings.set_only(args.app.app.as_deref());
    args.set(&mut config.export);
    config.export_interrupts |= args.interrupts;
    config.export_xray |= args.xray;
    if config.export_xray {
        session::require_xray(&mut config.settings);
    }
    interfaces::read_with(&mut config.settings);
    config.settings.histograms.want(config.export.series_limits.queue_histograms);
    if args.print_config {
        output::print(&config.text())?;
    } else if args.once {
        let format = if args.openmetrics { TextFormat::OpenMetrics } else { TextFormat::Text };
        output::print(&pmdscope_export::once(&config.export, config.settings, format)?)?;
    } else if args.process.is_none() {
        match pmdscope_export::start(&config.export, process)? {}
    } else {
        let _tracer = config.export_interrupts.then(|| session::trace(&mut config.settings));
        let file = args.app.config.clone();
        let thresholds = move || match file.load() {
            Ok(config) => Ok(config.settings.rules.thresholds),
            Err(error) => Err(error.to_string()),
        };
        pmdscope_export::collect(&config.export, config.settings, Arc::new(thresholds))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the command line of one of the two processes: that of this one, and which of them it is.
fn process(process: ExportProcess) -> io::Result<Command> {
    let word = match process {
        ExportProcess::Collector => "collector",
        ExportProcess::Network => "network",
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).args(["--process", word]);
    Ok(command)
}

impl Args {
    /// What is given here comes before the configuration.
    fn set(&self, options: &mut ExportOptions) {
        if !self.listen.is_empty() {
            options.listen.clone_from(&self.listen);
        }
        if self.web_config.is_some() {
            options.web_config.clone_from(&self.web_config);
        }
        if self.otlp.is_some() {
            options.otlp.clone_from(&self.otlp);
        }
        options.timeout = self.timeout.unwrap_or(options.timeout);
        options.otlp_interval = self.otlp_interval.unwrap_or(options.otlp_interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse_args;

    fn options(words: &str) -> ExportOptions {
        let mut options = ExportOptions {
            otlp: Some("http://configured".to_owned()),
            ..ExportOptions::default()
        };
        parse_args::<Args>("export", words).unwrap().set(&mut options);
        options
    }

    #[test]
    fn what_is_given_comes_before_the_configuration_and_nothing_else_does() {
        let given = options("--listen :1 --listen unix:/s --timeout 2s");
        let listen: Vec<_> = given.listen.iter().map(ListenAddress::to_string).collect();
        assert_eq!(listen, [":1", "unix:/s"]);
        assert_eq!(given.timeout, Duration::from_secs(2));
        assert_eq!(given.otlp.as_deref(), Some("http://configured"));
        assert_eq!(given.otlp_interval, ExportOptions::default().otlp_interval);
        assert_eq!(options("--otlp http://x").otlp.as_deref(), Some("http://x"));
    }

    #[test]
    fn misuse_is_told() {
        for wrong in [
            "--listen nowhere",
            "--timeout 5x",
            "--timeout 0s",
            "--openmetrics",
            "--once --listen :1",
            "--once --print-config",
            "--once --interrupts",
        ] {
            assert!(parse_args::<Args>("export", wrong).is_err(), "{wrong}");
        }
    }
}
