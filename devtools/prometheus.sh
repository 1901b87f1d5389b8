#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Puts Debian's prometheus and promtool below build/tools, without installing the package: that would
# start a service. Does nothing when either is there already.
set -eu

tools=$(cd "$(dirname "$0")/.." && pwd)/build/tools
unpacked=$tools/prometheus

[ ! -x "$unpacked/usr/bin/promtool" ] || exit 0
[ ! -x /usr/bin/promtool ] || [ ! -x /usr/bin/prometheus ] || exit 0

mkdir -p "$tools"
scratch=$(mktemp -d "$tools/prometheus.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
(
	cd "$scratch"
	# As root, apt warns that it cannot download as another user into a directory of root's.
	apt-get -qq -o APT::Sandbox::User=root download prometheus || {
		echo "prometheus.sh: cannot download Debian's prometheus: try 'apt-get update' first" >&2
		exit 1
	}
	dpkg-deb -x prometheus_*.deb unpacked
)
for program in prometheus promtool; do
	"$scratch/unpacked/usr/bin/$program" --version >/dev/null 2>&1 || {
		echo "prometheus.sh: $program does not run here: $(ldd "$scratch/unpacked/usr/bin/$program" 2>&1)" >&2
		exit 1
	}
done
rm -rf "$unpacked"
mv "$scratch/unpacked" "$unpacked"
echo "prometheus.sh: $("$unpacked/usr/bin/promtool" --version | head -n 1), in $unpacked"
