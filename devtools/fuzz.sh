#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fuzz.sh SECONDS: runs the libFuzzer targets of lib/fuzz at once for so long, under AddressSanitizer and UBSan.
# What it finds worth keeping stays in build-fuzz/corpus for the next run.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
build=build-fuzz
[ -f "$build/build.ninja" ] ||
	CC=clang meson setup "$build" -Dfuzz=true -Db_lundef=false
targets="request filter"
for target in $targets; do
	ninja -C "$build" "lib/fuzz/fuzz-$target"
done

# fuzz TARGET
fuzz() {
	corpus=$build/corpus/$1
	mkdir -p "$corpus"
	"$build/lib/fuzz/fuzz-$1" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$build/found-$1-" "$corpus" >"$build/$1.log" 2>&1
}

# Each uses one CPU.
echo "fuzz: $targets for $seconds s"
running=''
for target in $targets; do
	fuzz "$target" &
	running="$running $target:$!"
done
status=0
for process in $running; do
	target=${process%:*}
	if wait "${process#*:}"; then
		sed -n "s/^stat::\(number_of_executed_units\|new_units_added\): */fuzz:   $target \1 /p" \
			"$build/$target.log"
	else
		status=1
		tail -n 60 "$build/$target.log" >&2
	fi
done
exit "$status"
