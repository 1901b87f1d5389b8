#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# isolation.sh CPU PMDSCOPE: how many packets a poll loop on CPU 1 loses while three busy processes of higher
# priority run unpinned, and the interrupts of another NIC go to CPU. Writes the numbers to /run/out/numbers.
# What protects CPU 1 is in the arguments of the kernel.
# shellcheck source=integration/lab/jobs/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

irq_cpu=$1
pmdscope=$2
nic=0000:00:10.0
peer=0000:00:11.0
other_nics=(0000:00:12.0 0000:00:13.0)
# The ring of the poll loop survives 51 ms. A busy host takes less of a CPU at a time, most of the time.
descriptors=512
rate=10000
packets=150000

# Broadcasts from one NIC to the other, which its kernel driver receives by interrupts.
interrupts_of_another_nic() {
	local device irq
	for device in "${other_nics[@]}"; do
		ip link set "$(interface_of "$device")" up
	done
	ip addr add 10.9.0.1/24 broadcast 10.9.0.255 dev "$(interface_of "${other_nics[0]}")"
	for irq in /sys/bus/pci/devices/"${other_nics[1]}"/msi_irqs/*; do
		echo "$irq_cpu" >"/proc/irq/$(basename "$irq")/smp_affinity_list"
	done
	taskset 1 python3 - <<-'END' &
		import socket, time
		sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
		while True:
		    sender.sendto(b"interrupt", ("10.9.0.255", 9))
		    time.sleep(0.005)
	END
}

busy_processes() {
	local i
	for i in 1 2 3; do
		nice -n 10 bash -c 'while :; do :; done' &
	done
}

# On CPU 1: timer interrupts, interrupts of the other NIC, and involuntary switches of the poll thread.
interrupts_on_cpu1() {
	local name timer=0 nic_irqs=0 irq
	timer=$(awk '$1 == "LOC:" { print $3 }' /proc/interrupts)
	for irq in /sys/bus/pci/devices/"${other_nics[1]}"/msi_irqs/*; do
		name=$(basename "$irq")
		nic_irqs=$((nic_irqs + $(awk -v irq="$name:" '$1 == irq { print $3 }' /proc/interrupts)))
	done
	echo "$timer $nic_irqs $(sed -n 's/^nonvoluntary_ctxt_switches:\s*//p' "/proc/${pids[reflector]}/status")"
}

modprobe vmxnet3
modprobe vfio_iommu_type1
modprobe vfio-pci
bind vfio-pci $nic $peer
app reflector pmdscope-reflector -l 1 -m 64 -a $nic -- --descriptors $descriptors
must "the reflector has no port" await has_port reflector
# The busy processes must only affect the poll loop of the app, and not the processes that send or
# count.
renice -n -20 -p $$ >/dev/null
for thread in /proc/"${pids[reflector]}"/task/*; do
	thread=$(basename "$thread")
	[ "$thread" = "${pids[reflector]}" ] || renice -n -20 -p "$thread" >/dev/null
done
interrupts_of_another_nic
busy_processes

app generator pmdscope-generator -l 0 -m 64 -a $peer -- --count $packets --rate $rate --size 66 \
	--json /run/out/generator.json
must "the reflector receives nothing" await received_more reflector 0
read -r timer0 nic0 switches0 < <(interrupts_on_cpu1)
check_live() {
	"$pmdscope" check -a reflector --json --for 3 >/run/out/check.json 2>/run/out/check.err
	grep -q '"state": *"live"' /run/out/check.json
}
must "check: the app does not answer" await check_live
wait "${pids[generator]}"
read -r timer1 nic1 switches1 < <(interrupts_on_cpu1)
sent=$(summary generator sent)
# The last packets may still be in the ring.
all_accounted_for() {
	read -r received missed < <(telemetry reflector ipackets imissed)
	[ "$sent" -eq $((received + missed)) ]
}
must "packets are unaccounted for" await all_accounted_for
cat >/run/out/numbers <<END
sent=$sent
received=$received
missed=$missed
timer=$((timer1 - timer0))
nic=$((nic1 - nic0))
switches=$((switches1 - switches0))
END
missing_seen=0
for lint in rx_missed stall; do
	if ! finds /run/out/check.json $lint; then
		note "check does not find $lint"
		continue
	fi
	note "check finds $lint: $found"
	causes=$(causes /run/out/check.json $lint)
	[ -z "$causes" ] || note "its causes: $causes"
	[ $lint = stall ] || missing_seen=1
done
echo "missing_seen=$missing_seen" >>/run/out/numbers

# What took the poll core, as `pmdscope interrupts` traces it: events by cause.
stolen() {
	python3 - /run/out/interrupts.json "$1" <<-'END'
		import json, sys
		path, cause = sys.argv[1:]
		apps = json.load(open(path))["apps"]
		print(sum(row["count"] for app in apps for row in app["stolen"] if row["cause"] == cause))
	END
}
thieves() {
	python3 - /run/out/interrupts.json <<-'END'
		import json, sys
		rows = [row for app in json.load(open(sys.argv[1]))["apps"] for row in app["stolen"]]
		print("; ".join("{cause} {thief} ({count})".format(**row) for row in rows[:6]) or "nobody")
	END
}
untraced() { sed -n 's/.*not traced: //p' /run/out/interrupts.err | tail -n 1; }
trace() {
	timeout 150 "$pmdscope" interrupts -a reflector --json -i 5 -n 1 \
		>/run/out/interrupts.json 2>/run/out/interrupts.err
}
if ! "$pmdscope" interrupts --help >/dev/null 2>&1; then
	skip "interrupts: this pmdscope has no such command"
elif ! await trace; then
	fail "interrupts: $(tail -n 1 /run/out/interrupts.err)"
else
	expect "interrupts traces by bpftrace $(untraced)" grep -q '"method": *"bpf"' /run/out/interrupts.json
	for cause in timer irq scheduler; do
		echo "traced_$cause=$(stolen $cause)" >>/run/out/numbers
	done
	note "interrupts names: $(thieves)"
fi
end_job
