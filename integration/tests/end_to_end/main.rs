//! End-to-end tests: real DPDK processes, checked with tshark, capinfos and DPDK's own tools.
//!
//! A test that cannot run here is reported as ignored, with a SKIP line that says why.

mod alone;
mod bundle;
mod bypass;
mod capture;
mod capture_ends;
mod check;
mod containers;
mod dashboards;
mod demo;
mod doctor;
mod drivers;
mod exit;
mod exporter;
mod exporter_hostile;
mod extcap;
mod fake_apps;
mod fleet;
mod flood;
mod generator;
mod harm;
mod hazards;
mod hostile_apps;
mod incidents;
mod interrupts;
mod interrupts_script;
mod interrupts_timed;
mod ipfix;
mod kernel_twin;
mod lcores;
mod leak;
mod ledger;
mod little_memory;
mod measurements;
mod missed;
mod names;
mod netstat;
mod netstat_views;
mod no_alarm;
mod output_files;
mod pair;
mod parallel;
mod pdump;
mod pdump_kill;
mod pdump_ports;
mod peek;
mod poll_threads;
mod pool_counts;
mod pool_faults;
mod recorder;
mod recording;
mod reflector;
mod releases;
mod samples;
mod signals;
mod stock;
mod stolen;
mod support;
mod telemetry;
mod top;
mod top_does;
mod top_incidents;
mod top_keys;
mod traffic;
mod truth;
mod view;
mod xdp;
mod xray;
mod xray_clean;
mod xray_faults;
mod xray_holders;
mod xray_hostile;
mod xray_leaks;
mod xray_releases;
mod xray_samples;

use std::process::ExitCode;
use std::time::Instant;

use libtest_mimic::{Arguments, Trial};

use crate::support::{Needs, trial};

fn trials() -> Vec<Trial> {
    vec![
        trial("generator_and_reflector_agree_over_virtio", Needs::Apps, traffic::virtio),
        trial("generator_and_reflector_agree_over_memif", Needs::Apps, traffic::memif),
        trial("no_usable_port_is_an_error", Needs::Apps, traffic::no_ports),
        trial("capture_agrees_with_generator_over_virtio", Needs::Wireshark, capture::virtio),
        trial("capture_agrees_with_generator_over_memif", Needs::Wireshark, capture::memif),
        trial("capture_takes_filter_count_snaplen", Needs::Wireshark, capture::options),
        trial("a_capture_demands_callbacks", Needs::Wireshark, capture::on_demand),
        trial("capture_streams_to_standard_output", Needs::Wireshark, capture::stream),
        trial("a_running_capture_tells_its_progress", Needs::Wireshark, capture::progress),
        trial("lcores_have_a_file_each_that_merge", Needs::Wireshark, parallel::files),
        trial("a_million_packets_are_captured_as_sent", Needs::Wireshark, truth::million),
        trial("timestamps_are_those_of_sending", Needs::Wireshark, truth::timestamps),
        trial("a_full_disk_pauses_the_capture", Needs::Disk, truth::full_disk),
        trial("a_restarted_app_is_captured_on", Needs::Wireshark, truth::restarted_app),
        trial("a_stall_is_recorded_with_what_led_to_it", Needs::Wireshark, recorder::stall),
        trial(
            "every_text_names_the_longest_of_many_stalls",
            Needs::Wireshark,
            recorder::many_stalls,
        ),
        trial("a_recorder_is_fired_by_command_and_signal", Needs::Wireshark, recorder::command),
        trial("a_recorder_is_fired_by_a_packet", Needs::Wireshark, recorder::packet),
        trial("a_killed_recorder_leaves_what_it_had", Needs::Wireshark, recorder::killed),
        trial("a_recorder_with_too_little_memory_says_so", Needs::Wireshark, recorder::short),
        trial("a_recorder_that_was_not_fired_is_quiet", Needs::Apps, recorder::quiet),
        trial("packets_are_shown_while_captured", Needs::Wireshark, view::live),
        trial("packets_of_several_ports_tell_theirs", Needs::Wireshark, view::any),
        trial("dpdk_tools_read_every_page", Needs::DpdkTools, telemetry::dpdk_tools),
        trial("top_agrees_with_generator", Needs::Apps, telemetry::top),
        trial("queues_are_counted_on_demand", Needs::Apps, telemetry::on_demand),
        trial("ls_names_live_apps_only", Needs::Apps, telemetry::ls),
        trial("injected_leak_becomes_a_finding", Needs::Apps, leak::finding),
        trial("injected_stall_is_counted", Needs::Apps, leak::stall),
        trial("killed_capture_disarms_within_a_second", Needs::Apps, harm::killed_capture),
        trial("stopped_capture_costs_no_packets", Needs::Apps, harm::stopped_capture),
        trial("hostile_consumers_do_no_harm", Needs::Apps, harm::hostile_consumers),
        trial("restarted_ports_are_captured_on", Needs::Wireshark, harm::restarted_ports),
        trial("an_app_that_ends_loses_no_packets", Needs::Wireshark, harm::ended_app),
        trial("a_killed_recording_loses_a_second", Needs::Testpmd, recording::killed),
        trial("a_full_disk_pauses_the_recording", Needs::Disk, recording::full_disk),
        trial("the_last_seconds_are_always_kept", Needs::Testpmd, recording::always),
        trial("a_recorded_incident_is_found", Needs::Apps, recording::incident),
        trial("a_file_prefix_does_not_command_the_terminal", Needs::Apps, names::hostile),
        trial("stock_testpmd_is_seen", Needs::Testpmd, stock::testpmd_is_seen),
        trial("every_expression_has_data", Needs::Prometheus, dashboards::proof),
    ]
}

/// Tests of the first pass that run at the same time.
const AT_ONCE: usize = 4;

fn all_trials() -> Vec<Trial> {
    let trials = [
        trials(),
        bundle::trials(),
        bypass::trials(),
        capture_ends::trials(),
        check::trials(),
        containers::trials(),
        demo::trials(),
        doctor::trials(),
        drivers::trials(),
        exit::trials(),
        exporter::trials(),
        exporter_hostile::trials(),
        extcap::trials(),
        fake_apps::trials(),
        fleet::trials(),
        flood::trials(),
        generator::trials(),
        hazards::trials(),
        hostile_apps::trials(),
        incidents::trials(),
        interrupts::trials(),
        interrupts_script::trials(),
        interrupts_timed::trials(),
        ipfix::trials(),
        kernel_twin::trials(),
        lcores::trials(),
        ledger::trials(),
        little_memory::trials(),
        measurements::trials(),
        missed::trials(),
        netstat::trials(),
        netstat_views::trials(),
        output_files::trials(),
        pair::trials(),
        pdump::trials(),
        pdump_kill::trials(),
        pdump_ports::trials(),
        no_alarm::trials(),
        peek::trials(),
        poll_threads::trials(),
        pool_counts::trials(),
        reflector::trials(),
        releases::trials(),
        signals::trials(),
        stolen::trials(),
        top::trials(),
        top_does::trials(),
        top_incidents::trials(),
        top_keys::trials(),
        xdp::trials(),
        xray::trials(),
        xray_clean::trials(),
        xray_faults::trials(),
        pool_faults::trials(),
        xray_holders::trials(),
        xray_hostile::trials(),
        xray_leaks::trials(),
        xray_releases::trials(),
        xray_samples::trials(),
    ];
    trials.into_iter().flatten().collect()
}

fn main() -> ExitCode {
    // A test runs this program once more.
    if std::env::var_os(top_does::FAILURE_VARIABLE).is_some() {
        return top_does::fail_on_terminal();
    }
    let arguments = Arguments::from_args();
    let run = |test_threads, trials: Vec<Trial>| {
        let begun = Instant::now();
        let what = format!("{} tests, {test_threads} at once", trials.len());
        let arguments = Arguments { test_threads: Some(test_threads), ..arguments.clone() };
        let conclusion = libtest_mimic::run(&arguments, trials);
        support::note_duration(&what, begun.elapsed());
        conclusion
    };
    let (alone, side_by_side) = match alone::split(all_trials()) {
        Ok(parts) => parts,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let first = run(AT_ONCE, side_by_side);
    let second = run(1, alone);
    if first.has_failed() { first.exit_code() } else { second.exit_code() }
}
