/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* How many bytes of packets are wanted, of every prefix of packets of all kinds. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "header_length.h"

#define ALL PMDSCOPE_HEADER_LENGTH_ALL
#define MIN PMDSCOPE_HEADER_LENGTH_MIN

static unsigned int failures;

/* A packet in two segments, the first of which has so many bytes. */
static uint32_t
length_of(uint8_t *bytes, uint16_t size, uint16_t first, uint64_t flags)
{
	struct rte_mbuf head = { .buf_addr = bytes, .data_len = first, .pkt_len = size },
			tail = { .buf_addr = bytes + first, .data_len = size - first };
	struct pmdscope_packet pkt;

	head.next = &tail;
	head.ol_flags = flags;
	pmdscope_packet_init(&pkt, &head, PMDSCOPE_DIR_RX);
	return pmdscope_header_length(&pkt);
}

static void
check(const char *what, uint8_t *bytes, uint16_t size, uint64_t flags, uint32_t expected)
{
	uint16_t kept;
	uint32_t found;

	for (kept = 0; kept <= size; kept++) {
		found = length_of(bytes, size, kept, flags);
		if (found != expected) {
			printf("%s in segments of %u and %u bytes: %u, expected %u\n", what, kept,
					size - kept, found, expected);
			failures++;
		}
		/* Whatever is missing, the result is one of these. */
		found = length_of(bytes, kept, kept, flags);
		if (found < MIN) {
			printf("%s, cut after %u bytes: %u\n", what, kept, found);
			failures++;
		}
	}
}

/* A frame with so many tags, and IPv4 (IPv6 if v6) with a protocol and ports. */
static void
frame(const char *what, unsigned int tags, bool v6, uint8_t protocol, uint16_t port,
		uint32_t expected)
{
	uint8_t bytes[128] = { 0 };
	unsigned int off = 12, i, size;

	for (i = 0; i < tags; i++, off += 4)
		bytes[off] = 0x81;
	bytes[off] = v6 ? 0x86 : 0x08;
	bytes[off + 1] = v6 ? 0xdd : 0x00;
	off += 2;
	bytes[off] = v6 ? 0x60 : 0x45;
	bytes[off + (v6 ? 6 : 9)] = protocol;
	off += v6 ? 40 : 20;
	bytes[off + 2] = port >> 8;
	bytes[off + 3] = port & 0xff;
	size = off + 20;
	check(what, bytes, (uint16_t)size, 0, expected);
	/* The same with its only tag in the mbuf. */
	if (tags == 1) {
		memmove(bytes + 12, bytes + 16, size - 16);
		check(what, bytes, (uint16_t)(size - 4),
				RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED, expected);
	}
}

int
main(void)
{
	static const uint8_t tunnels[] = { 4, 41, 47, 97, 115, 137, 143, 0, 43, 44, 51, 60 };
	static const uint16_t ports[] = { 1701, 2152, 3544, 4754, 4789, 4790, 6080, 6081, 6635,
		8472 };
	uint8_t other[64] = { [12] = 0x88, [13] = 0x47 };
	unsigned int i, tags;

	for (tags = 0; tags <= 2; tags++) {
		frame("TCP", tags, false, 6, 443, MIN);
		frame("TCP over IPv6", tags, true, 6, 443, MIN);
		frame("UDP", tags, true, 17, 53, MIN);
		frame("ESP", tags, false, 50, 0, MIN);
		for (i = 0; i < RTE_DIM(ports); i++)
			frame("a port of a tunnel", tags, i % 2 != 0, 17, ports[i], ALL);
		for (i = 0; i < RTE_DIM(tunnels); i++)
			frame("a tunnel", tags, i % 2 != 0, tunnels[i], 0, ALL);
	}
	/* ICMP may quote a packet. */
	frame("ICMP", 0, false, 1, 0, 110);
	frame("ICMPv6", 1, true, 58, 0, 134);
	frame("too many tags", 3, false, 6, 443, ALL);
	check("MPLS", other, sizeof(other), 0, ALL);
	other[12] = 0x08;
	other[13] = 0x06;
	check("ARP", other, sizeof(other), 0, MIN);
	return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
