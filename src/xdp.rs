//! `pmdscope xdp`: drops unwanted packets on interfaces of the kernel.

mod attach;
mod prefixes;
pub(crate) mod report;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use pmdscope_xdp::{Filter, XdpError};

use crate::exit::{FAILED, Usage};
use crate::output;

/// Drop unwanted packets before the kernel sees them
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Needs root. Examples: --help, and 'pmdscope xdp COMMAND --help'.")]
#[command(after_long_help = "\
Examples:
  pmdscope xdp attach eth0                          drop malformed and non-IP packets
  pmdscope xdp attach eth0 --deny 203.0.113.0/24 --rate-limit 20000
  pmdscope xdp status                               packets by verdict, top sources
  pmdscope xdp deny eth0 198.51.100.7 2001:db8::/32 from the next packet on
  pmdscope xdp set eth0 --syn-limit 1000            change a limit
  pmdscope xdp detach eth0

The filter is an XDP program. It stays attached when this command ends, until 'detach' or until the
interface is removed. Each packet is counted under one verdict:
  passed      passed to the kernel
  malformed   headers that contradict each other or the length of the packet
  not_ip      neither IPv4, IPv6 nor ARP
  fragment    fragments that hide or overwrite a header; whole fragments pass
  denied      source in a denied prefix
  rate_limit  source above --rate-limit
  syn_flood   TCP SYN to a server above --syn-limit
ARP, IPv6 Neighbor Discovery, and link control (LACP, LLDP, STP, EAPOL) always pass.
See docs/xdp.md.

Exit status:
  0  done
  1  failed, or no filter is attached
  2  wrong usage")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Attach(attach::AttachArgs),
    Status(StatusArgs),
    Set(attach::SetArgs),
    Deny(prefixes::DenyArgs),
    Allow(prefixes::AllowArgs),
    Detach(DetachArgs),
}

/// Show filters: packets by verdict, top sources, limits, prefixes
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope xdp status                 all interfaces of this network namespace
  pmdscope xdp status eth0 --json | jq '.filters[0].verdicts'

Exit status: 0 shown, 1 failed or no filter is attached, 2 wrong usage.")]
struct StatusArgs {
    /// Interface [default: all that have a filter]
    #[arg(value_name = "IFACE")]
    interface: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Remove the filter of an interface, with its counters and prefixes
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope xdp detach eth0
  pmdscope xdp detach --all           all interfaces of this network namespace

XDP programs of others are left alone.
Exit status: 0 removed, or --all and there was none; 1 failed; 2 wrong usage.")]
struct DetachArgs {
    /// Interface
    #[arg(value_name = "IFACE", required_unless_present = "all")]
    interface: Option<String>,

    /// Remove all filters of this network namespace
    #[arg(long, conflicts_with = "interface")]
    all: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Attach(args) => attach::attach(args),
        Command::Set(args) => attach::set(args),
        Command::Status(args) => status(args),
        Command::Deny(args) => prefixes::deny(args),
        Command::Allow(args) => prefixes::allow(args),
        Command::Detach(args) => detach(args),
    }
}

fn status(args: &StatusArgs) -> Result<ExitCode> {
    let filters = match &args.interface {
        Some(interface) => vec![Filter::find(interface)?],
        None => Filter::all()?,
    };
    let reports = filters.iter().map(report::FilterReport::of).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        output::print_json(&report::Document::of(&reports))?;
    } else {
        output::print_fitted_text(&report::text(&reports))?;
    }
    if reports.is_empty() {
        output::tell("no interface of this network namespace has a filter");
        return Ok(ExitCode::from(FAILED));
    }
    Ok(ExitCode::SUCCESS)
}

fn detach(args: &DetachArgs) -> Result<ExitCode> {
    let interfaces = match &args.interface {
        Some(interface) => vec![interface.clone()],
        None if args.all => pmdscope_xdp::interfaces()?,
        None => return Err(Usage("give an interface, or --all").into()),
    };
    if interfaces.is_empty() {
        output::tell("no interface of this network namespace has a filter");
    }
    for interface in &interfaces {
        match pmdscope_xdp::detach(interface) {
            Ok(()) => {
                output::print_line(&format!("{interface}: detached"))?;
            }
            // Another process has detached it meanwhile.
            Err(XdpError::NotAttached(_) | XdpError::NoInterface(_)) if args.all => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the document of no filter, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if let Command::Status(StatusArgs { json: true, .. }) = &args.command {
        output::print_json(&report::Document::of(&[]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use insta::assert_snapshot;

    use super::*;
    use crate::fixture::parse_args;

    #[test]
    fn help_of_every_subcommand() {
        let mut cli = crate::Cli::command().term_width(100);
        cli.build();
        let xdp = cli.find_subcommand_mut("xdp").unwrap();
        for command in xdp.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            assert_snapshot!(format!("help_{}", command.get_name()), command.render_long_help());
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        for words in [
            "attach",
            "attach eth0 --rate-limit 0",
            "attach eth0 --rate-limit 100000001",
            "attach eth0 --mode driver",
            "attach eth0 --deny 10.0.0.1/8",
            "deny eth0",
            "deny eth0 example.org",
            "allow eth0 10.0.0.0/33",
            "set eth0 --rate-limit fast",
            "detach",
            "detach eth0 --all",
        ] {
            let refused = parse_args::<Args>("xdp", words);
            let error = refused.err().unwrap_or_else(|| panic!("{words}"));
            assert_eq!(error.exit_code(), i32::from(crate::exit::USAGE), "{words}");
        }
    }
}
