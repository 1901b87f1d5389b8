//! How many of the packets of apps a sample from their memory has seen.

use pmdscope_capture::Transport;
use pmdscope_render::number;
use pmdscope_telemetry::sample::{PortSample, Sample};
use serde::Serialize;

use super::running::RunningApp;
use super::target::CaptureTarget;

/// Coverage of a sample of packets from the memory of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PeekCoverage {
    /// Apps from which packets are sampled in their memory.
    pub(crate) apps: Vec<String>,
    /// Packets in the sample, including packets that the filter rejected; `None` if packets also come from
    /// other apps, which are captured.
    pub(crate) seen: Option<u64>,
    /// Packets that the ports received in the same time; `None` if the apps do not report it.
    pub(crate) received: Option<u64>,
}

impl PeekCoverage {
    /// The same for people.
    pub(crate) fn line(&self) -> String {
        let apps = self.apps.join(", ");
        let packets = |count| number::plural(count, "packet");
        let received = |count| format!("{} that the ports received meanwhile", packets(count));
        let told = match (self.seen, self.received) {
            (Some(seen), Some(all)) => {
                let percent = match seen as f64 / all as f64 * 100.0 {
                    share if share.is_finite() && share <= 100.0 => format!(" ({share:.1} %)"),
                    _ => String::new(),
                };
                format!("{} seen of {}{percent}", packets(seen), received(all))
            }
            (Some(seen), None) => {
                format!("{} seen; the app does not report how many it received", packets(seen))
            }
            (None, Some(all)) => format!("an unknown number seen of {}", received(all)),
            (None, None) => "an unknown number of packets seen".to_owned(),
        };
        format!("sample from the memory of {apps}: {told}; the others are missing")
    }
}

/// The ports of apps whose packets are sampled from memory, and what they had received at the start.
#[derive(Clone, Debug)]
pub(crate) struct PeekedPorts {
    apps: Vec<PeekedApp>,
    /// No other app is captured from.
    alone: bool,
}

#[derive(Clone, Debug)]
struct PeekedApp {
    target: CaptureTarget,
    before: Option<Sample>,
}

impl PeekedPorts {
    /// Asks the apps among these whose packets are sampled; `None` if there are none.
    pub(crate) fn begin<'a>(targets: impl Iterator<Item = &'a CaptureTarget>) -> Option<Self> {
        let targets: Vec<_> = targets.collect();
        let peeked: Vec<_> = targets.iter().filter(|target| is_peeked(target)).collect();
        let alone = peeked.len() == targets.len();
        let apps = peeked
            .into_iter()
            .map(|target| PeekedApp { before: ask(target), target: (*target).clone() });
        let apps: Vec<_> = apps.collect();
        (!apps.is_empty()).then_some(Self { apps, alone })
    }

    /// Asks again; `seen` is what came of all apps.
    pub(crate) fn coverage(&self, seen: u64) -> PeekCoverage {
        let received = self.apps.iter().map(PeekedApp::received);
        PeekCoverage {
            apps: self.apps.iter().map(|app| app.target.app.clone()).collect(),
            seen: self.alone.then_some(seen),
            received: received.sum(),
        }
    }
}

impl PeekedApp {
    /// Packets that the wanted ports received since the start.
    fn received(&self) -> Option<u64> {
        let (before, now) = (self.before.as_ref()?, ask(&self.target)?);
        if !before.app.same_process(&now.app) {
            return None;
        }
        let ids: Vec<_> = self
            .target
            .ports()
            .into_iter()
            .filter(|port| port.selected)
            .map(|port| port.id)
            .collect();
        let counts = ids.iter().map(|id| {
            let of = |ports: &[PortSample]| {
                ports.iter().find(|port| port.id == *id).map(|port| port.stats.rx_packets)
            };
            of(&now.ports)?.checked_sub(of(&before.ports)?)
        });
        counts.sum()
    }
}

fn is_peeked(target: &CaptureTarget) -> bool {
    matches!(target.transport, Transport::Peek(_))
}

fn ask(target: &CaptureTarget) -> Option<Sample> {
    let Transport::Peek(options) = &target.transport else { return None };
    RunningApp::ask(options.app.clone()).sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_told_as_a_number() {
        let line =
            |seen, received| PeekCoverage { apps: vec!["fwd".into()], seen, received }.line();
        insta::assert_snapshot!(
            [
                line(Some(25), Some(1000)),
                line(Some(25), Some(0)),
                line(Some(25), None),
                line(None, Some(1000)),
                line(None, None),
            ]
            .join("\n"),
            @r"
        sample from the memory of fwd: 25 packets seen of 1,000 packets that the ports received meanwhile (2.5 %); the others are missing
        sample from the memory of fwd: 25 packets seen of 0 packets that the ports received meanwhile; the others are missing
        sample from the memory of fwd: 25 packets seen; the app does not report how many it received; the others are missing
        sample from the memory of fwd: an unknown number seen of 1,000 packets that the ports received meanwhile; the others are missing
        sample from the memory of fwd: an unknown number of packets seen; the others are missing
        "
        );
    }
}
