#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# nics.sh PMDSCOPE MODEL...: two NICs of each model, wired to each other, in this order from 0000:00:10.0. A stock app
# receives, loses packets because it stops to poll, and pmdscope must say so, whatever the driver counts.
# shellcheck source=integration/lab/jobs/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pmdscope=$1
shift
testpmd_args=(-i --total-num-mbufs=4096 --rxd=512 --txd=512 --nb-cores=1)

# check NAME LINT...: of the app that has this name, until it finds all of them.
check() {
	local name=$1 lint
	shift
	"$pmdscope" check --json -a "$name" --for 2 >"/run/out/$name.json" 2>"/run/out/$name.err"
	for lint in "$@"; do
		finds "/run/out/$name.json" "$lint" || return
	done
}

# found NAME LINT...: a check for each, with its text.
found() {
	local name=$1 lint
	expect "check finds ${*:2}" await check "$@"
	shift
	for lint in "$@"; do
		finds "/run/out/$name.json" "$lint" && note "$lint: $found"
	done
}

# calm NAME: the app is polled and loses nothing: no critical finding.
calm() {
	check "$1"
	expect "check has no critical finding while it is polled" no_critical "$1"
}
no_critical() {
	! findings "/run/out/$1.json" | grep ' critical '
}

# model MODEL NUMBER: the NICs are number NUMBER and the next.
model() {
	local model=${1%%,*} nic peer received missed
	printf -v nic '0000:00:%02x.0' $((16 + $2))
	printf -v peer '0000:00:%02x.0' $((17 + $2))
	note "$model: $nic receives"
	bind vfio-pci "$nic" "$peer"
	testpmd "$model" -l 0,1 -m 64 -a "$nic" -- "${testpmd_args[@]}" --forward-mode=rxonly
	tell "$model" start
	must "$model: it has no port" await has_port "$model"
	app "$model-sender" pmdscope-generator -l 0 -m 64 -a "$peer" -- --rate 5000 --size 66 --descriptors 512
	must "$model: nothing is received" await received_more "$model" 1000
	calm "$model"

	tell "$model" stop
	case $model in
	vmxnet3) found "$model" no_polling rx_missed ;;
	# They drop silently.
	e1000 | e1000e | igb) found "$model" no_polling ;;
	# It drops nothing: the sender can no longer send.
	virtio-net-pci) found "$model-sender" tx_stuck ;;
	esac
	read -r received missed < <(telemetry "$model" ipackets imissed)
	note "received $received, missed $missed"
	quit "$model-sender"
	tell "$model" quit
	wait "${pids[$model]}"
}

modprobe vfio_iommu_type1
modprobe vfio-pci
number=0
for model in "$@"; do
	model "$model" $number
	number=$((number + 2))
done
end_job
