#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compiles sample applications of DPDK below build/tools: Debian has their sources in dpdk-doc, which is
# unpacked and not installed. Does nothing when they are there already.
set -eu

tools=$(cd "$(dirname "$0")/.." && pwd)/build/tools
built=$tools/dpdk-samples
samples="distributor l2fwd multi_process/symmetric_mp rxtx_callbacks"

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
	mkdir built
	for sample in $samples; do
		# shellcheck disable=SC2046 # words
		cc -O2 -w -DALLOW_EXPERIMENTAL_API -o "built/${sample##*/}" \
			"unpacked/usr/share/dpdk/examples/$sample/main.c" \
			$(pkg-config --cflags --libs libdpdk)
	done
)
rm -rf "$built"
mv "$scratch/built" "$built"
echo "dpdk-samples.sh: $samples, in $built"
