//! Metrics of the exporter itself, and of apps as a whole.

use super::metrics;

metrics! { EXPORTER:
    EXPORTER_BUILD_INFO = Info "dpdk_exporter_build_info" ["version"]
        "The exporter. Absent: it does not run, and the state of all apps is unknown.";
    EXPORTER_SERIES = Gauge "dpdk_exporter_series" []
        "Series in this response. Set the sample_limit of the scrape well above it.";
    EXPORTER_COLLECTIONS = Counter "dpdk_exporter_collections_total" []
        "Rounds in which one or more apps were queried, since the exporter started.";
    EXPORTER_SHARED_SCRAPES = Counter "dpdk_exporter_shared_scrapes_total" []
        "Scrapes that shared the round of another scrape: apps are queried once, however many \
         servers scrape.";
    EXPORTER_CONNECTIONS = Gauge "dpdk_exporter_connections" []
        "Open connections of clients to the exporter.";
    EXPORTER_CONNECTIONS_REJECTED = Counter "dpdk_exporter_connections_rejected_total" ["reason"]
        "Connections that the exporter refused or closed to protect other clients, by reason, since it \
         started. client_limit: its client had too many, all with requests; total_limit: all \
         connections had requests; displaced: it waited for a request, and was closed for a newer \
         one; header_timeout: its request was not complete in time; response_timeout: its response \
         was not read in time. Increases: a client misbehaves, or a limit in [export] is too low.";
    EXPORTER_OTLP_PUSHES = Counter "dpdk_exporter_otlp_pushes_total" ["result"]
        "Pushes to the OTLP receiver, by result, since the exporter started. accepted; partial: \
         the receiver rejected some values; rejected: the receiver rejected all values; failed: \
         not reachable or timed out, and retried; dropped: the next push was due before this one \
         succeeded. Absent without --otlp.";
    APPS_DISCOVERED = Gauge "dpdk_apps_discovered" []
        "Apps found on this machine, whether they answer or not; an app that vanished counts until \
         it is forgotten. 0: no app runs, or the exporter searches the wrong directories.";
    EXPORTER_UNREADABLE_DIRECTORIES = Gauge "dpdk_exporter_unreadable_directories" []
        "Directories of runtime directories, such as /var/run/dpdk, that exist and that the exporter \
         may not read. Above 0, apps may run that no other metric shows.";
    APPS_EXPECTED = Gauge "dpdk_apps_expected" []
        "Apps that the configuration expects on this machine. Those that do not answer have \
         dpdk_up 0.";
    SERIES_SUPPRESSED = Gauge "dpdk_series_suppressed" ["app" "kind"]
        "Objects omitted from this response to limit its size, by kind: captures, queues, sites, \
         stages and xstats above the configured limits, and duplicates, which have the same labels \
         as others. Above 0, some metrics are missing: raise the limit, or select fewer xstats.";
}

metrics! { APP:
    UP = Gauge "dpdk_up" ["app"]
        "1 if the app answered in this scrape. 0: it exited, hangs, or never started, and its \
         other metrics are absent; see dpdk_app_unhealthy_reason and dpdk_collect_errors_total for \
         the reason.";
    COLLECT_ERRORS = Counter "dpdk_collect_errors_total" ["app" "reason"]
        "Rounds in which the app could not be queried, by reason, since it was found. busy: other \
         telemetry clients use its 10 connections, or another pmdscope tool held its lock and \
         the app was queried without it; timeout: it is stopped or overloaded; internal: \
         a bug of pmdscope.";
    COLLECT_DURATION = Gauge "dpdk_collect_duration_seconds" ["app"]
        "Time to query the app in this scrape. Above 0.1: a driver is slow, or the app's control \
         thread gets no CPU.";
    COLLECT_REQUESTS = Gauge "dpdk_collect_requests" ["app"]
        "Requests to the app in this scrape; each wakes one of its control threads.";
    COLLECT_PARTIAL = Gauge "dpdk_collect_partial" ["app"]
        "Parts that could not be read in this scrape. Above 0, some series of this app are \
         missing; pmdscope check says which and why.";
    APP_INFO = Info "dpdk_app_info" ["app" "dpdk_version" "exe" "lib_version" "level"]
        "Program, versions and level. level 2: compiled with pmdscope_trace.h; 1: linked with \
         libpmdscope, or the library is too old to report level 2; 0: a stock app, without metrics \
         of polls, depths, leaks and captures. For an app that does not answer, the last known \
         values.";
    APP_CONTAINER_INFO = Info "dpdk_app_container_info" ["app" "container_id" "pod_uid"]
        "Container of the app, and its Kubernetes pod, by the control groups of the process. Absent: \
         the app runs in no container, or /proc does not show it.";
    APP_START = Gauge "dpdk_app_start_timestamp_seconds" ["app"]
        "Start time of the process; each restart resets counters. Moves by up to a second when the \
         clock of the machine is set: dpdk_app_start_since_boot_seconds shows restarts.";
    APP_START_SINCE_BOOT = Gauge "dpdk_app_start_since_boot_seconds" ["app"]
        "Time from the boot of the machine to the start of the process. It does not move with the \
         clock: changes() counts restarts.";
    APP_LAST_SEEN = Gauge "dpdk_app_last_seen_timestamp_seconds" ["app"]
        "Time of the app's last answer. Absent: it never answered.";
    APP_TELEMETRY_ENABLED = Gauge "dpdk_app_telemetry_enabled" ["app"]
        "0 if the app runs with --no-telemetry and cannot be monitored; 1 if it answers. Absent if \
         unknown.";
    APP_SECONDARIES = Gauge "dpdk_app_secondary_processes" ["app"]
        "Secondary processes that share the app's memory. They have no telemetry of their own.";
    APP_CONTROL_THREADS_SHARE_LCORE_CPU = Gauge "dpdk_app_control_threads_share_lcore_cpu" ["app"]
        "1 if the app's control threads, which answer telemetry requests, may run on the CPU of a \
         polling lcore, so that requests interrupt the data path: add a CPU without an lcore to \
         the affinity of the process.";
    APP_TSC_HERTZ = Gauge "dpdk_app_tsc_hertz" ["app"]
        "Frequency of the timestamp counter, in which most apps count cycles; libpmdscope only.";
    APP_PORTS = Gauge "dpdk_app_ports" ["app"]
        "Ports of the app. 0: it can neither receive nor send; its NIC is bound to the wrong \
         driver, or its -a and --vdev options name no device.";
    APP_PORTS_STARTED = Gauge "dpdk_app_ports_started" ["app"]
        "Started ports of the app. Below dpdk_app_ports, some ports carry no packets.";
    APP_EXPECTED_PORTS = Gauge "dpdk_app_expected_ports" ["app"]
        "Ports the app should have: as configured, otherwise the devices in its own arguments, \
         otherwise 1. Above dpdk_app_ports, a NIC is missing.";
    APP_HEALTHY = Gauge "dpdk_app_healthy" ["app"]
        "1 if the app has no finding of severity warning or critical, except those that the \
         configuration tolerates; same as /ready. 0: see dpdk_app_unhealthy_reason.";
    APP_UNHEALTHY_REASON = Gauge "dpdk_app_unhealthy_reason" ["app" "reason"]
        "1 for each finding of severity warning or critical, tolerated or not. All reasons are \
         always present. pmdscope check shows numbers and advice.";
}
