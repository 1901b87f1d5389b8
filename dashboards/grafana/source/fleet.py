# SPDX-License-Identifier: BSD-3-Clause
"""Fleet: is every app running and healthy, which one is not, and why?"""

from model import (ALERTS, BLUE, CLOSED, GREEN, NONE_DRAINS, ORANGE, RED, RUNBOOKS, UP_DOWN,
                   YELLOW, above, below, column, dashboard, drill, first_empty, packets, ranked,
                   runbook, series, stat, states, summed, table, words)

APP = drill("App: packets, losses, queues", "pmdscope-app")
POOLS = drill("Pools and leaks", "pmdscope-pools")

# An app of a row of a table.
OF_ROW = {"title": "App: packets, losses, queues", "targetBlank": False,
          "url": "/d/pmdscope-app?var-app=${__data.fields.app}"
                 "&var-instance=${__data.fields.instance}&${datasource:queryparam}"
                 "&${job:queryparam}&${__url_time_range}"}
CRITICAL, WARNING, INFO = (f', severity="{name}"' for name in ("critical", "warning", "info"))
TARGETS = 'up{@, job=~"pmdscope.*"}'

VERDICT = ("Is anything wrong?", [
    stat("Exporters down", "Can all hosts be scraped? Number of failing scrapes. No panel has data "
         "about the apps of such a host.",
         f"sum({TARGETS} == bool 0)", thresholds=above((1, RED)), size=(3, 4),
         empty="no target", links=[runbook("DpdkExporterDown")]),
    stat("Apps down", "Is every app running? Apps that are expected or ran within the "
         "last hour and do not answer. The timeline below shows why.",
         "sum(dpdk_up{@app} == bool 0)", thresholds=above((1, RED)), size=(3, 4),
         empty="no app", links=[runbook("DpdkAppDown")]),
    stat("Apps unhealthy", "Is every app healthy? Apps with a finding of severity warning or "
         "critical that the configuration does not tolerate; same as /ready.",
         "sum(dpdk_app_healthy{@app} == bool 0)", thresholds=above((1, RED)), size=(3, 4),
         empty="no app", links=[APP, runbook("DpdkAppUnhealthy")]),
    stat("Ports missing", "Did an app start without its NICs? Ports that the configuration or the "
         "app's own arguments name, and that the app does not have.",
         "sum(clamp_min(dpdk_app_expected_ports{@app} - dpdk_app_ports{@app}, 0))",
         thresholds=above((1, RED)), size=(3, 4), empty="no app",
         links=[APP, runbook("DpdkAppNoPorts")]),
    stat("Packets missed", "Are packets lost? Packets per second that NICs dropped because no "
         "receive descriptor was free, all apps.",
         f"sum({packets('receive_missed')})", "pps",
         thresholds=above((0.001, RED)), size=(3, 4), empty="no port",
         links=[APP, runbook("DpdkReceiveMissed")]),
    stat("Mbufs leaked", "Does an app leak mbufs? Mbufs that are proven to be lost, all apps.",
         "sum(dpdk_mbuf_leaked{@app})", thresholds=above((1, RED)), size=(3, 4),
         empty="no ledger", links=[POOLS, runbook("DpdkMbufLeak")]),
    stat("Pool empty in", "How long until the first app stops receiving? Time to exhaustion of the "
         "pool that drains fastest; 0: a pool is at least 98 % full.",
         first_empty("app"), "s",
         thresholds=below(300, (None, RED), (60, ORANGE)), size=(3, 4), mappings=[NONE_DRAINS],
         empty="not reported", links=[POOLS, runbook("DpdkPoolDraining")]),
    stat("Alerts firing", "How many alerts fire for the selection above? They are listed below; "
         "graphs mark where critical ones start.",
         f"count({ALERTS % ''}) or 0 * count(app:dpdk_receive_packets:rate1m{{@}})",
         mappings=words(_0=("none", GREEN)), thresholds=above((1, RED)), size=(3, 4),
         empty="rules not loaded"),
])

APPS = ("Apps", [
    table("All apps", "Which app needs attention? One row per app, the worst first; the name of "
          "an app links to its dashboard. Empty cells are unknown, not zero.", [
              ("Up", "max by (@app) (dpdk_up{@app})"),
              ("Healthy", "max by (@app) (dpdk_app_healthy{@app})"),
              ("Ports", "max by (@app) (dpdk_app_ports_started{@app})"),
              ("Expected", "max by (@app) (dpdk_app_expected_ports{@app})"),
              ("Received", f"sum by (@app) ({packets('receive')})"),
              ("Sent", f"sum by (@app) ({packets('transmit')})"),
              ("Missed", f"sum by (@app) ({packets('receive_missed')})"),
              ("Fullest pool", "max by (@app) (dpdk_mempool_objects_in_use{@app} "
               "/ dpdk_mempool_objects{@app})"),
              ("Leaked", "sum by (@app) (dpdk_mbuf_leaked{@app})"),
              ("Started", "max by (@app) (dpdk_app_start_timestamp_seconds{@app}) * 1000"),
          ], columns=[
              column("app", links=[OF_ROW]),
              column("Up", mappings=UP_DOWN),
              column("Healthy", mappings=words(_0=("no", RED), _1=("yes", GREEN))),
              column("Received", "pps"), column("Sent", "pps"),
              column("Missed", "pps", thresholds=above((0.001, RED))),
              column("Fullest pool", "percentunit", thresholds=above((0.9, YELLOW), (0.98, RED))),
              column("Leaked", "short", thresholds=above((1, RED))),
              column("Started", "dateTimeFromNow"),
          ], first=("app", "instance"), sort=("Up", "Healthy", "-Missed"), size=(24, 9),
          empty="no app"),
    states("Why apps are unhealthy", "What is wrong, since when? One line per app and finding; "
           "`pmdscope check` on the host shows numbers and advice.",
           "dpdk_app_unhealthy_reason{@app} == 1", legend="{{app}} {{reason}}",
           mappings=words(_1=("wrong", RED)), empty="Nothing is wrong.",
           links=[runbook("DpdkAppUnhealthy")]),
    series("Apps found and expected", "Did every app start? Apps found on each host, and "
           "apps that its configuration expects. Fewer found than expected: an app did not start. "
           "Hosts on which most apps are missing come first.",
           ranked("topk(10, clamp_min(dpdk_apps_expected{@} - dpdk_apps_discovered{@}, 0) * 1e6 "
                  "+ dpdk_apps_discovered{@})",
                  ("dpdk_apps_discovered{@}", "found on {{instance}}"),
                  ("dpdk_apps_expected{@}", "expected on {{instance}}")), size=(12, 7),
           empty="no exporter", links=[runbook("DpdkAppsMissing")]),
    states("Telemetry", "Which app runs with --no-telemetry and cannot be monitored?",
           "dpdk_app_telemetry_enabled{@app}", legend="{{app}}",
           mappings=words(_0=("off", RED), _1=("on", GREEN)), size=(12, 7), empty="no app",
           links=[runbook("DpdkTelemetryOff")]),
    table("Alerts firing", "Which alerts fire now, the most severe first? Each has a runbook.",
          [("Severity", f"{ALERTS % CRITICAL} * 3 or {ALERTS % WARNING} * 2 or "
            f"{ALERTS % INFO} * 1")],
          hide=("alertstate", "severity"), first=("Value", "alertname", "app", "instance"),
          columns=[column("Severity", mappings=words(_3=("critical", RED), _2=("warning", ORANGE),
                                                     _1=("info", BLUE))),
                   column("app", links=[OF_ROW]),
                   column("alertname", width=230, links=[{
                       "title": "Runbook", "targetBlank": True,
                       "url": f"{RUNBOOKS}#${{__data.fields.alertname}}"}])],
          sort=("-Severity",), size=(24, 16), empty="No alert fires."),
])

TRAFFIC = ("Traffic", [
    series("Received", "Do the apps receive packets? The ten that receive most. If one line falls "
           "and others do not, that app gets no traffic; the table above has all.",
           [(f"topk(10, sum by (@app) ({packets('receive')}))",
             "{{app}}")], "pps", empty="no port"),
    series("Sent", "Do the apps forward what they receive? The ten that send most.",
           [(f"topk(10, sum by (@app) ({packets('transmit')}))",
             "{{app}}")], "pps", empty="no port"),
    series("Missed", "Which apps lose most packets, and since when?",
           [(f"topk(10, sum by (@app) ({packets('receive_missed')}))",
             "{{app}}")], "pps", empty="no port"),
    series("Fullest pools", "Which app will run out of mbufs? The ten fullest pools as a share of "
           "their size; a line that only rises is a leak or a queue that fills.",
           [("topk(10, dpdk_mempool_objects_in_use{@app} / dpdk_mempool_objects{@app})",
             "{{app}} {{pool}}")], "percentunit", high=1,
           line=above((0.9, YELLOW), (0.98, RED)), empty="not reported (DPDK before 23.03, without --xray)"),
])

EXPORTERS = ("Exporters: cost, size, and what failed", [
    series("Time to query an app", "Does monitoring cost little? Time to query each app. Above "
           "0.1 s a driver is slow, or the app's control thread gets no CPU.",
           [("topk(10, dpdk_collect_duration_seconds{@app})", "{{app}}")], "s",
           line=above((0.1, YELLOW), (1, RED)), size=(8, 7), empty="no app"),
    series("Requests per round", "How many requests does each app get? Each request wakes "
           "one of its control threads.", [("topk(10, dpdk_collect_requests{@app})", "{{app}}")],
           size=(8, 7), empty="no app"),
    series("Failed rounds", "Which apps could not be queried, and why?",
           [("topk(10, sum by (@reason) (rate(dpdk_collect_errors_total{@app}[@])) > 0)",
             "{{app}} {{reason}}")], "count:rounds/s", size=(8, 7),
           empty="Every app was queried.", links=[runbook("DpdkCollectErrors")]),
    series("Parts not read", "Which apps answered only in part? Some of their series are missing.",
           [("topk(10, dpdk_collect_partial{@app})", "{{app}}")], size=(8, 7),
           line=above((1, YELLOW)), empty="no app", links=[runbook("DpdkCollectPartial")]),
    series("Series", "How large are the scrapes? Keep sample_limit well above this.",
           [("topk(10, dpdk_exporter_series{@})", "{{instance}}")], size=(8, 7),
           empty="no exporter"),
    series("Omitted series", "Are series omitted to limit the size of scrapes? Above 0, some "
           "metrics are missing.", [("topk(10, sum by (@kind) (dpdk_series_suppressed{@app}))",
                         "{{app}} {{kind}}")], size=(8, 7), line=above((1, YELLOW)),
           empty="no app", links=[runbook("DpdkSeriesSuppressed")]),
    series("Rounds", "How often are the apps queried? Scrapes that arrive during a round share it, "
           "so more Prometheus servers do not cost the apps more.",
           summed(("rate(dpdk_exporter_collections_total{@}[@])", "rounds {{instance}}"),
                  ("rate(dpdk_exporter_shared_scrapes_total{@}[@])",
                   "shared scrapes {{instance}}")),
           "count:rounds/s", size=(8, 7), empty="no exporter"),
    series("Unreadable directories", "Which exporters may not read a directory of DPDK's runtime "
           "files? Above 0, apps may run that nothing here shows: run the exporter as root.",
           [("topk(10, dpdk_exporter_unreadable_directories{@})", "{{instance}}")], size=(8, 7),
           line=above((1, YELLOW)), empty="no exporter"),
    series("OTLP pushes", "Does the OTLP receiver accept what the exporters push?",
           [("topk(10, sum by (instance, result) (rate(dpdk_exporter_otlp_pushes_total{@}[@])))",
             "{{result}} {{instance}}")], "count:pushes/s", size=(8, 7),
           empty="No exporter pushes.",
           links=[runbook("DpdkOtlpPushesFail")]),
    series("Connections", "How many clients are connected to the exporters? The limit is "
           "max_connections in the configuration.",
           [("topk(10, dpdk_exporter_connections{@})", "{{instance}}")], size=(12, 7),
           empty="no exporter"),
    series("Rejected connections", "Does a client take connections from others? Connections that "
           "exporters refused or closed, by reason.",
           [("topk(10, sum by (instance, reason) "
             "(rate(dpdk_exporter_connections_rejected_total{@}[@])))",
             "{{reason}} {{instance}}")], "count:connections/s", size=(12, 7),
           empty="no exporter"),
], CLOSED)

INTERFACES = ("Interfaces of the kernel: only with an XDP filter or a bypassed queue", [
    series("Dropped by XDP filters", "Is a host flooded, and with what? Packets per second that the "
           "filter of each interface drops, by reason. pmdscope check on the host names the top "
           "sources.",
           [("topk(10, rate(dpdk_xdp_filter_packets_total{@, reason!=\"passed\"}[@]))",
             "{{instance}} {{interface}} {{reason}}")], "pps",
           empty="no filter", links=[runbook("DpdkXdpFlood")]),
    series("Passed by XDP filters", "Does wanted traffic get through? Packets per second that "
           "the filter of each interface passes to the kernel.",
           [("topk(10, rate(dpdk_xdp_filter_packets_total{@, reason=\"passed\"}[@]))",
             "{{instance}} {{interface}}")], "pps", empty="no filter",
           links=[runbook("DpdkXdpFlood")]),
    series("Received by queue", "Which packets take which half of a NIC? Packets of each queue "
           "before any XDP program; redirected ones are a part of them, and go to an app.",
           ranked("topk(10, rate(dpdk_interface_queue_receive_packets_total{@}[@]))",
                  ("rate(dpdk_interface_queue_receive_packets_total{@}[@])",
                   "{{instance}} {{interface}} queue {{queue}}"),
                  ("rate(dpdk_interface_queue_redirected_packets_total{@}[@]) > 0",
                   "{{instance}} {{interface}} queue {{queue}} redirected")), "pps",
           empty="no interface with a bypass, or its driver does not count"),
    series("Bits dropped by XDP filters", "How much of the link does a flood take?",
           [("topk(10, sum by (instance, interface) "
             "(rate(dpdk_xdp_filter_bytes_total{@, reason!=\"passed\"}[@])) * 8)",
             "{{instance}} {{interface}}")], "bps", empty="no filter",
           links=[runbook("DpdkXdpFlood")]),
    series("Sources not counted", "Are the top sources of pmdscope check complete? Dropped packets "
           "per second whose source found no room in the table of sources.",
           [("topk(10, rate(dpdk_xdp_filter_uncounted_packets_total{@}[@]))",
             "{{instance}} {{interface}}")], "pps",
           empty="no filter"),
    series("Lost by queues", "Do the kernel's halves of NICs lose packets? Packets lost for lack of "
           "buffers or space in a ring.",
           [("topk(10, rate(dpdk_interface_queue_receive_dropped_packets_total{@}[@]))",
             "{{instance}} {{interface}} queue {{queue}}")], "pps",
           empty="no interface with a bypass, or its driver does not count"),
    table("Interfaces", "Which interfaces have a filter or a bypassed queue, and which is flooded? "
          "Empty cells are unknown, not zero.", [
              ("", "dpdk_interface_info{@}"),
              ("Flood", "max by (job, instance, interface) "
               "(dpdk_interface_unhealthy_reason{@, reason=\"flood\"})"),
              ("Received", "sum by (job, instance, interface) "
               "(rate(dpdk_interface_receive_packets_total{@}[@]))"),
              ("Sent", "sum by (job, instance, interface) "
               "(rate(dpdk_interface_transmit_packets_total{@}[@]))"),
              ("Lost", "sum by (job, instance, interface) "
               "(rate(dpdk_interface_receive_dropped_packets_total{@}[@]))"),
              ("Dropped by filter", "sum by (job, instance, interface) "
               "(rate(dpdk_xdp_filter_packets_total{@, reason!=\"passed\"}[@]))"),
          ], columns=[
              column("Flood", mappings=words(_0=("no", GREEN), _1=("yes", RED))),
              column("Received", "pps"), column("Sent", "pps"),
              column("Lost", "pps", thresholds=above((0.001, RED))),
              column("Dropped by filter", "pps"),
          ], first=("interface", "instance"), sort=("-Flood", "-Received"), size=(24, 7),
          empty="no interface", links=[runbook("DpdkXdpFlood")]),
    table("Bypassed queues", "Which queue bypasses the kernel, which flows does it get, and which "
          "app and port poll it? An empty app: nobody polls it.",
          [("", "dpdk_interface_bypass_info{@}")], columns=[column("flows", width=300)],
          first=("interface", "instance", "queue", "app", "port", "flows"), size=(12, 7),
          empty="no bypass"),
    states("Interfaces readable", "Can the exporter read filters and bypasses? If not, its journal "
           "says why.", "dpdk_interfaces_readable{@}", legend="{{instance}}",
           mappings=words(_0=("no", RED), _1=("yes", GREEN)), size=(12, 7),
           empty="no interface"),
], CLOSED)

DASHBOARD = dashboard(
    "pmdscope-fleet", "DPDK / Fleet",
    "Is every DPDK app running and healthy, and which one is not?",
    [], [VERDICT, APPS, TRAFFIC, INTERFACES, EXPORTERS])
