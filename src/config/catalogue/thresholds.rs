//! `[thresholds]`: thresholds of findings.

use std::time::Duration;

use pmdscope_telemetry::Thresholds;

use super::{DAY, HOUR, MILLISECOND, SECOND};
use crate::config::Config;
use crate::config::key::{ConfigKey, ConfigTable};
use crate::config::kind::{Number, Seconds, Time};

#[allow(clippy::too_many_lines)] // A list.
pub(super) fn table() -> ConfigTable {
    type Number64 = fn(&mut Config) -> &mut f64;
    let number = |name, most, field: Number64, example, means| {
        ConfigKey::new(name, Number(0.0, most), field, example, means)
    };
    let seconds = |name, field: Number64, example, means| {
        ConfigKey::new(name, Seconds(Time(Duration::ZERO, 365 * DAY)), field, example, means)
    };
    let mut keys = vec![
        number(
            "pool_used",
            1.0,
            |c| &mut limits(c).pool_used,
            "0.9",
            "Share of a pool in use that is a warning",
        ),
        number(
            "pool_used_critical",
            1.0,
            |c| &mut limits(c).pool_used_critical,
            "0.98",
            "Share of a pool in use that is critical",
        ),
        seconds(
            "pool_left",
            |c| &mut limits(c).pool_left_s,
            r#""5m""#,
            "Time until a pool is empty that is a warning",
        ),
        seconds(
            "pool_left_critical",
            |c| &mut limits(c).pool_left_critical_s,
            r#""1m""#,
            "Time until a pool is empty that is critical",
        ),
        seconds(
            "heap_left",
            |c| &mut limits(c).heap_left_s,
            r#""1h""#,
            "Time until a growing heap of the EAL is full that is a warning",
        ),
        seconds(
            "heap_left_critical",
            |c| &mut limits(c).heap_left_critical_s,
            r#""1m""#,
            "Time until a growing heap of the EAL is full that is critical",
        ),
        number(
            "rx_missed_ps",
            f64::INFINITY,
            |c| &mut limits(c).rx_missed_ps,
            "0.0",
            "Tolerated missed packets per second of a port",
        ),
        number(
            "loss_ratio",
            1.0,
            |c| &mut limits(c).loss_ratio,
            "0.01",
            "Share of the packets of a port whose loss by errors or discards is critical",
        ),
        ConfigKey::new(
            "idle",
            Time(MILLISECOND, HOUR),
            |c| &mut limits(c).idle,
            r#""1s""#,
            "Tolerated time between two polls of an lcore",
        ),
        ConfigKey::new(
            "flat",
            Time(SECOND, DAY),
            |c| &mut limits(c).flat,
            r#""10s""#,
            "Tolerated time in which a port receives less than 1 % of its past rate",
        ),
        number(
            "stalls_ps",
            f64::INFINITY,
            |c| &mut limits(c).stalls_ps,
            "0.0",
            "Tolerated stalls per second of an lcore",
        ),
        number(
            "stolen_ratio",
            1.0,
            |c| &mut limits(c).stolen_ratio,
            "0.01",
            "Tolerated share of the time that others take from an lcore; with --interrupts",
        ),
        ConfigKey::new(
            "stolen_longest",
            Time(Duration::from_micros(1), HOUR),
            |c| &mut limits(c).stolen_longest,
            r#""1ms""#,
            "Tolerated time that others take from an lcore at a stretch; with --interrupts",
        ),
        ConfigKey::new(
            "queue_ratio",
            Number(1.0, f64::INFINITY),
            |c| &mut limits(c).queue_ratio,
            "3.0",
            "Ratio of a receive queue's packets to the mean of the others, above which it is hot",
        ),
        number(
            "queue_packets",
            f64::INFINITY,
            |c| &mut limits(c).queue_packets,
            "1000.0",
            "Minimum packets of a port between two samples to compare its queues",
        ),
    ];
    keys.extend(ports_and_apps());
    keys.extend(interfaces());
    ConfigTable { name: "thresholds", keys, tables: &[], check: ordered }
}

/// Those of lints over ports and whole apps.
fn ports_and_apps() -> Vec<ConfigKey<Config>> {
    type Number64 = fn(&mut Config) -> &mut f64;
    let number = |name, most, field: Number64, example, means| {
        ConfigKey::new(name, Number(0.0, most), field, example, means)
    };
    vec![
        number(
            "tx_refused",
            1.0,
            |c| &mut limits(c).tx_refused,
            "0.01",
            "Tolerated share of offered packets that a driver refuses to send",
        ),
        number(
            "port_changes",
            f64::INFINITY,
            |c| &mut limits(c).port_changes,
            "3.0",
            "Number of starts, stops and link changes of a port within a minute that is critical",
        ),
        number(
            "restarts",
            f64::INFINITY,
            |c| &mut limits(c).restarts,
            "3.0",
            "Number of starts of an app within a minute that is a restart loop",
        ),
        number(
            "rx_descriptors",
            f64::INFINITY,
            |c| &mut limits(c).rx_descriptors,
            "512.0",
            "Assumed size of a receive ring if the driver does not report it; used for the \
             severity of stalls",
        ),
    ]
}

/// Those of lints over interfaces of the host.
fn interfaces() -> Vec<ConfigKey<Config>> {
    vec![
        ConfigKey::new(
            "flood_ps",
            Number(0.0, f64::INFINITY),
            |c| &mut limits(c).flood_ps,
            "1000.0",
            "Tolerated packets per second that the XDP filter of an interface drops",
        ),
        ConfigKey::new(
            "flood_ratio",
            Number(0.0, 1.0),
            |c| &mut limits(c).flood_ratio,
            "0.05",
            "Tolerated share of the packets that arrive at an XDP filter that it drops",
        ),
    ]
}

fn limits(config: &mut Config) -> &mut Thresholds {
    &mut config.settings.rules.thresholds
}

/// What is critical is worse than what is worth a warning.
fn ordered(config: &Config) -> Result<(), String> {
    let limits = &config.settings.rules.thresholds;
    if limits.pool_used > limits.pool_used_critical {
        return Err(format!(
            "pool_used is {} and pool_used_critical {}; pool_used_critical must not be lower",
            limits.pool_used, limits.pool_used_critical
        ));
    }
    for (name, left, critical) in [
        ("pool_left", limits.pool_left_s, limits.pool_left_critical_s),
        ("heap_left", limits.heap_left_s, limits.heap_left_critical_s),
    ] {
        if left < critical {
            return Err(format!(
                "{name} is {left} s and {name}_critical {critical} s; {name}_critical must not be higher"
            ));
        }
    }
    Ok(())
}
