/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "pacer.h"
#include "settings.h"
#include "traffic.h"
#include "values.h"

struct settings settings = {
	.app = APP_OPTIONS_DEFAULT,
	.hot_times = 1,
	.wait_link_ms = 5000,
	.trial_ms = 10000,
	.resolution_percent = 1,
	.resolve_ms = 5000,
	.loops = 1,
	.own_src_mac = true,
	/* Locally administered. */
	.path.dst_mac = { .addr_bytes = { 0x02, 'p', 'm', 'd', 's', 2 } },
};

static const char *config_file;

static const struct option_spec specs[] = {
	APP_OPTION_SPECS(settings.app),
	{ "rate", "PPS|PERCENT%",
			"packets per second in all, 200k and 2M too; 0: fastest (0); 90%: of the rate "
			"that --warm-up reaches without limit",
			parse_rate_or_percent, &settings.rate, 0, PACER_MAX_RATE },
	{ "count", "N", "end after N packets have been sent (no limit)", option_u64,
			&settings.count, 1, UINT64_C(1) << 62 },
	{ "size", "SIZES",
			"frame size without FCS (128), A-B for all in turn, a list such as 64,512 or "
			"60:9,1514:1 (SIZE:WEIGHT), or imix (60:7,590:4,1514:1)",
			option_text, &traffic_text.size, 0, 0 },
	{ "fill", NULL, "fill the payload, differently in each packet", option_flag, &settings.fill,
			0, 0 },
	{ "flows", "N", "number of UDP source ports (1)", option_u32, &traffic_text.nb_flows, 1,
			PROBE_MAX_FLOWS },
	{ "deaf-after", "S", "receive nothing from then on (receive always)", option_seconds,
			&settings.deaf_after_ms, 1, 1000000000 },
	{ "inject-stall", "US/MS", "stall each lcore US microseconds every MS milliseconds",
			parse_stall, NULL, 0, 0 },
	{ "hot-queue", "Q:N",
			"send N times as many packets from queue Q as from each other, the further "
			"ones all in the first flow; needs --rate PPS",
			parse_hot_queue, NULL, 0, 0 },
	{ "ipv6", NULL, "send IPv6, not IPv4", option_flag, &settings.path.ipv6, 0, 0 },
	{ "src-mac", "MAC", "sender (the port's own address)", parse_mac, &settings.path.src_mac, 0,
			0 },
	{ "dst-mac", "MAC|auto",
			"receiver, auto: ask for it by ARP or neighbour discovery (02:70:6d:64:73:02)",
			parse_mac, &settings.path.dst_mac, 0, 0 },
	{ "src-ip", "ADDRESSES", "sender, A-B or A/N for several (" SRC_IPV4 ", " SRC_IPV6 ")",
			option_text, &traffic_text.src_ip, 0, 0 },
	{ "dst-ip", "ADDRESSES", "receiver, A-B or A/N for several (" DST_IPV4 ", " DST_IPV6 ")",
			option_text, &traffic_text.dst_ip, 0, 0 },
	{ "gateway", "ADDRESS", "next hop, for --dst-mac auto (--dst-ip, its first address)",
			option_text, &traffic_text.gateway, 0, 0 },
	{ "resolve-timeout", "S", "ask for a MAC address so long, once per second (5)",
			option_seconds, &settings.resolve_ms, 1, 3600000 },
	{ "replay", "FILE", "send the packets of a pcap or pcapng file, as they are", option_text,
			&settings.replay_file, 0, 0 },
	{ "replay-speed", "X", "so many times as fast as captured, without --rate (1)", parse_speed,
			NULL, 0, 0 },
	{ "loop", "N", "send the file so many times, 0: without end (1)", option_u64,
			&settings.loops, 0, 1000000000 },
	{ "config", "FILE",
			"read options from FILE, lines of NAME = VALUE; the command line overrides it",
			option_text, &config_file, 0, 0 },
	{ "tx-queues", "N", "TX queues per port (--queues)", option_u32, &settings.app.tx_queues, 1,
			APP_MAX_QUEUES },
	{ "rx-queues", "N", "RX queues per port (--queues)", option_u32, &settings.app.rx_queues, 1,
			APP_MAX_QUEUES },
	{ "tx-burst", "N", "packets per TX call (--burst)", option_u32, &settings.tx_burst, 1,
			APP_MAX_BURST },
	{ "rx-burst", "N", "packets per RX call (--burst)", option_u32, &settings.rx_burst, 1,
			APP_MAX_BURST },
	{ "verify", NULL, "fill the payload, compare what comes back, count corrupted packets",
			option_flag, &settings.verify, 0, 0 },
	{ "src-port", "PORTS", "UDP source port, A-B for several, in place of --flows (49152)",
			option_text, &traffic_text.src_port, 0, 0 },
	{ "dst-port", "PORTS", "UDP destination port, A-B for several (7)", option_text,
			&traffic_text.dst_port, 0, 0 },
	{ "vlan", "ID[:PCP]", "send with a VLAN tag, of this priority (untagged; 0)", parse_vlan,
			NULL, 0, 0 },
	{ "wait-link", "S", "wait for the link so long, 0: not at all (5)", option_seconds,
			&settings.wait_link_ms, 0, 3600000 },
	{ "keep-link", "S", "keep the link up for S seconds after the run, or until a signal (0)",
			option_seconds, &settings.keep_link_ms, 0, 3600000 },
	{ "pace", "packets|due|bursts",
			"with --rate: one packet at a time, all that are due at once, or whole bursts "
			"of --burst packets (packets)",
			parse_pace, NULL, 0, 0 },
	{ "warm-up", "S", "send for S seconds before, without counting (0)", option_seconds,
			&settings.warm_up_ms, 0, 3600000 },
	{ "find-rate", NULL,
			"find the highest rate, up to --rate, that loses no more than --loss; exit "
			"status 1 if there is none",
			option_flag, &settings.find_rate, 0, 0 },
	{ "loss", "PERCENT", "loss that --find-rate allows, 0.001% too (0)", parse_percent,
			&settings.loss_percent, 0, 100 },
	{ "min-rate", "PPS", "lowest rate that --find-rate tries (1 % of the highest)", option_rate,
			&settings.min_rate, 1, PACER_MAX_RATE },
	{ "trial", "S", "length of a trial of --find-rate (10)", option_seconds, &settings.trial_ms,
			100, 3600000 },
	{ "resolution", "PERCENT", "precision of --find-rate, of the highest rate (1)",
			parse_percent, &settings.resolution_percent, 0, 100 },
	{ "csv", "FILE", "write rates, loss and latency of each interval to FILE as CSV",
			option_output, &settings.csv, 0, 0 },
	{ "csv-interval", "S", "seconds between rows of --csv and --hdr-log (--interval)",
			option_seconds, &settings.csv_interval_ms, 10, 3600000 },
	{ "hdr-log", "FILE",
			"write the latencies of each interval to FILE in HdrHistogram's format",
			option_output, &settings.hdr_log, 0, 0 },
};

const struct option_spec *
settings_spec(const char *name)
{
	unsigned int i = 0;

	while (strcmp(specs[i].name, name) != 0)
		i++;
	return &specs[i];
}

static void
read_bursts(void)
{
	if (settings.tx_burst == 0)
		settings.tx_burst = settings.app.burst;
	if (settings.rx_burst == 0)
		settings.rx_burst = settings.app.burst;
	/* The pool has room for the larger one. */
	settings.app.burst = RTE_MAX(settings.tx_burst, settings.rx_burst);
}

static void
read_queues(void)
{
	struct app_options *app = &settings.app;

	if (app->tx_queues == 0)
		app->tx_queues = app->queues;
	if (app->rx_queues == 0)
		app->rx_queues = app->queues;
	/* A lane for each queue of the direction with more queues. */
	app->queues = RTE_MAX(app->tx_queues, app->rx_queues);
}

static void
help(FILE *out)
{
	fputs("Usage: pmdscope-generator [EAL options] [--pmdscope KEY=VALUE,...] -- [options]\n\n"
	      "Sends UDP packets with a sequence number and a time stamp from every queue of every\n"
	      "port, and counts what comes back: loss, copies, reordering and latency. On SIGINT or\n"
	      "SIGTERM it stops sending, waits for the last packets and prints a summary.\n\n"
	      "Options:\n",
			out);
	options_help(out, specs, RTE_DIM(specs));
	fputs("\nExamples:\n"
	      "  pmdscope-generator -l 1 --no-pci --file-prefix generator --single-file-segments \\\n"
	      "      --vdev net_virtio_user0,path=/tmp/pmdscope.sock,queues=2 \\\n"
	      "      -- --queues 2 --rate 200k\n"
	      "  pmdscope-generator -l 1 -a 0000:3b:00.1 -- --count 1000000 --size 66-1514 \\\n"
	      "      --json summary.json\n"
	      "  pmdscope-generator --no-huge -m 256 --no-pci --vdev net_memif0,role=client \\\n"
	      "      -- --rate 1M --flows 64 --duration 10\n"
	      "  pmdscope-generator -l 1 -a 0000:3b:00.1 -- --queues 4 --rate 1M --flows 64 \\\n"
	      "      --hot-queue 2:8\n\n"
	      "Exit status: 0 if packets came back, 1 if none did or on failure, 2 on a usage error.\n",
			out);
}

/* 0, or -EINVAL, reported. */
static int
check_find_rate(void)
{
	const char *wrong = NULL;

	if (settings.find_rate) {
		if (settings.count != 0 || settings.app.duration_ms != 0 ||
				settings.hdr_log != NULL)
			wrong = "--find-rate runs trials of --trial seconds: leave out --count, "
				"--duration and files of one run";
		else if (settings.rate != 0 && settings.min_rate > settings.rate)
			wrong = "--min-rate is above --rate";
	} else if (settings.loss_percent != 0 || settings.min_rate != 0) {
		wrong = "--loss and --min-rate need --find-rate";
	}
	if (wrong == NULL)
		return 0;
	fprintf(stderr, "pmdscope-generator: %s\n", wrong);
	return -EINVAL;
}

/* 0, or -EINVAL, reported. */
static int
check_rate_percent(void)
{
	const char *wrong = NULL;

	if (settings.rate_percent == 0)
		return 0;
	if (settings.warm_up_ms == 0)
		wrong = "--rate in percent needs --warm-up, which sends as fast as it can first";
	else if (settings.find_rate)
		wrong = "--find-rate begins with a --rate in packets per second, or without one";
	if (wrong == NULL)
		return 0;
	fprintf(stderr, "pmdscope-generator: %s\n", wrong);
	return -EINVAL;
}

/* The command line comes first to name the file, and last to override it. */
static int
parse_all(int *argc, char **argv)
{
	const int all = *argc;
	int rc = app_parse(argc, argv, specs, RTE_DIM(specs), help);

	if (rc >= 0 || config_file == NULL)
		return rc;
	if (config_parse(specs, RTE_DIM(specs), config_file) != 0)
		return APP_EXIT_USAGE;
	*argc = all;
	return app_parse(argc, argv, specs, RTE_DIM(specs), help);
}

int
settings_parse(int *argc, char **argv)
{
	const int rc = parse_all(argc, argv);

	if (rc >= 0)
		return rc;
	if (traffic_read() != 0)
		return APP_EXIT_USAGE;
	read_bursts();
	read_queues();
	if (settings.replay_file != NULL)
		return traffic_read_replay();
	if (settings.replay_speed != 0 || settings.loops != 1) {
		fprintf(stderr, "pmdscope-generator: --replay-speed and --loop need --replay\n");
		return APP_EXIT_USAGE;
	}
	if (settings.hot_times > 1 && settings.rate == 0) {
		fprintf(stderr, "pmdscope-generator: --hot-queue needs --rate PPS, of which each queue gets its share\n");
		return APP_EXIT_USAGE;
	}
	if (check_find_rate() != 0 || check_rate_percent() != 0)
		return APP_EXIT_USAGE;
	return -1;
}
