//! Prints packet rates and findings of one DPDK app once a second, without a terminal or a server.
//!
//! `cargo run -p pmdscope-telemetry --example sampler -- [APP]`

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use pmdscope_telemetry::discover::{self, DiscoverOptions};
use pmdscope_telemetry::{LintRules, ModelTracker, SampleCollector, finding};

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1);
    let app = discover::find(name.as_deref(), &DiscoverOptions::default())?;
    let (mut collector, mut tracker) = (SampleCollector::new(app), ModelTracker::default());
    loop {
        let model = tracker.update(collector.collect(Duration::from_secs(1))?);
        for (port, rates) in model.sample.ports.iter().zip(&model.ports) {
            let pps =
                |rate: Option<f64>| rate.map_or("unknown".to_owned(), |pps| format!("{pps:.0}"));
            println!("{}: rx {} pps, tx {} pps", port.device, pps(rates.rx_pps), pps(rates.tx_pps));
        }
        for finding in finding::evaluate(&model, &LintRules::default()) {
            println!("{}: {}; {}", finding.lint, finding.evidence, finding.advice);
        }
        sleep(Duration::from_secs(1));
    }
}
