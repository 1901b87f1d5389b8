/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_HEADER_LENGTH_H
#define PMDSCOPE_HEADER_LENGTH_H

/*
 * How many bytes of a packet have the headers that name its conversation. Tunnels are not followed:
 * of a packet that may be one, everything is wanted, up to the snap length. Fast path; reads fields
 * that the copy needs anyway.
 */

#include <rte_ether.h>
#include <rte_ip.h>

#include "packet.h"

/* Enough for IPv4 or IPv6 with TCP, and two tags. */
#define PMDSCOPE_HEADER_LENGTH_MIN 96
/* Unknown: everything up to the snap length. */
#define PMDSCOPE_HEADER_LENGTH_ALL UINT32_MAX
/* Most tags that are read. */
#define PMDSCOPE_HEADER_TAGS 2

/* Ports of tunnels over UDP, of either end. */
static inline bool
pmdscope_is_tunnel_port(uint32_t port)
{
	switch (port) {
	case 1701: /* L2TP */
	case 2152: /* GTP-U */
	case 3544: /* Teredo */
	case 4754: /* GRE */
	case 4789: /* VXLAN */
	case 4790: /* VXLAN-GPE */
	case 6080: /* GUE */
	case 6081: /* GENEVE */
	case 6635: /* MPLS */
	case 8472: /* VXLAN of Linux */
		return true;
	default:
		return false;
	}
}

/* Of a packet whose transport header is at off. */
static inline uint32_t
pmdscope_transport_length(const struct pmdscope_packet *pkt, uint32_t protocol, uint32_t off)
{
	uint32_t ports;

	switch (protocol) {
	case IPPROTO_TCP:
		return RTE_MAX(off + 20, PMDSCOPE_HEADER_LENGTH_MIN);
	case IPPROTO_UDP:
		if (pmdscope_packet_load(pkt, off, 4, &ports) &&
				(pmdscope_is_tunnel_port(ports >> 16) ||
						pmdscope_is_tunnel_port(ports & 0xffff)))
			return PMDSCOPE_HEADER_LENGTH_ALL;
		return RTE_MAX(off + 8, PMDSCOPE_HEADER_LENGTH_MIN);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		/* Errors quote an IP header with 8 bytes after it. */
		return RTE_MAX(off + 8 + 60 + 8, PMDSCOPE_HEADER_LENGTH_MIN);
	case IPPROTO_SCTP:
	case IPPROTO_ESP:
	case IPPROTO_IGMP:
	case 89:  /* OSPF */
	case 103: /* PIM */
	case 112: /* VRRP */
		return PMDSCOPE_HEADER_LENGTH_MIN;
	default: /* A tunnel, an IPv6 extension, or not known. */
		return PMDSCOPE_HEADER_LENGTH_ALL;
	}
}

static inline uint32_t
pmdscope_header_length(const struct pmdscope_packet *pkt)
{
	uint32_t type = 0, off = PMDSCOPE_TAG_OFFSET, version, protocol;
	unsigned int i;

	for (i = 0; i <= PMDSCOPE_HEADER_TAGS; i++) {
		if (!pmdscope_packet_load(pkt, off, 2, &type))
			return PMDSCOPE_HEADER_LENGTH_MIN;
		off += 2;
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ)
			break;
		off += 2;
	}
	switch (type) {
	case RTE_ETHER_TYPE_ARP:
		return PMDSCOPE_HEADER_LENGTH_MIN;
	case RTE_ETHER_TYPE_IPV4:
		if (!pmdscope_packet_load(pkt, off, 1, &version) ||
				!pmdscope_packet_load(pkt, off + 9, 1, &protocol))
			return PMDSCOPE_HEADER_LENGTH_MIN;
		return pmdscope_transport_length(pkt, protocol, off + (version & 0x0f) * 4);
	case RTE_ETHER_TYPE_IPV6:
		if (!pmdscope_packet_load(pkt, off + 6, 1, &protocol))
			return PMDSCOPE_HEADER_LENGTH_MIN;
		return pmdscope_transport_length(pkt, protocol, off + 40);
	default:
		return PMDSCOPE_HEADER_LENGTH_ALL;
	}
}

#endif /* PMDSCOPE_HEADER_LENGTH_H */
