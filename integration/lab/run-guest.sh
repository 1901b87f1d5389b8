#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run-guest.sh OUT JOB [ARGUMENT...]: boots a guest that runs a bash script of this checkout, and exits with
# its exit status, or with 99 if it did not end. The guest may write to OUT only, as /run/out; what the job
# writes to /run/out/checks is printed while it runs.
#
#   LAB_NICS="0 0"    NICs, by the number of the hub to which each is wired: 0000:00:10.0, 11.0, ...
#                     vmxnet3; "1:e1000" is of another model
#   LAB_CPUS=2        CPUs of the guest
#   LAB_MEMORY=1024   its memory in MiB, LAB_PAGES=160 of 2 MiB of which are hugepages
#   LAB_KERNEL=""     more arguments for its kernel
#   LAB_TIMEOUT=600   seconds after which it is ended
#   LAB_ACCEL=tcg     or kvm; default: kvm where the CPU has it, else tcg, which is emulation
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
guest=$(cd "$here/../.." && pwd)/build/lab/guest
if [ $# -lt 2 ]; then
	echo "usage: $0 OUT JOB [ARGUMENT...]" >&2
	exit 2
fi
out=$1
job=$(realpath "$2")
shift 2
[ -s "$guest/initrd.gz" ] || {
	echo "run-guest.sh: there is no guest yet: run devtools/setup.sh lab" >&2
	exit 1
}

# A /dev/kvm alone does not mean that it runs an ordinary kernel: nested ones may not.
accel=${LAB_ACCEL:-}
if [ -z "$accel" ]; then
	accel=tcg
	if [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then
		accel=kvm
	fi
fi
case $accel in
kvm) machine=(-machine q35,kernel-irqchip=split -accel kvm -cpu host) ;;
*) machine=(-machine q35 -accel tcg,thread=multi,tb-size=256 -cpu max) ;;
esac

rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")
: >"$out/checks"
printf 'exec bash' >"$out/start"
printf ' %q' "$job" "$@" >>"$out/start"

nics=()
number=0
for nic in ${LAB_NICS:-0 0}; do
	printf -v at '%02x' $((16 + number))
	model=vmxnet3
	[ "$nic" = "${nic%:*}" ] || model=${nic#*:}
	nics+=(-netdev "hubport,id=nic$number,hubid=${nic%:*}"
		-device "$model,netdev=nic$number,mac=52:54:00:00:00:$at,addr=0x$at,romfile=")
	number=$((number + 1))
done
# vfio-pci needs an IOMMU. Passthrough: uio_pci_generic works beside it. On a busy host the emulated timers are
# too late for the checks of the kernel, which would panic or choose another clock.
kernel="console=ttyS0 loglevel=4 panic=-1 mitigations=off intel_iommu=on iommu=pt no_timer_check tsc=reliable
	hugepages=${LAB_PAGES:-160} ${LAB_KERNEL:-}"
qemu=(qemu-system-x86_64 "${machine[@]}" -smp "${LAB_CPUS:-2}" -m "${LAB_MEMORY:-1024}"
	-nodefaults -no-user-config -display none -no-reboot -monitor none -serial "file:$out/console"
	-kernel "$guest/vmlinuz" -initrd "$guest/initrd.gz" -append "${kernel//[$'\n\t']/ }"
	-device intel-iommu,caching-mode=on,aw-bits=48
	-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap
	-device virtio-9p-pci,fsdev=host,mount_tag=host
	-fsdev "local,id=out,path=$out,security_model=none"
	-device virtio-9p-pci,fsdev=out,mount_tag=out
	"${nics[@]}")

# However this script ends, the guest ends as well: by the trap, or with its parent.
setpriv --pdeathsig TERM timeout --kill-after 5 "${LAB_TIMEOUT:-600}" \
	setpriv --pdeathsig KILL "${qemu[@]}" >"$out/qemu" 2>&1 &
running=$!
trap 'kill $running 2>/dev/null; wait $running || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# It ends with the guest, after a last read.
tail --pid=$running --sleep-interval=0.3 -n +1 -f "$out/checks" &
wait $running || true
wait
trap - EXIT

if [ -s "$out/status" ]; then
	exit "$(cat "$out/status")"
fi
{
	echo "run-guest.sh: the guest did not end by itself within ${LAB_TIMEOUT:-600} s (LAB_TIMEOUT)"
	echo "or did not boot. The last lines of QEMU, of the guest's console, and of the job ($out/log):"
	tail -n 5 "$out/qemu" "$out/console" "$out/log" 2>/dev/null || true
} >&2
exit 99
