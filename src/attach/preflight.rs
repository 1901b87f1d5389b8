//! The conditions for a helper to attach to an app, checked from outside without touching the app.

mod cpus;
mod obstacle;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use pmdscope_capture::pdump::{PdumpOptions, PdumpPort, PdumpProgram};
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::{PortSample, Sample};

use self::cpus::HelperCpus;
use self::obstacle::PreflightFacts;
use super::policy::AttachPolicy;
use super::unavailable::CaptureUnavailable;

/// How long to wait for the helper of a capture that has just ended.
const DEPARTURE_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits a moment for the helper of a capture that has just ended.
pub(super) fn await_departure(app: &DiscoveredApp, sample: &Sample) {
    obstacle::await_departure(&app.dir, sample.app.pid, DEPARTURE_TIMEOUT);
}

/// How to start the helper beside a stock app that passed [`check`].
///
/// # Errors
/// When the runtime directory is not one of DPDK, or the CPUs of this process are not known.
pub(super) fn pdump(
    app: &DiscoveredApp,
    sample: &Sample,
    program: PdumpProgram,
    policy: AttachPolicy,
) -> anyhow::Result<PdumpOptions> {
    let (file_prefix, runtime_root) = split(&app.dir)
        .with_context(|| format!("{} is not a runtime directory of DPDK", app.dir.display()))?;
    let cpus = HelperCpus::beside(sample.app.pid)?;
    Ok(PdumpOptions {
        program: program.path,
        file_prefix: file_prefix.to_owned(),
        runtime_root: runtime_root.to_owned(),
        pid: sample.app.pid,
        cpus: cpus.to_string(),
        crowded: cpus.crowded,
        ports: sample.ports.iter().map(port).collect(),
        other_pids: obstacle::differs("pid", sample.app.pid),
        force: policy == AttachPolicy::Forced,
    })
}

/// Whether anything prevents a helper from attaching.
pub(super) fn check(
    app: &DiscoveredApp,
    sample: &Sample,
    attach: AttachPolicy,
) -> anyhow::Result<PdumpProgram> {
    let program = PdumpProgram::find(&sample.app.dpdk_version).with_context(|| {
        format!("{} runs without libpmdscope, and nothing can attach to it", app.name)
    })?;
    let facts = PreflightFacts::gather(app, sample, &program);
    match facts.obstacle(attach == AttachPolicy::Forced) {
        None => Ok(program),
        Some(obstacle) => {
            let text = format!("{} {obstacle}; {}", app.name, obstacle.cure());
            Err(CaptureUnavailable { word: obstacle.word(), text }.into())
        }
    }
}

/// File-prefix and root of a runtime directory, `ROOT/dpdk/PREFIX`.
fn split(dir: &Path) -> Option<(&str, &Path)> {
    Some((dir.file_name()?.to_str()?, dir.parent()?.parent()?))
}

fn port(port: &PortSample) -> PdumpPort {
    let PortSample { id, device, rx_queues, tx_queues, .. } = port.clone();
    PdumpPort { id, device, rx_queues, tx_queues }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_directory_has_a_prefix_and_a_root() {
        let dir = Path::new("/run/user/7/dpdk/fwd");
        assert_eq!(split(dir), Some(("fwd", Path::new("/run/user/7"))));
        assert_eq!(split(Path::new("/")), None);
    }
}
