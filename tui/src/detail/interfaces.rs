//! Details of an interface of the kernel.

use pmdscope_render::number::{UNKNOWN, count, known, si};
use pmdscope_telemetry::interface::{BypassSample, FilterMode, FilterSample};
use pmdscope_telemetry::model::FilterRates;
use pmdscope_telemetry::{FleetState, InterfaceState};

use super::DetailPage;
use crate::tables::interfaces::destination;

impl DetailPage<'_> {
    /// What became of all that arrived, by queue, verdict and source.
    pub(super) fn interface(&mut self, interface: &InterfaceState, fleet: &FleetState) {
        let (sample, rates) = (&interface.sample, &interface.rates);
        let (bypassed, kernel) = fleet.split_rates(interface);
        self.field("interface", &sample.name);
        self.field("index", sample.index);
        self.field("driver", if sample.driver.is_empty() { UNKNOWN } else { &sample.driver });
        self.field("received", known(sample.rx_packets, count));
        self.field("rx pps", known(rates.rx_pps, si));
        self.field("to the kernel", known(kernel, si));
        self.field("lost by kernel", known(sample.rx_dropped, count));
        self.field("sent", known(sample.tx_packets, count));
        if let Some(bypass) = &sample.bypass {
            self.field("bypass", known(bypassed, si));
            self.bypass(bypass);
        }
        for (queue, rates) in sample.queues.iter().zip(&rates.queues) {
            let [packets, redirected, lost] =
                [queue.packets, queue.redirected, queue.dropped].map(|of| known(of, count));
            let pps = known(rates.pps, si);
            let text = format!("{packets} ({pps}/s), redirected {redirected}, lost {lost}");
            self.field(&format!("queue {}", queue.queue), text);
        }
        if let Some(filter) = &sample.filter {
            self.filter(filter, rates.filter.as_ref());
        }
    }

    fn bypass(&mut self, bypass: &BypassSample) {
        self.field("bypassed queue", bypass.queue);
        self.field("polled by", destination(bypass));
        self.field("flows", bypass.flows.join(", "));
    }

    fn filter(&mut self, filter: &FilterSample, rates: Option<&FilterRates>) {
        let mode = match filter.mode {
            FilterMode::Native => "native (in the driver)",
            FilterMode::Generic => "generic (in the network stack)",
        };
        self.field("filter", format!("program {}, {mode}", filter.program));
        for (index, verdict) in filter.verdicts.iter().enumerate() {
            let rate = rates.and_then(|rates| rates.verdicts.get(index)?.pps);
            let text = format!("{} ({}/s)", count(verdict.packets), known(rate, si));
            self.field(&verdict.reason, text);
        }
        for source in rates.into_iter().flat_map(|rates| &rates.sources) {
            let least = if source.at_least { "at least " } else { "" };
            self.field("top source", format!("{}, {least}{}/s", source.address, si(source.pps)));
        }
        if filter.uncounted_sources > 0 {
            self.field(
                "uncounted",
                format!(
                    "{} packets: the table of sources was full",
                    count(filter.uncounted_sources)
                ),
            );
        }
    }
}
