#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs every test: of C, of Rust, end to end, and of the dashboards. TEST=pattern runs those alone whose name has that
# text, and builds what they need. Lists at the end how long each step took, the slowest end-to-end tests, and what was
# skipped and why. With PMDSCOPE_NO_SKIP=programs a test that is skipped because a program is missing fails; what is
# left then are skips for the machine: its hardware, kernel and rights.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
cargo=${CARGO:-cargo}
profile=${PROFILE:-checked}
export PMDSCOPE_SKIPS=$PWD/$build/skipped-tests.txt
export PMDSCOPE_DURATIONS=$PWD/$build/test-durations.txt
steps=()

# step NAME COMMAND...: notes how long it took.
step() {
	local name=$1 begun=$SECONDS status=0
	shift
	"$@" || status=$?
	steps+=("$((SECONDS - begun)) s $name")
	return $status
}

report() {
	echo "test: steps:"
	printf '  %s\n' "${steps[@]}"
	if [ -s "$PMDSCOPE_DURATIONS" ]; then
		# Lines of a pass have the number of its tests.
		sed -n 's/^\(.*tests\) /  of these \1 /p' "$PMDSCOPE_DURATIONS"
		echo "test: the slowest end-to-end tests:"
		sort -rn "$PMDSCOPE_DURATIONS" | grep -v ' tests ' | sed -n '1,10s/^/  /p'
	fi
	if [ -s "$PMDSCOPE_SKIPS" ]; then
		echo "test: skipped $(wc -l <"$PMDSCOPE_SKIPS"):"
		sed 's/^SKIP /  /' "$PMDSCOPE_SKIPS"
	else
		echo "test: nothing was skipped"
	fi
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

# test_c ARGUMENT...: arguments of meson test.
test_c() {
	local status=0
	meson test -C "$build" --print-errorlogs "$@" || status=$?
	note_skips_of_meson
	return $status
}

# Targets of cargo that have a test with $1 in its name, as options.
targets_of() {
	git grep -lE "(fn |\")[a-z0-9_]*$1[a-z0-9_]*[(\"]" -- '*.rs' |
		sed -E 's,^.*src/.*,--lib\n--bins,; s,^(.*/)?tests/([a-z_]+)(/.*|\.rs)$,--test=\2,; s,^[^-].*,--lib\n--bins,' |
			sort -u
}

# Only tests whose name has $1. All packages each time: for a part of them, dependencies are compiled again with the
# features of that part.
test_some() {
	local names targets
	mapfile -t names < <(meson test -C "$build" --list 2>/dev/null | sed 's/^.* \/ //' | grep -F -- "$1" || true)
	[ ${#names[@]} -eq 0 ] || step "tests of C" test_c "${names[@]}"
	mapfile -t targets < <(targets_of "$1")
	if [[ " ${targets[*]} " = *" --test=end_to_end "* ]]; then
		step "programs for end-to-end tests" ninja -C "$build"
		targets+=(--bins)
	fi
	[ ${#targets[@]} -eq 0 ] ||
		step "tests of Rust" "$cargo" test --locked --workspace "${targets[@]}" --profile "$profile" -- "$1"
}

mkdir -p "$build"
: >"$PMDSCOPE_SKIPS"
: >"$PMDSCOPE_DURATIONS"
trap report EXIT
if [ -n "${TEST:-}" ]; then
	[ -e "$build/build.ninja" ] || meson setup "$build"
	test_some "$TEST"
	exit
fi
# Four tests at once, each with two apps of 128 MiB, and as much again that must be free.
devtools/hugepages.sh reserve 1024
step "tests of C" test_c --no-rebuild
step "compilation of tests of Rust" "$cargo" test --locked --workspace --no-run --profile "$profile"
step "tests of Rust, with all end-to-end tests" "$cargo" test --locked --workspace --profile "$profile"
step "tests of dashboards" dashboards/tests/run.sh
