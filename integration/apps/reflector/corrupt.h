/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CORRUPT_H
#define CORRUPT_H

/* Damages packets on demand, as bad memory does after the checks of a NIC. */

#include <stdbool.h>

#include <rte_mbuf.h>

/*
 * Invert the lowest bit of the last payload byte of an IPv4 or IPv6 packet, after the UDP or TCP
 * header if there is one. No checksum is changed. False if the packet has no payload.
 */
bool corrupt_packet(struct rte_mbuf *m);

#endif /* CORRUPT_H */
