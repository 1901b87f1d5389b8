//! `[[expected]]`: apps that must run on this machine.

use pmdscope_telemetry::ExpectedApp;
use pmdscope_telemetry::host::device::address;

use super::text;
use crate::config::key::{ConfigKey, ConfigTables};
use crate::config::kind::{Count, List, Omittable, Text};

pub(super) fn tables() -> ConfigTables<ExpectedApp> {
    ConfigTables {
        name: "expected",
        means: "An app that must run on this machine, and its ports",
        keys: keys(),
        of: |c| &mut c.settings.rules.expected.apps,
        check,
    }
}

fn keys() -> Vec<ConfigKey<ExpectedApp>> {
    vec![
        ConfigKey::new(
            "app",
            text::name(),
            |app: &mut ExpectedApp| &mut app.name,
            r#""fwd""#,
            "Name of the app, as shown by the tools",
        )
        .required(),
        ConfigKey::new(
            "ports",
            List(device()),
            |app| &mut app.ports,
            r#"["0000:03:00.0"]"#,
            "Ports that it must have; empty: those of its own -a and --vdev arguments",
        ),
        ConfigKey::new(
            "min_ports",
            Omittable(Count(0, 1024)),
            |app| &mut app.min_ports,
            "1",
            "Minimum number of ports; 0: none needed; not set: as many as are expected, at least \
             one",
        ),
        ConfigKey::new(
            "may_be_idle",
            List(device_or_all()),
            |app| &mut app.may_be_idle,
            r#"["*"]"#,
            "Ports that may have no link or no packets; \"*\": all",
        ),
        ConfigKey::new(
            "may_be_full",
            List(pool_or_all()),
            |app| &mut app.may_be_full,
            r#"["templates"]"#,
            "Mempools and software rings that the app may hold in full, as long as allocations do not fail; \"*\": all",
        ),
    ]
}

const DEVICE: &str = "a PCI address such as 0000:03:00.0, or the name of a virtual device such as \
                      net_vhost0";

fn device() -> Text<String> {
    Text { what: DEVICE, parse: parse_device, show: String::clone }
}

fn device_or_all() -> Text<String> {
    let parse = |text: &str| if text == "*" { Ok(text.to_owned()) } else { parse_device(text) };
    Text { what: DEVICE, parse, show: String::clone }
}

fn pool_or_all() -> Text<String> {
    Text { what: "the name of a mempool", parse: text::word, show: String::clone }
}

/// PCI addresses get their domain; virtual devices have no colons in their names.
fn parse_device(text: &str) -> Result<String, String> {
    match address(text) {
        Some(address) => Ok(address),
        None if text.contains(':') => Err("this is no PCI address".to_owned()),
        None => text::word(text),
    }
}

fn check(app: &ExpectedApp, above: &[ExpectedApp]) -> Result<(), String> {
    if above.iter().any(|other| other.name == app.name) {
        return Err(format!("{:?} is expected already, further up", app.name));
    }
    match app.min_ports {
        Some(least) if least < app.ports.len() => Err(format!(
            "min_ports is {least}, and {} ports are listed; every listed port must be there",
            app.ports.len()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_pci_addresses_or_names() {
        for device in ["0000:03:00.0", "10000:e1:00.7", "net_vhost0", "eth_af_packet0"] {
            assert_eq!(parse_device(device), Ok(device.to_owned()));
        }
        assert_eq!(parse_device("3B:00.1"), Ok("0000:3b:00.1".to_owned()));
        for wrong in ["", "a b", "0000:03:00", "0000:03:20.0", "0000:03:00.8", ":03:00.0", "x:y.z"]
        {
            assert!(parse_device(wrong).is_err(), "{wrong}");
        }
    }
}
