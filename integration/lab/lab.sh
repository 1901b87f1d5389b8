#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lab.sh [quick|all|JOB...]: runs jobs in guests with PCI NICs and reports the results of their checks. Exits with
# 1 if a check failed.
#
#   incidents    NICs that were not bound, a stalled poll loop, a helper beside uio_pci_generic
#   interrupts   what takes an isolated poll core: nothing, the tick, interrupts of NICs
#   counters     the same without bpftrace, which needs long in an emulated CPU
#   nics         a poll loop that stops, on each model of NIC that QEMU has
#   isolation    the same load with and without an isolated poll core
#
# quick is incidents, counters and nics; all, the default, is every job. LAB_TIMEOUT is the time limit of each guest
# in seconds. PMDSCOPE is the program to test, by default the newest build of this tree. Logs are in build/lab/out.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
out=$tree/build/lab/out
isolated="isolcpus=nohz,domain,managed_irq,1 nohz_full=1 rcu_nocbs=1 irqaffinity=0"
failed=0
running=

die() {
	echo "lab: $*" >&2
	exit 1
}

pmdscope=$tree/target/${PROFILE:-release}/pmdscope
[ ! "$tree/target/debug/pmdscope" -nt "$pmdscope" ] || pmdscope=$tree/target/debug/pmdscope
pmdscope=${PMDSCOPE:-$pmdscope}
[ -x "$pmdscope" ] || die "there is no pmdscope: run 'make build' first"
for program in integration/pmdscope-reflector integration/pmdscope-generator pdump/pmdscope-pdump; do
	[ -x "$tree/build/$program" ] || die "there is no build/$program: run 'make build' first"
done
command -v qemu-system-x86_64 >/dev/null || die "there is no QEMU: run devtools/setup.sh lab"

# A guest ends with its run-guest.sh.
trap '[ -z "$running" ] || { kill "$running" 2>/dev/null; wait "$running" || true; }' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# guest NAME JOB ARGUMENT...: runs a job; its output is build/lab/out/NAME.
guest() {
	local name=$1 status=0
	shift
	"$here/run-guest.sh" "$out/$name" "$@" &
	running=$!
	wait "$running" || status=$?
	running=
	[ "$status" -eq 0 ] || failed=1
	return "$status"
}

incidents() {
	echo "lab: $SECONDS s: incidents"
	guest incidents "$here/jobs/incidents.sh" "$pmdscope" || echo "lab: logs are in $out/incidents"
}

# stolen JOB METHOD: bpf or proc.
stolen() {
	echo "lab: $SECONDS s: $1"
	LAB_NICS="0 0 1:e1000 1" LAB_KERNEL=$isolated guest "$1" "$here/jobs/interrupts.sh" "$2" "$pmdscope" ||
		echo "lab: logs are in $out/$1"
}
interrupts() { stolen interrupts bpf; }
counters() { stolen counters proc; }

# Of each model two, on a hub of their own.
nics() {
	local models=(vmxnet3 e1000 e1000e virtio-net-pci,iommu_platform=on,disable-legacy=on) model wires=() hub=0
	echo "lab: $SECONDS s: nics"
	if qemu-system-x86_64 -device help | grep -q '^name "igb"'; then
		models+=(igb)
	else
		echo "SKIP igb: this QEMU does not have it (8.0 or later)"
	fi
	for model in "${models[@]}"; do
		wires+=("$hub:$model" "$hub:$model")
		hub=$((hub + 1))
	done
	LAB_NICS=${wires[*]} guest nics "$here/jobs/nics.sh" "$pmdscope" "${models[@]}" ||
		echo "lab: logs are in $out/nics"
}

# Each number of two runs of the job isolation.
number() {
	sed -n "s/^$2=//p" "$out/isolation-$1/numbers"
}

# "1 in N" packets.
loss() {
	awk -v received="$(number "$1" received)" -v missed="$(number "$1" missed)" 'BEGIN {
		if (missed == 0) printf "none"
		else printf "1 in %.1f", (received + missed) / missed
	}'
}

row() {
	printf '     %-48s %14s %14s\n' "$@"
}

# expect TEXT LEFT OPERATOR RIGHT: a check of two numbers.
expect() {
	if [ "$2" "$3" "$4" ]; then
		echo "ok   $1"
	else
		echo "FAIL $1 ($2 $3 $4)"
		failed=1
	fi
}

isolation() {
	local when irq_cpu name
	for when in before after; do
		echo "lab: $SECONDS s: isolation, $when"
		irq_cpu=1 kernel=""
		if [ "$when" = after ]; then
			irq_cpu=0 kernel=$isolated
		fi
		LAB_NICS="0 0 1 1" LAB_KERNEL=$kernel guest "isolation-$when" "$here/jobs/isolation.sh" \
			$irq_cpu "$pmdscope" || echo "lab: logs are in $out/isolation-$when"
		# Checks that failed there leave numbers to compare; a guest that did not end leaves none.
		[ -s "$out/isolation-$when/numbers" ] || return 0
	done
	row "" "not isolated" isolated
	row "packets sent" "$(number before sent)" "$(number after sent)"
	row "missed by the NIC" "$(number before missed)" "$(number after missed)"
	row "lost" "$(loss before)" "$(loss after)"
	row "timer interrupts on the poll core" "$(number before timer)" "$(number after timer)"
	row "interrupts of another NIC on it" "$(number before nic)" "$(number after nic)"
	row "involuntary switches of the poll thread" "$(number before switches)" "$(number after switches)"
	# Ratios of counters only: how much a busy host adds to both of them is not known.
	for name in timer nic switches; do
		expect "$name: at least ten times as many without isolation" \
			"$(number before $name)" -ge $((10 * ($(number after $name) + 1)))
	done
	expect "missed: more than twice as many without isolation" \
		"$(number before missed)" -gt $((2 * $(number after missed)))
	if [ -n "$(number before traced_timer)" ]; then
		for name in timer scheduler; do
			row "events traced by pmdscope interrupts: $name" "$(number before traced_$name)" \
				"$(number after traced_$name)"
			expect "interrupts traces $name: at least ten times as many without isolation" \
				"$(number before traced_$name)" -ge $((10 * ($(number after traced_$name) + 1)))
		done
	fi
	expect "check finds rx_missed without isolation" "$(number before missing_seen)" -eq 1
}

case "${1:-all}" in
quick) jobs=(incidents counters nics) ;;
all) jobs=(incidents counters nics interrupts isolation) ;;
*) jobs=("$@") ;;
esac
for job in "${jobs[@]}"; do
	case $job in
	incidents | counters | nics | interrupts | isolation) "$job" ;;
	*)
		echo "usage: $0 [quick|all|incidents|counters|nics|interrupts|isolation]..." >&2
		exit 2
		;;
	esac
done
if [ "$failed" -eq 0 ]; then result=passed; else result=failed; fi
echo "lab: $result after $SECONDS s"
exit "$failed"
