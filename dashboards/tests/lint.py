# SPDX-License-Identifier: BSD-3-Clause
"""Rules for dashboards: those of Grafana's dashboard-linter, and what it leaves out.

Rules on how panels look are in looks.py.

The official one looks at no heatmap, bar gauge, table or state timeline for data source,
description and unit, and at no legend, id, grid position, annotation or link of any panel."""

import re

import looks
from promql import Aggregation, Call, ParseError, children, labels, parse, selectors, walk
from sources import ROOT, dashboards, known_labels, panels

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
PANELS = {"stat", "timeseries", "heatmap", "bargauge", "state-timeline", "table"}
# No cps: "c/s" is not a known unit; count:NAME/s states what is counted.
UNITS = {"none", "short", "string", "percentunit", "pps", "bps", "bytes", "s", "hertz",
         "bool_on_off", "dateTimeFromNow"}
OF_EVENTS = re.compile(r"count:[a-z]+/s")
OF_COUNTERS = {"rate", "irate", "increase"}
DURATIONS = {"$__rate_interval", "$__interval", "$__range"}
RULES = {
    "annotation", "counter", "crosshair", "datasource-variable", "dropdown", "editable", "grid",
    "label-exists", "link", "metric-exists", "panel-datasource", "panel-description", "panel-id",
    "panel-no-value", "panel-targets", "panel-thresholds", "panel-title", "panel-type",
    "panel-unit", "rate-interval", "required-variables", "schema", "table-column", "tags",
    "target-datasource", "target-format", "target-legend", "target-matchers", "target-promql",
    "target-ref-id", "target-variable", "title", "uid", "variable", "variable-chain",
    "variable-query", "variable-refresh"} | looks.RULES
RUNBOOKS = "https://github.com/pmdscope/pmdscope/blob/main/docs/runbooks.md"


def anchors():
    """Headings of the runbooks, as GitHub makes anchors of them."""
    text = (ROOT / "docs" / "runbooks.md").read_text()
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


class Linter:
    """All rules over a set of dashboards that link to each other."""

    def __init__(self, boards):
        self.boards = boards
        self.known = known_labels()
        self.uids = {board.get("uid") for board in boards.values()}
        self.anchors = anchors()
        self.problems = []
        self.where = ""

    def check(self, holds, rule, message):
        """Notes a problem unless all is well."""
        assert rule in RULES, rule
        if not holds:
            self.problems.append(looks.Problem(rule, self.where, message))

    def lint(self):
        """All problems."""
        uids = [board.get("uid") for board in self.boards.values()]
        self.check(len(set(uids)) == len(uids), "uid", "two dashboards share a uid")
        for name, board in self.boards.items():
            self.where = name
            self.dashboard(board)
            for panel in panels(board):
                self.where = f"{name}/{panel.get('title')}"
                self.panel(panel, board)
        self.problems += looks.problems(self.boards, self.known)
        return self.problems

    def dashboard(self, board):
        """What lies above the panels."""
        self.check(re.fullmatch(r"[a-z0-9-]{1,40}", board.get("uid") or ""), "uid", "no fixed uid")
        self.check(board["schemaVersion"] == 39, "schema", "not schema version 39")
        self.check(isinstance(board.get("refresh"), str), "schema", "refresh is no text")
        self.check("time_options" not in board["timepicker"], "schema", "timepicker.time_options")
        self.check(not board.get("__inputs"), "schema", "__inputs cannot be provisioned")
        self.check(board["editable"] is False, "editable", "editable")
        self.check(board["graphTooltip"] == 1, "crosshair", "no shared crosshair")
        self.check("dpdk" in board["tags"], "tags", "no tag dpdk")
        self.check(board.get("title") and board.get("description"), "title", "no title or purpose")
        self.variables(board["templating"]["list"])
        self.ids(board)
        self.grid(board["panels"])
        for entry in board["annotations"]["list"]:
            self.annotation(entry)
        dropdown = [link for link in board["links"] if link["type"] == "dashboards"]
        self.check(dropdown and all(link["asDropdown"] and link["includeVars"] and link["keepTime"]
                                    and link["tags"] == ["dpdk"] for link in dropdown),
                   "dropdown", "no list of the other dashboards that keeps variables and time")
        for link in board["links"]:
            if link["type"] == "link":
                self.link(link["url"], ())

    def variables(self, entries):
        """Data source first; each query depends on earlier variables only."""
        sources = [entry for entry in entries if entry["type"] == "datasource"]
        self.check([(entry["name"], entry["label"], entry["query"]) for entry in sources]
                   == [("datasource", "Data source", "prometheus")], "datasource-variable",
                   "not one variable datasource, labelled 'Data source', of prometheus")
        self.check(all(entry["current"].get("value") == "default" for entry in sources),
                   "datasource-variable", "takes the first by name, not the default")
        names = [entry["name"] for entry in entries]
        for needed in ("job", "instance"):
            self.check(needed in names, "required-variables", f"no variable {needed}")
        before = set()
        for entry in entries:
            if entry["type"] == "query":
                self.variable(entry, before)
            before.add(entry["name"])

    def variable(self, entry, before):
        """A choice of label values."""
        name = entry["name"]
        self.check(entry["label"] == name.capitalize(), "variable", f"label of {name}")
        self.check(entry["datasource"] == DATASOURCE, "variable", f"data source of {name}")
        self.check(entry["multi"] and entry["includeAll"] and entry["allValue"] == ".+", "variable",
                   f"{name} does not offer several and all as .+")
        self.check(entry["refresh"] == 2, "variable-refresh", f"{name}: not on time range change")
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", entry["query"]["query"])
        self.check(found, "variable-query", f"{name}: {entry['query']['query']}")
        if not found:
            return
        expr, label = found.groups()
        used = self.expression(expr, "variable-query")
        self.check(used and label in labels(used, self.labels), "variable-query",
                   f"{name}: no label {label}")
        wanted = [other for other in ("job", "instance", "app") if other in before]
        for other in wanted:
            self.check(f'{other}=~"${other}"' in expr, "variable-chain",
                       f"{name} does not depend on {other}")
        for other in re.findall(r"\$(\w+)", expr):
            self.check(other in before, "variable-chain", f"{name}: ${other} comes later")

    def ids(self, board):
        """Ids of panels are fixed and unique."""
        rows = [panel for panel in board["panels"] if panel["type"] == "row"]
        ids = [panel.get("id") for panel in [*rows, *panels(board)]]
        self.check(all(isinstance(one, int) and one > 0 for one in ids)
                   and len(set(ids)) == len(ids), "panel-id", "ids missing or not unique")

    def grid(self, entries):
        """Panels lie side by side on 24 columns, those of a closed row as if it were the last."""
        for row in entries:
            self.grid(row.get("panels", []))
        taken = {}
        for panel in entries:
            place = panel["gridPos"]
            self.check(place["x"] >= 0 and place["x"] + place["w"] <= 24, "grid",
                       f"{panel['title']} is outside")
            for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"])
                         for y in range(place["y"], place["y"] + place["h"])):
                if cell in taken:
                    self.check(False, "grid", f"{panel['title']} lies over {taken[cell]}")
                    break
                taken[cell] = panel["title"]

    def annotation(self, entry):
        """Marks on graphs, of the chosen data source."""
        if entry.get("builtIn"):
            return
        self.check(entry["datasource"] == DATASOURCE, "annotation", f"data source: {entry['name']}")
        node = self.expression(entry["expr"], "annotation")
        if node:
            self.matchers(node, "annotation")
            self.legend(node, entry["titleFormat"] + entry["textFormat"], "annotation")

    def panel(self, panel, board):
        """One panel with its targets."""
        kind, defaults = panel["type"], panel["fieldConfig"]["defaults"]
        self.check(kind in PANELS, "panel-type", kind)
        self.check(panel.get("title"), "panel-title", "no title")
        self.check("?" in panel.get("description", ""), "panel-description",
                   "the description asks no question")
        self.check(panel.get("datasource") == DATASOURCE, "panel-datasource",
                   str(panel.get("datasource")))
        self.check(panel.get("targets"), "panel-targets", "no targets")
        self.unit(defaults.get("unit"))
        self.check(defaults.get("noValue"), "panel-no-value", "does not say what no data means")
        self.check(defaults.get("thresholds", {}).get("steps"), "panel-thresholds", "none")
        names = [target["refId"] for target in panel["targets"]]
        self.check(len(set(names)) == len(names), "target-ref-id", "not unique")
        variables = {entry["name"] for entry in board["templating"]["list"]}
        if kind == "stat":
            said = [entry["options"]["result"] for entry in defaults.get("mappings", [])
                    if entry["type"] == "special"]
            self.check([entry["text"] for entry in said] == [defaults.get("noValue")],
                       "panel-no-value", "no data has the colour of the lowest threshold")
        columns = set()
        for target in panel["targets"]:
            columns |= self.target(target, kind, variables)
        if kind == "table":
            columns = self.columns(panel, columns)
        for link in [*defaults.get("links", []), *panel.get("links", [])]:
            self.link(link["url"], columns)
        for override in panel["fieldConfig"]["overrides"]:
            for entry in override["properties"]:
                if entry["id"] == "unit":
                    self.unit(entry["value"])
                for link in entry["value"] if entry["id"] == "links" else ():
                    self.link(link["url"], columns)

    def unit(self, name):
        """Units that people know."""
        self.check(name in UNITS or OF_EVENTS.fullmatch(name or ""), "panel-unit", f"unit {name}")

    def columns(self, panel, of_series):
        """Columns of a table; each that is styled must be there."""
        organize = next(step["options"] for step in panel["transformations"]
                        if step["id"] == "organize")
        there = of_series | set(organize["renameByName"].values())
        there -= set(organize["excludeByName"])
        for override in panel["fieldConfig"]["overrides"]:
            if override["matcher"]["id"] == "byName":
                name = override["matcher"]["options"]
                self.check(name in there, "table-column", f"no column {name}")
        return there

    def target(self, target, kind, variables):
        """One query; returns the labels of what it gives."""
        self.check(target.get("datasource") == DATASOURCE, "target-datasource",
                   str(target.get("datasource")))
        node = self.expression(target["expr"], "target-promql")
        if not node:
            return set()
        for name in re.findall(r"\$(\w+)", target["expr"]):
            self.check(name in variables or f"${name}" in DURATIONS, "target-variable", f"${name}")
        self.matchers(node, "target-matchers")
        self.windows(node)
        self.counters(node)
        legend = target.get("legendFormat", "")
        several = bool(labels(node, self.labels))
        if kind in ("timeseries", "bargauge", "state-timeline", "heatmap"):
            self.check(legend or not several, "target-legend", "several series without a legend")
        self.legend(node, legend, "target-legend")
        # As a heatmap, Grafana would take the difference of bands, as if they were cumulative.
        wanted = {"heatmap": "time_series", "table": "table"}
        if kind in wanted:
            self.check(target.get("format") == wanted[kind], "target-format", kind)
        return labels(node, self.labels) or set()

    def labels(self, metric):
        """Labels of a metric, none of one that does not exist."""
        return self.known.get(metric, set())

    def expression(self, text, rule):
        """The tree, after a look at the names in it."""
        try:
            node = parse(text)
        except ParseError as error:
            self.check(False, rule, str(error))
            return None
        for selector, _ in selectors(node):
            self.check(selector.name in self.known, "metric-exists", f"no metric {selector.name}")
            for label, _, _ in selector.matchers:
                self.check(label in self.labels(selector.name), "label-exists",
                           f"{selector.name} has no label {label}")
        return node

    def matchers(self, node, rule):
        """Every selector keeps to what is chosen."""
        for selector, _ in selectors(node):
            for label in ("job", "instance"):
                self.check((label, "=~", f"${label}") in selector.matchers, rule,
                           f'{selector.name} without {label}=~"${label}"')

    def windows(self, node):
        """Windows follow the time range and the scrape interval."""
        for selector, parent in selectors(node):
            if selector.window:
                allowed = {"$__rate_interval"} | ({"$__range"} if isinstance(parent, Call)
                                                  and parent.function == "increase" else set())
                self.check(selector.window in allowed, "rate-interval", f"[{selector.window}]")

    def counters(self, node):
        """Counters are only looked at through their rate, and nothing else is."""
        for selector, parent in selectors(node):
            counter = selector.name.endswith(("_total", "_bucket", "_count"))
            of_rate = isinstance(parent, Call) and parent.function in OF_COUNTERS
            self.check(of_rate or not counter, "counter", f"{selector.name} without rate()")
            unknown = selector.name == "dpdk_port_xstat"
            self.check(counter or unknown or not of_rate, "counter", f"rate of {selector.name}")
        for found, _ in walk(node):
            if isinstance(found, Call) and found.function in OF_COUNTERS:
                self.check(not any(isinstance(child, Aggregation) for child in children(found)),
                           "counter", "rate of a sum")

    def legend(self, node, legend, rule):
        """A legend names only labels that the series have."""
        there = labels(node, self.labels) or set()
        for label in re.findall(r"{{\s*(\w+)\s*}}", legend):
            self.check(label in there, rule, f"{{{{{label}}}}} is no label of the result")

    def link(self, url, columns):
        """Links lead somewhere."""
        inside = re.match(r"/d/([\w-]+)\?", url)
        for column in re.findall(r"\$\{__data\.fields\.(\w+)\}", url):
            self.check(column in columns, "link", f"no column {column} for {url}")
        if inside:
            self.check(inside.group(1) in self.uids, "link", f"no dashboard {inside.group(1)}")
            return
        page, _, anchor = url.partition("#")
        self.check(page == RUNBOOKS, "link", url)
        if anchor and "$" not in anchor:
            self.check(anchor in self.anchors, "link", f"no runbook {anchor}")


def lint(boards=None):
    """Problems of dashboards; of those in the repository by default."""
    return Linter(boards or dashboards()).lint()
