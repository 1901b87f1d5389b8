#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Tests dashboards, rules and alerts without a running server. DASHBOARD_LINTER names
# Grafana's dashboard-linter; without it, one on the PATH is used.
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
"$promtool" check rules --lint=all --lint-fatal "$dashboards"/prometheus/rules/*.yml >/dev/null
"$promtool" test rules "$dashboards"/prometheus/tests/*.yml
expressions=$(python3 -B syntax.py)
printf '%s\n' "$expressions" | "$promtool" check rules --lint=none /dev/stdin >/dev/null

official=${DASHBOARD_LINTER:-$(command -v dashboard-linter || true)}
if [ -z "$official" ]; then
	echo "SKIP: Grafana's dashboard-linter is not on the PATH; its rules were checked by lint.py"
	exit 0
fi
for dashboard in "$dashboards"/grafana/json/*.json; do
	"$official" lint --strict "$dashboard" >/dev/null
done
echo "dashboard-linter: no complaint"
