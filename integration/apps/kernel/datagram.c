/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "datagram.h"

uint32_t
datagram_max_packets(uint32_t payload)
{
	const uint32_t fit = DATAGRAM_MAX / payload;

	return fit < DATAGRAM_MAX_SEGMENTS ? fit : DATAGRAM_MAX_SEGMENTS;
}

uint32_t
datagram_overhead(bool ipv6)
{
	return sizeof(struct rte_ether_hdr) + sizeof(struct rte_udp_hdr) +
	       (ipv6 ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr));
}

void
datagram_write(uint8_t *payload, const struct probe *probe)
{
	const struct probe_header header = {
		.magic = rte_cpu_to_be_16(PROBE_MAGIC),
		.run = rte_cpu_to_be_16(probe->run),
		.lane = rte_cpu_to_be_16(probe->lane),
		.seq_high = rte_cpu_to_be_16((uint16_t)(probe->seq >> 32)),
		.seq_low = rte_cpu_to_be_32((uint32_t)probe->seq),
		.tsc_high = rte_cpu_to_be_16((uint16_t)(probe->tsc >> 32)),
		.tsc_low = rte_cpu_to_be_32((uint32_t)probe->tsc),
	};

	memcpy(payload, &header, sizeof(header));
}

bool
datagram_read(const uint8_t *payload, uint32_t size, struct probe *probe)
{
	struct probe_header header;

	if (size < sizeof(header))
		return false;
	memcpy(&header, payload, sizeof(header));
	if (header.magic != rte_cpu_to_be_16(PROBE_MAGIC))
		return false;
	probe->run = rte_be_to_cpu_16(header.run);
	probe->lane = rte_be_to_cpu_16(header.lane);
	probe->seq = (uint64_t)rte_be_to_cpu_16(header.seq_high) << 32 |
		     rte_be_to_cpu_32(header.seq_low);
	probe->tsc = (uint64_t)rte_be_to_cpu_16(header.tsc_high) << 32 |
		     rte_be_to_cpu_32(header.tsc_low);
	return true;
}
