# SPDX-License-Identifier: BSD-3-Clause
"""Prints every expression of the dashboards as a recording rule, for promtool to parse."""

import json
import re

import expressions

DURATIONS = {"$__rate_interval": "1m", "$__interval": "15s", "$__range": "1h"}


def filled(expr):
    """With some value for every variable."""
    for name, duration in DURATIONS.items():
        expr = expr.replace(name, duration)
    return re.sub(r"\$\w+", ".+", expr)


if __name__ == "__main__":
    RULES = [{"record": f"x:{number}", "expr": filled(entry["expr"])}
             for number, entry in enumerate(expressions.of_dashboards())]
    # JSON is YAML.
    print(json.dumps({"groups": [{"name": "dashboards", "rules": RULES}]}))
