# SPDX-License-Identifier: BSD-3-Clause
"""Rules for what a person sees of the dashboards, as far as the JSON shows it.

Each is of something that Grafana 11.6 once drew wrongly: a graph under a coloured region, a
timeline without its mappings, a column that was not there."""

import re
from collections import namedtuple

from promql import Aggregation, Binary, Call, ParseError, labels, parse, selectors, walk
from sources import panels

Problem = namedtuple("Problem", "rule where message")

GREY, RED = "#808080", "red"
COUNTED = ("none", "short", "pps", "bps", "bytes")
# Metrics that most machines do not have: their panels send no queries until their row is opened.
RARE = re.compile(r"dpdk_(lcore_busy_cycles_total|lcore_cycles_total|ring_\w+|exporter_otlp_\w+"
                  r"|queue_receive_depth_bucket|queue_burst_packets_bucket|heap_\w+"
                  r"|xdp_\w+|interface_\w+|lcore_stolen_\w+|lcore_tracing_\w+)")
# Lines that fit into a legend.
LINES = 10
OPEN_QUERIES = 30
# Characters of a title for each of the 24 columns, at 1600 pixels.
TITLE = 5
# A header and 14 alerts, as many as one leak once caused.
ALERT_ROWS = 16
# A table with this many queries has more columns than fit into half a screen.
HALF = 3
OF_OTHERS = {"up": ("job", "=~", "pmdscope.*"), "ALERTS": ("alertname", "=~", "Dpdk.+")}
RULES = {
    "alert-region", "alert-table", "annotation-switch", "closed-row", "event-region", "full-pool",
    "heatmap-colour", "leaked-colour", "legend-last", "legend-null", "legend-order", "mirror",
    "open-queries", "other-targets", "quantile-integer", "same-lines", "sent-is-taken", "soft-max",
    "stack", "state-mapping", "stat-unknown", "table-cell", "table-link", "table-order",
    "table-text", "table-unit", "table-unknown", "table-width", "text-size", "threshold-line",
    "title-width", "top-ten", "two-units"}


def tree(expr):
    """The tree of an expression; None if it is none, of which another rule complains."""
    try:
        return parse(expr)
    except ParseError:
        return None


def problems(boards, known):
    """All problems of a set of dashboards; `known` are the labels of metrics."""
    found = []
    for name, board in boards.items():
        for rule, holds, message in of_board(board):
            if not holds:
                found.append(Problem(rule, name, message))
        for panel in panels(board):
            for rule, holds, message in of_panel(panel, board, known):
                if not holds:
                    found.append(Problem(rule, f"{name}/{panel.get('title')}", message))
    return found


def of_board(board):
    """Annotations, and how many queries a refresh sends."""
    for entry in board["annotations"]["list"]:
        if "expr" not in entry:
            continue
        yield "annotation-switch", entry["hide"], f"{entry['name']} has a switch"
        yield ("event-region", "offset $__interval" in entry["expr"],
               f"{entry['name']} lasts: it is drawn as a region over the graphs")
        node = tree(entry["expr"])
        for selector, _ in selectors(node) if node else ():
            if selector.name == "ALERTS":
                yield ("alert-region", ("severity", "=", "critical") in selector.matchers
                       and ("app", "=~", "$app|") in selector.matchers,
                       "marks alerts that are not critical, or not of the chosen app")
    visible = [panel for panel in board["panels"] if panel["type"] != "row"]
    queries = sum(len(panel["targets"]) for panel in visible)
    yield "open-queries", queries <= OPEN_QUERIES, f"{queries} queries with closed rows closed"
    for panel in visible:
        rare = {name.group(0) for target in panel["targets"]
                for name in RARE.finditer(target["expr"])}
        yield "closed-row", not rare, f"{panel['title']} asks for {rare} in an open row"


def of_panel(panel, board, known):
    """What is of one panel."""
    kind, title = panel["type"], panel.get("title") or ""
    room = panel["gridPos"]["w"] * TITLE
    yield "title-width", len(title) <= room, f"{len(title)} characters, room for {room}"
    for target in panel["targets"]:
        node = tree(target["expr"])
        yield ("sent-is-taken", "_offered_" not in target["expr"] or "Offered" in title,
               "shows attempts as packets sent")
        for selector, _ in selectors(node) if node else ():
            wanted = OF_OTHERS.get(selector.name)
            yield ("other-targets", not wanted or wanted in selector.matchers,
                   f"counts {selector.name} of other jobs")
        for found, parent in walk(node) if node else ():
            if isinstance(found, Call) and found.function == "histogram_quantile":
                whole = not any("_seconds_" in one.name for one, _ in selectors(found))
                ceil = isinstance(parent, Call) and parent.function == "ceil"
                yield "quantile-integer", ceil or not whole, "a part of a packet"
    check = {"stat": of_stat, "timeseries": of_graph, "heatmap": of_heatmap, "table": of_table,
             "state-timeline": of_timeline, "bargauge": of_bars}.get(kind)
    if check:
        yield from check(panel, board, known)


def nothing(mappings):
    """Colours for what has no value."""
    return [entry["options"]["result"].get("color") for entry in mappings
            if entry["type"] == "special"]


def of_stat(panel, _, __):
    """One number."""
    yield ("stat-unknown", nothing(panel["fieldConfig"]["defaults"].get("mappings", [])) == [GREY],
           "what is not known is not grey")
    for target in panel["targets"]:
        yield ("full-pool", "exhausted_in_seconds" not in target["expr"]
               or ">= 0.98) * 0 or " in target["expr"],
               "a full pool drains no more, and looks well")


def parts(node):
    """Of a target's expression, what is drawn, and what chooses the lines, which may be the same."""
    both = isinstance(node, Binary) and node.operator == "and"
    return (node.left, node.right) if both else (node, node)


def chooses_few(node):
    """Whether an expression is that of a few series, the highest or the lowest."""
    chooses = isinstance(node, Aggregation) and node.operator in ("topk", "bottomk")
    return chooses and float(node.arguments[0].arguments[0]) <= LINES


def of_graph(panel, _, known):
    """Lines over time."""
    defaults, legend = panel["fieldConfig"]["defaults"], panel["options"]["legend"]
    custom, unit = defaults["custom"], defaults.get("unit") or ""
    overrides = {entry["matcher"]["options"]: {one["id"]: one["value"]
                                               for one in entry["properties"]}
                 for entry in panel["fieldConfig"]["overrides"]}
    yield ("legend-last", "lastNotNull" not in legend["calcs"],
           "shows as last what ended long ago")
    yield ("legend-null", overrides.get("number", {}).get("noValue"),
           "the last value of what has ended has the text of an empty graph")
    yield ("legend-order", legend.get("sortBy") == "Max" and legend.get("sortDesc"),
           "the worst is not first")
    steps = [step["value"] for step in defaults.get("thresholds", {}).get("steps", [])
             if step["value"] is not None]
    yield ("threshold-line", custom["thresholdsStyle"]["mode"] == "off" or min(steps) >= 0.01,
           "a line along zero")
    counted = unit in COUNTED or unit.startswith("count:")
    yield ("soft-max", not counted or custom.get("axisSoftMax") == 1,
           "all zeros are scaled to 100")
    yield from of_lines(panel, known, overrides)


def of_lines(panel, known, overrides):
    """Each target of a graph, and all together."""
    custom, rates, rankings = panel["fieldConfig"]["defaults"]["custom"], set(), []
    for target in panel["targets"]:
        node = tree(target["expr"])
        drawn, rank = parts(node)
        rankings.append(rank)
        yield ("mirror", not (isinstance(drawn, Call) and drawn.function == "-"),
               "negative values in legend and tooltip")
        yield ("stack", custom["stacking"]["mode"] == "none" or "topk(1, " in target["expr"],
               "adds what is of several apps")
        colour = overrides.get(target["refId"], {}).get("color", {})
        places = "dpdk_mbuf_placed{" in target["expr"]
        yield ("leaked-colour", not places or 'place!="leaked"' in target["expr"]
               or colour.get("fixedColor") == RED, "leaked is one colour of many")
        if not node:
            continue
        if "unit" not in overrides.get(target["refId"], ()):
            rates.add(any(isinstance(found, Call) and found.function == "rate"
                          for found, _ in walk(drawn)))
        several = labels(node, lambda name: known.get(name, set())) or set()
        yield ("top-ten", chooses_few(rank) or not several & {"app", "instance"},
               "a line for each of all apps or hosts")
    yield "two-units", len(rates) <= 1, "counts and rates on one axis"
    yield ("same-lines", all(one == rankings[0] for one in rankings),
           "its targets are of different ports, pools or apps")


def of_heatmap(panel, _, __):
    """Bands of a histogram."""
    for target in panel["targets"]:
        node = tree(target["expr"])
        logs = [found for found, _ in walk(node) if isinstance(found, Call)
                and found.function == "log10"] if node else []
        inside = sum(len(selectors(one)) for one in logs)
        yield ("heatmap-colour", node and inside == len(selectors(node)) > 0,
               "the fullest band hides all others: no logarithm")


def of_timeline(panel, _, __):
    """States over time."""
    by_threshold = panel["fieldConfig"]["defaults"]["color"]["mode"] == "thresholds"
    yield ("state-mapping", not (by_threshold and panel["options"]["mergeValues"]),
           "mappings are ignored")


def of_bars(panel, _, __):
    """A bar for each series."""
    yield "text-size", panel["options"].get("text", {}).get("valueSize"), "letters as high as a bar"


def of_table(panel, _, __):
    """Rows and columns."""
    defaults, overrides = panel["fieldConfig"]["defaults"], panel["fieldConfig"]["overrides"]
    unknown = {entry["matcher"]["options"] for entry in overrides
               if entry["matcher"]["id"] == "byType"
               and "noValue" in {one["id"] for one in entry["properties"]}}
    yield ("table-cell", unknown == {"number", "string"},
           "an empty cell has the text of an empty table")
    yield "table-text", defaults["unit"] == "string", "labels that are numbers get a unit"
    yield "table-link", not defaults["links"], "each cell links to a runbook"
    yield ("table-width", defaults["custom"].get("minWidth", 150) <= 60,
           "columns that do not fit are not seen")
    place = panel["gridPos"]
    yield ("table-width", place["w"] == 24 or len(panel["targets"]) <= HALF,
           "does not have the whole row")
    sorted_by = {entry["displayName"] for entry in panel["options"]["sortBy"]}
    names = {entry["matcher"]["options"] for entry in overrides}
    yield "table-order", sorted_by <= names, f"no column {sorted_by - names}"
    for entry in overrides:
        properties = {one["id"]: one["value"] for one in entry["properties"]}
        if {"thresholds", "mappings"} & set(properties):
            yield ("table-unknown", nothing(properties.get("mappings", [])) == [GREY],
                   f"an unknown {entry['matcher']['options']} has a colour")
        of_bytes = "bytes" in entry["matcher"]["options"]
        yield ("table-unit", not of_bytes or properties.get("unit") == "none",
               "1500 bytes become 1.46 KiB")
        if entry["matcher"]["options"] == "site":
            yield "table-width", properties.get("custom.width", 0) >= 400, "cuts the leak site"
    if any("ALERTS{" in target["expr"] for target in panel["targets"]):
        yield from of_alerts(panel, {entry["matcher"]["options"]: {
            one["id"]: one["value"] for one in entry["properties"]} for entry in overrides})


def of_alerts(panel, columns):
    """The table of alerts: the worst first and red, each with its app, all of an incident."""
    colours = {text: shown.get("color") for entry in columns.get("Severity", {}).get("mappings", [])
               if entry["type"] == "value" for text, shown in entry["options"].items()}
    yield "alert-table", colours.get("3") == RED, "critical is not red"
    yield ("alert-table", panel["options"]["sortBy"] == [{"displayName": "Severity", "desc": True}],
           "the worst is not first")
    yield ("alert-table", any("/d/pmdscope-app?" in link["url"]
                              for link in columns.get("app", {}).get("links", [])),
           "no link to the app")
    yield "alert-table", panel["gridPos"]["h"] >= ALERT_ROWS, "hides alerts of one incident"
