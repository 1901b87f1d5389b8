//! Which tests have the machine to themselves; all others run several at a time.

use libtest_mimic::Trial;

/// Tests that measure rates or times, count what must not be lost, or check all apps of the machine. Two
/// poll loops fill two cores: side by side these tests would only measure each other.
const ALONE: &[&str] = &[
    "a_busy_machine_is_no_incident",
    "a_capture_demands_callbacks",
    "a_daemonset_sees_the_apps_of_all_pods",
    "a_dip_at_each_statistic_is_seen",
    "a_flood_is_told_by_all_tools_as_it_was_sent",
    "a_hog_on_a_poll_core_is_caught",
    "a_hog_on_a_poll_core_of_a_stock_app_is_caught",
    "a_hot_queue_is_told_with_its_conversation",
    "a_hot_queue_of_many_conversations_blames_none",
    "a_killed_tracer_leaves_nothing_behind",
    "a_million_packets_are_captured_as_sent",
    "a_profile_names_the_function_that_stalls",
    "a_profile_of_a_stock_app_tells_rx_from_tx",
    "a_rate_in_percent_is_that_part_of_the_warm_up",
    "a_run_of_the_generator_is_drawn",
    "a_stall_is_recorded_with_what_led_to_it",
    "a_stolen_core_triggers_a_recorder",
    "an_app_that_ends_loses_no_packets",
    "apps_of_one_prefix_in_two_containers_are_told_apart",
    "apps_of_the_demo_have_the_names_of_the_readme",
    "commands_of_the_readme_run_on_the_demo",
    "csv_adds_up_to_the_summary",
    "doctor_checks_a_linked_app",
    "doctor_checks_a_stock_app",
    "doctor_tells_what_has_changed",
    "every_text_names_the_longest_of_many_stalls",
    "find_rate_fails_on_a_lossy_path",
    "find_rate_tells_how_it_was_found",
    "five_incidents_are_found_with_three_keys_each",
    "handlers_of_signals_are_caught",
    "hdr_log_agrees_with_the_summary",
    "hostile_consumers_do_no_harm",
    "incident_hot_queue",
    "incident_own_code_stalls",
    "incident_peer_stops_reading",
    "incident_pool_below_descriptors",
    "injected_stall_is_counted",
    "interrupts_from_other_cpus_are_caught",
    "interrupts_from_other_cpus_are_timed",
    "interrupts_of_the_timer_are_caught",
    "kernel_and_bypass_are_compared",
    "keys_of_top_work_on_the_demo",
    "killed_capture_disarms_within_a_second",
    "lcores_are_listed_with_their_cpu_use",
    "missed_by_a_busy_lcore_and_a_slow_clock",
    "missed_by_a_hot_queue",
    "missed_by_a_ring_too_small",
    "missed_by_a_sleeping_lcore",
    "missed_by_a_stolen_core",
    "missed_by_a_stolen_core_that_is_named",
    "missed_by_an_empty_pool_that_is_too_small",
    "missed_by_an_empty_pool_that_leaks",
    "missed_by_own_code",
    "missed_by_the_nic",
    "missed_by_tx_backpressure",
    "missed_for_unknown_reasons",
    "packets_leave_in_bursts_if_asked",
    "packets_leave_one_at_a_time",
    "page_faults_are_timed",
    "queues_are_counted_on_demand",
    "refused_packets_are_offered_again",
    "softirqs_are_timed",
    "softirqs_of_others_are_caught",
    "stalls_of_own_code_are_unexplained",
    "statistics_make_no_dip_in_the_rate",
    "stolen_time_is_exported",
    "stolen_time_is_recorded_and_replayed",
    "stopped_capture_costs_no_packets",
    "the_demo_explains_itself",
    "the_demo_runs_in_the_background_of_a_terminal",
    "the_first_half_of_the_warm_up_sets_no_rate",
    "the_pair_benchmark_prints_its_tables",
    "the_script_of_interrupts_runs_alone",
    "the_script_of_interrupts_runs_alone_before_linux_6_5",
    "the_warm_up_is_not_counted",
    "timestamps_are_those_of_sending",
    "top_and_exporter_show_both_halves_of_a_nic",
    "unknown_extcap_arguments_are_passed_over",
    "work_on_packets_is_a_bottleneck",
    "xdp_limits_sources_and_new_connections",
];

/// The tests that run alone, and the others.
///
/// # Errors
/// A name in the list that no test has.
pub(crate) fn split(trials: Vec<Trial>) -> Result<(Vec<Trial>, Vec<Trial>), String> {
    if let Some(unknown) = ALONE.iter().find(|name| !trials.iter().any(|t| t.name() == **name)) {
        return Err(format!("no test is named {unknown}: see alone.rs"));
    }
    Ok(trials.into_iter().partition(|trial| ALONE.contains(&trial.name())))
}
