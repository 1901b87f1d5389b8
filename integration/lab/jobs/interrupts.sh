#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# interrupts.sh METHOD PMDSCOPE: whether `pmdscope interrupts` reports what took a poll core that is isolated, and
# nothing else: first nothing does, then the tick, then interrupts of NICs. The kernel counts as well. METHOD is
# bpf, or proc: without bpftrace, which takes half a minute to compile in an emulated CPU.
# shellcheck source=integration/lab/jobs/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

method=$1
pmdscope=$2
compare=$(dirname "${BASH_SOURCE[0]}")/interrupts.py
nic=0000:00:10.0
# An e1000, which has a line, and a vmxnet3, which has MSI-X.
other_nics=(0000:00:12.0 0000:00:13.0)
report=/run/out/interrupts.json
now_ns() { date +%s%N; }

reports() { [ "$(python3 "$compare" documents $report)" -ge "$1" ]; }
# Two more, of which one began after now.
two_reports() {
	local before
	before=$(python3 "$compare" documents $report)
	must "interrupts: $(tail -n 1 /run/out/interrupts.err)" await reports $((before + 2))
}

# A limit of CPU time makes the kernel check it at each tick, which `nohz_full` does without otherwise.
start_ticks() {
	python3 - "${pids[reflector]}" <<-'END'
		import resource, sys
		resource.prlimit(int(sys.argv[1]), resource.RLIMIT_CPU, (10**6, resource.RLIM_INFINITY))
	END
}

# Broadcasts, which the kernel drivers send and receive by interrupts on CPU 1.
start_nics() {
	local device sender irq
	for device in "${other_nics[@]}"; do
		ip link set "$(interface_of "$device")" up
	done
	sender=$(interface_of "${other_nics[0]}")
	ip addr add 10.9.0.1/24 broadcast 10.9.0.255 dev "$sender"
	python3 "$compare" irqs "${other_nics[@]}" >/run/out/irqs
	while read -r irq device _; do
		echo 1 >"/proc/irq/$irq/smp_affinity_list"
	done </run/out/irqs
	python3 - <<-'END' &
		import socket, time
		sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
		while True:
		    sender.sendto(b"interrupt", ("10.9.0.255", 9))
		    time.sleep(0.02)
	END
}

echo "guest has started after $(cut -d ' ' -f 1 /proc/uptime) s"
modprobe vmxnet3
modprobe e1000
modprobe vfio_iommu_type1
modprobe vfio-pci
bind vfio-pci $nic
app reflector pmdscope-reflector -l 1 -m 64 -a $nic -- --descriptors 512
must "the reflector has no port" await has_port reflector
python3 "$compare" sample 1 "${pids[reflector]}" >/run/out/samples &
sampler=$!
# bpftrace may compile for minutes on a busy host.
patience=400
options=(-i 4)
[ "$method" = bpf ] || options=(-i 2 --no-bpf)
"$pmdscope" interrupts -a reflector --json --for 1h "${options[@]}" >$report 2>/run/out/interrupts.err &
tracer=$!
# Around the first one, bpftrace has sent interrupts to attach its probes.
must "interrupts: $(tail -n 1 /run/out/interrupts.err)" await reports 2
echo "quiet is reported after $(cut -d ' ' -f 1 /proc/uptime) s"
{
	echo "ticks $(now_ns)"
	start_ticks
	two_reports
	echo "nics $(now_ns)"
	start_nics
	two_reports
} >/run/out/phases
kill -TERM $tracer $sampler
wait $tracer $sampler
python3 "$compare" compare "$method" $report /run/out/samples /run/out/phases /run/out/irqs >/run/out/compared 2>&1 ||
	fail "cannot compare: $(tail -n 1 /run/out/compared)"
cat /run/out/compared >>$checks
failures=$((failures + $(grep -c '^FAIL' /run/out/compared)))
echo "ends after $(cut -d ' ' -f 1 /proc/uptime) s"
end_job
