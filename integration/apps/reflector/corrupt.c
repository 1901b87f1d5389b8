/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <netinet/in.h>

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "corrupt.h"
#include "headers.h"

/* Bytes of a transport header, 0 for protocols whose headers count as payload. */
static uint32_t
transport_size(const struct rte_mbuf *m, uint32_t l4, uint8_t proto)
{
	const struct rte_tcp_hdr *tcp;

	if (proto == IPPROTO_UDP)
		return sizeof(struct rte_udp_hdr);
	if (proto != IPPROTO_TCP)
		return 0;
	tcp = header_at(m, l4, sizeof(*tcp));
	return tcp == NULL ? sizeof(*tcp) : (uint32_t)(tcp->data_off >> 4) * 4;
}

/* Start and end of the payload. False if the packet is not IP or is cut short. */
static bool
payload(const struct rte_mbuf *m, uint32_t *begin, uint32_t *end)
{
	const struct rte_ether_hdr *eth = header_at(m, 0, sizeof(*eth));
	const struct rte_ipv4_hdr *v4;
	const struct rte_ipv6_hdr *v6;
	uint32_t l3;
	uint16_t type;

	if (eth == NULL)
		return false;
	type = header_network_type(m, eth, &l3);
	if (type == RTE_ETHER_TYPE_IPV4 && (v4 = header_at(m, l3, sizeof(*v4))) != NULL) {
		*begin = l3 + rte_ipv4_hdr_len(v4);
		*end = l3 + rte_be_to_cpu_16(v4->total_length);
		if ((v4->fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_OFFSET_MASK)) == 0)
			*begin += transport_size(m, *begin, v4->next_proto_id);
	} else if (type == RTE_ETHER_TYPE_IPV6 && (v6 = header_at(m, l3, sizeof(*v6))) != NULL) {
		*begin = l3 + sizeof(*v6);
		*end = *begin + rte_be_to_cpu_16(v6->payload_len);
		*begin += transport_size(m, *begin, v6->proto);
	} else {
		return false;
	}
	return *begin < *end && *end <= rte_pktmbuf_pkt_len(m);
}

bool
corrupt_packet(struct rte_mbuf *m)
{
	uint32_t begin, at;

	if (!payload(m, &begin, &at))
		return false;
	at--;
	while (at >= rte_pktmbuf_data_len(m)) {
		at -= rte_pktmbuf_data_len(m);
		m = m->next;
		if (m == NULL)
			return false;
	}
	*rte_pktmbuf_mtod_offset(m, uint8_t *, at) ^= 1;
	return true;
}
