//! `pmdscope bypass`: one RX queue of a kernel interface for a DPDK app, by `AF_XDP`.

pub(crate) mod document;
mod text;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use pmdscope_bypass::{
    BypassDownResult, BypassError, BypassFlow, BypassPhase, BypassRequest, BypassStatus,
    InterfaceName, StateDirectory,
};

use self::document::{Bypasses, Prepared};
use crate::exit::{FAILED, Usage};
use crate::output;

/// Give one RX queue of a kernel interface to an app
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 ok, 1 something is left behind or failed, 2 wrong usage.")]
#[command(after_long_help = "\
Selected flows on one RX queue go to a DPDK app by its driver net_af_xdp; all other
packets stay with the kernel, and with tcpdump. 'up' prepares the interface and prints
the EAL option of the app; the app attaches the XDP program when it starts, and detaches
it when it exits. 'down' undoes all changes, even after a crash.

Examples:
  pmdscope bypass up eth0 --queue 2 --flow udp:53
  dpdk-testpmd --no-pci --vdev=net_af_xdp0,iface=eth0,...      (as 'up' printed it)
  pmdscope bypass status
  pmdscope bypass down eth0

docs/bypass.md describes how packets are steered, and what each counter counts.

Exit status:
  0  done; for 'status', everything is in order
  1  something is left behind or not in order, or a failure
  2  wrong usage")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Up(UpArgs),
    Status(StatusArgs),
    Down(DownArgs),
}

/// Prepare an interface, or change the flows of a bypass
#[derive(clap::Args)]
#[command(after_long_help = "\
If the NIC has ntuple filters, it steers the flows to the queue, and its RSS table keeps
other packets away from it. If not (veth, most virtual NICs), only packets of the flows
that arrive on this queue reach the app; 'status' counts those that arrive on others.

Safe to repeat: with other flows while the app runs, or after the app was killed, to
prepare its next start.

Examples:
  pmdscope bypass up eth0 --queue 2 --flow udp:53
  pmdscope bypass up eth0 --queue 0 --flow udp:53 --flow tcp:853 --app dns

Exit status: 0 ok, 1 failed and the interface is as before, 2 wrong usage.")]
struct UpArgs {
    /// Network interface
    interface: InterfaceName,

    /// RX queue for the app
    #[arg(short, long, value_name = "N")]
    queue: u32,

    /// Packets for the app: tcp, udp or sctp, and the destination port; may be repeated
    #[arg(short, long = "flow", value_name = "PROTOCOL:PORT", required = true)]
    flows: Vec<BypassFlow>,

    /// File-prefix of the app that will use the queue
    #[arg(short, long, value_name = "PREFIX")]
    app: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show bypasses and check their state
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit status:
  0  everything is in order, or there is no bypass
  1  something is left behind or not in order, or a failure
  2  wrong usage")]
struct StatusArgs {
    /// Network interface [default: all]
    interface: Option<InterfaceName>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Undo a bypass; safe to repeat
#[derive(clap::Args)]
#[command(after_long_help = "\
Detaches the XDP program, removes the rules of the NIC, restores its RSS table, its MTU
and promiscuous mode as they were before 'up'. An app that still runs gets no more
packets.

Exit status: 0 the interface is as before, 1 something is left behind (try again), 2 wrong usage.")]
struct DownArgs {
    /// Network interface
    #[arg(required_unless_present = "all")]
    interface: Option<InterfaceName>,

    /// All interfaces of this network namespace that have a bypass
    #[arg(long, conflicts_with = "interface")]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let states = StateDirectory::default();
    match &args.action {
        Action::Up(args) => up(&states, args),
        Action::Status(args) => status(&states, args),
        Action::Down(args) => down(&states, args),
    }
}

fn up(states: &StateDirectory, args: &UpArgs) -> Result<ExitCode> {
    if args.flows.len() > pmdscope_bypass::MAX_FLOWS {
        bail!(Usage("--flow is given too often: a bypass has at most 16"));
    }
    let request = BypassRequest {
        interface: args.interface.clone(),
        queue: args.queue,
        flows: args.flows.clone(),
        app: args.app.clone(),
    };
    let prepared = pmdscope_bypass::up(states, &request)?;
    if args.json {
        output::print_json(&Prepared::of(&prepared))?;
    } else {
        output::print(&text::prepared(&prepared, args.app.as_deref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn status(states: &StateDirectory, args: &StatusArgs) -> Result<ExitCode> {
    let mut bypasses = pmdscope_bypass::status(states)?;
    if let Some(interface) = &args.interface {
        let here = |status: &BypassStatus| {
            status.interface == interface.as_str() && status.phase != BypassPhase::Elsewhere
        };
        bypasses.retain(here);
        if bypasses.is_empty() {
            bail!(BypassError::NoBypass(interface.to_string()));
        }
    }
    if args.json {
        output::print_json(&Bypasses::of(&bypasses))?;
    } else {
        output::print(&text::status(&bypasses))?;
    }
    let sound = bypasses.iter().all(|status| status.problems.is_empty());
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn down(states: &StateDirectory, args: &DownArgs) -> Result<ExitCode> {
    let interfaces = match &args.interface {
        Some(interface) => vec![interface.clone()],
        None => pmdscope_bypass::bypassed_interfaces(states)?,
    };
    let mut done = Vec::new();
    let mut failed = false;
    for interface in &interfaces {
        match pmdscope_bypass::down(states, interface) {
            Ok(Some(down)) => done.push(down),
            Ok(None) => done.push(BypassDownResult {
                interface: interface.to_string(),
                undone: Vec::new(),
                app: None,
            }),
            // The others are taken down all the same.
            Err(error) => {
                output::fail(&error.into());
                failed = true;
            }
        }
    }
    if args.json {
        output::print_json(&Bypasses::of(&done))?;
    } else {
        output::print(&text::taken_down(&done))?;
    }
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Prints the document of no bypass, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if let Action::Status(StatusArgs { json: true, .. }) = &args.action {
        output::print_json(&Bypasses::<BypassStatus>::of(&[]))?;
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
    fn an_interface_a_queue_and_flows_are_needed() {
        let parse = |words: &str| parse_args::<Args>("bypass", words).map(|_| ());
        parse("up eth0 --queue 2 --flow udp:53 --flow tcp:53").unwrap();
        parse("status").unwrap();
        parse("down --all").unwrap();
        for wrong in
            ["", "up eth0", "up eth0 -q 1", "up eth0 -q -1 -f udp:53", "up a/b -q 1 -f udp:53"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["up eth0 -q 1 -f icmp:1", "down", "down eth0 --all"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_of_every_action() {
        let mut cli = crate::Cli::command().term_width(100);
        cli.build();
        let command = cli.find_subcommand_mut("bypass").unwrap();
        let help = |name| command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
        assert_snapshot!(["up", "status", "down"].map(help).join("\n----\n"));
    }
}
