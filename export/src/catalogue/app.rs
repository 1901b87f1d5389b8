//! Metrics of the exporter itself, and of apps as a whole.

use super::metrics;

metrics! { EXPORTER:
    EXPORTER_BUILD_INFO = Info "dpdk_exporter_build_info" ["version"]
        "The exporter that gave this answer. Absent: it does not run, and nothing is known of any app.";
    EXPORTER_SERIES = Gauge "dpdk_exporter_series" []
        "Series in this answer. Set the sample_limit of the scrape well above it.";
    EXPORTER_COLLECTIONS = Counter "dpdk_exporter_collections_total" []
        "Rounds in which one or more apps were asked, since the exporter started.";
    EXPORTER_SHARED_SCRAPES = Counter "dpdk_exporter_shared_scrapes_total" []
        "Scrapes that were answered from a round that another scrape had begun: apps are asked once \
         however many servers scrape.";
    EXPORTER_OTLP_PUSHES = Counter "dpdk_exporter_otlp_pushes_total" ["result"]
        "Pushes to the OTLP receiver, by result, since the exporter started. accepted; partial: some \
         values were refused; rejected: the receiver refused all; failed: it was not reached or had no \
         time, and was tried again; dropped: newer numbers were due before these got through. Absent \
         without --otlp.";
    APPS_DISCOVERED = Gauge "dpdk_apps_discovered" []
        "Apps that were found on this machine, whether they answer or not; one that vanished counts \
         until it is forgotten. 0: none runs, or the exporter looks in the wrong directories.";
    APPS_EXPECTED = Gauge "dpdk_apps_expected" []
        "Apps that the configuration expects on this machine. Those that do not answer have dpdk_up 0.";
    SERIES_SUPPRESSED = Gauge "dpdk_series_suppressed" ["app" "kind"]
        "Things that were left out of this answer to bound its size, by kind: captures, queues, sites, \
         stages and xstats beyond the configured numbers, and duplicates, which share all labels with \
         another. Above 0: what you look for may be missing; raise the limit, or allow fewer xstats.";
}

metrics! { APP:
    UP = Gauge "dpdk_up" ["app"]
        "1 when the app answered in this scrape. 0: it ended, hangs, or never started, and all of its \
         other numbers are absent; dpdk_app_unhealthy_reason and dpdk_collect_errors_total say why.";
    COLLECT_ERRORS = Counter "dpdk_collect_errors_total" ["app" "reason"]
        "Rounds in which the app could not be asked, by reason, since it was found. busy: other \
         telemetry clients take its 10 connections; timeout: it is stopped or overloaded; internal: \
         a bug of pmdscope.";
    COLLECT_DURATION = Gauge "dpdk_collect_duration_seconds" ["app"]
        "Time that it took to ask the app in this scrape. Above 0.1: a driver answers slowly, or the \
         app's control thread gets no CPU.";
    COLLECT_REQUESTS = Gauge "dpdk_collect_requests" ["app"]
        "Requests made of the app in this scrape; each wakes one of its control threads.";
    COLLECT_PARTIAL = Gauge "dpdk_collect_partial" ["app"]
        "Parts that could not be read in this scrape. Above 0: some series of this app are absent; \
         pmdscope check says which and why.";
    APP_INFO = Info "dpdk_app_info" ["app" "dpdk_version" "exe" "lib_version" "level"]
        "What runs. level 2: compiled with pmdscope_trace.h; 1: linked with libpmdscope, or of a \
         library too old to tell; 0: a stock app, without the metrics of polls, depths, leaks and \
         captures. Of an app that does not answer: as it was last.";
    APP_START = Gauge "dpdk_app_start_timestamp_seconds" ["app"]
        "When the process started. changes() of it counts restarts; counters begin anew with each.";
    APP_LAST_SEEN = Gauge "dpdk_app_last_seen_timestamp_seconds" ["app"]
        "When the app last answered. Absent: it never did.";
    APP_TELEMETRY_ENABLED = Gauge "dpdk_app_telemetry_enabled" ["app"]
        "0 when the app runs with --no-telemetry, so that nothing can be known of it; 1 when it \
         answers. Absent while that is unknown.";
    APP_SECONDARIES = Gauge "dpdk_app_secondary_processes" ["app"]
        "Secondary processes that share the app's memory. They have no telemetry of their own.";
    APP_CONTROL_THREADS_SHARE_LCORE_CPU = Gauge "dpdk_app_control_threads_share_lcore_cpu" ["app"]
        "1 when the app's control threads, which answer telemetry, may run on the CPU of a polling \
         lcore, so that every request interrupts the data path: give the process a CPU without an lcore.";
    APP_TSC_HERTZ = Gauge "dpdk_app_tsc_hertz" ["app"]
        "Frequency of the time stamp counter, in which most apps count their cycles; libpmdscope only.";
    APP_PORTS = Gauge "dpdk_app_ports" ["app"]
        "Ports the app has. 0: it runs and can neither receive nor send; its NIC is bound to the wrong \
         driver, or its -a and --vdev options name none.";
    APP_PORTS_STARTED = Gauge "dpdk_app_ports_started" ["app"]
        "Ports the app has started. Below dpdk_app_ports: those that are missing pass no packets.";
    APP_EXPECTED_PORTS = Gauge "dpdk_app_expected_ports" ["app"]
        "Ports the app should have: as configured, else the devices in its own arguments, else 1. Above \
         dpdk_app_ports: a NIC is missing.";
    APP_HEALTHY = Gauge "dpdk_app_healthy" ["app"]
        "1 when nothing is wrong that is worth a warning and is not tolerated by the configuration; the \
         same verdict as /ready. 0: dpdk_app_unhealthy_reason says why.";
    APP_UNHEALTHY_REASON = Gauge "dpdk_app_unhealthy_reason" ["app" "reason"]
        "1 for each thing that is wrong with the app and worth a warning, tolerated or not. All reasons \
         are always present. pmdscope check gives the numbers and what to do next.";
}
