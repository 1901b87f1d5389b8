#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause soak.sh PIPELINE PMDSCOPE SECONDS: traffic without leaks
# for this time, steady, bursty and idle for a third each, with clones, chains, drops and a stage
# that holds. Every reported leak is false.
set -eu

pipeline=$1
pmdscope=$2
share=$(($3 / 3))
prefix=pmdscope-soak-$$
scratch=$(mktemp -d)
app=

finish() {
	[ -z "$app" ] || kill "$app" 2>/dev/null || true
	wait
	rm -rf "$scratch" "/var/run/dpdk/$prefix"
}
trap finish EXIT
trap 'exit 1' INT TERM

memory="-m 128"
[ "$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages 2>/dev/null || echo 0)" -ge 64 ] ||
	memory="--no-huge -m 256"

# soak PATTERN: fails if a leak is reported, or if mbufs are missing from the pools at the end.
soak() {
	echo "soak: $1 traffic for $share s"
	# Unquoted: two words.
	"$pipeline" -l 0 $memory --no-pci --file-prefix "$prefix" --log-level lib.*:error \
		--vdev net_null0 -- --quiet --stamp-packets --rate 2M --mix --hold 300 \
		--pattern "$1" --leak-mode always --duration "$share" \
		--json "$scratch/truth.json" >"$scratch/out" 2>"$scratch/errors" &
	app=$!
	# Uses the clock: queries take time too, and the app ends on its own.
	end=$(($(date +%s) + share - 5))
	sleep 3
	while left=$((end - $(date +%s))) && [ "$left" -gt 0 ]; do
		"$pmdscope" leaks -a "$prefix" >"$scratch/leaks" 2>&1 || {
			cat "$scratch/leaks" "$scratch/errors"
			echo "soak: FAILED: pmdscope leaks with $left s of $1 traffic to go"
			exit 1
		}
		sleep "$((left < 10 ? left : 10))"
	done
	wait "$app" || {
		cat "$scratch/errors"
		echo "soak: FAILED: the pipeline did not end well"
		exit 1
	}
	app=
	tail -n 1 "$scratch/out"
	if grep -Eq '"(lost|in_use_end)":[1-9]' "$scratch/truth.json"; then
		cat "$scratch/truth.json"
		echo "soak: FAILED: a pool is not complete at the end"
		exit 1
	fi
}

soak steady
soak bursty
soak idle:60
echo "soak: no leak found in $((share * 3)) s"
