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
	packages=prometheus
	# A package of its own from Debian 13 on.
	! apt-cache show promtool >/dev/null 2>&1 || packages="$packages promtool"
	# As root, apt warns that it cannot download as another user into a directory of root's.
	# shellcheck disable=SC2086 # a list of names
	apt-get -qq -o APT::Sandbox::User=root download $packages || {
		echo "prometheus.sh: cannot download Debian's prometheus: try 'apt-get update' first" >&2
		exit 1
	}
	for file in *.deb; do
		dpkg-deb -x "$file" unpacked
	done
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
