/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_ip.h>

#include "answer.h"
#include "headers.h"

#define IPV4_BITS 32
#define IPV6_BITS 128
#define HOP_LIMIT 64
/* Required by neighbour discovery: proof that no router forwarded the packet. */
#define HOP_LIMIT_LINK 255

#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8
#define ICMP6_ECHO_REQUEST 128
#define ICMP6_ECHO_REPLY 129
#define ICMP6_SOLICIT 135
#define ICMP6_ADVERTISE 136

#define ADVERTISE_SOLICITED (UINT32_C(1) << 30)
#define ADVERTISE_OVERRIDE (UINT32_C(1) << 29)
#define OPTION_TARGET_MAC 2
#define OPTION_UNIT 8 /* Unit of the length of options, bytes. */

struct icmp {
	uint8_t type;
	uint8_t code;
	rte_be16_t checksum;
	rte_be32_t rest; /* Identifier and sequence number, or flags. */
} __attribute__((packed));

/* Neighbour solicitation or advertisement, without options. */
struct neighbour {
	struct icmp icmp;
	uint8_t target[16];
} __attribute__((packed));

struct target_option {
	uint8_t type;
	uint8_t units;
	struct rte_ether_addr mac;
};

struct fragment_header {
	uint8_t proto;
	uint8_t reserved;
	rte_be16_t offset;
	rte_be32_t id;
} __attribute__((packed));
#define FRAGMENT_OFFSET_MASK 0xfff8

bool
answer_parse(const char *text, struct answer_address *address)
{
	const char *slash = strchr(text, '/');
	const size_t size = slash != NULL ? (size_t)(slash - text) : strlen(text);
	char ip[INET6_ADDRSTRLEN], *end;
	unsigned long bits, most;

	if (size >= sizeof(ip))
		return false;
	memset(address, 0, sizeof(*address));
	memcpy(ip, text, size);
	ip[size] = '\0';
	address->ipv6 = strchr(ip, ':') != NULL;
	if (inet_pton(address->ipv6 ? AF_INET6 : AF_INET, ip, address->ip) != 1)
		return false;
	bits = most = address->ipv6 ? IPV6_BITS : IPV4_BITS;
	if (slash != NULL) {
		if (slash[1] < '0' || slash[1] > '9')
			return false;
		bits = strtoul(slash + 1, &end, 10);
		if (*end != '\0' || bits > most)
			return false;
	}
	address->bits = (uint8_t)bits;
	return true;
}

static bool
in_prefix(const struct answer_address *address, const uint8_t *ip)
{
	const unsigned int bytes = address->bits / 8, rest = address->bits % 8;

	if (memcmp(address->ip, ip, bytes) != 0)
		return false;
	return rest == 0 || (address->ip[bytes] ^ ip[bytes]) >> (8 - rest) == 0;
}

/* The address is one of ours. exact: listed itself, not only contained in a prefix. */
static bool
is_ours(const struct answer_addresses *addresses, const void *ip, bool ipv6, bool exact)
{
	const unsigned int least = exact ? (ipv6 ? IPV6_BITS : IPV4_BITS) : 0;
	unsigned int i;

	for (i = 0; i < addresses->nb; i++)
		if (addresses->address[i].ipv6 == ipv6 && addresses->address[i].bits >= least &&
				in_prefix(&addresses->address[i], ip))
			return true;
	return false;
}

static void
answer_mac(struct rte_ether_hdr *eth, const struct rte_ether_addr *own)
{
	eth->dst_addr = eth->src_addr;
	eth->src_addr = *own;
}

/* An Internet checksum after one 16-bit word of what it covers changes (RFC 1624, equation 3). */
static rte_be16_t
checksum_after(rte_be16_t checksum, rte_be16_t from, rte_be16_t to)
{
	uint32_t sum = (uint16_t)~checksum + (uint32_t)(uint16_t)~from + to;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static enum answer_kind
answer_arp(struct rte_mbuf *m, struct rte_ether_hdr *eth, uint32_t offset,
		const struct rte_ether_addr *own, const struct answer_addresses *addresses)
{
	struct rte_arp_hdr *arp = header_at(m, offset, sizeof(*arp));
	struct rte_arp_ipv4 *data;
	rte_be32_t target;
	bool probe;

	if (arp == NULL || arp->arp_hardware != rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) ||
			arp->arp_protocol != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
			arp->arp_hlen != sizeof(struct rte_ether_addr) ||
			arp->arp_plen != sizeof(target) ||
			arp->arp_opcode != rte_cpu_to_be_16(RTE_ARP_OP_REQUEST))
		return ANSWER_IGNORED;
	data = &arp->arp_data;
	target = data->arp_tip;
	/* A host that probes may be about to take an address that is only contained in a prefix. */
	probe = data->arp_sip == 0;
	if (data->arp_sip == target || rte_is_multicast_ether_addr(&data->arp_sha) ||
			!is_ours(addresses, &target, false, probe))
		return ANSWER_IGNORED;
	arp->arp_opcode = rte_cpu_to_be_16(RTE_ARP_OP_REPLY);
	data->arp_tha = data->arp_sha;
	data->arp_tip = data->arp_sip;
	data->arp_sha = *own;
	data->arp_sip = target;
	answer_mac(eth, own);
	return ANSWER_ARP;
}

/* Make the echo reply to a request, except its IP header. False if it is not a request. */
static bool
reply_echo(struct icmp *icmp, uint8_t request, uint8_t reply)
{
	/* Type and code are the first word, with the type in its first byte. */
	if (icmp == NULL || icmp->type != request || icmp->code != 0)
		return false;
	icmp->checksum = checksum_after(icmp->checksum, rte_cpu_to_be_16((uint16_t)(request << 8)),
			rte_cpu_to_be_16((uint16_t)(reply << 8)));
	icmp->type = reply;
	return true;
}

static void
answer_ipv4_header(struct rte_ipv4_hdr *ip)
{
	const rte_be32_t from = ip->src_addr;
	const uint16_t proto = ip->next_proto_id;

	ip->src_addr = ip->dst_addr;
	ip->dst_addr = from;
	if (ip->hdr_checksum != 0)
		ip->hdr_checksum = checksum_after(ip->hdr_checksum,
				rte_cpu_to_be_16((uint16_t)(ip->time_to_live << 8 | proto)),
				rte_cpu_to_be_16((uint16_t)(HOP_LIMIT << 8 | proto)));
	ip->time_to_live = HOP_LIMIT;
	if (ip->hdr_checksum == 0) /* Left to hardware. */
		ip->hdr_checksum = rte_ipv4_cksum(ip);
}

static enum answer_kind
answer_ipv4(struct rte_mbuf *m, struct rte_ether_hdr *eth, uint32_t l3,
		const struct rte_ether_addr *own, const struct answer_addresses *addresses)
{
	struct rte_ipv4_hdr *ip = header_at(m, l3, sizeof(*ip));
	uint32_t size, total, from;
	uint16_t offset;

	if (rte_is_multicast_ether_addr(&eth->dst_addr))
		return ANSWER_IGNORED;
	if (ip == NULL || ip->version_ihl >> 4 != 4 || ip->next_proto_id != IPPROTO_ICMP)
		return ANSWER_NONE;
	size = rte_ipv4_hdr_len(ip);
	total = rte_be_to_cpu_16(ip->total_length);
	from = rte_be_to_cpu_32(ip->src_addr);
	if (size < sizeof(*ip) || total < size || l3 + total > rte_pktmbuf_pkt_len(m) ||
			header_at(m, l3, size) == NULL || from == 0 || from >= RTE_IPV4_MIN_MCAST ||
			!is_ours(addresses, &ip->dst_addr, false, false))
		return ANSWER_IGNORED;
	offset = rte_be_to_cpu_16(ip->fragment_offset) & RTE_IPV4_HDR_OFFSET_MASK;
	if (offset == 0 && (total < size + sizeof(struct icmp) ||
					   !reply_echo(header_at(m, l3 + size, sizeof(struct icmp)),
							   ICMP_ECHO_REQUEST, ICMP_ECHO_REPLY)))
		return ANSWER_IGNORED;
	answer_ipv4_header(ip);
	answer_mac(eth, own);
	return ANSWER_ECHO;
}

static bool
is_multicast_ipv6(const void *ip)
{
	return *(const uint8_t *)ip == 0xff;
}

static bool
is_unspecified_ipv6(const void *ip)
{
	static const uint8_t zero[16];

	return memcmp(ip, zero, sizeof(zero)) == 0;
}

/* The folded sum over pseudo-header and message. */
static uint16_t
sum_icmp6(const struct rte_ipv6_hdr *ip, const void *message, uint16_t size)
{
	uint32_t sum = (uint32_t)rte_ipv6_phdr_cksum(ip, 0) + rte_raw_cksum(message, size);

	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

static bool
valid_options(const uint8_t *options, uint32_t size)
{
	while (size > 0) {
		if (size < OPTION_UNIT || options[1] == 0 || options[1] * OPTION_UNIT > size)
			return false;
		size -= options[1] * OPTION_UNIT;
		options += options[1] * OPTION_UNIT;
	}
	return true;
}

/* The checks of RFC 4861, section 7.1.1, for a solicitation. */
static bool
valid_solicitation(const struct rte_ipv6_hdr *ip, const struct neighbour *ns, uint16_t size)
{
	return ip->hop_limits == HOP_LIMIT_LINK && ns->icmp.code == 0 &&
	       sum_icmp6(ip, ns, size) == 0xffff && !is_multicast_ipv6(ns->target) &&
	       !is_multicast_ipv6(&ip->src_addr) &&
	       valid_options((const uint8_t *)(ns + 1), size - (uint32_t)sizeof(*ns));
}

/* Cut the only segment to a length. */
static bool
resize(struct rte_mbuf *m, uint32_t size)
{
	const uint32_t now = rte_pktmbuf_data_len(m);

	if (size <= now)
		return rte_pktmbuf_trim(m, (uint16_t)(now - size)) == 0;
	return rte_pktmbuf_append(m, (uint16_t)(size - now)) != NULL;
}

/* Destination of the advertisement: the requester, or all nodes if that has no address yet. */
static rte_be32_t
address_advertisement(struct rte_ether_hdr *eth, struct rte_ipv6_hdr *ip, bool probe)
{
	static const uint8_t all_nodes[16] = { 0xff, 2, [15] = 1 };
	static const struct rte_ether_addr all_nodes_mac = { { 0x33, 0x33, 0, 0, 0, 1 } };

	if (!probe) {
		memcpy(&ip->dst_addr, &ip->src_addr, sizeof(ip->dst_addr));
		return rte_cpu_to_be_32(ADVERTISE_SOLICITED | ADVERTISE_OVERRIDE);
	}
	memcpy(&ip->dst_addr, all_nodes, sizeof(ip->dst_addr));
	eth->dst_addr = all_nodes_mac;
	return rte_cpu_to_be_32(ADVERTISE_OVERRIDE);
}

static enum answer_kind
answer_solicitation(struct rte_mbuf *m, struct rte_ether_hdr *eth, uint32_t l3,
		const struct rte_ether_addr *own, const struct answer_addresses *addresses)
{
	struct rte_ipv6_hdr *ip = header_at(m, l3, sizeof(*ip));
	struct neighbour *ns = (struct neighbour *)(ip + 1);
	struct target_option *option = (struct target_option *)(ns + 1);
	const uint16_t size = rte_be_to_cpu_16(ip->payload_len);
	const bool probe = is_unspecified_ipv6(&ip->src_addr);

	if (size < sizeof(*ns) || m->nb_segs != 1 || header_at(m, l3 + sizeof(*ip), size) == NULL ||
			!valid_solicitation(ip, ns, size) ||
			!is_ours(addresses, ns->target, true, probe) ||
			!resize(m, l3 + sizeof(*ip) + sizeof(*ns) + sizeof(*option)))
		return ANSWER_IGNORED;
	answer_mac(eth, own);
	ns->icmp.rest = address_advertisement(eth, ip, probe);
	memcpy(&ip->src_addr, ns->target, sizeof(ip->src_addr));
	ip->payload_len = rte_cpu_to_be_16(sizeof(*ns) + sizeof(*option));
	ns->icmp.type = ICMP6_ADVERTISE;
	option->type = OPTION_TARGET_MAC;
	option->units = sizeof(*option) / OPTION_UNIT;
	option->mac = *own;
	ns->icmp.checksum = 0;
	ns->icmp.checksum = (uint16_t)~sum_icmp6(ip, ns, sizeof(*ns) + sizeof(*option));
	return ANSWER_NEIGHBOUR;
}

static enum answer_kind
answer_echo6(struct rte_mbuf *m, struct rte_ether_hdr *eth, uint32_t l3, uint32_t l4,
		const struct rte_ether_addr *own, const struct answer_addresses *addresses)
{
	struct rte_ipv6_hdr *ip = header_at(m, l3, sizeof(*ip));
	const uint32_t total = (uint32_t)sizeof(*ip) + rte_be_to_cpu_16(ip->payload_len);
	uint8_t from[16];

	if (rte_is_multicast_ether_addr(&eth->dst_addr) || is_multicast_ipv6(&ip->src_addr) ||
			is_unspecified_ipv6(&ip->src_addr) || l3 + total > rte_pktmbuf_pkt_len(m) ||
			!is_ours(addresses, &ip->dst_addr, true, false))
		return ANSWER_IGNORED;
	/* l4 is 0 in later fragments. */
	if (l4 != 0 && (l3 + total < l4 + sizeof(struct icmp) ||
				       !reply_echo(header_at(m, l4, sizeof(struct icmp)),
						       ICMP6_ECHO_REQUEST, ICMP6_ECHO_REPLY)))
		return ANSWER_IGNORED;
	memcpy(from, &ip->src_addr, sizeof(from));
	memcpy(&ip->src_addr, &ip->dst_addr, sizeof(from));
	memcpy(&ip->dst_addr, from, sizeof(from));
	ip->hop_limits = HOP_LIMIT;
	answer_mac(eth, own);
	return ANSWER_ECHO;
}

static enum answer_kind
answer_ipv6(struct rte_mbuf *m, struct rte_ether_hdr *eth, uint32_t l3,
		const struct rte_ether_addr *own, const struct answer_addresses *addresses)
{
	struct rte_ipv6_hdr *ip = header_at(m, l3, sizeof(*ip));
	uint32_t l4 = l3 + (uint32_t)sizeof(*ip);
	const struct fragment_header *fragment;
	const enum answer_kind other =
			rte_is_multicast_ether_addr(&eth->dst_addr) ? ANSWER_IGNORED : ANSWER_NONE;
	const struct icmp *icmp;

	if (ip == NULL || rte_be_to_cpu_32(ip->vtc_flow) >> 28 != 6)
		return other;
	if (ip->proto == IPPROTO_FRAGMENT) {
		fragment = header_at(m, l4, sizeof(*fragment));
		if (fragment == NULL || fragment->proto != IPPROTO_ICMPV6)
			return other;
		l4 += (uint32_t)sizeof(*fragment);
		if ((fragment->offset & rte_cpu_to_be_16(FRAGMENT_OFFSET_MASK)) != 0)
			l4 = 0;
		return answer_echo6(m, eth, l3, l4, own, addresses);
	}
	if (ip->proto != IPPROTO_ICMPV6)
		return other;
	icmp = header_at(m, l4, sizeof(*icmp));
	if (icmp != NULL && icmp->type == ICMP6_SOLICIT)
		return answer_solicitation(m, eth, l3, own, addresses);
	return answer_echo6(m, eth, l3, l4, own, addresses);
}

enum answer_kind
answer_packet(struct rte_mbuf *m, const struct rte_ether_addr *own,
		const struct answer_addresses *addresses)
{
	struct rte_ether_hdr *eth = header_at(m, 0, sizeof(*eth));
	uint32_t l3;

	if (eth == NULL)
		return ANSWER_NONE;
	if (rte_is_multicast_ether_addr(&eth->src_addr))
		return ANSWER_IGNORED;
	switch (header_network_type(m, eth, &l3)) {
	case RTE_ETHER_TYPE_ARP:
		return answer_arp(m, eth, l3, own, addresses);
	case RTE_ETHER_TYPE_IPV4:
		return answer_ipv4(m, eth, l3, own, addresses);
	case RTE_ETHER_TYPE_IPV6:
		return answer_ipv6(m, eth, l3, own, addresses);
	default:
		return rte_is_multicast_ether_addr(&eth->dst_addr) ? ANSWER_IGNORED : ANSWER_NONE;
	}
}
