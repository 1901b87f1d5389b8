# SPDX-License-Identifier: BSD-3-Clause
# Functions of the jobs. A job runs as root in a guest that ends with it, so it need not clean up.
# shellcheck shell=bash

tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
apps=$tree/build/integration
checks=/run/out/checks
failures=0
# Seconds of the guest's clock. A guest is slow without KVM, and slower on a busy machine.
patience=150

# note TEXT, ok TEXT, fail TEXT, skip TEXT: a line for the reader. The exit status of end_job is 1
# if any failed.
note() { echo "     $*" >>$checks; }
ok() { echo "ok   $*" >>$checks; }
skip() { echo "SKIP $*" >>$checks; }
fail() {
	echo "FAIL $*" >>$checks
	failures=$((failures + 1))
}
end_job() { exit $((failures > 0)); }

# expect TEXT COMMAND...: a check, which the command decides.
expect() {
	local text=$1
	shift
	if "$@"; then ok "$text"; else fail "$text (failed: $*)"; fi
}

# await COMMAND...: until it succeeds, but not forever.
await() {
	local deadline=$((SECONDS + patience))
	until "$@"; do
		if ((SECONDS >= deadline)); then
			echo "timeout: $*"
			return 1
		fi
		sleep 0.2
	done
}

# must TEXT COMMAND...: without it, what follows makes no sense.
must() {
	local text=$1
	shift
	"$@" && return
	fail "$text"
	tail -n 20 /run/out/*.txt
	end_job
}

driver_of() {
	basename "$(readlink "/sys/bus/pci/devices/$1/driver" || echo none)"
}

# interface_of ADDRESS: of a NIC on its kernel driver.
interface_of() { basename "$(echo /sys/bus/pci/devices/"$1"/net/*)"; }

# bind DRIVER ADDRESS...: as dpdk-devbind.py does, but in milliseconds.
bind() {
	local driver=$1 device
	shift
	for device in "$@"; do
		[ ! -e "/sys/bus/pci/devices/$device/driver" ] ||
			echo "$device" >"/sys/bus/pci/devices/$device/driver/unbind"
		echo "$driver" >"/sys/bus/pci/devices/$device/driver_override"
		echo "$device" >/sys/bus/pci/drivers_probe
	done
}

# telemetry APP [FIELD...]: counters of port 0, asked of DPDK itself. Without a field: its ports.
# Fails if there is no answer, or no port 0.
telemetry() {
	python3 - "$@" <<-'END'
		import json, socket, sys
		app, *fields = sys.argv[1:]
		telemetry = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		telemetry.settimeout(10)
		try:
		    telemetry.connect(f"/var/run/dpdk/{app}/dpdk_telemetry.v2")
		    longest = json.loads(telemetry.recv(16384))["max_output_len"]
		    telemetry.send(b"/ethdev/stats,0" if fields else b"/ethdev/list")
		    reply = next(iter(json.loads(telemetry.recv(longest)).values()))
		except OSError:
		    sys.exit(1)
		if not fields:
		    print(reply)
		elif reply is None:
		    sys.exit(1)
		else:
		    print(*(reply[field] for field in fields))
	END
}

# has_port APP, has_no_port APP: and it answers.
has_port() { [ "$(telemetry "$1")" = "[0]" ]; }
has_no_port() { [ "$(telemetry "$1")" = "[]" ]; }

# received_more APP NUMBER: more packets than that.
received_more() { [ "$(telemetry "$1" ipackets)" -gt "$2" ]; } 2>/dev/null

# testpmd APP ARGUMENT...: starts dpdk-testpmd, which takes commands with `tell APP COMMAND`.
declare -A pids inputs
testpmd() {
	local app=$1 input
	shift
	rm -f "/run/$app.input"
	mkfifo "/run/$app.input"
	exec {input}<>"/run/$app.input"
	dpdk-testpmd --file-prefix "$app" "$@" <"/run/$app.input" >"/run/out/$app.txt" 2>&1 {input}>&- &
	pids[$app]=$!
	inputs[$app]=$input
	must "$app: dpdk-testpmd did not start" await grep -q 'testpmd>' "/run/out/$app.txt"
}
tell() {
	echo "$2" >&"${inputs[$1]}"
}

# app NAME PROGRAM ARGUMENT...: starts a program of this tree, and does not wait for it.
app() {
	local name=$1 program=$2
	shift 2
	"$apps/$program" --file-prefix "$name" "$@" >"/run/out/$name.txt" 2>&1 &
	pids[$name]=$!
}

# summary APP FIELD: of what it wrote with --json.
summary() {
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "/run/out/$1.json" "$2"
}

# quit APP: ends it, and waits for that.
quit() {
	kill -TERM "${pids[$1]}"
	wait "${pids[$1]}"
}

# findings FILE: what `pmdscope check --json` found, a line each: lint, severity, subject and evidence.
findings() {
	python3 - "$1" <<-'END'
		import json, sys
		for app in json.load(open(sys.argv[1]))["apps"]:
		    for finding in app["findings"]:
		        print(finding["lint"], finding["severity"], finding["evidence"])
	END
}

# finds FILE LINT: there is such a finding; `found` is its text.
finds() {
	found=$(findings "$1" | sed -n "s/^$2 [a-z]* //p" | head -n 1)
	[ -n "$found" ]
}

# causes FILE LINT: of the first such finding, each with its share; nothing if this pmdscope reports
# none.
causes() {
	python3 - "$@" <<-'END'
		import json, sys
		findings = [found for app in json.load(open(sys.argv[1]))["apps"] for found in app["findings"]]
		causes = [found.get("causes", []) for found in findings if found["lint"] == sys.argv[2]]
		shares = [(cause["cause"], cause.get("share")) for cause in (causes or [[]])[0]]
		print(", ".join(name if share is None else f"{name} {share:.0%}" for name, share in shares))
	END
}

# http_get PATH: status and body of the exporter's answer, in `http_status` and `http_body`.
http_get() {
	local connection answer
	{ exec {connection}<>/dev/tcp/127.0.0.1/9177; } 2>/dev/null || return 1
	printf 'GET %s HTTP/1.0\r\nHost: guest\r\n\r\n' "$1" >&"$connection"
	answer=$(cat <&"$connection")
	exec {connection}>&-
	http_status=$(sed -n '1s/^HTTP[^ ]* \([0-9]*\).*/\1/p' <<<"$answer")
	http_body=$(sed '1,/^\r*$/d' <<<"$answer")
	[ -n "$http_status" ]
}
