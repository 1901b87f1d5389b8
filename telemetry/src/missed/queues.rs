//! Fill levels of receive queues and shares of polls that return packets, which distinguish a hot
//! queue, a busy lcore and a NIC at its limit.

use super::SATURATED;
use crate::finding::balance::HotQueue;
use crate::model::Model;
use crate::sample::{PcieLinkSample, PortSample, QueueDirection, QueueSample, Sample};

/// An lcore has time left if less than this share of its polls returns packets.
const IDLE: f64 = 0.5;

/// A queue that was filled less than this share of its descriptors had room.
const SHALLOW: f64 = 0.5;

/// Facts that show that the NIC or its PCIe link is the limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NicFacts<'a> {
    /// Share of the polls that returned packets, if it is low.
    pub(crate) busy_ratio: Option<f64>,
    /// Depth of the deepest queue, and its descriptors; `None` if the driver does not report it.
    pub(crate) depth: Option<(u64, u64)>,
    /// A link that is slower or narrower than the device supports.
    pub(crate) link: Option<&'a PcieLinkSample>,
}

/// Whether the hot queue cannot be emptied as fast as it is filled.
pub(super) fn is_overrun(model: &Model, hot: &HotQueue) -> bool {
    let mut queues = model.sample.queues.iter();
    let same = |row: &&QueueSample| {
        (row.port, row.queue, row.direction) == (hot.port, hot.queue, QueueDirection::Rx)
    };
    let full = queues.find(same).and_then(filled).is_some_and(|filled| filled >= SATURATED);
    let missed = hot.missed_ps.is_some_and(|rate| rate > 0.0);
    full || missed || hot.busy_ratio.is_some_and(|busy| busy >= SATURATED)
}

/// Returns how far a queue was filled in the last window, 0 to 1 or a little more.
fn filled(queue: &QueueSample) -> Option<f64> {
    let deepest = deepest(queue)?;
    let descriptors = queue.descriptors.filter(|descriptors| *descriptors > 0)?;
    Some(deepest as f64 / descriptors as f64)
}

fn deepest(queue: &QueueSample) -> Option<u64> {
    let marks = queue.depth_high_water.map(|mark| mark.window);
    Some(marks.unwrap_or(0).max(queue.depth.or(marks)?))
}

/// Returns the share of the polls of the busiest receive queue of a port that returned packets, or
/// else the share of work of the busiest lcore, if the app counts it.
pub(super) fn busy_ratio(model: &Model, port: u16) -> Option<f64> {
    let queues = model.queues.iter();
    let of_port = queues.filter(|row| row.port == port && row.direction == QueueDirection::Rx);
    let polls = of_port.filter_map(|row| row.busy_ratio).max_by(f64::total_cmp);
    let usage = || model.gaps.iter().filter_map(|gaps| gaps.busy_ratio).max_by(f64::total_cmp);
    polls.or_else(usage)
}

/// Returns the facts if packets were missed before the queues: these had room, and the lcores time.
pub(super) fn nic_limit<'a>(
    model: &'a Model,
    port: &PortSample,
    busy: Option<f64>,
) -> Option<NicFacts<'a>> {
    let sample: &Sample = &model.sample;
    let is_of_port = |link: &&PcieLinkSample| link.port == port.device;
    let link = sample.pcie_links.iter().find(is_of_port).filter(|link| link.is_reduced());
    let of_port = |row: &&QueueSample| row.port == port.id && row.direction == QueueDirection::Rx;
    let queues: Vec<_> = sample.queues.iter().filter(of_port).collect();
    if queues.iter().filter_map(|queue| filled(queue)).any(|filled| filled >= SHALLOW) {
        return None;
    }
    let busy_ratio = busy.filter(|busy| *busy < IDLE);
    let depth = queues.iter().filter_map(|queue| Some((deepest(queue)?, queue.descriptors?)));
    let depth = depth.max();
    (busy_ratio.is_some() || (link.is_some() && busy.is_none())).then_some(NicFacts {
        busy_ratio,
        depth,
        link,
    })
}
