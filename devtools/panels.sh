#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Puts @grafana/data, the part of Grafana that gives values their texts and colours, and what it needs, as
# dashboards/tests/panels/package-lock.json pins them with their hashes, below build/tools/panels: 45 MB to
# fetch, 125 MB unpacked. Nothing of these packages runs while they are installed. Does nothing when they are
# there already.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
wanted=$root/dashboards/tests/panels
tools=$root/build/tools
unpacked=$tools/panels

! cmp -s "$wanted/package-lock.json" "$unpacked/package-lock.json" || exit 0
command -v npm >/dev/null || {
	echo "panels.sh: no npm: run devtools/setup.sh panels" >&2
	exit 1
}

mkdir -p "$tools"
scratch=$(mktemp -d "$tools/panels.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/unpacked"
cp "$wanted/package.json" "$wanted/package-lock.json" "$scratch/unpacked"
(
	cd "$scratch/unpacked"
	npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error \
		--cache "$scratch/cache" >/dev/null || {
		echo "panels.sh: npm cannot install @grafana/data: is the network up?" >&2
		exit 1
	}
)
rm -rf "$unpacked"
mv "$scratch/unpacked" "$unpacked"
echo "panels.sh: @grafana/data in $unpacked"
