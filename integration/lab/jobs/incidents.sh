#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# incidents.sh PMDSCOPE: NICs that were not bound, a stalled poll loop, and a helper beside uio_pci_generic,
# each as it happens to a real PCI device, and what pmdscope reports about it.
# shellcheck source=integration/lab/jobs/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pmdscope=$1
nic=0000:00:10.0
peer=0000:00:11.0
# Two NICs with 512 descriptors need less than 4096 mbufs.
testpmd_args=(-i --total-num-mbufs=4096 --rxd=512 --txd=512 --nb-cores=1)

# doctor NAME TEXT CHECK STATUS [ARGUMENT...]: one of its checks of the NIC must have this status.
doctor() {
	local name=$1 text=$2 check=$3 status=$4
	shift 4
	if ! "$pmdscope" doctor --help >/dev/null 2>&1; then
		skip "$text: this pmdscope has no doctor"
		return
	fi
	"$pmdscope" doctor --json "$@" >"/run/out/doctor-$name.json" 2>"/run/out/doctor-$name.err"
	expect "$text" doctor_says "/run/out/doctor-$name.json" "$check" "$status" $nic
}
doctor_says() {
	python3 - "$@" <<-'END'
		import json, sys
		path, check, status, device = sys.argv[1:]
		results = [r for r in json.load(open(path))["results"] if r["check"] == check and device in r["found"]]
		print(*results, sep="\n")
		sys.exit(not any(result["status"] == status for result in results))
	END
}

# check NAME ARGUMENT...: runs it as JSON; `status` is its exit status.
check() {
	must "check $1: the app does not answer" await check_live "$@"
}
# In a slow guest an app may not answer in time, and then nothing else is reported about it.
check_live() {
	local name=$1
	shift
	"$pmdscope" check --json "$@" >"/run/out/$name.json" 2>"/run/out/$name.err"
	status=$?
	grep -q '"state": *"live"' "/run/out/$name.json"
}

# capture NAME ARGUMENT...: runs it for two minutes at most; `status` is its exit status.
capture() {
	must "capture $1: the app does not answer" await capture_answered "$@"
}
capture_answered() {
	local name=$1
	shift
	timeout 120 "$pmdscope" capture "$@" >"/run/out/$name.txt" 2>"/run/out/$name.err"
	status=$?
	! grep -q 'does not answer in time' "/run/out/$name.err"
}

forgotten_binding() {
	modprobe vmxnet3
	expect "the NIC is on its kernel driver, as after an update of the kernel" \
		[ "$(driver_of $nic)" = vmxnet3 ]
	testpmd fwd -l 0,1 -m 64 -a $nic -- "${testpmd_args[@]}"
	expect "the app has started, without any port" has_no_port fwd

	"$pmdscope" export --listen 127.0.0.1:9177 >/run/out/export.txt 2>&1 &
	pids[export]=$!
	check unbound -a fwd
	expect "check exits with 1" [ $status -eq 1 ]
	expect "check finds no_ports" finds /run/out/unbound.json no_ports
	note "$found"
	expect "check finds wrong_driver" finds /run/out/unbound.json wrong_driver
	note "$found"
	# Before its first sample of the app it has other reasons.
	expect "/ready names no_ports" await ready_names no_ports
	expect "/ready answers 503" [ "$http_status" = 503 ]

	doctor unbound "doctor fails nic_driver" nic_driver fail
	tell fwd quit
	wait "${pids[fwd]}"
}

bound_again() {
	modprobe vfio_iommu_type1
	modprobe vfio-pci
	bind vfio-pci $nic $peer
	expect "the NICs are bound to vfio-pci" [ "$(driver_of $nic) $(driver_of $peer)" = "vfio-pci vfio-pci" ]
	testpmd fwd -l 0,1 -m 64 -a $nic -- "${testpmd_args[@]}" --forward-mode=rxonly
	tell fwd start
	must "the restarted app has no port" await has_port fwd
	ok "the restarted app has its port"
	check bound -a fwd
	findings /run/out/bound.json
	expect "check no longer finds no_ports and wrong_driver" not_unbound
	doctor bound "doctor passes nic_driver" nic_driver pass --save /run/good.json
	expect "/ready answers 200" await is_ready
	quit export
}
not_unbound() { ! finds /run/out/bound.json no_ports && ! finds /run/out/bound.json wrong_driver; }
ready_names() { http_get /ready && grep -q "\"$1\"" <<<"$http_body"; }
is_ready() { http_get /ready && [ "$http_status" = 200 ]; }

# generate NAME COUNT RATE: sends so many packets to the NIC.
generate() {
	app "$1" pmdscope-generator -l 0 -m 64 -a $peer -- --count "$2" --rate "$3" --size 66 \
		--descriptors 512 --json "/run/out/$1.json"
	# It exits with 1 when packets do not come back, which does not matter here.
	wait "${pids[$1]}"
	sent=$(summary "$1" sent)
	[ "${sent:-0}" -eq "$2" ] || fail "$1: sent '$sent' of $2 packets: $(tail -n 1 "/run/out/$1.txt")"
}

helper_on_vfio() {
	generate generator-vfio 40000 5000 &
	local generator=$!
	capture capture-vfio -i fwd:0 -c 5 -nn
	expect "on vfio-pci, capture shows packets of the app" [ "$(grep -c ' > ' /run/out/capture-vfio.txt)" = 5 ]
	[ $status -eq 0 ] || fail "capture exits with $status: $(tail -n 1 /run/out/capture-vfio.err)"
	wait $generator
	received=$(telemetry fwd ipackets)
	generate generator-after 1000 5000
	expect "the NIC receives on after the capture ($received packets before)" received_more fwd "$received"
	tell fwd stop
	tell fwd quit
	wait "${pids[fwd]}"
}

finds_missed_and_stall() {
	check stalled -a reflector --for 3
	finds /run/out/stalled.json rx_missed && finds /run/out/stalled.json stall || return
	causes=$(causes /run/out/stalled.json rx_missed)
	[ -z "$causes" ] || [[ $causes = *stalled_lcore* ]]
}

stalled_loop() {
	local lint
	app reflector pmdscope-reflector -l 1 -m 64 -a $nic -- --descriptors 512 --inject-stall 300000/1000
	must "the reflector has no port" await has_port reflector
	app generator pmdscope-generator -l 0 -m 64 -a $peer -- --rate 10000 --size 66 --descriptors 512 \
		--json /run/out/generator.json
	must "the reflector receives nothing" await received_more reflector 0
	expect "check finds rx_missed and stall" await finds_missed_and_stall
	expect "check exits with 1" [ $status -eq 1 ]
	if [ -n "$causes" ]; then
		expect "rx_missed names the stalled lcore: $causes" [ "${causes#*stalled_lcore}" != "$causes" ]
	else
		skip "causes of rx_missed: this pmdscope tells none"
	fi
	for lint in rx_missed stall; do
		finds /run/out/stalled.json $lint && note "$lint: $found"
	done
	quit generator
	sent=$(summary generator sent)
	# The last packets may still be in the ring.
	await all_accounted_for
	expect "packets were missed: $missed of $sent" [ "$missed" -gt 0 ]
	expect "none is unaccounted for: sent $sent = received $received + missed $missed" \
		[ "$sent" -eq $((received + missed)) ]
	quit reflector
}
all_accounted_for() {
	read -r received missed < <(telemetry reflector ipackets imissed)
	[ "$sent" -eq $((received + missed)) ]
}

helper_on_uio() {
	modprobe uio_pci_generic
	bind uio_pci_generic $nic $peer
	expect "the NICs are bound to uio_pci_generic" [ "$(driver_of $nic)" = uio_pci_generic ]
	testpmd uio -l 0,1 -m 64 -a $nic -- "${testpmd_args[@]}" --forward-mode=rxonly
	tell uio start
	doctor changed "doctor --compare sees that the driver has changed" changed_driver fail \
		--compare /run/good.json
	generate generator-uio 2000 5000
	expect "the app receives" received_more uio 0

	capture capture-uio -i uio:0 -c 1
	expect "capture refuses (exit status $status)" [ $status -eq 1 ]
	expect "capture names the reason" grep -q "uses $nic through uio_pci_generic" /run/out/capture-uio.err
	note "$(tail -n 1 /run/out/capture-uio.err)"
	received=$(telemetry uio ipackets)
	generate generator-uio-after 2000 5000
	expect "the NIC receives on after the refusal ($received packets before)" received_more uio "$received"
}

# Why capture refuses.
secondary_on_uio() {
	timeout 60 dpdk-proc-info -a $nic --file-prefix uio -- --stats >/run/out/proc-info.txt 2>&1
	expect "a secondary process that opened the device has taken bus mastering from it" \
		[ $(($(od -An -j 4 -N 1 -t u1 /sys/bus/pci/devices/$nic/config) & 4)) -eq 0 ]
	received=$(telemetry uio ipackets)
	generate generator-uio-dead 2000 5000
	expect "the app no longer receives" [ "$(telemetry uio ipackets)" = "$received" ]
}

echo "guest has started after $(cut -d ' ' -f 1 /proc/uptime) s"
forgotten_binding
bound_again
helper_on_vfio
stalled_loop
helper_on_uio
secondary_on_uio
end_job
