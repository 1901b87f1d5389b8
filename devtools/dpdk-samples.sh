#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compiles sample applications of DPDK below build/tools: Debian has their sources in dpdk-doc, which is
# unpacked and not installed. Does nothing when they are there already.
set -eu

tools=$(cd "$(dirname "$0")/.." && pwd)/build/tools
built=$tools/dpdk-samples
samples="distributor l2fwd l3fwd multi_process/symmetric_mp rxtx_callbacks"

for sample in $samples; do
	[ -x "$built/${sample##*/}" ] || missing=yes
done
[ -n "${missing:-}" ] || exit 0

mkdir -p "$tools"
scratch=$(mktemp -d "$tools/dpdk-samples.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
(
	cd "$scratch"
	# As root, apt warns that it cannot download as another user into a directory of root's.
	apt-get -qq -o APT::Sandbox::User=root download dpdk-doc || {
		echo "dpdk-samples.sh: cannot download dpdk-doc: try 'apt-get update' first" >&2
		exit 1
	}
	dpkg-deb -x dpdk-doc_*.deb unpacked
	# Virtual ports verify no checksums.
	sed -i 's/= RTE_ETH_RX_OFFLOAD_CHECKSUM/= 0/' unpacked/usr/share/dpdk/examples/l3fwd/main.c
	mkdir built
	for sample in $samples; do
		# l3fwd includes those of its sources that read routes.
		# shellcheck disable=SC2046 # words
		cc -O2 -w -DALLOW_EXPERIMENTAL_API -Iunpacked/usr/share/dpdk/examples/common -o "built/${sample##*/}" \
			$(find unpacked/usr/share/dpdk/examples/"$sample" -name '*.c' ! -name '*_route_parse.c') \
			$(pkg-config --cflags --libs libdpdk)
	done
)
rm -rf "$built"
mv "$scratch/built" "$built"
echo "dpdk-samples.sh: $samples, in $built"
