//! Which apps packets are taken from.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use pmdscope_capture::layout::TEE_HEADERS;
use pmdscope_capture::{CaptureSource as Tap, Transport, budget};
use pmdscope_flows::SNAPLEN;
use pmdscope_packets::filter::FilterCompiler;
use pmdscope_packets::{DIR_RX, DIR_TX, RunControl};

use crate::attach::peek::PeekedPorts;
use crate::attach::target::CaptureTarget;
use crate::attach::{self, CaptureOptions, resolve};
use crate::netstat::args::Args;
use crate::sampling::SamplingMode;
use crate::source::Source;

/// Bytes per ring: 50 ms at a million packets per second.
const RING_SIZE: u32 = 8 << 20;
/// Time in which apps count packets before any are taken.
const FIRST_RATE_TIME: Duration = Duration::from_millis(100);

/// Captures that are armed.
pub(super) struct OpenCaptures {
    pub(super) sources: Vec<Tap>,
    /// What they are of.
    pub(super) ports: Vec<(String, u16)>,
    /// Those that are sampled from memory.
    pub(super) peeked: Option<PeekedPorts>,
}

impl OpenCaptures {
    /// Arms captures in the apps that are meant. Those that are awaited are reached again.
    pub(super) fn open(args: &Args, control: &RunControl, awaited: bool) -> Result<Self> {
        let compiler = FilterCompiler { snaplen: SNAPLEN, ..FilterCompiler::default() };
        let program = compiler.compile_for_app(&args.expression())?;
        let wanted = wanted(args, control)?;
        let ask = CaptureOptions {
            snaplen: SNAPLEN,
            sample: first_sample(args, control, &wanted),
            ring_size: RING_SIZE,
            fixed_ring_size: false,
            flags: TEE_HEADERS,
            dirs: args.direction().bits().into(),
            program,
        };
        let mut opened = attach::open_all(wanted, &ask, awaited, control);
        if is_open(args) {
            opened = opened.context(NO_CAPTURE);
        }
        let opened = opened?;
        let peeked = PeekedPorts::begin(opened.iter().map(|(one, _)| one));
        let mut captures = Self { sources: Vec::new(), ports: Vec::new(), peeked };
        for (one, source) in opened {
            captures.add(&one, source);
        }
        Ok(captures)
    }

    fn add(&mut self, wanted: &CaptureTarget, source: Tap) {
        let ports = source.ports.iter().filter(|port| port.selected);
        self.ports.extend(ports.map(|port| (wanted.app.clone(), port.id)));
        self.sources.push(source);
    }
}

const NO_CAPTURE: &str = "no packets to count (`pmdscope netstat -i` shows port counters)";

/// No app was named.
fn is_open(args: &Args) -> bool {
    args.interfaces.is_empty() && args.app.app.is_none()
}

fn wanted(args: &Args, control: &RunControl) -> Result<Vec<CaptureTarget>> {
    let any = ["any".to_owned()];
    let interfaces = if is_open(args) { &any[..] } else { &args.interfaces };
    let (app, attach) = (args.app.app.as_deref(), args.attach.attach());
    let mut settings = args.app.settings()?;
    settings.discover.stop = Arc::clone(&control.stop).into();
    resolve::resolve(interfaces, app, settings, attach)
}

/// One packet in so many for a start. How many packets will pass a filter is not known.
fn first_sample(args: &Args, control: &RunControl, wanted: &[CaptureTarget]) -> u32 {
    if let SamplingMode::Fixed(sample) = args.sample {
        return sample.get();
    }
    // Few packets are seen of an app that is sampled from its memory.
    if wanted.iter().any(|one| matches!(one.transport, Transport::Peek(_))) {
        return 1;
    }
    let known = args.expression().is_empty().then(|| rate(args, wanted).ok()).flatten();
    let sample = budget::first_sample(known.unwrap_or(0.0), args.cpu_budget());
    control.sample.store(sample, Ordering::Relaxed);
    sample
}

/// Packets per second of the ports that are meant.
fn rate(args: &Args, wanted: &[CaptureTarget]) -> Result<f64> {
    let mut source = Source::live(&args.app, FIRST_RATE_TIME)?;
    source.prepare();
    source.advance()?;
    let dirs = args.direction().bits();
    let mut pps = 0.0;
    for one in wanted {
        let Some(model) = source.fleet().find(&one.app).and_then(|app| app.model.as_ref()) else {
            continue;
        };
        for port in one.ports().iter().filter(|port| port.selected) {
            let Some(rates) = model.ports.iter().find(|rates| rates.id == port.id) else {
                continue;
            };
            let of = |dir: u8, rate: Option<f64>| rate.filter(|_| dirs & dir != 0).unwrap_or(0.0);
            pps += of(DIR_RX, rates.rx_pps) + of(DIR_TX, rates.tx_pps);
        }
    }
    Ok(pps)
}
