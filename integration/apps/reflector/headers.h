/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef HEADERS_H
#define HEADERS_H

/* Finds the headers of a packet. Only the first segment is read. */

#include <stddef.h>
#include <stdint.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#define HEADERS_MAX_VLAN_TAGS 2

/* Header bytes at an offset, NULL if the first segment does not hold them. */
static inline void *
header_at(const struct rte_mbuf *m, uint32_t offset, uint32_t size)
{
	if (offset + size > rte_pktmbuf_data_len(m))
		return NULL;
	return rte_pktmbuf_mtod_offset(m, void *, offset);
}

/* Ethertype after the VLAN tags; *offset is then the position after it. */
static inline uint16_t
header_network_type(const struct rte_mbuf *m, const struct rte_ether_hdr *eth, uint32_t *offset)
{
	uint16_t type = rte_be_to_cpu_16(eth->ether_type);
	const struct rte_vlan_hdr *vlan;
	int tags;

	*offset = sizeof(*eth);
	for (tags = 0; tags < HEADERS_MAX_VLAN_TAGS; tags++) {
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ)
			break;
		vlan = header_at(m, *offset, sizeof(*vlan));
		if (vlan == NULL)
			return 0;
		type = rte_be_to_cpu_16(vlan->eth_proto);
		*offset += sizeof(*vlan);
	}
	return type;
}

#endif /* HEADERS_H */
