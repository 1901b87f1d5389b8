/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>

#include "answer.h"
#include "clock.h"
#include "control.h"
#include "headers.h"
#include "neighbour.h"
#include "port.h"

#define ASK_EVERY_MS 1000
#define POLL_EVERY_MS 1
#define BURST 32
#define HOP_LIMIT_LINK 255
#define ICMP6_SOLICIT 135
#define ICMP6_ADVERTISE 136
#define OPTION_SOURCE_MAC 1
#define OPTION_TARGET_MAC 2
#define OPTION_UNIT 8

struct option {
	uint8_t type;
	uint8_t units; /* Its length, in units of eight bytes. */
	struct rte_ether_addr mac;
};

struct message {
	uint8_t type;
	uint8_t code;
	rte_be16_t checksum;
	rte_be32_t flags;
	uint8_t target[16];
	struct option option;
} __attribute__((packed));

static uint8_t *
put_ethernet(uint8_t *at, const struct probe_path *path, const struct rte_ether_addr *dst,
		uint16_t type)
{
	struct rte_ether_hdr *eth = (struct rte_ether_hdr *)at;
	struct rte_vlan_hdr *vlan = (struct rte_vlan_hdr *)(eth + 1);

	eth->dst_addr = *dst;
	eth->src_addr = path->src_mac;
	eth->ether_type = rte_cpu_to_be_16(path->tagged ? RTE_ETHER_TYPE_VLAN : type);
	if (!path->tagged)
		return (uint8_t *)(eth + 1);
	vlan->vlan_tci = rte_cpu_to_be_16(path->tci);
	vlan->eth_proto = rte_cpu_to_be_16(type);
	return (uint8_t *)(vlan + 1);
}

static uint8_t *
put_arp(uint8_t *at, const struct probe_path *path, const uint8_t *target)
{
	static const struct rte_ether_addr broadcast = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };
	struct rte_arp_hdr *arp = (struct rte_arp_hdr *)put_ethernet(
			at, path, &broadcast, RTE_ETHER_TYPE_ARP);

	*arp = (struct rte_arp_hdr){
		.arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER),
		.arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4),
		.arp_hlen = RTE_ETHER_ADDR_LEN,
		.arp_plen = sizeof(rte_be32_t),
		.arp_opcode = rte_cpu_to_be_16(RTE_ARP_OP_REQUEST),
		.arp_data.arp_sha = path->src_mac,
	};
	memcpy(&arp->arp_data.arp_sip, path->src_ip, sizeof(rte_be32_t));
	memcpy(&arp->arp_data.arp_tip, target, sizeof(rte_be32_t));
	return (uint8_t *)(arp + 1);
}

static uint16_t
icmp6_checksum(const struct rte_ipv6_hdr *ip, const void *message, uint16_t size)
{
	uint32_t sum = (uint32_t)rte_ipv6_phdr_cksum(ip, 0) + rte_raw_cksum(message, size);

	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static uint8_t *
put_solicitation(uint8_t *at, const struct probe_path *path, const uint8_t *target)
{
	/* The multicast group of all addresses with the same last 24 bits as the target. */
	const struct rte_ether_addr group = { { 0x33, 0x33, 0xff, target[13], target[14],
			target[15] } };
	const uint8_t group_ip[16] = { 0xff,
		2, [11] = 1, [12] = 0xff, [13] = target[13], [14] = target[14], [15] = target[15] };
	struct rte_ipv6_hdr *ip =
			(struct rte_ipv6_hdr *)put_ethernet(at, path, &group, RTE_ETHER_TYPE_IPV6);
	struct message *message = (struct message *)(ip + 1);

	*ip = (struct rte_ipv6_hdr){
		.vtc_flow = rte_cpu_to_be_32(UINT32_C(6) << 28),
		.payload_len = rte_cpu_to_be_16(sizeof(*message)),
		.proto = IPPROTO_ICMPV6,
		.hop_limits = HOP_LIMIT_LINK,
	};
	memcpy(&ip->src_addr, path->src_ip, sizeof(ip->src_addr));
	memcpy(&ip->dst_addr, group_ip, sizeof(ip->dst_addr));
	*message = (struct message){
		.type = ICMP6_SOLICIT,
		.option = { OPTION_SOURCE_MAC, sizeof(message->option) / OPTION_UNIT,
				path->src_mac },
	};
	memcpy(message->target, target, sizeof(message->target));
	message->checksum = icmp6_checksum(ip, message, sizeof(*message));
	return (uint8_t *)(message + 1);
}

void
neighbour_ask(struct rte_mbuf *m, const struct probe_path *path, const uint8_t *target)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *), *end;
	size_t size;

	end = path->ipv6 ? put_solicitation(frame, path, target) : put_arp(frame, path, target);
	size = (size_t)(end - frame);
	if (size < PROBE_MIN_FRAME) {
		memset(end, 0, PROBE_MIN_FRAME - size);
		size = PROBE_MIN_FRAME;
	}
	m->data_len = (uint16_t)size;
	m->pkt_len = (uint32_t)size;
}

static bool
told_by_arp(const struct rte_mbuf *m, uint32_t offset, const struct probe_path *path,
		const uint8_t *target, struct rte_ether_addr *mac)
{
	const struct rte_arp_hdr *arp = header_at(m, offset, sizeof(*arp));

	if (arp == NULL || arp->arp_opcode != rte_cpu_to_be_16(RTE_ARP_OP_REPLY) ||
			arp->arp_protocol != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
			arp->arp_hlen != RTE_ETHER_ADDR_LEN ||
			memcmp(&arp->arp_data.arp_sip, target, sizeof(rte_be32_t)) != 0 ||
			memcmp(&arp->arp_data.arp_tip, path->src_ip, sizeof(rte_be32_t)) != 0)
		return false;
	*mac = arp->arp_data.arp_sha;
	return true;
}

static bool
told_by_advertisement(const struct rte_mbuf *m, uint32_t offset, const uint8_t *target,
		struct rte_ether_addr *mac)
{
	const struct rte_ipv6_hdr *ip = header_at(m, offset, sizeof(*ip));
	const struct message *message = (const struct message *)(ip + 1);
	uint16_t size;

	if (ip == NULL || ip->proto != IPPROTO_ICMPV6 || ip->hop_limits != HOP_LIMIT_LINK)
		return false;
	size = rte_be_to_cpu_16(ip->payload_len);
	/* Answers to multicast requests have the option, which comes first in all known ones. */
	if (size < sizeof(*message) || header_at(m, offset + sizeof(*ip), size) == NULL ||
			message->type != ICMP6_ADVERTISE ||
			message->option.type != OPTION_TARGET_MAC ||
			memcmp(message->target, target, sizeof(message->target)) != 0 ||
			icmp6_checksum(ip, message, size) != 0)
		return false;
	*mac = message->option.mac;
	return true;
}

bool
neighbour_told(const struct rte_mbuf *m, const struct probe_path *path, const uint8_t *target,
		struct rte_ether_addr *mac)
{
	const struct rte_ether_hdr *eth = header_at(m, 0, sizeof(*eth));
	struct rte_ether_addr told;
	uint32_t offset;
	uint16_t type;
	bool ok;

	if (eth == NULL)
		return false;
	type = header_network_type(m, eth, &offset);
	if (type == RTE_ETHER_TYPE_ARP && !path->ipv6)
		ok = told_by_arp(m, offset, path, target, &told);
	else if (type == RTE_ETHER_TYPE_IPV6 && path->ipv6)
		ok = told_by_advertisement(m, offset, target, &told);
	else
		ok = false;
	if (!ok || rte_is_multicast_ether_addr(&told) || rte_is_zero_ether_addr(&told))
		return false;
	*mac = told;
	return true;
}

/* The state of one call of neighbour_resolve(). */
struct question {
	uint16_t port;
	struct rte_mempool *pool;
	const struct probe_path *path;
	const uint8_t *target;
	struct answer_addresses own;
};

static void
transmit(uint16_t port, struct rte_mbuf *m)
{
	if (rte_eth_tx_burst(port, 0, &m, 1) == 0)
		rte_pktmbuf_free(m);
}

static int
ask(const struct question *question)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(question->pool);

	if (m == NULL) {
		fprintf(stderr, "%s: no packet to ask for a MAC address with; raise --mbufs\n",
				program_invocation_short_name);
		return -ENOMEM;
	}
	neighbour_ask(m, question->path, question->target);
	transmit(question->port, m);
	return 0;
}

static bool
listen_on(const struct question *question, uint16_t queue, struct rte_ether_addr *mac)
{
	struct rte_mbuf *pkts[BURST];
	const uint16_t nb = rte_eth_rx_burst(question->port, queue, pkts, BURST);
	bool told = false;
	uint16_t i;

	for (i = 0; i < nb; i++) {
		told = told || neighbour_told(pkts[i], question->path, question->target, mac);
		if (answer_packet(pkts[i], &question->path->src_mac, &question->own) >
				ANSWER_IGNORED)
			transmit(question->port, pkts[i]);
		else
			rte_pktmbuf_free(pkts[i]);
	}
	return told;
}

static int
no_answer(const struct question *question, uint64_t timeout_ms)
{
	const bool ipv6 = question->path->ipv6;
	char target[INET6_ADDRSTRLEN], own[INET6_ADDRSTRLEN];

	inet_ntop(ipv6 ? AF_INET6 : AF_INET, question->target, target, sizeof(target));
	inet_ntop(ipv6 ? AF_INET6 : AF_INET, question->path->src_ip, own, sizeof(own));
	fprintf(stderr,
			"%s: port %u (%s): %s does not answer %s from %s within %g s. Does it have this "
			"address, on the same link and in the same VLAN (a reflector needs --ip)? "
			"--gateway names the next hop, --src-ip the sender, --dst-mac ADDRESS does "
			"without asking\n",
			program_invocation_short_name, question->port, port_name(question->port),
			target, ipv6 ? "neighbour solicitations" : "ARP requests", own,
			(double)timeout_ms / 1e3);
	return -ETIMEDOUT;
}

static void
own_address(struct answer_addresses *own, const struct probe_path *path)
{
	own->nb = 1;
	own->address[0].ipv6 = path->ipv6;
	own->address[0].bits = path->ipv6 ? 128 : 32;
	memcpy(own->address[0].ip, path->src_ip, sizeof(own->address[0].ip));
}

int
neighbour_resolve(uint16_t port, uint16_t nb_rx_queues, struct rte_mempool *pool,
		const struct probe_path *path, const uint8_t *target, uint64_t timeout_ms,
		struct rte_ether_addr *mac)
{
	struct question question = { .port = port, .pool = pool, .path = path, .target = target };
	uint64_t waited_ms, now;
	const uint64_t start = clock_read_ns(CLOCK_MONOTONIC);
	uint64_t asked = 0;
	uint16_t queue;

	own_address(&question.own, path);
	do {
		now = clock_read_ns(CLOCK_MONOTONIC);
		waited_ms = (now - start) / 1000000;
		if (asked == 0 || now - asked >= ASK_EVERY_MS * UINT64_C(1000000)) {
			if (ask(&question) != 0)
				return -ENOMEM;
			asked = now;
		}
		for (queue = 0; queue < nb_rx_queues; queue++)
			if (listen_on(&question, queue, mac))
				return 0;
		if (control_sleep(POLL_EVERY_MS)) {
			fprintf(stderr, "%s: stopped before the MAC address was known\n",
					program_invocation_short_name);
			return -EINTR;
		}
	} while (waited_ms < timeout_ms);
	return no_answer(&question, timeout_ms);
}
