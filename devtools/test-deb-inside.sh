#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# test-deb-inside.sh VERSION command|all|image: the part of test-deb.sh that runs in a bare root, where it installs and
# purges /packages: that of the command, or all of them; or builds the image of /image/Containerfile and starts it.
# Processes end with the root's namespace.
set -euo pipefail
version=$1
what=$2
example=/usr/share/doc/libpmdscope-dev/examples/forward.c

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

# has PACKAGE PATTERN...: each is a file of the package that is there and not empty.
has() {
	local package=$1 pattern path
	shift
	dpkg -L "$package" >/tmp/paths
	for pattern in "$@"; do
		grep -Ex "$pattern" /tmp/paths >/tmp/path || die "$package has no $pattern"
		while read -r path; do
			[ -s "$path" ] || die "$package has no $path"
		done </tmp/path
	done
}

# capture_from_app OPTION...: starts /tmp/app with these, captures ten packets and ends it.
capture_from_app() {
	local app listed
	/tmp/app "$@" --no-pci --lcores 0 --file-prefix package --vdev net_null0 --vdev net_null1 >/tmp/app.log 2>&1 &
	app=$!
	wait_until pmdscope capture -a package -c 10 -w /tmp/ten.pcapng
	listed=$(pmdscope ls)
	[[ $listed == *package* ]] || die "ls does not list the app: $listed"
	kill "$app"
	wait "$app" || { cat /tmp/app.log >&2; die "the app ended with $?"; }
	rm /tmp/ten.pcapng
}

# What each package has.
check_contents() {
	local units='/(usr/)?lib/systemd/system' command extcap

	quietly /usr/libexec/pmdscope/pmdscope-pdump --version
	has pmdscope /usr/bin/pmdscope-pdump-build /usr/share/man/man1/pmdscope-pdump-build.1.gz \
		"$units/pmdscope-export\.service" "$units/pmdscope-record\.service" \
		'/usr/lib/.*/wireshark/extcap/pmdscope' /usr/share/bash-completion/completions/pmdscope \
		/usr/share/zsh/vendor-completions/_pmdscope /usr/share/fish/vendor_completions.d/pmdscope.fish \
		/usr/share/pmdscope/{interfaces,interrupts,xray}.conf '/usr/share/doc/pmdscope/pmdscope\.spdx\.json(\.gz)?'
	pmdscope help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' >/tmp/commands
	[ "$(wc -l </tmp/commands)" -ge 10 ] || die "'pmdscope help' lists $(wc -l </tmp/commands) commands"
	while read -r command; do
		[ "$command" = help ] || has pmdscope "/usr/share/man/man1/pmdscope-$command\.1\.gz"
	done </tmp/commands
	has pmdscope-traffic /usr/bin/pmdscope-{generator,reflector,kernel-generator,kernel-reflector}
	has libpmdscope0 '/usr/lib/.*/libpmdscope\.so\.0'
	dpkg-query --control-show libpmdscope0 symbols | grep -c '@PMDSCOPE_0 ' >/dev/null || die "libpmdscope0 has no symbols"
	has libpmdscope-dev /usr/include/pmdscope{,_ring,_trace,_trace_libs}.h '/usr/lib/.*/libpmdscope\.(a|so)' \
		'/usr/lib/.*/pkgconfig/pmdscope\.pc' /usr/share/pmdscope/pmdscope.wrap \
		/usr/share/doc/libpmdscope-dev/examples/forward.c
	grep -qx "revision = v$version" /usr/share/pmdscope/pmdscope.wrap || die "pmdscope.wrap is of another version"
	has pmdscope-dashboards /usr/share/pmdscope/flows.sql /usr/share/pmdscope/grafana/json/{app,captures,fleet,lcores,pools}.json \
		/usr/share/pmdscope/grafana/provisioning/d{atasources/prometheus,ashboards/pmdscope}.yml \
		/usr/share/pmdscope/prometheus/{alertmanager,prometheus}.yml \
		/usr/share/pmdscope/prometheus/rules/{memory,presence,recording,traffic}.yml
	extcap=$(dirname "$(find /usr/lib -path '*wireshark/extcap/pmdscope')")
	"$extcap/pmdscope" --extcap-interfaces | grep -c '^extcap ' >/dev/null || die "Wireshark would not find it"
	grep -q '^ExecStart=/usr/bin/pmdscope ' "$(dpkg -L pmdscope | grep 'pmdscope-export\.service$')" ||
		die "the unit starts another program"
	[ -z "$(find /etc/systemd -name '*pmdscope*')" ] || die "a service is enabled"
}

# A user's own app, linked with the library, at both levels.
check_linked_app() {
	local level

	for level in '' '-include pmdscope_trace.h'; do
		# shellcheck disable=SC2046,SC2086 # lists of flags
		cc -Wall -Werror $level -o /tmp/app "$example" $(pkg-config --cflags --libs pmdscope libdpdk)
		[[ $(ldd /tmp/app) == *'libpmdscope.so.0 => /'* ]] || die "the app is not linked with the shared library"
		capture_from_app --no-huge -m 128
	done
}

# The same as a stock app, captured from by the helper of its release, by the one of the package's own DPDK, and by one that
# is built here.
check_stock_app() {
	local helper

	helper=/usr/libexec/pmdscope/pdump-$(pkg-config --modversion libdpdk | cut -d . -f 1,2)
	has pmdscope "$helper"
	quietly "$helper" --version
	mkdir /tmp/stock /tmp/pages
	cat >/tmp/stock/pmdscope.h <<-EOF
		#include <rte_pdump.h>
		#define pmdscope_init(conf) rte_pdump_init()
		#define pmdscope_poll(received) (void)(received)
		#define pmdscope_fini() rte_pdump_uninit()
	EOF
	# shellcheck disable=SC2046 # a list of flags
	cc -I/tmp/stock -o /tmp/app "$example" $(pkg-config --cflags --libs libdpdk)
	if [ "$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages 2>/dev/null || echo 0)" -lt 64 ]; then
		echo "test-deb: SKIP capture from a stock app: no hugepages; 'make setup' reserves some" >&2
		quietly pmdscope-pdump-build /usr
	else
		mount -t hugetlbfs hugetlbfs /tmp/pages
		capture_from_app --huge-dir /tmp/pages -m 64
		rm "$helper"
		capture_from_app --huge-dir /tmp/pages -m 64
		rm /usr/libexec/pmdscope/pmdscope-pdump
		quietly pmdscope-pdump-build /usr
		capture_from_app --huge-dir /tmp/pages -m 64
		umount /tmp/pages
	fi
	rm -r /tmp/stock
}

# The image's command, where only the loopback interface is: metrics come from its port.
check_image() {
	local release command

	# shellcheck source=/dev/null
	release=$(. /etc/os-release && echo "$VERSION_ID")
	export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
	quietly apt-get install -qqy --no-install-recommends buildah netavark iproute2
	# Higher limits, as buildah has them by default, are not permitted everywhere.
	mkdir -p /etc/containers
	printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n' >/etc/containers/containers.conf
	# A bare root, in place of the image of a registry.
	printf 'FROM scratch\nADD root.tar /\n' >/image/base/Containerfile
	quietly buildah build --tag "docker.io/library/debian:$release-slim" /image/base
	quietly buildah build --pull-never --build-arg "DEBIAN=$release" --tag pmdscope /image
	command=$(buildah inspect --type image --format \
		'{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' pmdscope)
	quietly buildah from --name exporter pmdscope
	# shellcheck disable=SC2016 # of the other shell
	quietly unshare --net bash -euc '
		ip link set lo up
		buildah run exporter $1 &
		for _ in $(seq 300); do
			sleep 0.1
			! exec 3<>/dev/tcp/127.0.0.1/9177 || break
		done 2>/dev/null
		printf "GET /metrics HTTP/1.0\r\n\r\n" >&3
		grep -c ^dpdk_exporter_build_info <&3' _ "$command"
}

if [ "$what" = image ]; then
	check_image
	exit 0
fi

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
check_contents
check_linked_app
check_stock_app

# Recordings of the service, which has run.
mkdir -p /var/lib/private/pmdscope
ln -s private/pmdscope /var/lib/pmdscope
touch /var/lib/private/pmdscope/recording
purge pmdscope pmdscope-traffic pmdscope-dashboards libpmdscope0 libpmdscope-dev
