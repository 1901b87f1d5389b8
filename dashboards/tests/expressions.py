#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints every PromQL expression of dashboards, rules and alerts, a JSON object per line.

`variables` are the queries that fill in $job, $instance, ... in this order; $__rate_interval,
$__interval and $__range are durations that the reader chooses. An empty result is an error unless
`may_be_empty_reason` says why."""

import json
import sys

sys.dont_write_bytecode = True

from sources import dashboards, may_be_empty, panels, rules  # noqa: E402


def of_dashboards():
    """Targets of panels, and annotations."""
    reasons = may_be_empty()
    for name, dashboard in dashboards().items():
        variables = {entry["name"]: entry["query"]["query"]
                     for entry in dashboard["templating"]["list"] if entry["type"] == "query"}
        for panel in panels(dashboard):
            key = f"{name}/{panel['title']}"
            for target in panel["targets"]:
                reason = reasons.get(f"{key}/{target['refId']}") or reasons.get(key)
                yield {"source": name, "panel": panel["title"], "target": target["refId"],
                       "kind": panel["type"], "instant": target.get("instant", False),
                       "expr": target["expr"], "legend": target.get("legendFormat", ""),
                       "may_be_empty_reason": reason, "variables": variables}
        for entry in dashboard["annotations"]["list"]:
            if "expr" in entry:
                yield {"source": name, "panel": entry["name"], "target": "", "kind": "annotation",
                       "instant": False, "expr": entry["expr"], "legend": entry["titleFormat"],
                       "may_be_empty_reason": "marks what happened, and nothing need have happened",
                       "variables": variables}


def of_rules():
    """Recording rules and alerts."""
    reasons = may_be_empty()
    for rule in rules():
        kind = "alert" if "alert" in rule else "record"
        reason = reasons.get(f"{rule['file']}/{rule[kind]}")
        if kind == "alert":
            reason = "an alert is empty while there is no fault"
        yield {"source": rule["file"], "panel": rule[kind], "target": "", "kind": kind,
               "instant": True, "expr": rule["expr"], "legend": "", "may_be_empty_reason": reason,
               "variables": {}}


if __name__ == "__main__":
    for expression in [*of_dashboards(), *of_rules()]:
        print(json.dumps(expression))
