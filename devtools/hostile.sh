#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Attacks what docs/security.md promises, with the tests that it names, in random order for HOSTILE_SECONDS (default: 600).
# Prints each test that failed with its output, at the end how often each ran, and fails if one failed or is not found.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
cargo=${CARGO:-cargo}
profile=${PROFILE:-checked}
seconds=${HOSTILE_SECONDS:-600}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

mapfile -t promised < <(sed -n 's/^| [A-Z].* | \(`.*\) |$/\1/p' docs/security.md | grep -o '`[^`]*`' | tr -d '`' | sort -u)

# How to run a test, by its name.
declare -A commands
while read -r name; do
	commands[$name]="meson test -C $build --no-rebuild --print-errorlogs $name"
done < <(meson test -C "$build" --list 2>/dev/null | sed 's/^.* \/ //')

# Programs that cargo has made of tests, each with the folder of its package.
programs() {
	"$cargo" test --locked --workspace --profile "$profile" --no-run --message-format=json | python3 -c '
import json, os, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable") and message["profile"]["test"]:
        print(os.path.dirname(message["manifest_path"]), message["executable"], sep="\t")'
}

while IFS=$'\t' read -r folder program; do
	while read -r name; do
		[ -n "${commands[$name]:-}" ] || commands[$name]="cd $folder && $program --exact $name"
	done < <(cd "$folder" && "$program" --list 2>/dev/null | sed -n 's/: test$//p')
done < <(programs)

tests=()
missing=0
for name in "${promised[@]}"; do
	# Unit tests may be named without their module.
	for full in "$name" $(printf '%s\n' "${!commands[@]}" | grep -E "::$name\$" || true); do
		[ -z "${commands[$full]:-}" ] || tests+=("$full")
	done
	printf '%s\n' "${tests[@]}" | grep -qE "(^|::)$name\$" || {
		echo "hostile: docs/security.md names $name, and there is no such test"
		missing=1
	}
done
[ $missing -eq 0 ] || exit 1

declare -A rounds failures
ran=0
failed=0
while [ $SECONDS -lt "$seconds" ]; do
	for name in $(shuf -e "${tests[@]}"); do
		[ $SECONDS -lt "$seconds" ] || break
		ran=$((ran + 1))
		rounds[$name]=$((${rounds[$name]:-0} + 1))
		(eval "${commands[$name]}") >"$log" 2>&1 || {
			failed=$((failed + 1))
			failures[$name]=$((${failures[$name]:-0} + 1))
			echo "hostile: round $ran, $name failed:"
			tail -n 40 "$log"
		}
	done
	echo "hostile: $ran rounds in $SECONDS s, $failed failed"
done
for name in "${tests[@]}"; do
	echo "  ${rounds[$name]:-0} rounds, ${failures[$name]:-0} failed: $name"
done
[ $failed -eq 0 ]
