/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "settings.h"
#include "traffic.h"

#define DEFAULT_SIZE "128"

struct traffic_text traffic_text;

static int
read_ips(const char *name, enum flow_field field, const char *text, uint8_t *address)
{
	const bool ipv6 = settings.path.ipv6;

	if (flows_parse_ips(&settings.flows, field, text, ipv6, address))
		return 0;
	return option_refuse(settings_spec(name), text, "%s",
			ipv6 ? FLOWS_IPV6_WANTED : FLOWS_IPV4_WANTED);
}

static int
read_ports(const char *name, enum flow_field field, const char *text)
{
	if (flows_parse_ports(&settings.flows, field, text))
		return 0;
	return option_refuse(settings_spec(name), text, FLOWS_PORTS_WANTED);
}

static int
read_flows(void)
{
	const struct traffic_text *given = &traffic_text;
	struct probe_path *path = &settings.path;
	char ports[16];

	if (given->src_port != NULL && given->nb_flows != 0) {
		fprintf(stderr, "pmdscope-generator: --flows and --src-port exclude each other\n");
		return -EINVAL;
	}
	snprintf(ports, sizeof(ports), "%u-%u", PROBE_SRC_PORT,
			PROBE_SRC_PORT + (given->nb_flows != 0 ? given->nb_flows - 1 : 0));
	if (read_ports("src-port", FLOW_SRC_PORT,
			    given->src_port != NULL ? given->src_port : ports) != 0 ||
			read_ports("dst-port", FLOW_DST_PORT,
					given->dst_port != NULL ? given->dst_port : "7") != 0 ||
			read_ips("src-ip", FLOW_SRC_IP,
					given->src_ip != NULL ? given->src_ip
					: path->ipv6	      ? SRC_IPV6
							      : SRC_IPV4,
					path->src_ip) != 0 ||
			read_ips("dst-ip", FLOW_DST_IP,
					given->dst_ip != NULL ? given->dst_ip
					: path->ipv6	      ? DST_IPV6
							      : DST_IPV4,
					path->dst_ip) != 0)
		return -EINVAL;
	flows_prepare(&settings.flows);
	return 0;
}

/* The prefixes that make up the range of source addresses, for which requests are answered. */
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

static int
read_next_hop(void)
{
	const int family = settings.path.ipv6 ? AF_INET6 : AF_INET;
	const char *gateway = traffic_text.gateway;

	if (gateway != NULL && !settings.resolve) {
		fprintf(stderr, "pmdscope-generator: --gateway needs --dst-mac auto\n");
		return -EINVAL;
	}
	memcpy(settings.next_hop, settings.path.dst_ip, sizeof(settings.next_hop));
	if (gateway == NULL || inet_pton(family, gateway, settings.next_hop) == 1)
		return 0;
	return option_refuse(settings_spec("gateway"), gateway,
			settings.path.ipv6 ? "an IPv6 address, as --ipv6 asks for"
					   : "an IPv4 address; --ipv6 sends IPv6");
}

/* An option that is given but has no effect on a replayed file, or NULL. */
static const char *
contradicts_replay(void)
{
	const struct {
		bool given;
		const char *name;
	} options[] = {
		{ traffic_text.size != NULL, "size" },
		{ settings.fill, "fill" },
		{ settings.verify, "verify" },
		{ traffic_text.nb_flows != 0, "flows" },
		{ traffic_text.src_port != NULL, "src-port" },
		{ traffic_text.dst_port != NULL, "dst-port" },
		{ traffic_text.src_ip != NULL, "src-ip" },
		{ traffic_text.dst_ip != NULL, "dst-ip" },
		{ !settings.own_src_mac, "src-mac" },
		{ settings.resolve, "dst-mac auto" },
		{ settings.path.ipv6, "ipv6" },
		{ settings.path.tagged, "vlan" },
		{ settings.hot_times > 1, "hot-queue" },
		{ settings.find_rate, "find-rate" },
		{ settings.warm_up_ms != 0, "warm-up" },
		{ settings.rate_percent != 0, "rate in percent" },
		{ settings.rate != 0 && settings.replay_speed != 0, "replay-speed (or --rate)" },
	};
	unsigned int i;

	for (i = 0; i < RTE_DIM(options); i++)
		if (options[i].given)
			return options[i].name;
	return NULL;
}

int
traffic_read_replay(void)
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

static uint16_t
tag_size(void)
{
	return settings.path.tagged ? sizeof(struct rte_vlan_hdr) : 0;
}

uint16_t
traffic_headers(void)
{
	return probe_min_frame(settings.path.ipv6) + tag_size();
}

static int
read_size(const char *text)
{
	const uint16_t least = RTE_MAX(traffic_headers(), PROBE_MIN_FRAME);
	const uint16_t most = PROBE_MAX_FRAME + tag_size();

	if (sizes_parse(&settings.sizes, text, least, most) == 0)
		return 0;
	return option_refuse(settings_spec("size"), text,
			SIZES_WANTED ", within %u (the headers of %s, UDP and probe) to %u", least,
			settings.path.ipv6 ? "IPv6" : "IPv4", most);
}

int
traffic_read(void)
{
	const char *size = traffic_text.size;

	if (read_size(size != NULL ? size : DEFAULT_SIZE) != 0 || read_flows() != 0 ||
			read_next_hop() != 0)
		return -EINVAL;
	list_own_ips();
	return 0;
}
