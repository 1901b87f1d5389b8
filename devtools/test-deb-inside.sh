#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# test-deb-inside.sh VERSION command|all: the part of test-deb.sh that runs in a bare root, where it installs and
# purges /packages: that of the command, or all of them. Processes end with the root's namespace.
set -euo pipefail
version=$1
what=$2

die() {
	echo "test-deb: $*" >&2
	exit 1
}

# quietly COMMAND...: shows what it prints only if it fails.
quietly() {
	"$@" >/tmp/log 2>&1 || {
		cat /tmp/log >&2
		die "'$*' failed"
	}
}

# installed_version PACKAGE
installed_version() {
	dpkg-query -W -f '${Version}' "$1"
}

# wait_until COMMAND...
wait_until() {
	local _
	for _ in $(seq 600); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	die "'$*' fails after a minute"
}

# purge PACKAGE...: and what came with them.
purge() {
	local path
	# What belongs to them alone.
	dpkg -L "$@" | sort -u | while read -r path; do [ -d "$path" ] || echo "$path"; done >/tmp/theirs
	quietly apt-get purge -qqy "$@"
	quietly apt-get autoremove --purge -qqy
	quietly apt-get clean
	! dpkg-query -W '*pmdscope*' >/dev/null 2>&1 || die "dpkg still knows $(dpkg-query -W '*pmdscope*')"
	while read -r path; do
		[ ! -e "$path" ] || die "purging left $path"
	done </tmp/theirs
	path=$(find / -xdev \( -path /packages -o -path /proc \) -prune -o -name '*pmdscope*' -print)
	[ -z "$path" ] || die "purging left $path"
}

if [ "$what" = command ]; then
	# The command alone needs no DPDK.
	quietly apt-get install -qqy --no-install-recommends /packages/older/pmdscope.deb
	[[ $(installed_version pmdscope) == 0.1.0+* ]] || die "not the older version"
	! dpkg-query -W 'librte-*' >/dev/null 2>&1 || die "the command brings libraries of DPDK"
	[[ $(pmdscope --version) == "pmdscope $version"* ]] || die "is $(pmdscope --version)"
	said=$(pmdscope ls 2>&1) && die "ls finds an app: $said"
	[[ $said == *'no running DPDK app'* ]] || die "ls says: $said"
	quietly apt-get install -qqy --no-install-recommends /packages/pmdscope_*.deb
	[[ $(installed_version pmdscope) == "$version"+* ]] || die "pmdscope is still $(installed_version pmdscope)"
	purge pmdscope
	exit 0
fi

quietly apt-get install -qqy --no-install-recommends /packages/older/*.deb gcc libc6-dev pkg-config
quietly apt-get install -qqy --no-install-recommends /packages/*.deb
for package in pmdscope pmdscope-traffic pmdscope-dashboards libpmdscope0 libpmdscope-dev; do
	[[ $(installed_version "$package") == "$version"+* ]] || die "$package is still $(installed_version "$package")"
done
[ -z "$(dpkg --audit)" ] || die "dpkg is not in order: $(dpkg --audit)"
quietly /usr/libexec/pmdscope/pmdscope-pdump --version
for file in /usr/share/man/man1/pmdscope-capture.1.gz /usr/share/bash-completion/completions/pmdscope \
	/usr/share/zsh/vendor-completions/_pmdscope /usr/share/pmdscope/xray.conf \
	/usr/share/doc/pmdscope/pmdscope.spdx.json* /usr/share/pmdscope/grafana/json/fleet.json \
	/usr/share/pmdscope/pmdscope.wrap; do
	[ -s "$file" ] || die "no $file"
done
ls /usr/share/pmdscope/prometheus/rules/*.yml >/dev/null || die "no rules"
extcap=$(dirname "$(find /usr/lib -path '*wireshark/extcap/pmdscope')")
"$extcap/pmdscope" --extcap-interfaces | grep '^extcap ' >/dev/null || die "Wireshark would not find it"
unit=$(find /lib/systemd/system/ /usr/lib/systemd/system/ -name pmdscope-export.service -print -quit)
grep -q '^ExecStart=/usr/bin/pmdscope ' "$unit" || die "the unit starts another program"
[ -z "$(find /etc/systemd -name '*pmdscope*')" ] || die "a service is enabled"

# An app of one's own, linked with the library, and a capture of its packets.
# shellcheck disable=SC2046 # lists of flags
cc -o /tmp/forward "$(find /usr/share/doc/libpmdscope-dev/examples -name forward.c)" \
	$(pkg-config --cflags --libs pmdscope libdpdk)
[[ $(ldd /tmp/forward) == *'libpmdscope.so.0 => /'* ]] || die "the app is not linked with the shared library"
/tmp/forward --no-huge -m 128 --no-pci --lcores 0 --file-prefix package --vdev net_null0 --vdev net_null1 \
	>/tmp/app.log 2>&1 &
app=$!
wait_until pmdscope capture -a package -c 10 -w /tmp/ten.pcapng
[ "$(pmdscope ls | grep -c package)" -ge 1 ] || die "ls does not list the app"
kill "$app"
wait "$app" || { cat /tmp/app.log >&2; die "the app ended with $?"; }

# Recordings of the service, which has run.
mkdir -p /var/lib/private/pmdscope
ln -s private/pmdscope /var/lib/pmdscope
touch /var/lib/private/pmdscope/recording
rm /tmp/forward
purge pmdscope pmdscope-traffic pmdscope-dashboards libpmdscope0 libpmdscope-dev
