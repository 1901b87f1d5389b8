#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fuzz.sh SECONDS: runs each libFuzzer target of lib/fuzz for so long, under AddressSanitizer and UBSan.
# What it finds worth keeping stays in build-fuzz/corpus for the next run.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
build=build-fuzz
[ -f "$build/build.ninja" ] ||
	CC=clang meson setup "$build" -Dfuzz=true -Db_lundef=false
for target in request filter; do
	corpus=$build/corpus/$target
	mkdir -p "$corpus"
	ninja -C "$build" "lib/fuzz/fuzz-$target"
	echo "fuzz: $target for $seconds s"
	"$build/lib/fuzz/fuzz-$target" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$build/found-$target-" "$corpus" >"$build/$target.log" 2>&1 || {
		tail -n 60 "$build/$target.log" >&2
		exit 1
	}
	sed -n 's/^stat::\(number_of_executed_units\|new_units_added\): */fuzz:   \1 /p' \
		"$build/$target.log"
done
