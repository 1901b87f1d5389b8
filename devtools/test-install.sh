#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# test-install.sh [--system]: installs what was built below a scratch directory; compiles, links and starts
# an app at each level of instrumentation against it; removes it again. --system does so in /usr/local,
# where ld.so and pkg-config must find it without help.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)

# DPDK leaves the directories of its file-prefixes.
clean_up() {
	rm -rf "$scratch" "/var/run/dpdk/pmdscope-install-$$" "/var/run/dpdk/pmdscope-wrap-$$"
}
trap clean_up EXIT

die() {
	echo "test-install: $*" >&2
	exit 1
}

# make_quietly TARGET VARIABLE=VALUE...
make_quietly() {
	make --no-print-directory BUILD="${BUILD:-build}" "$@" >"$scratch/log" 2>&1 || {
		cat "$scratch/log" >&2
		die "make $* failed"
	}
}

# Compiles, links and starts an app with what pkg-config and ld.so find.
check_app() {
	flags=$(pkg-config --cflags --libs pmdscope libdpdk)
	for level in 1 2; do
		include=''
		[ "$level" = 1 ] || include='-include pmdscope_trace.h'
		# shellcheck disable=SC2086 # lists of flags
		cc -Wall -Werror $include -o "$scratch/app$level" integration/apps/install/app.c $flags
		"$scratch/app$level" --no-huge --no-pci -m 64 --no-telemetry \
			--file-prefix "pmdscope-install-$$" >"$scratch/log" 2>&1 || {
			cat "$scratch/log" >&2
			die "the app of level $level does not run"
		}
		echo "test-install: level $level: $(tail -n 1 "$scratch/log")"
	done
}

# An app whose project builds the library itself, by examples/pmdscope.wrap; the sources are these.
check_wrap() {
	mkdir -p "$scratch/wrap/subprojects"
	cp integration/apps/install/app.c integration/apps/install/meson.build "$scratch/wrap/"
	cp examples/pmdscope.wrap "$scratch/wrap/subprojects/"
	ln -s "$PWD" "$scratch/wrap/subprojects/pmdscope"
	{
		meson setup --wrap-mode=forcefallback "$scratch/wrap/build" "$scratch/wrap" &&
			ninja -C "$scratch/wrap/build" app && "$scratch/wrap/build/app" --no-huge --no-pci -m 64 \
			--no-telemetry --file-prefix "pmdscope-wrap-$$"
	} >"$scratch/log" 2>&1 || {
		cat "$scratch/log" >&2
		die "an app does not build with pmdscope.wrap"
	}
	echo "test-install: wrap ok"
}

# check_units DIRECTORY PREFIX [DROP-IN]: systemd knows all settings of the units, of pmdscope-export with this
# drop-in as well.
check_units() {
	command -v systemd-analyze >/dev/null || {
		echo "test-install: SKIP units: no systemd-analyze (package systemd) here"
		return
	}
	units=$scratch/units
	rm -rf "$units"
	mkdir -p "$units/pmdscope-export.service.d"
	for unit in pmdscope-export pmdscope-record; do
		# The program of the unit is not where it will be.
		sed "s|^ExecStart=[^ ]*|ExecStart=$2/bin/pmdscope|" "$1/$unit.service" >"$units/$unit.service"
	done
	[ -z "${3:-}" ] || cp "$3" "$units/pmdscope-export.service.d/"
	systemd-analyze verify --man=no --recursive-errors=no "$units/pmdscope-export.service" \
		"$units/pmdscope-record.service" >"$scratch/log" 2>&1 || cat "$scratch/log" >&2
	# What systemd does not know it ignores with a warning.
	! grep "$units" "$scratch/log" || die "systemd does not know all of the units"
	echo "test-install: units ok"
}

# check_command PREFIX
check_command() {
	"$1/bin/pmdscope" --version
	"$1/libexec/pmdscope/pmdscope-pdump" --version
	for file in share/man/man1/pmdscope.1 share/man/man1/pmdscope-capture.1 \
		share/bash-completion/completions/pmdscope share/zsh/site-functions/_pmdscope \
		share/fish/vendor_completions.d/pmdscope.fish share/pmdscope/interfaces.conf \
		share/pmdscope/interrupts.conf share/pmdscope/xray.conf share/pmdscope/schema/top.json; do
		[ -s "$1/$file" ] || die "no $1/$file"
	done
}

if [ "${1:-}" = --system ]; then
	[ ! -e /usr/local/bin/pmdscope ] || die "pmdscope is installed already"
	trap 'clean_up; make --silent uninstall' EXIT
	make_quietly install
	check_app
	check_command /usr/local
	exit 0
fi

check_wrap

# A separate prefix: nothing outside of it changes.
prefix=$scratch/prefix
extcap=$(find /usr/lib* -path '*wireshark/extcap' -exec ls -la --full-time {} + 2>/dev/null || true)
make_quietly install PREFIX="$prefix"
libraries=$(dirname "$(find "$prefix" -name libpmdscope.so)")
export PKG_CONFIG_PATH="$libraries/pkgconfig" LD_LIBRARY_PATH="$libraries"
check_app
check_command "$prefix"
# For apps of another DPDK; here it is the same one.
dpdk=$(pkg-config --variable=prefix libdpdk)
"$prefix/bin/pmdscope-pdump-build" "$dpdk" >"$scratch/log" 2>&1 || {
	cat "$scratch/log" >&2
	die "pmdscope-pdump-build does not build a helper"
}
helper=libexec/pmdscope/pdump-$(pkg-config --modversion libdpdk | cut -d . -f 1,2)
"$prefix/$helper" --version
check_units "$prefix/lib/systemd/system" "$prefix"
for drop_in in interfaces interrupts xray; do
	check_units "$prefix/lib/systemd/system" "$prefix" "$prefix/share/pmdscope/$drop_in.conf"
done
[ "$extcap" = "$(find /usr/lib* -path '*wireshark/extcap' -exec ls -la --full-time {} + 2>/dev/null ||
	true)" ] || die "an installation in $prefix changed Wireshark's directory"
make_quietly uninstall PREFIX="$prefix"
left=$(find "$prefix" ! -type d)
[ -z "$left" ] || die "uninstall left $left"

# As packages do it.
make_quietly install PREFIX=/usr DESTDIR="$scratch/root" HELPERS="$dpdk"
"$scratch/root/usr/$helper" --version
grep -q '^prefix=/usr$' "$(find "$scratch/root" -name pmdscope.pc)" || die "pmdscope.pc has another prefix"
grep -q 'ExecStart=/usr/bin/pmdscope' "$scratch/root/usr/lib/systemd/system/pmdscope-export.service" ||
	die "the service starts another program"
for drop_in in interrupts xray; do
	grep -q " /usr/share/pmdscope/$drop_in.conf" "$scratch/root/usr/share/pmdscope/$drop_in.conf" ||
		die "the drop-in $drop_in names another directory"
done
make_quietly uninstall PREFIX=/usr DESTDIR="$scratch/root"
left=$(find "$scratch/root" ! -type d)
[ -z "$left" ] || die "uninstall left $left"
echo "test-install: ok"
