/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "headers.h"
#include "reflect.h"

struct ports {
	rte_be16_t src;
	rte_be16_t dst;
};

static void
swap(void *a, void *b, size_t size)
{
	uint8_t held[16];

	memcpy(held, a, size);
	memcpy(a, b, size);
	memcpy(b, held, size);
}

static void
swap_mac(struct rte_ether_hdr *eth, const struct rte_ether_addr *own)
{
	const struct rte_ether_addr to = eth->src_addr;

	if (rte_is_multicast_ether_addr(&eth->dst_addr))
		eth->src_addr = *own;
	else
		eth->src_addr = eth->dst_addr;
	eth->dst_addr = to;
}

/* Offset of the checksum in a transport header, 0 for a protocol without ports. */
static uint32_t
checksum_offset(uint8_t proto)
{
	if (proto == IPPROTO_UDP)
		return offsetof(struct rte_udp_hdr, dgram_cksum);
	if (proto == IPPROTO_TCP)
		return offsetof(struct rte_tcp_hdr, cksum);
	return 0;
}

/* pseudo is the sum over the pseudo-header, size the length that it states. */
static void
fill_checksum(struct rte_mbuf *m, uint32_t l4, uint32_t size, uint8_t proto, uint16_t pseudo)
{
	rte_be16_t *field = header_at(m, l4 + checksum_offset(proto), sizeof(*field));
	uint16_t raw;
	uint32_t sum;

	if (field == NULL || size < checksum_offset(proto) + sizeof(*field) ||
			l4 + size > rte_pktmbuf_pkt_len(m))
		return;
	*field = 0;
	if (rte_raw_cksum_mbuf(m, l4, size, &raw) != 0)
		return;
	sum = (uint32_t)raw + pseudo;
	sum = (sum & 0xffff) + (sum >> 16);
	*field = (uint16_t)~sum;
	if (*field == 0 && proto == IPPROTO_UDP)
		*field = 0xffff;
}

static bool
checksum_missing(const struct rte_mbuf *m)
{
	return (m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE;
}

static void
swap_ports(struct rte_mbuf *m, uint32_t l4)
{
	struct ports *ports = header_at(m, l4, sizeof(*ports));

	if (ports != NULL)
		swap(&ports->src, &ports->dst, sizeof(ports->src));
}

static enum reflect_kind
reflect_ipv4(struct rte_mbuf *m, uint32_t l3)
{
	struct rte_ipv4_hdr *ip = header_at(m, l3, sizeof(*ip));
	uint16_t fragment;
	uint32_t size, total;

	if (ip == NULL || ip->version_ihl >> 4 != 4)
		return REFLECT_OTHER;
	size = rte_ipv4_hdr_len(ip);
	total = rte_be_to_cpu_16(ip->total_length);
	if (size < sizeof(*ip) || total < size || header_at(m, l3, size) == NULL)
		return REFLECT_OTHER;

	swap(&ip->src_addr, &ip->dst_addr, sizeof(ip->src_addr));
	if (ip->hdr_checksum == 0)
		ip->hdr_checksum = rte_ipv4_cksum(ip);
	fragment = rte_be_to_cpu_16(ip->fragment_offset);
	if ((fragment & RTE_IPV4_HDR_OFFSET_MASK) != 0 || checksum_offset(ip->next_proto_id) == 0)
		return REFLECT_IP;
	swap_ports(m, l3 + size);
	if (checksum_missing(m) && (fragment & RTE_IPV4_HDR_MF_FLAG) == 0)
		fill_checksum(m, l3 + size, total - size, ip->next_proto_id,
				rte_ipv4_phdr_cksum(ip, 0));
	return REFLECT_IP;
}

static enum reflect_kind
reflect_ipv6(struct rte_mbuf *m, uint32_t l3)
{
	struct rte_ipv6_hdr *ip = header_at(m, l3, sizeof(*ip));

	if (ip == NULL || (rte_be_to_cpu_32(ip->vtc_flow) >> 28) != 6)
		return REFLECT_OTHER;
	swap(&ip->src_addr, &ip->dst_addr, sizeof(ip->src_addr));
	if (checksum_offset(ip->proto) == 0)
		return REFLECT_IP;
	swap_ports(m, l3 + sizeof(*ip));
	if (checksum_missing(m))
		fill_checksum(m, l3 + sizeof(*ip), rte_be_to_cpu_16(ip->payload_len), ip->proto,
				rte_ipv6_phdr_cksum(ip, 0));
	return REFLECT_IP;
}

enum reflect_kind
reflect_packet(struct rte_mbuf *m, const struct rte_ether_addr *own)
{
	struct rte_ether_hdr *eth = header_at(m, 0, sizeof(*eth));
	uint32_t l3;

	if (eth == NULL)
		return REFLECT_RUNT;
	swap_mac(eth, own);
	switch (header_network_type(m, eth, &l3)) {
	case RTE_ETHER_TYPE_IPV4:
		return reflect_ipv4(m, l3);
	case RTE_ETHER_TYPE_IPV6:
		return reflect_ipv6(m, l3);
	default:
		return REFLECT_OTHER;
	}
}
