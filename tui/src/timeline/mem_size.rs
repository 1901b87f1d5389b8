//! Estimates the memory of a state: its vectors and strings.

use std::mem::size_of;
use std::sync::Arc;

use pmdscope_telemetry::finding::Finding;
use pmdscope_telemetry::missed::LcoreGaps;
use pmdscope_telemetry::model::{LedgerRates, Model, PoolTrend, QueueRates, SiteRates};
use pmdscope_telemetry::sample::{
    AppIdentity, DeviceSample, HeapSample, LcoreRoleSample, LcoreSample, LedgerSample,
    PcieLinkSample, PoolSample, PortSample, QueueSample, RingSample, Sample, SiteSample,
    StageSample, TeeSample, ThreadSample, UsageSample,
};
use pmdscope_telemetry::{AppState, FleetState, InterfaceState};

use super::gaps::GapPoint;
use super::trends::{AppPoint, PoolPoint};

/// What an allocation costs beyond its size, about.
const ALLOCATION: usize = 16;

/// An entry of a map by name, without the name: its share of a node that is half full.
const ENTRY: usize = 2 * (size_of::<String>() + size_of::<u64>());

/// Bytes of a state and of its [`super::trends::TrendPoint`], without its models, which states share.
pub(super) fn members(fleet: &FleetState) -> usize {
    let pools = |app: &AppState| {
        let pools = app.model.iter().flat_map(|model| &model.sample.pools);
        pools.map(|pool| size_of::<PoolPoint>() + text(&pool.name)).sum::<usize>()
    };
    let lcores = |app: &AppState| {
        let lcores = app.model.as_ref().map_or(0, |model| model.sample.lcores.len());
        lcores * size_of::<GapPoint>() + ALLOCATION
    };
    let point = |app: &AppState| size_of::<AppPoint>() + text(&app.name) + pools(app) + lcores(app);
    let app = |app: &AppState| text(&app.name) + list(&app.findings, finding) + point(app);
    let apps = list(&fleet.apps, app);
    apps + list(&fleet.interfaces.interfaces, interface)
}

/// Some hundred bytes of sources and verdicts are the larger part.
fn interface(interface: &InterfaceState) -> usize {
    let sample = &interface.sample;
    let filter = sample.filter.as_ref().map_or(0, |filter| {
        plain(&filter.top_sources) + list(&filter.verdicts, |verdict| text(&verdict.reason))
    });
    let rates = interface.rates.filter.as_ref().map_or(0, |filter| {
        plain(&filter.sources) + list(&filter.verdicts, |verdict| text(&verdict.reason))
    });
    text(&sample.name)
        + text(&sample.driver)
        + plain(&sample.queues)
        + plain(&interface.rates.queues)
        + list(&interface.findings, finding)
        + filter
        + rates
}

/// Bytes of each model of a state, in the order of its apps.
pub(super) fn models(fleet: &FleetState) -> Vec<usize> {
    let weigh = |shared: &Arc<Model>| size_of::<Model>() + model(shared);
    fleet.apps.iter().map(|app| app.model.as_ref().map_or(0, weigh)).collect()
}

/// The vector's own memory, and what its elements hold.
fn list<T>(items: &[T], held: impl Fn(&T) -> usize) -> usize {
    ALLOCATION + items.iter().map(|item| size_of::<T>() + held(item)).sum::<usize>()
}

fn plain<T>(items: &[T]) -> usize {
    list(items, |_| 0)
}

fn text(text: &str) -> usize {
    text.len() + ALLOCATION
}

fn finding(f: &Finding) -> usize {
    let subject = text(&f.subject.to_string());
    let texts = [&f.app, &f.evidence, &f.threshold, &f.advice].map(|t| text(t));
    let causes = list(&f.causes, |cause| text(&cause.evidence));
    texts.iter().sum::<usize>() + subject + causes
}

fn model(model: &Model) -> usize {
    sample(&model.sample)
        + plain(&model.ports)
        + list(&model.queues, |_: &QueueRates| 0)
        + list(&model.pools, |pool: &PoolTrend| text(&pool.name) + plain(&pool.history))
        + plain(&model.lcores)
        + plain(&model.threads)
        + list(&model.ledger, |l: &LedgerRates| text(&l.pool) + plain(&l.history))
        + list(&model.sites, |site: &SiteRates| text(&site.pool))
        + list(&model.gaps, |g: &LcoreGaps| {
            plain(&g.gaps) + list(&g.thieves, |thief| text(&thief.thief))
        })
}

fn sample(sample: &Sample) -> usize {
    identity(&sample.app)
        + list(&sample.ports, port)
        + list(&sample.pools, pool)
        + list(&sample.queues, |q: &QueueSample| plain(&q.bursts) + plain(&q.depths))
        + list(&sample.rings, |ring: &RingSample| text(&ring.name))
        + list(&sample.lcores, |lcore: &LcoreSample| text(&lcore.role) + plain(&lcore.gaps))
        + list(&sample.tee, |_: &TeeSample| 0)
        + list(&sample.ledger, |ledger: &LedgerSample| text(&ledger.name))
        + list(&sample.sites, site)
        + list(&sample.stages, |stage: &StageSample| text(&stage.stage))
        + list(&sample.devices, |device: &DeviceSample| text(&device.address) + ALLOCATION)
        + list(&sample.pcie_links, |link: &PcieLinkSample| text(&link.port))
        + list(&sample.threads, |thread: &ThreadSample| {
            text(&thread.cpus) + text(&thread.name) + thread.wait_channel.as_deref().map_or(0, text)
        })
        + list(&sample.threads_left_out, |left_out: &String| text(left_out))
        + list(&sample.heaps, |heap: &HeapSample| text(&heap.name))
        + list(&sample.usage, |_: &UsageSample| 0)
        + list(&sample.roles, |role: &LcoreRoleSample| text(&role.role) + plain(&role.cpus))
        + sample.xray.as_ref().and_then(|xray| xray.problem.as_deref()).map_or(0, text)
        + list(&sample.partial, |part: &String| text(part))
}

fn identity(app: &AppIdentity) -> usize {
    text(&app.name)
        + text(&app.dpdk_version)
        + app.exe.as_deref().map_or(0, text)
        + app
            .container
            .as_ref()
            .map_or(0, |container| text(&container.id) + container.pod.as_deref().map_or(0, text))
        + list(&app.eal_args, |argument: &String| text(argument))
}

fn port(port: &PortSample) -> usize {
    let names = port.xstats.names().map(|name| size_of::<String>() + text(name)).sum::<usize>();
    let values = port.xstats.len() * size_of::<u64>() + ALLOCATION;
    text(&port.device)
        + plain(&port.rx_descriptors)
        + plain(&port.rx_queues_stopped)
        + values
        + names / port.xstats.sharers()
}

fn pool(pool: &PoolSample) -> usize {
    text(&pool.name) + pool.lcore_caches.len() * ENTRY
}

fn site(site: &SiteSample) -> usize {
    [&site.pool, &site.site, &site.function, &site.operation].map(|t| text(t)).iter().sum()
}
