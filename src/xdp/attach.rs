//! Attaches a filter, and changes its limits.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use pmdscope_telemetry::interface::FilterMode;
use pmdscope_xdp::{AttachMode, Filter, MAX_LIMIT, Prefix, PrefixAction, Settings};

use super::report;
use crate::number::whole;
use crate::output;

/// Attach the filter to an interface
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 attached, 1 failed, 2 wrong usage. Examples: --help")]
#[command(after_long_help = "\
Examples:
  pmdscope xdp attach eth0
  pmdscope xdp attach eth0 --deny 203.0.113.0/24 --allow 203.0.113.7
  pmdscope xdp attach eth0 --rate-limit 20000 --syn-limit 1000

Without options there are no limits, non-IP packets are dropped, and valid
fragments pass. An interface has one XDP program. That of another owner, such as
an AF_XDP app, is never replaced.

Exit status: 0 attached, 1 failed, 2 wrong usage.")]
pub(crate) struct AttachArgs {
    /// Interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Where the filter runs
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Auto)]
    mode: Mode,

    /// Drop packets from this prefix; may be repeated
    #[arg(long, value_name = "PREFIX")]
    deny: Vec<Prefix>,

    /// Exempt this prefix from --deny and from limits; may be repeated
    ///
    /// The longest matching prefix wins.
    #[arg(long, value_name = "PREFIX")]
    allow: Vec<Prefix>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Replace a filter of pmdscope
    ///
    /// No packet bypasses the filter meanwhile. Counters, limits and prefixes of the old filter are not kept.
    #[arg(long)]
    replace: bool,
}

/// Change limits of an attached filter
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope xdp set eth0 --rate-limit 5000
  pmdscope xdp set eth0 --rate-limit off --fragments drop

Omitted options keep their values. Changes apply from the next packet on.
Exit status: 0 changed, 1 failed or no filter is attached, 2 wrong usage.")]
pub(crate) struct SetArgs {
    /// Interface
    #[arg(value_name = "IFACE")]
    interface: String,

    #[command(flatten)]
    limits: LimitArgs,
}

/// Options that [`SetArgs`] needs one of.
#[derive(clap::Args)]
struct LimitArgs {
    /// Packets per second of one source, or off
    ///
    /// A source is an IPv4 address or an IPv6 /64. It may send the packets of one second at once.
    #[arg(long, value_name = "PPS", value_parser = limit)]
    rate_limit: Option<Limit>,

    /// New TCP connections per second to one server, or off
    ///
    /// A server is a destination address and port. Above the limit all SYNs to it are dropped, because the
    /// sources of a SYN flood are forged; open connections and allowed prefixes are not affected.
    #[arg(long, value_name = "PPS", value_parser = limit)]
    syn_limit: Option<Limit>,

    /// Action for non-IP, non-ARP packets
    #[arg(long, value_name = "drop|pass", value_enum, hide_possible_values = true)]
    non_ip: Option<Action>,

    /// Action for valid fragments
    #[arg(long, value_name = "drop|pass", value_enum, hide_possible_values = true)]
    fragments: Option<Action>,
}

/// A limit; `None` for off.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<u32>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    Drop,
    Pass,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// In the driver; in the network stack if the driver has no XDP
    Auto,
    /// In the driver, before the kernel allocates memory for a packet
    Native,
    /// In the network stack: slower, for any interface
    Generic,
}

impl LimitArgs {
    fn is_empty(&self) -> bool {
        self.rate_limit.is_none()
            && self.syn_limit.is_none()
            && self.non_ip.is_none()
            && self.fragments.is_none()
    }

    /// The settings with what is given here.
    fn applied_to(&self, settings: Settings) -> Settings {
        let limit = |given: Option<Limit>, now| given.map_or(now, |limit| limit.0);
        let is = |given: Option<Action>, action, now| given.map_or(now, |given| given == action);
        Settings {
            rate_limit: limit(self.rate_limit, settings.rate_limit),
            syn_limit: limit(self.syn_limit, settings.syn_limit),
            pass_non_ip: is(self.non_ip, Action::Pass, settings.pass_non_ip),
            drop_fragments: is(self.fragments, Action::Drop, settings.drop_fragments),
        }
    }
}

pub(super) fn attach(args: &AttachArgs) -> Result<ExitCode> {
    let mode = match args.mode {
        Mode::Auto => AttachMode::Auto,
        Mode::Native => AttachMode::Native,
        Mode::Generic => AttachMode::Generic,
    };
    let with = |action| move |prefix: &Prefix| (*prefix, action);
    let denied = args.deny.iter().map(with(PrefixAction::Deny));
    let prefixes = denied.chain(args.allow.iter().map(with(PrefixAction::Allow)));
    let prefixes = prefixes.collect::<Vec<_>>();
    let settings = args.limits.applied_to(Settings::default());
    let interface = &args.interface;
    let attached = pmdscope_xdp::attach(interface, mode, &settings, &prefixes, args.replace)?;
    if let Some(reason) = attached.native_refused {
        output::tell(&format!(
            "{interface}: in generic mode, which is slower: the driver rejects the filter: {reason}"
        ));
    }
    let filter = &attached.filter;
    let mode = match filter.mode() {
        FilterMode::Native => "native",
        FilterMode::Generic => "generic",
    };
    let program = filter.program();
    output::print_line(&format!(
        "{interface}: attached, {mode}, program {program}; remove it with 'pmdscope xdp detach {interface}'"
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn set(args: &SetArgs) -> Result<ExitCode> {
    if args.limits.is_empty() {
        return Err(crate::exit::Usage("give at least one limit; see --help").into());
    }
    let filter = Filter::find(&args.interface)?;
    let settings = args.limits.applied_to(filter.settings()?);
    filter.change(&settings)?;
    let told = format!("{}: {}", args.interface, report::settings(&settings));
    output::print_line(&told)?;
    Ok(ExitCode::SUCCESS)
}

fn limit(text: &str) -> Result<Limit, String> {
    if text == "off" {
        return Ok(Limit(None));
    }
    let limit = whole::<u32>(1..=u64::from(MAX_LIMIT))(text);
    limit.map(|limit| Limit(Some(limit))).map_err(|error| error + ", or off")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse_args;

    #[test]
    fn what_is_not_given_stays() {
        let now = Settings { rate_limit: Some(7), syn_limit: Some(8), ..Settings::default() };
        let applied =
            |words: &str| parse_args::<SetArgs>("set", words).unwrap().limits.applied_to(now);
        assert_eq!(applied("eth0"), now);
        assert_eq!(applied("eth0 --rate-limit off"), Settings { rate_limit: None, ..now });
        assert_eq!(applied("eth0 --syn-limit 9"), Settings { syn_limit: Some(9), ..now });
        let switched = Settings { pass_non_ip: true, drop_fragments: true, ..now };
        assert_eq!(applied("eth0 --non-ip pass --fragments drop"), switched);
    }
}
