#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# plots.sh [-c CSV] [-l HDR_LOG] [-o DIR]: draws a run of pmdscope-generator as PNG and SVG. Without
# files it first runs generator and reflector for PLOT_SECONDS at PLOT_RATE.
set -eu

here=$(dirname "$0")
build=${BUILD:-build}
csv="" hdr_log="" out=plots-out

die() {
	echo "plots: $*" >&2
	exit 1
}

while getopts c:l:o: option; do
	case $option in
	c) csv=$OPTARG ;;
	l) hdr_log=$OPTARG ;;
	o) out=$OPTARG ;;
	*) die "usage: plots.sh [-c CSV] [-l HDR_LOG] [-o DIR]" ;;
	esac
done
mkdir -p "$out"
work=$(mktemp -d)
reflector=""

clean_up() {
	[ -z "$reflector" ] || kill "$reflector" 2>/dev/null || true
	[ -z "$reflector" ] || wait "$reflector" || true
	# Of root; others have theirs where the session's files are.
	rm -rf "$work" "/var/run/dpdk/plots-generator-$$" "/var/run/dpdk/plots-reflector-$$"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

# eal LCORE PREFIX ROLE
eal() {
	echo "--lcores $1@$1 --no-pci --no-huge -m 128 --file-prefix $2-$$" \
		"--vdev net_memif0,role=$3,socket=$work/link.sock,socket-abstract=no"
}

demo_run() {
	csv=$out/run.csv hdr_log=$out/run.hlog
	# shellcheck disable=SC2046 # words
	"$build/integration/pmdscope-reflector" $(eal 1 plots-reflector server) -- --quiet \
		>"$work/reflector.log" 2>&1 &
	reflector=$!
	tries=0
	until [ -S "$work/link.sock" ]; do
		kill -0 "$reflector" 2>/dev/null || { cat "$work/reflector.log" >&2; die "the reflector ended"; }
		tries=$((tries + 1))
		[ $tries -lt 300 ] || die "the reflector did not open its socket within 30 s"
		sleep 0.1
	done
	# shellcheck disable=SC2046 # words
	"$build/integration/pmdscope-generator" $(eal 0 plots-generator client) -- \
		--rate "${PLOT_RATE:-100k}" --warm-up 1 --duration "${PLOT_SECONDS:-10}" --csv-interval 0.1 \
		--csv "$csv" --hdr-log "$hdr_log" --json "$out/run.json"
}

# plot NAME: gnuplot commands on standard input.
plot() {
	commands=$(cat)
	for format in png svg; do
		case $format in
		png) terminal='pngcairo size 1000,600' ;;
		svg) terminal='svg size 1000,600 dynamic background rgb "white"' ;;
		esac
		gnuplot -e "set terminal $terminal; set output '$out/$1.$format'" - <<-END ||
			set datafile separator comma
			set grid
			set key outside top center horizontal
			set xlabel "time (s)"
			set yrange [0:*]
			csv = "$csv"
			$commands
		END
			die "gnuplot could not draw $out/$1.$format"
		echo "$out/$1.$format"
	done
}

# distribution NAME TAG LABEL: of --hdr-log, over an axis of percentiles.
distribution() {
	"$here/hdr_percentiles.py" "$hdr_log" $2 >"$work/$1.dat" || { echo "plots: left out: $1" >&2; return; }
	plot "$1" <<-END
		set datafile separator whitespace
		set logscale xy
		set yrange [*:*]
		set xlabel "percentile"
		set xtics ("0" 1, "50" 2, "90" 10, "99" 100, "99.9" 1e3, "99.99" 1e4, "99.999" 1e5, "99.9999" 1e6)
		set ylabel "$3 (us)"
		plot "$work/$1.dat" using 1:((\$2 > 1 ? \$2 : 1) / 1000.0) with lines linewidth 2 notitle
	END
}

command -v gnuplot >/dev/null || die "gnuplot is not installed: run devtools/setup.sh plots"
[ -n "$csv$hdr_log" ] || demo_run

if [ -n "$csv" ]; then
	[ -s "$csv" ] || die "$csv: no such file, or nothing in it"
	plot rate <<-'END'
		set ylabel "packets per second"
		plot csv using "time_s":"tx_pps" with lines title "sent", \
			csv using "time_s":"rx_pps" with lines title "received"
	END
	plot loss <<-'END'
		set yrange [*:*]
		set ylabel "packets per interval"
		plot csv using "time_s":"lost" with impulses title "lost", \
			csv using "time_s":"reordered" with points title "reordered", \
			csv using "time_s":"duplicates" with points title "duplicates"
	END
	plot latency <<-'END'
		set logscale y
		set yrange [*:*]
		set ylabel "latency (us)"
		plot csv using "time_s":(column("latency_p50_ns") / 1000) with lines title "p50", \
			csv using "time_s":(column("latency_p99_ns") / 1000) with lines title "p99", \
			csv using "time_s":(column("latency_p99_9_ns") / 1000) with lines title "p99.9", \
			csv using "time_s":(column("latency_max_ns") / 1000) with lines title "max"
	END
fi
if [ -n "$hdr_log" ]; then
	[ -s "$hdr_log" ] || die "$hdr_log: no such file, or nothing in it"
	distribution latency_distribution "" "latency"
	distribution inter_departure inter-departure "time between packets"
fi
