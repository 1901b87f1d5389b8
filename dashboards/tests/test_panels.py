# SPDX-License-Identifier: BSD-3-Clause
"""Values of panels and annotations, as Prometheus computes them of known series."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import expressions
from syntax import filled

PROMTOOL = os.environ.get("PROMTOOL", "promtool")
OF = 'job="pmdscope", instance="host:9177"'


def expression(source, panel, target="A"):
    """An expression of a dashboard with all variables filled in; annotations have no target."""
    found, = [entry["expr"] for entry in expressions.of_dashboards()
              if (entry["source"], entry["panel"], entry["target"]) == (source, panel, target)
              and entry["kind"] != "table"]
    return filled(found)


def stays(name, labels, value):
    """A series with one value."""
    return {"series": f"{name}{{{OF}, {labels}}}", "values": f"{value}+0x40"}


def pool(in_use, exhausted_in=None):
    """Series of a pool of 1000 objects."""
    of_pool = 'app="fwd", pool="mb"'
    made = [stays("dpdk_mempool_objects", of_pool, 1000),
            stays("dpdk_mempool_objects_in_use", of_pool, in_use)]
    if exhausted_in is not None:
        made.append(stays("dpdk_mempool_exhausted_in_seconds", of_pool, exhausted_in))
    return made


class Panels(unittest.TestCase):
    """Samples every 15 seconds, which is also Grafana's interval."""

    def gives(self, expr, series, wanted, at="5m"):
        """An expression has these samples (labels, value), and no others."""
        samples = [{"labels": labels, "value": value} for labels, value in wanted]
        tests = {"evaluation_interval": "15s", "tests": [{
            "interval": "15s", "input_series": series, "promql_expr_test": [
                {"expr": expr, "eval_time": at, "exp_samples": samples}]}]}
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "test.yml"
            file.write_text(json.dumps(tests))
            done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_time_until_a_pool_is_empty(self):
        for source in ("fleet", "app", "pools"):
            expr = expression(source, "Pool empty in")
            self.gives(expr, pool(500), [("{}", 1e12)])
            self.gives(expr, pool(500, 120), [("{}", 120)])
            self.gives(expr, pool(999), [("{}", 0)])
            self.gives(expr, pool(999, 2), [("{}", 0)])
            self.gives(expr, pool(500)[:1], [])

    def test_start_of_a_leak(self):
        expr, of_pool = expression("pools", "Leak started"), 'app="fwd", pool="mb"'
        leaked = stays("dpdk_mbuf_leaked", of_pool, 3)
        self.gives(expr, [stays("dpdk_mbuf_leaked", of_pool, 0)], [("{}", -1)])
        self.gives(expr, [leaked, stays("dpdk_mbuf_oldest_age_seconds", of_pool, 9)], [("{}", 9)])
        self.gives(expr, [leaked], [])
        self.gives(expr, [], [])

    def test_other_jobs_are_not_counted(self):
        node = {"series": 'up{job="node", instance="host:9100"}', "values": "0+0x40"}
        ours = {"series": f"up{{{OF}}}", "values": "1+0x40"}
        self.gives(expression("fleet", "Exporters down"), [node, ours], [("{}", 0)])
        expr = expression("fleet", "Alerts firing")
        alert = 'severity="critical", alertstate="firing", app="fwd"'
        other = stays("ALERTS", f'alertname="DiskFull", {alert}', 1)
        recorded = stays("app:dpdk_receive_packets:rate1m", 'app="fwd"', 7)
        self.gives(expr, [other], [])
        self.gives(expr, [other, recorded], [("{}", 0)])
        one = stays("ALERTS", f'alertname="DpdkAppDown", {alert}', 1)
        self.gives(expr, [other, recorded, one], [("{}", 1)])

    def test_annotations_mark_only_the_start(self):
        firing = f'alertname="DpdkAppDown", severity="critical", alertstate="firing", {OF}'
        of_app = f'{OF}, app="fwd"'
        for name, series, values, last in [
                ("Alerts", f"ALERTS{{{firing}, app=\"fwd\"}}", "_x4 1+0x20", "1"),
                ("Alerts", f"ALERTS{{{firing}}}", "_x4 1+0x20", "1"),
                ("Leaks", f'dpdk_mbuf_leaked{{{of_app}, pool="mb"}}', "0+0x3 7+1x20", "7"),
                ("Restarts", f"dpdk_app_start_since_boot_seconds{{{of_app}}}", "5+0x3 60+0x20",
                 "60"),
                ("Captures", f"dpdk_capture_sessions{{{of_app}}}", "0+0x3 1+0x20", "1")]:
            with self.subTest(name):
                expr, given = expression("app", name, ""), [{"series": series, "values": values}]
                self.gives(expr, given, [], at="45s")
                self.gives(expr, given, [(series, float(last))], at="1m")
                for later in ("1m15s", "2m", "4m"):
                    self.gives(expr, given, [], at=later)

    def test_a_clock_that_moves_is_no_restart(self):
        given = [{"series": f'dpdk_app_start_{clock}_seconds{{{OF}, app="fwd"}}', "values": values}
                 for clock, values in (("timestamp", "5+0x3 6+0x20"), ("since_boot", "5+0x24"))]
        self.gives(expression("app", "Restarts", ""), given, [], at="1m")

    def test_annotations_leave_out_warnings(self):
        quiet = ('ALERTS{alertname="DpdkLcoreStalls", severity="warning", alertstate="firing", '
                 f"{OF}}}")
        self.gives(expression("app", "Alerts", ""), [{"series": quiet, "values": "_x4 1+0x20"}], [],
                   at="1m")

    def test_bands_are_logarithms_without_the_lowest(self):
        # A billion polls of less than a microsecond, and nine gaps of a millisecond in a minute.
        bounds = ["1e-06", "4e-06", "1.6e-05", "6.4e-05", "0.000256", "0.001024", "0.004096",
                  "0.016384", "0.065536", "0.262144", "1.048576", "+Inf"]
        series = [{"series": f'dpdk_lcore_poll_gap_seconds_bucket{{{OF}, app="fwd", lcore="1", '
                             f'le="{bound}"}}',
                   "values": f"0+{250000000 + (2.25 if number >= 5 else 0)}x40"}
                  for number, bound in enumerate(bounds)]
        wanted = [(f'{{le="{bound}"}}', 1 if bound == "0.001024" else 0) for bound in bounds[1:]]
        self.gives(expression("lcores", "Gaps between polls"), series, wanted)

    def test_bands_of_packets_have_either_spelling(self):
        for dot in ("", ".0"):
            series = [{"series": f'dpdk_queue_receive_depth_bucket{{{OF}, app="fwd", port="p", '
                                 f'queue="0", le="{bound}{dot}"}}', "values": f"0+{rate}x40"}
                      for bound, rate in ((0, 1000), (1, 1000), (3, 1002.25))]
            self.gives(expression("app", "Packets waiting at the start of a burst"), series,
                       [('{le="1"}', 0), ('{le="3"}', 1)])

    def test_bursts_have_whole_packets(self):
        of_queue = f'{OF}, app="fwd", port="p", queue="0"'
        series = [{"series": f'dpdk_queue_burst_packets_bucket{{{of_queue}, le="{bound}"}}',
                   "values": "0+30x40"} for bound in ("1", "2", "4", "+Inf")]
        self.gives(expression("app", "Packets per burst, 95th percentile"), series,
                   [('{instance="host:9177", app="fwd", port="p", queue="0"}', 1)])

    def test_both_halves_of_a_mirrored_graph_are_of_the_same_ports(self):
        # Ports 0 to 9 have the highest sums; by what they receive alone, 10 and 11 would be shown.
        series, wanted = [], {"A": [], "B": []}
        for port in range(12):
            of_port = f'{OF}, app="fwd", port="{port}"'
            busy = port < 10
            for target, way, rate in (("A", "receive", 1 if busy else 5),
                                      ("B", "transmit", 20 if busy else 2)):
                series.append({"series": f"dpdk_port_{way}_packets_total{{{of_port}}}",
                               "values": f"0+{rate * 15}x40"})
                if busy:
                    wanted[target].append(
                        (f'{{instance="host:9177", app="fwd", port="{port}"}}', rate))
        for target, lines in wanted.items():
            self.gives(expression("app", "Packets by port", target), series, lines)

    def test_queues_with_refused_packets_are_shown_first(self):
        # Queues 10 and 11 refuse; 11 offers least of all. The counter of refused packets of queue
        # 12 is absent: it is not left out for that.
        series = []
        for queue in range(13):
            of_queue = f'{{{OF}, app="fwd", port="p", queue="{queue}"}}'
            offered = 15 if queue == 11 else 15 * (100 + queue)
            series.append({"series": f"dpdk_queue_transmit_offered_packets_total{of_queue}",
                           "values": f"0+{offered}x40"})
            if queue < 12:
                series.append({"series": f"dpdk_queue_transmit_refused_packets_total{of_queue}",
                               "values": f"0+{15 if queue > 9 else 0}x40"})
        expr = expression("app", "Offered and refused by queue", "B")
        self.gives(expr, series, [
            (f'{{instance="host:9177", app="fwd", port="p", queue="{queue}"}}',
             1 if queue == 11 else 100 + queue) for queue in range(3, 13)])

    def test_apps_with_captures_are_shown_before_those_that_miss_packets(self):
        series = []
        for app in range(12):
            of_app = f'{OF}, app="fwd{app}"'
            series += [stays("dpdk_capture_sessions", f'app="fwd{app}"', 1 if app == 11 else 0),
                       {"series": f'dpdk_port_receive_missed_packets_total{{{of_app}, port="p"}}',
                        "values": f"0+{15 * (12 - app)}x40"}]
        self.gives(expression("captures", "Captures and missed packets"), series, [
            (f'{{instance="host:9177", app="fwd{app}"}}', 1 if app == 11 else 0)
            for app in [*range(9), 11]])

    def test_hosts_on_which_apps_are_missing_are_shown_first(self):
        # Most hosts expect no app and have many.
        series = []
        for host in range(12):
            of_host = f'job="pmdscope", instance="host{host}"'
            series += [{"series": f"dpdk_apps_{name}{{{of_host}}}", "values": f"{value}+0x40"}
                       for name, value in (("discovered", 1 if host == 11 else 20 - host),
                                           ("expected", 2 if host == 11 else 0))]
        self.gives(expression("fleet", "Apps found and expected", "B"), series, [
            (f'dpdk_apps_expected{{job="pmdscope", instance="host{host}"}}',
             2 if host == 11 else 0) for host in [*range(9), 11]])

    def test_places_are_of_the_pool_that_lost_most(self):
        self.places_are_of_the_first(("a", 100, 50), ("b", 300, 2))

    def test_places_are_of_the_fullest_pool_without_a_leak(self):
        self.places_are_of_the_first(("a", 300, 0), ("b", 100, 0))

    def places_are_of_the_first(self, *pools):
        """Pools are a name, objects in use, and leaked ones."""
        series = []
        for name, in_use, leaked in pools:
            of_pool = f'app="fwd", pool="{name}"'
            series += [stays("dpdk_mempool_objects", of_pool, 1000),
                       stays("dpdk_mempool_objects_in_use", of_pool, in_use),
                       stays("dpdk_mbuf_leaked", of_pool, leaked),
                       stays("dpdk_mbuf_placed", f'{of_pool}, place="leaked"', leaked),
                       stays("dpdk_mbuf_placed", f'{of_pool}, place="held"', in_use - leaked)]
        of_pool = f'{OF}, app="fwd", pool="a"'
        self.gives(expression("pools", "Mbufs by place"), series,
                   [(f'dpdk_mbuf_placed{{{of_pool}, place="leaked"}}', pools[0][2])])
        self.gives(expression("pools", "Mbufs by place", "B"), series,
                   [(f'dpdk_mbuf_placed{{{of_pool}, place="held"}}', pools[0][1] - pools[0][2])])


if __name__ == "__main__":
    unittest.main()
