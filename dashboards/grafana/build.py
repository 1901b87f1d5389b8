#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the dashboards of json/ from the definitions in source/; with --check only compares."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "source"))
sys.dont_write_bytecode = True

import app  # noqa: E402
import captures  # noqa: E402
import fleet  # noqa: E402
import lcores  # noqa: E402
import pools  # noqa: E402

DASHBOARDS = {"fleet": fleet, "app": app, "pools": pools, "lcores": lcores, "captures": captures}


def texts():
    """Name of each dashboard, and its JSON."""
    for name, module in DASHBOARDS.items():
        yield name, json.dumps(module.DASHBOARD, indent=2, ensure_ascii=False) + "\n"


def main(arguments):
    """Writes, or reports what differs."""
    if arguments not in ([], ["--check"]):
        print("usage: build.py [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, text in texts():
        path = HERE / "json" / f"{name}.json"
        if not arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
    for path in stale:
        print(f"{path} is not what build.py writes: run dashboards/grafana/build.py",
              file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
