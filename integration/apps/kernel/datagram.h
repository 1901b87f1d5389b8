/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef DATAGRAM_H
#define DATAGRAM_H

/*
 * Content of a message of a UDP socket: one packet, or with GSO and GRO several of the same size.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "probe.h"

/* Largest payload of an IPv4 packet, and so of a message. */
#define DATAGRAM_MAX 65507
/* Packets in a message: the maximum of every kernel with UDP_SEGMENT (UDP_MAX_SEGMENTS). */
#define DATAGRAM_MAX_SEGMENTS 64

struct datagram {
	uint8_t *data;
	uint32_t size;	  /* Bytes of payload of all packets together. */
	uint32_t segment; /* Bytes of payload of each packet; the last may be shorter. Not 0. */
	struct sockaddr *peer; /* NULL on a connected socket. */
	socklen_t peer_size;
};

/* Packets in a message; an empty packet counts too. */
static inline uint32_t
datagram_packets(const struct datagram *datagram)
{
	if (datagram->size <= datagram->segment)
		return 1;
	return (datagram->size + datagram->segment - 1) / datagram->segment;
}

/* Payload bytes of packet number index of a message. */
static inline uint32_t
datagram_packet_size(const struct datagram *datagram, uint32_t index)
{
	const uint32_t left = datagram->size - index * datagram->segment;

	return left < datagram->segment ? left : datagram->segment;
}

/* Maximum number of packets with this payload in one message. */
uint32_t datagram_max_packets(uint32_t payload);

/* Bytes of a frame without FCS outside of the UDP payload: Ethernet, IP and UDP headers. */
uint32_t datagram_overhead(bool ipv6);

/* Write the probe header at the start of a payload. */
void datagram_write(uint8_t *payload, const struct probe *probe);

/* Read it. False if the payload is not a probe. */
bool datagram_read(const uint8_t *payload, uint32_t size, struct probe *probe);

#endif /* DATAGRAM_H */
