//! `pmdscope doctor`: checks a host and its apps for deployment mistakes.

mod apps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use pmdscope_doctor::{Baseline, CheckStatus, CpuSet, Examination, HostTree, examine};

pub(crate) use self::apps::live_apps;
use crate::bundle::{HOST_TREE, open};
use crate::color::ColorArg;
use crate::exit::{FAILED, Usage};
use crate::output::{self, StandardOutput};
use crate::progress::Progress;
use crate::session::{self, AppArg};

/// Check host and apps for deployment mistakes
///
/// Checks hugepages, NIC drivers, interrupts, isolated CPUs, power management, rings, pools and
/// control groups. Each result has the value found, why it matters, and the commands that fix it.
/// doctor changes nothing, and also runs before the first start of an app.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope doctor --cpus 2-7     before the first start: CPUs to poll on
  pmdscope doctor --fix-script   print a shell script with all fixes

Exit status: 0 no check fails, 1 a check fails, 2 wrong usage or configuration.")]
#[command(after_long_help = "\
Examples:
  pmdscope doctor                       this host and all apps
  pmdscope doctor -v                    also show passed checks
  pmdscope doctor --cpus 2-7            before the first start: CPUs to poll on
  pmdscope doctor --fix-script > fix.sh print a shell script with all fixes
  pmdscope doctor --save /var/lib/pmdscope/good.json
                                        keep the facts of a good run
  pmdscope doctor --compare /var/lib/pmdscope/good.json
                                        show changes since then, such as
                                        after a kernel update
  pmdscope doctor --json | jq '.results[] | select(.status == \"fail\")'
  pmdscope doctor -r fwd.tar.zst        another host, from its bundle

Statuses:
  FAIL  keeps an app from working, or costs packets now
  WARN  costs packets at high rates or in rare moments
  skip  could not be checked; the reason follows
  pass  in order; counted, and shown with -v

Exit status:
  0  no check fails; warnings do not count
  1  a check fails
  2  wrong usage or configuration")]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    /// CPUs on which apps will poll, such as 2-7
    ///
    /// Added to those on which apps poll now. Default before the first start: the isolated CPUs.
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuSet>,

    /// Check a bundle or a collected tree, not this host
    ///
    /// BUNDLE is a file of `pmdscope bundle`. DIR has copies of proc, sys and etc, like doctor/tree in an
    /// unpacked bundle.
    #[arg(short = 'r', long = "read", alias = "root", value_name = "BUNDLE|DIR",
          value_hint = clap::ValueHint::AnyPath, conflicts_with = "app")]
    root: Option<PathBuf>,

    /// Do not read the memory of apps
    ///
    /// Without libpmdscope, the objects of mempools are counted in the memory of the app, from outside. That
    /// needs root, CAP_SYS_PTRACE, or the user of the app where the kernel allows it.
    #[arg(long, conflicts_with = "root", hide_short_help = true)]
    no_xray: bool,

    /// Save the facts of this run
    ///
    /// With --compare, only if no check fails, so that FILE remains that of a good run.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    save: Option<PathBuf>,

    /// Show what has changed since a saved run
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    compare: Option<PathBuf>,

    /// Print a shell script with all fixes; nothing is run
    #[arg(long, conflicts_with = "json")]
    fix_script: bool,

    /// Also show passed checks
    #[arg(short, long, conflicts_with_all = ["json", "fix_script"])]
    verbose: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let baseline = args.compare.as_deref().map(Baseline::load).transpose()?;
    let mut settings = args.app.settings()?;
    session::xray_unless(args.no_xray, &mut settings);
    let progress = Progress::begin("checking host and apps", false);
    // Kept until the report is printed.
    let bundle = args.root.as_deref().filter(|root| open::is_bundle(root));
    let unpacked = bundle.map(|bundle| open::unpack(bundle, HOST_TREE)).transpose()?;
    let (tree, apps) = if let Some(root) = &args.root {
        (HostTree::open(unpacked.as_ref().map_or(root, |dir| dir.path()))?, None)
    } else {
        let apps = live_apps(settings, args.app.app.as_deref())?;
        (HostTree::open(Path::new("/"))?, Some(apps))
    };
    if args.root.is_some() && tree.is_this_machine() {
        return Err(Usage("-r / is this host: leave it out").into());
    }
    let of = Examination { apps, cpus: args.cpus.clone(), baseline };
    let (report, facts) = examine(&tree, &of);
    drop(progress);
    if args.json {
        output::print_json(&report)?;
    } else if args.fix_script {
        output::print(&report.fix_script())?;
    } else {
        let lines = report.fitted_lines(args.verbose, StandardOutput::width());
        output::print_lines(&lines, args.color.color(&args.app.config)?)?;
    }
    if let Some(path) = &args.save {
        save(path, &facts, args.compare.is_some(), report.count(CheckStatus::Fail))?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn save(path: &Path, facts: &Baseline, compared: bool, failed: usize) -> Result<()> {
    if compared && failed > 0 {
        output::tell(&format!("not saved, since {failed} checks fail: {}", path.display()));
        return Ok(());
    }
    if failed > 0 {
        output::tell(&format!("saved, though {failed} checks fail: {}", path.display()));
    }
    Ok(facts.save(path)?)
}

fn cpu_list(text: &str) -> Result<CpuSet, String> {
    let cpus = CpuSet::of_list(text);
    let is_list = text.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '-');
    if is_list && !cpus.0.is_empty() { Ok(cpus) } else { Err("give CPUs as in 2-7,10".into()) }
}
