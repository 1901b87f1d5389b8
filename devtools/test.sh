#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs every test: of C, of Rust, end to end, and of the dashboards. Lists at the end the slowest end-to-end
# tests, and what was skipped and why. With PMDSCOPE_NO_SKIP=programs a test that is skipped because a program is missing fails; what is
# left then are skips for the machine: its hardware, kernel and rights.
set -eu
cd "$(dirname "$0")/.."

build=${BUILD:-build}
cargo=${CARGO:-cargo}
PMDSCOPE_SKIPS=$PWD/$build/skipped-tests.txt
export PMDSCOPE_SKIPS
: >"$PMDSCOPE_SKIPS"
PMDSCOPE_DURATIONS=$PWD/$build/test-durations.txt
export PMDSCOPE_DURATIONS
: >"$PMDSCOPE_DURATIONS"

list_skips() {
	if [ -s "$PMDSCOPE_SKIPS" ]; then
		echo "test: skipped $(wc -l <"$PMDSCOPE_SKIPS"):"
		sed 's/^SKIP /  /' "$PMDSCOPE_SKIPS"
	else
		echo "test: nothing was skipped"
	fi
}
trap list_skips EXIT

list_slowest() {
	awk '{ sum += $1 } END { printf "test: %d end-to-end tests, %.0f s in all; the slowest:\n", NR, sum }' \
		"$PMDSCOPE_DURATIONS"
	sort -rn "$PMDSCOPE_DURATIONS" | sed -n '1,10s/^/  /p'
}

# Meson does not show the output of a skipped test.
note_skips_of_meson() {
	python3 - "$build/meson-logs/testlog.json" >>"$PMDSCOPE_SKIPS" <<-'END'
		import json, sys
		for line in open(sys.argv[1]):
		    test = json.loads(line)
		    if test["result"] == "SKIP":
		        said = (test.get("stdout") or "").strip().splitlines() or ["no reason given"]
		        print(f"SKIP {test['name']}: {said[-1]}")
	END
}

status=0
meson test -C "$build" --no-rebuild --print-errorlogs || status=$?
note_skips_of_meson
[ "$status" -eq 0 ] || exit "$status"
# In one run: for a part of the packages, dependencies are compiled again with the features of that
# part.
# shellcheck disable=SC2086 # several options
"$cargo" test --locked --workspace ${CARGO_FLAGS:-}
list_slowest
dashboards/tests/run.sh
