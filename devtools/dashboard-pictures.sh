#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Writes pictures of the dashboards to docs/dashboards: NAME-peace.png, and NAME-leak.png while the
# reflector of the demo leaks. Needs chromium, and a Grafana that shows what the exporter on this machine
# reports: that of GRAFANA_URL, or, with docker or podman, one that dashboards/compose.yaml starts.
#
#   GRAFANA_URL=http://HOST:3000          use this Grafana; it must let anybody view (auth.anonymous)
#   GRAFANA_SOURCE=pmdscope-prometheus    uid of its data source, the default one
#   PICTURE_AFTER=120                     seconds of demo before the pictures
#   PICTURE_WIDTH=1600                    in pixels
#   PICTURES=docs/dashboards              where to
#   PROGRAMS=target/release               where pmdscope and pmdscope-demo are
set -eu
cd "$(dirname "$0")/.."

after=${PICTURE_AFTER:-120}
width=${PICTURE_WIDTH:-1600}
pictures=${PICTURES:-docs/dashboards}
programs=${PROGRAMS:-target/release}
compose="" demo="" exporter=""
scratch=$(mktemp -d)

say() {
	echo "dashboard-pictures: $*"
}

die() {
	echo "dashboard-pictures: $*" >&2
	exit 1
}

# shellcheck disable=SC2329 # the trap below calls it
clean_up() {
	# Does not use $exporter and $demo: a signal may come when one runs and its variable is not set
	# yet.
	jobs -p >"$scratch/jobs"
	while read -r pid; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done <"$scratch/jobs"
	# shellcheck disable=SC2086 # a command and its argument
	[ -z "$compose" ] || $compose -f dashboards/compose.yaml down -v >/dev/null 2>&1 || true
	rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

start_grafana() {
	for command in "docker compose" "podman compose"; do
		if $command version >/dev/null 2>&1; then
			compose=$command
			break
		fi
	done
	[ -n "$compose" ] || die "no Grafana: set GRAFANA_URL to one that shows the exporter on this machine," \
		"or install docker or podman with compose"
	if ! $compose -f dashboards/compose.yaml up -d; then
		die "'$compose up' failed (see above): it needs its daemon and the images of" \
			"dashboards/compose.yaml; or set GRAFANA_URL"
	fi
	GRAFANA_URL=http://127.0.0.1:3000
}

# wait_for WHAT SECONDS COMMAND...: until the command succeeds.
wait_for() {
	what=$1 left=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		left=$((left - 1))
		[ "$left" -gt 0 ] || die "$what: not within the time"
		sleep 1
	done
}

has_dashboards() {
	curl -fsS "$GRAFANA_URL/api/dashboards/uid/pmdscope-fleet" | grep -q pmdscope-fleet
}

# Asked through Grafana, to be sure that its data source has what this exporter reports.
sees_the_demo() {
	curl -fsS -G "$GRAFANA_URL/api/datasources/proxy/uid/${GRAFANA_SOURCE:-pmdscope-prometheus}/api/v1/query" \
		--data-urlencode 'query=dpdk_up == 1' | grep -q '"instance"'
}

# Height of a dashboard in pixels: a unit of its grid has 30, and 8 between two.
height() {
	python3 - "dashboards/grafana/json/$1.json" <<-'END'
		import json, sys
		places = [panel["gridPos"] for panel in json.load(open(sys.argv[1]))["panels"]]
		print(max(place["y"] + place["h"] for place in places) * 38 + 140)
	END
}

take_pictures() {
	for json in dashboards/grafana/json/*.json; do
		name=$(basename "$json" .json)
		# Use nothing of the user's own browser, and connect to Grafana only.
		rm -rf "$scratch/browser"
		"$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
			--disable-background-networking --disable-component-update --disable-sync \
			--user-data-dir="$scratch/browser" --window-size="$width,$(height "$name")" \
			--virtual-time-budget=30000 --screenshot="$scratch/picture.png" \
			"$GRAFANA_URL/d/pmdscope-$name?kiosk&from=now-${after}s&to=now&refresh=" >"$scratch/browser.log" 2>&1 ||
			die "$browser: $(tail -n 3 "$scratch/browser.log")"
		[ -s "$scratch/picture.png" ] || die "$browser wrote no picture: $(tail -n 3 "$scratch/browser.log")"
		mv "$scratch/picture.png" "$pictures/$name-$1.png"
		say "wrote $pictures/$name-$1.png"
	done
}

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
	die "no browser: run devtools/setup.sh pictures, or install chromium"
command -v curl >/dev/null || die "no curl: run devtools/setup.sh pictures"
for program in pmdscope pmdscope-demo; do
	[ -x "$programs/$program" ] || die "no $programs/$program: run make build"
done
[ -n "${GRAFANA_URL:-}" ] || start_grafana
GRAFANA_URL=${GRAFANA_URL%/}
wait_for "no Grafana answers at $GRAFANA_URL" 60 curl -fsS "$GRAFANA_URL/api/health"
wait_for "$GRAFANA_URL has no dashboard pmdscope-fleet: import or provision dashboards/grafana/json" 40 has_dashboards

mkdir -p "$pictures"
"$programs/pmdscope" export >"$scratch/exporter.log" 2>&1 &
exporter=$!
for state in peace leak; do
	if [ "$state" = leak ]; then
		DEMO_LEAK=1/1024 "$programs/pmdscope-demo" >"$scratch/demo.log" 2>&1 &
	else
		"$programs/pmdscope-demo" >"$scratch/demo.log" 2>&1 &
	fi
	demo=$!
	wait_for "the Prometheus of $GRAFANA_URL has no app of the exporter on this machine: let it scrape 127.0.0.1:9177" \
		90 sees_the_demo
	say "$state: waiting for $after seconds of data"
	sleep "$after"
	kill -0 "$exporter" 2>/dev/null || die "the exporter ended: $(tail -n 3 "$scratch/exporter.log")"
	kill -0 "$demo" 2>/dev/null || die "the demo ended: $(tail -n 3 "$scratch/demo.log")"
	take_pictures "$state"
	kill "$demo"
	wait "$demo" 2>/dev/null || true
	demo=""
done
