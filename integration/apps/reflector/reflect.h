/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REFLECT_H
#define REFLECT_H

/*
 * Swaps the addresses of a packet in place: MAC, IPv4 or IPv6, and UDP or TCP ports.
 *
 * Up to two VLAN tags are skipped. Ports are not changed in later fragments and after IPv6
 * extension headers. Swapping does not change an Internet checksum, so the sender can check it. A
 * checksum is computed only if the sender left that to hardware: an IPv4 header checksum of zero,
 * and a UDP or TCP checksum that the driver marks as not filled in (RTE_MBUF_F_RX_L4_CKSUM_NONE).
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

enum reflect_kind {
	REFLECT_IP,    /* Swapped at every layer. */
	REFLECT_OTHER, /* Not IP, or cut short: MAC addresses only. */
	REFLECT_RUNT,  /* Shorter than an Ethernet header: unchanged, must not be sent. */
};

/*
 * own is the sender of the answer to a multicast frame, as a multicast address cannot be a source.
 */
enum reflect_kind reflect_packet(struct rte_mbuf *m, const struct rte_ether_addr *own);

typedef uint8_t reflect_bytes __attribute__((vector_size(16)));

/* Parts of the 16 bytes from the Ethertype on, read as two words. */
#define REFLECT_TYPE RTE_BE64(UINT64_C(0xffffff) << 40)
#define REFLECT_IPV4 \
	RTE_BE64((uint64_t)RTE_ETHER_TYPE_IPV4 << 48 | (uint64_t)RTE_IPV4_VHL_DEF << 40)
#define REFLECT_PROTO RTE_BE64((uint64_t)RTE_IPV4_HDR_OFFSET_MASK << 48 | UINT64_C(0xff) << 32)
#define REFLECT_UDP RTE_BE64((uint64_t)IPPROTO_UDP << 32)
#define REFLECT_TCP RTE_BE64((uint64_t)IPPROTO_TCP << 32)
#define REFLECT_CHECKSUM RTE_BE64(UINT64_C(0xffff) << 16)

/*
 * What reflect_packet() does with most packets, in a few instructions: IPv4 without VLAN tag,
 * options or fragments, UDP or TCP with checksums. False: the packet is unchanged, and must be
 * passed to reflect_packet().
 */
static inline bool
reflect_plain(struct rte_mbuf *m)
{
	const uint32_t l3 = sizeof(struct rte_ether_hdr);
	/* Beginning at the TTL: checksum, addresses, ports. */
	const uint32_t ends = l3 + offsetof(struct rte_ipv4_hdr, time_to_live);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	reflect_bytes macs, addresses;
	rte_be64_t begin, rest;

	if (rte_pktmbuf_data_len(m) < ends + sizeof(addresses) ||
			(m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return false;
	/* Ethertype, version and header length, type of service, total length, identification. */
	memcpy(&begin, frame + l3 - sizeof(rte_be16_t), sizeof(begin));
	/* Fragment offset, TTL, protocol, checksum, the first half of the source. */
	memcpy(&rest, frame + l3 + offsetof(struct rte_ipv4_hdr, fragment_offset), sizeof(rest));
	if ((frame[0] & 1) != 0 || (begin & REFLECT_TYPE) != REFLECT_IPV4 ||
			((rest & REFLECT_PROTO) != REFLECT_UDP &&
					(rest & REFLECT_PROTO) != REFLECT_TCP) ||
			(rest & REFLECT_CHECKSUM) == 0 ||
			(rte_be_to_cpu_64(begin) >> 16 & UINT16_MAX) < sizeof(struct rte_ipv4_hdr))
		return false;
	memcpy(&macs, frame, sizeof(macs));
	memcpy(&addresses, frame + ends, sizeof(addresses));
	macs = __builtin_shufflevector(
			macs, macs, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15);
	addresses = __builtin_shufflevector(
			addresses, addresses, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 14, 15, 12, 13);
	memcpy(frame, &macs, sizeof(macs));
	memcpy(frame + ends, &addresses, sizeof(addresses));
	return true;
}

#endif /* REFLECT_H */
