# SPDX-License-Identifier: BSD-3-Clause
"""What the tests read: dashboards, rules, the catalogue of metrics, and what may be empty."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "dashboards"
RULES = DASHBOARDS / "prometheus" / "rules"
OF_TARGETS = {"job", "instance"}
OF_ALERTS = OF_TARGETS | {"alertname", "alertstate", "severity", "app", "port", "pool", "lcore"}


def dashboards():
    """Name and JSON of every dashboard."""
    paths = sorted((DASHBOARDS / "grafana" / "json").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def panels(dashboard):
    """Panels of a dashboard, also those in rows, but not the rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panels(panel)
        else:
            yield panel


def rules():
    """Every rule as a dict of its keys as written; those of labels and annotations lie flat in it.

    Reads the subset of YAML that the files are written in: one key per line, `>-` for what is
    longer. promtool has the last word on whether they are valid."""
    made = []
    for path in sorted(RULES.glob("*.yml")):
        folded = None
        for line in path.read_text().splitlines():
            text = line.strip()
            depth = len(line) - len(line.lstrip())
            if folded and text and depth > folded[1]:
                made[-1][folded[0]] = f"{made[-1][folded[0]]} {text}".strip()
                continue
            folded = None
            found = re.fullmatch(r"(- )?(\w+):(?: (.*))?", text)
            if not found or depth < 6:
                continue
            start, key, value = found.groups()
            if start:
                made.append({"file": path.name})
            value = value or ""
            if value in (">-", ">", "|"):
                folded = (key, depth)
                value = ""
            made[-1][key] = value.strip("'\"") if value[:1] in ("'", '"') else value
    return made


def catalogue():
    """Labels of every metric that the exporter has, by the name of the series."""
    made = {}
    entry = re.compile(r'=\s+(\w+)\s+"(dpdk_\w+)"\s*\[([^\]]*)\]')
    for path in (ROOT / "export" / "src" / "catalogue").glob("*.rs"):
        for kind, name, listed in entry.findall(path.read_text()):
            labels = set(re.findall(r'"(\w+)"', listed)) | OF_TARGETS
            if kind == "Histogram":
                made |= {f"{name}_bucket": labels | {"le"}, f"{name}_count": labels}
            else:
                made[name] = labels
    return made


def known_labels():
    """As `catalogue()`, with what Prometheus adds and what the rules record."""
    from promql import labels, parse
    known = catalogue() | {"up": OF_TARGETS, "ALERTS": OF_ALERTS}
    for rule in rules():
        if "record" in rule:
            known[rule["record"]] = labels(parse(rule["expr"]), known.__getitem__)
    return known


def may_be_empty():
    """Reason why a panel (or `panel/B`, one target of it) may show nothing while all is well."""
    made = {}
    for line in (DASHBOARDS / "tests" / "healthy_empty.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(": ")
            made[name] = reason
    return made
