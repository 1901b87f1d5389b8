#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Tests dashboards, rules and alerts without a running server. lint.py has the rules of Grafana's
# dashboard-linter; where DASHBOARD_LINTER names that program, it is asked as well.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dashboards=$(dirname "$here")
unpacked=$dashboards/../build/tools/prometheus/usr/bin/promtool
promtool=${PROMTOOL:-$([ -x "$unpacked" ] && echo "$unpacked" || command -v promtool || true)}
[ -n "$promtool" ] || {
	echo "dashboards: no promtool: run devtools/prometheus.sh, or install prometheus" >&2
	exit 1
}

cd "$here"
PROMTOOL=$promtool python3 -B -m unittest
for config in "$dashboards"/prometheus/prometheus*.yml; do
	"$promtool" check config "$config" >/dev/null
done
"$promtool" check config --agent "$dashboards/prometheus/agent.yml" >/dev/null
"$promtool" check rules --lint=all --lint-fatal "$dashboards"/prometheus/rules/*.yml >/dev/null
"$promtool" test rules "$dashboards"/prometheus/tests/*.yml
expressions=$(python3 -B syntax.py)
printf '%s\n' "$expressions" | "$promtool" check rules --lint=none /dev/stdin >/dev/null

[ -n "${DASHBOARD_LINTER:-}" ] || exit 0
for dashboard in "$dashboards"/grafana/json/*.json; do
	"$DASHBOARD_LINTER" lint --strict "$dashboard" >/dev/null
done
echo "dashboard-linter: no complaint"
