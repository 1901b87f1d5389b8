/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "pacer.h"
#include "settings.h"

/* Addresses reserved for benchmarks: RFC 2544 and RFC 5180. */
#define SRC_IPV4 "198.18.0.1"
#define DST_IPV4 "198.19.0.1"
#define SRC_IPV6 "2001:2::1"
#define DST_IPV6 "2001:2::2"

#define DEFAULT_SIZE 128
#define MAX_HOT_TIMES 64
#define MAX_VLAN 4094
#define PRIORITY_SHIFT 13
#define MIN_SPEED 1e-3
#define MAX_SPEED 1e6

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

/* As given; what is right depends on --ipv6, which may come later. */
static const char *size_text, *src_ip, *dst_ip, *src_port, *dst_port, *gateway, *config_file;
static uint32_t nb_flows; /* 0: not given. */

static int
parse_mac(const struct option_spec *spec, const char *text)
{
	struct rte_ether_addr *mac = spec->field;

	if (mac == &settings.path.dst_mac) {
		settings.resolve = strcmp(text, "auto") == 0;
		if (settings.resolve)
			return 0;
	}
	if (rte_ether_unformat_addr(text, mac) != 0)
		return option_refuse(spec, text, "a MAC address such as 02:00:00:00:00:01");
	if (mac == &settings.path.src_mac) {
		settings.own_src_mac = false;
		if (rte_is_multicast_ether_addr(mac))
			return option_refuse(
					spec, text, "an address that can send: it is multicast");
	}
	return 0;
}

static int
parse_stall(const struct option_spec *spec, const char *text)
{
	return option_time_every(spec, text, &settings.stall_us, &settings.stall_every_ms);
}

/* "Q:N" */
static int
parse_hot_queue(const struct option_spec *spec, const char *text)
{
	uint64_t queue, times;
	const char *rest;

	if (!option_number(text, ':', 0, UINT16_MAX, &queue, &rest) ||
			!option_number(rest, '\0', 2, MAX_HOT_TIMES, &times, NULL))
		return option_refuse(spec, text, "Q:N, a queue and a number from 2 to 64");
	settings.hot_queue = (uint16_t)queue;
	settings.hot_times = (uint32_t)times;
	return 0;
}

static int
parse_speed(const struct option_spec *spec, const char *text)
{
	char *end = NULL;
	double speed = 0;

	if (isdigit((unsigned char)*text))
		speed = strtod(text, &end);
	/* Written so that a NaN fails too. */
	if (end == NULL || *end != '\0' || !(speed >= MIN_SPEED && speed <= MAX_SPEED))
		return option_refuse(
				spec, text, "a number from 0.001 to 1000000, such as 1 or 0.5");
	settings.replay_speed = speed;
	return 0;
}

/* "ID" or "ID:PCP" */
static int
parse_vlan(const struct option_spec *spec, const char *text)
{
	const bool has_priority = strchr(text, ':') != NULL;
	uint64_t id, priority = 0;
	const char *rest;

	if (!option_number(text, has_priority ? ':' : '\0', 0, MAX_VLAN, &id, &rest) ||
			(has_priority && !option_number(rest, '\0', 0, 7, &priority, NULL)))
		return option_refuse(spec, text, "ID[:PCP], from 0 to 4094 and from 0 to 7");
	settings.path.tagged = true;
	settings.path.tci = (uint16_t)(priority << PRIORITY_SHIFT | id);
	return 0;
}

static const char *const paces[] = {
	[PACER_PACKETS] = "packets",
	[PACER_DUE] = "due",
	[PACER_BURSTS] = "bursts",
};

const char *
settings_pace(void)
{
	return settings.rate == 0 ? "none" : paces[settings.pace];
}

/* A double; "0.001" or "0.001%". */
static int
parse_percent(const struct option_spec *spec, const char *text)
{
	char *after;
	const double percent = strtod(text, &after);

	if (*after == '%')
		after++;
	/* Written so that a NaN fails too. */
	if (text[0] < '0' || text[0] > '9' || *after != '\0' || !(percent <= (double)spec->max))
		return option_refuse(spec, text, "a percentage from 0 to 100, such as 0.001%%");
	*(double *)spec->field = percent;
	return 0;
}

static int
parse_pace(const struct option_spec *spec, const char *text)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(paces); i++) {
		if (strcmp(text, paces[i]) == 0) {
			settings.pace = (enum pacer_mode)i;
			return 0;
		}
	}
	return option_refuse(spec, text, "packets, due or bursts");
}

static const struct option_spec specs[] = {
	APP_OPTION_SPECS(settings.app),
	{ "rate", "PPS", "packets per second in all, 200k and 2M too; 0: fastest (0)", option_rate,
			&settings.rate, 0, PACER_MAX_RATE },
	{ "count", "N", "end after N packets have been sent (no limit)", option_u64,
			&settings.count, 1, UINT64_C(1) << 62 },
	{ "size", "SIZES",
			"frame size without FCS (128), A-B for all in turn, a list such as 64,512 or "
			"60:9,1514:1 (SIZE:WEIGHT), or imix (60:7,590:4,1514:1)",
			option_text, &size_text, 0, 0 },
	{ "fill", NULL, "fill the payload, differently in each packet", option_flag, &settings.fill,
			0, 0 },
	{ "flows", "N", "number of UDP source ports (1)", option_u32, &nb_flows, 1,
			PROBE_MAX_FLOWS },
	{ "deaf-after", "S", "receive nothing from then on (receive always)", option_seconds,
			&settings.deaf_after_ms, 1, 1000000000 },
	{ "inject-stall", "US/MS", "stall each lcore US microseconds every MS milliseconds",
			parse_stall, NULL, 0, 0 },
	{ "hot-queue", "Q:N",
			"send N times as many packets from queue Q as from each other, the further "
			"ones all in the first flow; needs --rate",
			parse_hot_queue, NULL, 0, 0 },
	{ "ipv6", NULL, "send IPv6, not IPv4", option_flag, &settings.path.ipv6, 0, 0 },
	{ "src-mac", "MAC", "sender (the port's own address)", parse_mac, &settings.path.src_mac, 0,
			0 },
	{ "dst-mac", "MAC|auto",
			"receiver, auto: ask for it by ARP or neighbour discovery (02:70:6d:64:73:02)",
			parse_mac, &settings.path.dst_mac, 0, 0 },
	{ "src-ip", "ADDRESSES", "sender, A-B or A/N for several (" SRC_IPV4 ", " SRC_IPV6 ")",
			option_text, &src_ip, 0, 0 },
	{ "dst-ip", "ADDRESSES", "receiver, A-B or A/N for several (" DST_IPV4 ", " DST_IPV6 ")",
			option_text, &dst_ip, 0, 0 },
	{ "gateway", "ADDRESS", "next hop, for --dst-mac auto (--dst-ip, its first address)",
			option_text, &gateway, 0, 0 },
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
			option_text, &src_port, 0, 0 },
	{ "dst-port", "PORTS", "UDP destination port, A-B for several (7)", option_text, &dst_port,
			0, 0 },
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

static const struct option_spec *
spec_of(const char *name)
{
	unsigned int i = 0;

	while (strcmp(specs[i].name, name) != 0)
		i++;
	return &specs[i];
}

static int
read_ips(const char *name, enum flow_field field, const char *text, uint8_t *address)
{
	const bool ipv6 = settings.path.ipv6;

	if (flows_parse_ips(&settings.flows, field, text, ipv6, address))
		return 0;
	return option_refuse(
			spec_of(name), text, "%s", ipv6 ? FLOWS_IPV6_WANTED : FLOWS_IPV4_WANTED);
}

static int
read_ports(const char *name, enum flow_field field, const char *text)
{
	if (flows_parse_ports(&settings.flows, field, text))
		return 0;
	return option_refuse(spec_of(name), text, FLOWS_PORTS_WANTED);
}

static int
read_flows(void)
{
	struct probe_path *path = &settings.path;
	char ports[16];

	if (src_port != NULL && nb_flows != 0) {
		fprintf(stderr, "pmdscope-generator: --flows and --src-port exclude each other\n");
		return -EINVAL;
	}
	snprintf(ports, sizeof(ports), "%u-%u", PROBE_SRC_PORT,
			PROBE_SRC_PORT + (nb_flows != 0 ? nb_flows - 1 : 0));
	if (read_ports("src-port", FLOW_SRC_PORT, src_port != NULL ? src_port : ports) != 0 ||
			read_ports("dst-port", FLOW_DST_PORT, dst_port != NULL ? dst_port : "7") !=
					0 ||
			read_ips("src-ip", FLOW_SRC_IP,
					src_ip != NULL ? src_ip
					: path->ipv6   ? SRC_IPV6
						       : SRC_IPV4,
					path->src_ip) != 0 ||
			read_ips("dst-ip", FLOW_DST_IP,
					dst_ip != NULL ? dst_ip
					: path->ipv6   ? DST_IPV6
						       : DST_IPV4,
					path->dst_ip) != 0)
		return -EINVAL;
	flows_prepare(&settings.flows);
	return 0;
}

/* The prefixes that make up the range of source addresses: what is asked for them is answered. */
static void
list_own_ips(void)
{
	const uint64_t last = settings.flows.last.value[FLOW_SRC_IP];
	uint64_t at = settings.flows.first.value[FLOW_SRC_IP];
	const unsigned int bytes = settings.path.ipv6 ? 16 : 4;
	struct answer_address *address;
	unsigned int free_bits;
	rte_be32_t tail;

	/* Of 32 bits: at most 62 prefixes. */
	while (at <= last) {
		free_bits = 0;
		while (free_bits < 32 && at % (UINT64_C(2) << free_bits) == 0 &&
				at + (UINT64_C(2) << free_bits) - 1 <= last)
			free_bits++;
		address = &settings.own_ips.address[settings.own_ips.nb++];
		address->ipv6 = settings.path.ipv6;
		address->bits = (uint8_t)(bytes * 8 - free_bits);
		memcpy(address->ip, settings.path.src_ip, bytes);
		tail = rte_cpu_to_be_32((uint32_t)at);
		memcpy(address->ip + bytes - sizeof(tail), &tail, sizeof(tail));
		at += UINT64_C(1) << free_bits;
	}
}

static void
read_bursts(void)
{
	if (settings.tx_burst == 0)
		settings.tx_burst = settings.app.burst;
	if (settings.rx_burst == 0)
		settings.rx_burst = settings.app.burst;
	/* The pool has room for the larger. */
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
	/* A lane for each queue of the direction that has more. */
	app->queues = RTE_MAX(app->tx_queues, app->rx_queues);
}

static int
read_next_hop(void)
{
	const int family = settings.path.ipv6 ? AF_INET6 : AF_INET;

	if (gateway != NULL && !settings.resolve) {
		fprintf(stderr, "pmdscope-generator: --gateway needs --dst-mac auto\n");
		return -EINVAL;
	}
	memcpy(settings.next_hop, settings.path.dst_ip, sizeof(settings.next_hop));
	if (gateway == NULL || inet_pton(family, gateway, settings.next_hop) == 1)
		return 0;
	return option_refuse(spec_of("gateway"), gateway,
			settings.path.ipv6 ? "an IPv6 address, as --ipv6 asks for"
					   : "an IPv4 address; --ipv6 sends IPv6");
}

/* An option that is given but has no part in what a file replays, or NULL. */
static const char *
contradicts_replay(void)
{
	const struct {
		bool given;
		const char *name;
	} options[] = {
		{ size_text != NULL, "size" },
		{ settings.fill, "fill" },
		{ settings.verify, "verify" },
		{ nb_flows != 0, "flows" },
		{ src_port != NULL, "src-port" },
		{ dst_port != NULL, "dst-port" },
		{ src_ip != NULL, "src-ip" },
		{ dst_ip != NULL, "dst-ip" },
		{ !settings.own_src_mac, "src-mac" },
		{ settings.resolve, "dst-mac auto" },
		{ settings.path.ipv6, "ipv6" },
		{ settings.path.tagged, "vlan" },
		{ settings.hot_times > 1, "hot-queue" },
		{ settings.find_rate, "find-rate" },
		{ settings.warm_up_ms != 0, "warm-up" },
		{ settings.rate != 0 && settings.replay_speed != 0, "replay-speed (or --rate)" },
	};
	unsigned int i;

	for (i = 0; i < RTE_DIM(options); i++)
		if (options[i].given)
			return options[i].name;
	return NULL;
}

static int
read_replay(void)
{
	const char *other = contradicts_replay();
	struct replay *replay = &settings.replay;
	uint64_t count;

	if (other != NULL) {
		fprintf(stderr, "pmdscope-generator: --replay sends packets as they are in the file; leave out --%s\n",
				other);
		return APP_EXIT_USAGE;
	}
	if (replay_load(replay, settings.replay_file) != 0)
		return APP_EXIT_FAILED;
	if (replay->nb == 1 && settings.loops != 1 && settings.rate == 0) {
		fprintf(stderr, "pmdscope-generator: one packet has no timing to --loop at; pass --rate\n");
		return APP_EXIT_USAGE;
	}
	if (replay->nb_cut > 0)
		fprintf(stderr,
				"pmdscope-generator: --replay %s: %" PRIu64 " of %" PRIu64
				" packets were cut off when captured, and are sent so\n",
				settings.replay_file, replay->nb_cut, replay->nb);
	if (settings.replay_speed == 0)
		settings.replay_speed = 1;
	count = replay->nb * settings.loops;
	if (count != 0 && (settings.count == 0 || count < settings.count))
		settings.count = count;
	settings.sizes.min = replay->min_size;
	settings.sizes.max = replay->max_size;
	return -1;
}

static int
read_size(const char *text)
{
	const uint16_t tag = settings.path.tagged ? sizeof(struct rte_vlan_hdr) : 0;
	const uint16_t least = RTE_MAX(probe_min_frame(settings.path.ipv6) + tag, PROBE_MIN_FRAME);
	const uint16_t most = PROBE_MAX_FRAME + tag;

	if (sizes_parse(&settings.sizes, text, least, most) == 0)
		return 0;
	return option_refuse(spec_of("size"), text,
			SIZES_WANTED ", within %u (the headers of %s, UDP and probe) to %u", least,
			settings.path.ipv6 ? "IPv6" : "IPv4", most);
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
	char default_size[8];

	if (rc >= 0)
		return rc;
	snprintf(default_size, sizeof(default_size), "%d", DEFAULT_SIZE);
	if (read_size(size_text != NULL ? size_text : default_size) != 0 || read_flows() != 0 ||
			read_next_hop() != 0)
		return APP_EXIT_USAGE;
	list_own_ips();
	read_bursts();
	read_queues();
	if (settings.replay_file != NULL)
		return read_replay();
	if (settings.replay_speed != 0 || settings.loops != 1) {
		fprintf(stderr, "pmdscope-generator: --replay-speed and --loop need --replay\n");
		return APP_EXIT_USAGE;
	}
	if (settings.hot_times > 1 && settings.rate == 0) {
		fprintf(stderr, "pmdscope-generator: --hot-queue needs --rate, of which each queue gets its share\n");
		return APP_EXIT_USAGE;
	}
	if (check_find_rate() != 0)
		return APP_EXIT_USAGE;
	return -1;
}
