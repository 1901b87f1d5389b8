//! Names of hosts and services on the display.

use pmdscope_flows::FlowEndpoint;
use pmdscope_tui::flows::EndpointNames;

use crate::netstat::resolver::NameResolver;

impl EndpointNames for NameResolver {
    fn endpoint(&self, protocol: u8, end: FlowEndpoint) -> String {
        self.endpoint_by_now(protocol, end)
    }
}
