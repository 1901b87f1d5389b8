//! Changes the prefixes of an attached filter.

use std::process::ExitCode;

use anyhow::Result;
use pmdscope_xdp::{Filter, Prefix, PrefixAction};

use crate::exit::FAILED;
use crate::output;

/// Drop packets from prefixes, from the next packet on
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope xdp deny eth0 198.51.100.7 203.0.113.0/24 2001:db8::/32
  pmdscope xdp deny eth0 --delete 203.0.113.0/24

The longest matching prefix wins: see 'pmdscope xdp allow --help'.

Exit status:
  0  done
  1  failed, no filter is attached, or a prefix to delete was not listed
  2  wrong usage")]
pub(crate) struct DenyArgs {
    #[command(flatten)]
    prefixes: PrefixArgs,
}

/// Exempt prefixes from denied prefixes and limits
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope xdp allow eth0 203.0.113.7           even if 203.0.113.0/24 is denied
  pmdscope xdp allow eth0 --delete 203.0.113.7  neither allowed nor denied

Exit status: 0 done, 1 failed, 2 wrong usage.")]
#[command(after_long_help = "\
Examples:
  pmdscope xdp allow eth0 203.0.113.7           even if 203.0.113.0/24 is denied
  pmdscope xdp allow eth0 203.0.113.0/24        no longer denied
  pmdscope xdp allow eth0 --delete 203.0.113.7  neither allowed nor denied

The longest matching prefix wins. A prefix is either denied or allowed: the last
command applies.
Allowed prefixes are exempt from --rate-limit and --syn-limit; malformed packets
and evasive fragments are still dropped: sources can be forged.

Exit status:
  0  done
  1  failed, no filter is attached, or a prefix to delete was not listed
  2  wrong usage")]
pub(crate) struct AllowArgs {
    #[command(flatten)]
    prefixes: PrefixArgs,
}

#[derive(clap::Args)]
struct PrefixArgs {
    /// Interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// IPv4 or IPv6 prefixes or addresses
    #[arg(value_name = "PREFIX", required = true)]
    prefixes: Vec<Prefix>,

    /// Delete the prefixes from the list
    #[arg(long)]
    delete: bool,
}

pub(super) fn deny(args: &DenyArgs) -> Result<ExitCode> {
    change(&args.prefixes, PrefixAction::Deny)
}

pub(super) fn allow(args: &AllowArgs) -> Result<ExitCode> {
    change(&args.prefixes, PrefixAction::Allow)
}

fn change(args: &PrefixArgs, action: PrefixAction) -> Result<ExitCode> {
    let filter = Filter::find(&args.interface)?;
    if args.delete {
        return delete(args, action, &filter);
    }
    for prefix in &args.prefixes {
        filter.list(*prefix, action)?;
        output::print_line(&format!("{}: {action} {prefix}", args.interface))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Only what is listed with this action: `deny --delete` does not delete what is allowed.
fn delete(args: &PrefixArgs, action: PrefixAction, filter: &Filter) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for prefix in &args.prefixes {
        let is_listed = filter.prefixes()?.contains(&(*prefix, action));
        if is_listed && filter.unlist(*prefix)? {
            output::print_line(&format!("{}: {action} {prefix}: deleted", args.interface))?;
        } else {
            let told = format!("{}: {action} {prefix} is not listed", args.interface);
            output::tell(&format!("{told}; see 'pmdscope xdp status {}'", args.interface));
            code = ExitCode::from(FAILED);
        }
    }
    Ok(code)
}
