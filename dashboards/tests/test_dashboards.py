# SPDX-License-Identifier: BSD-3-Clause
"""The dashboards obey every rule, and every rule can fail."""

import copy
import json
import subprocess
import sys
import unittest

import expressions
import promql
from lint import RULES, RUNBOOKS, lint
from sources import DASHBOARDS, catalogue, dashboards, may_be_empty, panels


def first(board, kind):
    """The first panel of a kind."""
    return next(panel for panel in panels(board) if panel["type"] == kind)


def graph(boards):
    """Its first graph's first target."""
    return first(boards["app"], "timeseries")["targets"][0]


def edit(path, value):
    """A mutation: sets what lies at a path, in the dashboard that it begins with."""
    def mutate(boards):
        place = boards
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    return mutate


def on(pick, key, value):
    """A mutation: sets a key of what `pick` finds."""
    return lambda boards: pick(boards).__setitem__(key, value)


def swap(old, new):
    """A mutation: replaces text in the first graph's expression."""
    def mutate(boards):
        target = graph(boards)
        assert old in target["expr"], target["expr"]
        target["expr"] = target["expr"].replace(old, new, 1)
    return mutate


def variable(name):
    """Picks a variable of the app dashboard."""
    return lambda boards: next(entry for entry in boards["app"]["templating"]["list"]
                               if entry["name"] == name)


def query(name, text):
    """A mutation: another query for a variable."""
    return lambda boards: variable(name)(boards)["query"].__setitem__("query", text)


def annotation(boards):
    """Picks the first annotation that is ours."""
    return next(entry for entry in boards["app"]["annotations"]["list"] if "expr" in entry)


def of(kind, name="app"):
    """Picks a panel."""
    return lambda boards: first(boards[name], kind)


def defaults(kind, name="app"):
    """Picks the defaults of a panel's fields."""
    return lambda boards: first(boards[name], kind)["fieldConfig"]["defaults"]


def overlap(boards):
    """Moves a panel over another."""
    one, two = list(panels(boards["app"]))[:2]
    two["gridPos"] = dict(one["gridPos"])


def column_link(boards):
    """Lets a table's link ask for a column that is not there."""
    overrides = first(boards["fleet"], "table")["fieldConfig"]["overrides"]
    app = next(entry for entry in overrides if entry["matcher"]["options"] == "app")
    app["properties"][0]["value"][0]["url"] += "${__data.fields.x}"


def alerts(boards):
    """Picks the annotation of alerts."""
    return next(entry for entry in boards["app"]["annotations"]["list"]
                if entry["name"] == "Alerts")


def open_rows(boards):
    """Opens all rows of a dashboard."""
    for row in [panel for panel in boards["app"]["panels"] if panel["type"] == "row"]:
        boards["app"]["panels"] += row.pop("panels")
        row["panels"] = []


def open_row(board, title):
    """A mutation: opens the row whose title begins so."""
    def mutate(boards):
        row, = [panel for panel in boards[board]["panels"]
                if panel["type"] == "row" and panel["title"].startswith(title)]
        boards[board]["panels"] += row["panels"]
        row["panels"] = []
    return mutate


def named(boards, board, title):
    """Picks a panel by its title."""
    return next(panel for panel in panels(boards[board]) if panel["title"] == title)


def target(boards, board, title):
    """Picks the first target of a panel by its title."""
    return named(boards, board, title)["targets"][0]


def legend(boards):
    """Picks the legend of the first graph."""
    return first(boards["app"], "timeseries")["options"]["legend"]


def overrides(boards):
    """Picks the overrides of the first table."""
    return first(boards["app"], "table")["fieldConfig"]["overrides"]


def alert_table(boards):
    """Picks the table of alerts; a number of the same title is not meant."""
    return next(panel for panel in panels(boards["fleet"])
                if panel["title"] == "Alerts firing" and panel["type"] == "table")


def column(panel, name):
    """The properties of a column of a table."""
    return next(entry["properties"] for entry in panel["fieldConfig"]["overrides"]
                if entry["matcher"]["options"] == name)


def rewrite(board, title, old, new):
    """A mutation: replaces text in the first expression of a panel."""
    def mutate(boards):
        one = target(boards, board, title)
        assert old in one["expr"], one["expr"]
        one["expr"] = one["expr"].replace(old, new)
    return mutate


LINK = {"title": "x", "targetBlank": False}

# Rule: what breaks it.
MUTATIONS = [
    ("uid", edit(["app", "uid"], None)),
    ("uid", edit(["app", "uid"], "pmdscope-fleet")),
    ("schema", edit(["app", "schemaVersion"], 42)),
    ("schema", edit(["app", "refresh"], False)),
    ("schema", edit(["app", "timepicker", "time_options"], [])),
    ("schema", edit(["app", "__inputs"], [{"name": "DS_PROMETHEUS"}])),
    ("editable", edit(["app", "editable"], True)),
    ("crosshair", edit(["app", "graphTooltip"], 0)),
    ("tags", edit(["app", "tags"], [])),
    ("title", edit(["app", "description"], "")),
    ("dropdown", edit(["app", "links", 0, "keepTime"], False)),
    ("link", edit(["app", "links", 1, "url"], "https://example.com/")),
    ("datasource-variable", on(variable("datasource"), "label", "DS")),
    ("datasource-variable", on(variable("datasource"), "name", "source")),
    ("datasource-variable", on(variable("datasource"), "current", {})),
    ("required-variables", on(variable("job"), "name", "task")),
    ("variable", on(variable("job"), "label", "Task")),
    ("variable", on(variable("instance"), "allValue", "")),
    ("variable", on(variable("instance"), "multi", False)),
    ("variable", on(variable("app"), "datasource", {"type": "prometheus", "uid": "prom"})),
    ("variable-refresh", on(variable("port"), "refresh", 1)),
    ("variable-query", query("app", "app")),
    ("variable-query", query("port", 'label_values(dpdk_up{job=~"$job"}, port)')),
    ("variable-chain", query("app", 'label_values(dpdk_up{job=~"$job"}, app)')),
    ("variable-chain", query("instance", 'label_values(dpdk_up{job=~"$job", app=~"$app"}, app)')),
    ("panel-id", on(of("stat"), "id", 100)),
    ("panel-id", on(of("stat"), "id", None)),
    ("grid", overlap),
    ("grid", edit(["app", "panels", 1, "gridPos", "x"], 23)),
    ("annotation", on(annotation, "datasource", None)),
    ("annotation", on(annotation, "expr", "changes(dpdk_app_start_timestamp_seconds[1m]) > 0")),
    ("annotation", on(annotation, "titleFormat", "{{pool}}")),
    ("annotation", on(annotation, "expr", "changes(")),
    ("panel-type", on(of("stat"), "type", "graph")),
    ("panel-title", on(of("stat"), "title", "")),
    ("panel-thresholds", on(defaults("stat"), "thresholds", {})),
    *[("panel-description", on(of(*kind), "description", "Missed packets."))
      for kind in (("stat",), ("timeseries",), ("heatmap",), ("bargauge", "pools"), ("table",),
                   ("state-timeline",))],
    *[("panel-datasource", on(of(*kind), "datasource", {"type": "prometheus", "uid": "x"}))
      for kind in (("stat",), ("timeseries",), ("heatmap",), ("bargauge", "pools"), ("table",),
                   ("state-timeline",))],
    *[("panel-unit", on(defaults(*kind), "unit", None))
      for kind in (("stat",), ("timeseries",), ("heatmap",), ("bargauge", "pools"), ("table",),
                   ("state-timeline",))],
    ("panel-unit", on(defaults("stat"), "unit", "packets")),
    ("panel-unit", on(defaults("stat"), "unit", "cps")),
    ("panel-no-value", on(defaults("stat"), "noValue", "")),
    ("panel-no-value", on(defaults("stat"), "mappings", [])),
    ("panel-no-value", on(defaults("table"), "noValue", None)),
    ("panel-targets", on(of("stat"), "targets", [])),
    ("target-ref-id", lambda boards: first(boards["app"], "timeseries")["targets"][1]
     .__setitem__("refId", "A")),
    ("target-datasource", on(graph, "datasource", None)),
    ("target-promql", swap("rate(", "rate((")),
    ("target-variable", swap('port=~"$port"', 'port=~"$device"')),
    ("target-matchers", swap('job=~"$job", ', "")),
    ("target-matchers", swap('instance=~"$instance"', 'instance="$instance"')),
    ("rate-interval", swap("$__rate_interval", "5m")),
    ("rate-interval", swap("$__rate_interval", "$__range")),
    ("counter", swap("rate(", "deriv(")),
    ("counter", swap("dpdk_port_receive_packets_total", "dpdk_port_mtu_bytes")),
    ("target-legend", on(graph, "legendFormat", "{{pool}}")),
    ("target-legend", on(graph, "legendFormat", "")),
    ("target-format", lambda boards: first(boards["app"], "heatmap")["targets"][0].pop("format")),
    ("target-format", lambda boards: first(boards["app"], "table")["targets"][0].pop("format")),
    ("metric-exists", swap("dpdk_port_receive_packets_total", "dpdk_port_rx_packets_total")),
    ("label-exists", swap('port=~"$port"', 'lcore=~"$port"')),
    ("table-column", edit(["fleet", "panels", 10, "fieldConfig", "overrides", -1, "matcher",
                           "options"], "Alive")),
    ("link", on(defaults("stat"), "links", [LINK | {"url": "/d/pmdscope-none?x"}])),
    ("link", on(defaults("stat"), "links", [LINK | {"url": f"{RUNBOOKS}#none"}])),
    ("link", on(defaults("stat"), "links", [LINK | {"url": "https://example.com/"}])),
    ("link", column_link),
    ("link", on(of("table"), "links", [LINK | {"url": f"{RUNBOOKS}#none"}])),
    ("panel-id", on(of("heatmap"), "id", 100)),
    ("grid", edit(["app", "panels", -1, "panels", 1, "gridPos", "x"], 23)),

    # How it looks.
    ("event-region", on(annotation, "expr", "dpdk_mbuf_leaked > 0")),
    ("alert-region", lambda boards: alerts(boards).__setitem__(
        "expr", alerts(boards)["expr"].replace(', severity="critical"', ""))),
    ("alert-region", lambda boards: alerts(boards).__setitem__(
        "expr", alerts(boards)["expr"].replace('app=~"$app|", ', ""))),
    ("annotation-switch", on(annotation, "hide", False)),
    ("closed-row", open_rows),
    ("closed-row", open_row("fleet", "Interfaces of the kernel")),
    ("closed-row", open_row("lcores", "Stolen time")),
    ("open-queries", open_rows),
    ("title-width", on(of("stat"), "title", "Control threads share CPUs")),
    ("other-targets", swap("dpdk_port_receive_packets_total{", "up{")),
    ("other-targets", rewrite("fleet", "Alerts firing", 'alertname=~"Dpdk.+", ', "")),
    ("quantile-integer", lambda boards: target(boards, "app", "Packets per burst, 95th percentile")
     .__setitem__("expr", "histogram_quantile(0.95, dpdk_queue_burst_packets_bucket)")),
    ("stat-unknown", lambda boards: defaults("stat")(boards)["mappings"][-1]["options"]["result"]
     .__setitem__("color", "green")),
    ("legend-last", on(legend, "calcs", ["lastNotNull", "max"])),
    ("legend-null", lambda boards: first(boards["app"], "timeseries")["fieldConfig"]["overrides"]
     .pop(0)),
    ("legend-order", on(legend, "sortDesc", False)),
    ("threshold-line", lambda boards: defaults("timeseries")(boards).update(
        custom={**defaults("timeseries")(boards)["custom"], "thresholdsStyle": {"mode": "line"}},
        thresholds={"steps": [{"value": None, "color": "green"}, {"value": 0.001}]})),
    ("soft-max", lambda boards: defaults("timeseries")(boards)["custom"].pop("axisSoftMax")),
    ("mirror", lambda boards: graph(boards).__setitem__("expr", f"-{graph(boards)['expr']}")),
    ("stack", lambda boards: defaults("timeseries")(boards)["custom"]["stacking"]
     .__setitem__("mode", "normal")),
    ("two-units", lambda boards: named(boards, "captures", "Captures and missed packets")
     ["fieldConfig"].__setitem__("overrides", [])),
    ("top-ten", rewrite("fleet", "Received", "topk(10, ", "sum by (app) (")),
    ("top-ten", rewrite("fleet", "Series", "topk(10, ", "sum by (instance) (")),
    ("top-ten", rewrite("lcores", "Polls", "bottomk(10, ", "bottomk(50, ")),
    ("top-ten", rewrite("app", "Bits by port", " and topk(10, ", " or topk(10, ")),
    ("same-lines", rewrite("app", "Packets by port", "and topk(10, ", "and bottomk(10, ")),
    ("heatmap-colour", lambda boards: (lambda one: one.__setitem__(
        "expr", one["expr"].replace("log10(", "abs(", 1)))(
            target(boards, "lcores", "Gaps between polls"))),
    ("state-mapping", on(defaults("state-timeline"), "color", {"mode": "thresholds"})),
    ("text-size", on(lambda boards: of("bargauge", "pools")(boards)["options"], "text", {})),
    ("table-cell", lambda boards: overrides(boards).pop(1)),
    ("table-text", on(defaults("table"), "unit", "short")),
    ("table-link", on(defaults("table"), "links", [LINK | {"url": RUNBOOKS}])),
    ("table-width", lambda boards: defaults("table")(boards)["custom"].pop("minWidth")),
    ("table-width", lambda boards: next(
        entry for entry in of("table", "pools")(boards)["fieldConfig"]["overrides"]
        if entry["matcher"]["options"] == "site")["properties"].clear()),
    ("table-order", lambda boards: of("table", "fleet")(boards)["options"]["sortBy"][0]
     .__setitem__("displayName", "Alive")),
    ("alert-table", lambda boards: column(alert_table(boards), "Severity").clear()),
    ("alert-table", lambda boards: column(alert_table(boards), "app").clear()),
    ("alert-table", on(lambda boards: alert_table(boards)["options"], "sortBy", [])),
    ("alert-table", on(lambda boards: alert_table(boards)["gridPos"], "h", 8)),
    ("full-pool", rewrite("app", "Pool empty in", ">= 0.98", "> 1")),
    ("leaked-colour", lambda boards: named(boards, "pools", "Mbufs by place")["fieldConfig"]
     .__setitem__("overrides", [])),
    ("sent-is-taken", rewrite("app", "Sent by queue", "transmit_packets",
                              "transmit_offered_packets")),
    ("table-unit", lambda boards: column(named(boards, "app", "Ports"), "MTU, bytes")[0]
     .__setitem__("value", "bytes")),
    ("table-width", on(lambda boards: named(boards, "app", "Process")["gridPos"], "w", 12)),
    ("table-unknown", lambda boards: next(
        entry for entry in overrides(boards) if entry["matcher"]["options"] == "Link")
     ["properties"].__setitem__(0, {"id": "mappings", "value": []})),
]


class Dashboards(unittest.TestCase):
    """Rules over what is committed."""

    def test_json_is_what_the_definitions_say(self):
        build = [sys.executable, str(DASHBOARDS / "grafana" / "build.py"), "--check"]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_rule_holds(self):
        self.assertEqual(lint(), [])

    def test_every_rule_can_fail(self):
        for rule, mutate in MUTATIONS:
            boards = copy.deepcopy(dashboards())
            mutate(boards)
            with self.subTest(rule=rule, number=MUTATIONS.index((rule, mutate))):
                self.assertIn(rule, [problem.rule for problem in lint(boards)])

    def test_every_rule_is_broken_by_some_mutation(self):
        self.assertEqual({rule for rule, _ in MUTATIONS}, RULES)

    def test_every_metric_of_the_catalogue_can_be_seen(self):
        known = catalogue()
        self.assertGreater(len(known), 90)
        used = {selector.name for entry in expressions.of_dashboards()
                for selector, _ in promql.selectors(promql.parse(entry["expr"]))}
        unseen = {name for name in known if not name.endswith("_count")} - used
        # The label of one is a version; it gives the choice of jobs and instances. The other is for queries that
        # join ids of containers (docs/containers.md); most hosts have none.
        self.assertEqual(unseen, {"dpdk_exporter_build_info", "dpdk_app_container_info"})

    def test_what_may_be_empty_exists_and_has_a_reason(self):
        names = set()
        for entry in [*expressions.of_dashboards(), *expressions.of_rules()]:
            name = f"{entry['source']}/{entry['panel']}"
            names |= {name, f"{name}/{entry['target']}"}
        for name, reason in may_be_empty().items():
            self.assertIn(name, names)
            self.assertTrue(reason)

    def test_expressions_are_printed_as_json_lines(self):
        run = [sys.executable, str(DASHBOARDS / "tests" / "expressions.py")]
        lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
        made = [json.loads(line) for line in lines]
        self.assertEqual({entry["kind"] for entry in made}, {
            "stat", "timeseries", "heatmap", "bargauge", "table", "state-timeline", "annotation",
            "record", "alert"})


if __name__ == "__main__":
    unittest.main()
