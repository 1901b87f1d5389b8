//! Interfaces of the kernel with a filter or a bypass: what crate `xdp` and crate `bypass` read, put together.

use std::sync::Arc;

use pmdscope_bypass::{BypassReader, InterfaceName, kernel_sample};
use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::interface::{FilterSample, InterfaceReader, InterfaceSample};
use pmdscope_xdp::{Filter, XdpError};

/// Reads the interfaces of this network namespace.
#[derive(Debug, Default)]
struct HostInterfaces {
    bypass: BypassReader,
}

/// Makes all samplers with these settings read the interfaces as well.
pub(crate) fn read_with(settings: &mut FleetSettings) {
    settings.interfaces = Some(Arc::new(HostInterfaces::default()));
}

impl InterfaceReader for HostInterfaces {
    fn read(&self) -> Result<Vec<InterfaceSample>, String> {
        let mut interfaces = self.bypass.interfaces().map_err(|error| error.to_string())?;
        for filter in Filter::all().map_err(|error| error.to_string())? {
            match filter.sample() {
                Ok(sample) => add_filter(&mut interfaces, &filter, sample)?,
                // It was detached meanwhile.
                Err(XdpError::NotAttached(_) | XdpError::NoInterface(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(interfaces)
    }
}

/// Adds a filter to its interface, which is identified by its number: names may be reused.
fn add_filter(
    interfaces: &mut Vec<InterfaceSample>,
    filter: &Filter,
    sample: FilterSample,
) -> Result<(), String> {
    if let Some(known) = interfaces.iter_mut().find(|known| known.index == filter.index()) {
        known.filter = Some(sample);
        return Ok(());
    }
    let name: InterfaceName =
        filter.interface().parse().map_err(|error| format!("{}: {error}", filter.interface()))?;
    let kernel = kernel_sample(&name).map_err(|error| error.to_string())?;
    // One that was removed meanwhile has no counters.
    if let Some(kernel) = kernel.filter(|kernel| kernel.index == filter.index()) {
        interfaces.push(InterfaceSample { filter: Some(sample), ..kernel });
    }
    Ok(())
}
