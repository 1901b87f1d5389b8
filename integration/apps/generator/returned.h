/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef RETURNED_H
#define RETURNED_H

/*
 * Mbufs of packets that came back, kept for the next packets to be sent. The peer of a virtual link
 * has just written them, while it was the last to read those of the pool for sending: to write to a
 * line that both CPUs have read takes longer.
 */

#include <stdint.h>

#include <rte_mbuf.h>

/* Two bursts of the default size. */
#define RETURNED_MAX 64

/* Of one sender. Not thread-safe. */
struct returned {
	struct rte_mbuf *mbufs[RETURNED_MAX];
	uint16_t nb;
};

/*
 * Keep mbufs as rte_pktmbuf_alloc() would return them, with the bytes that they have. Those above
 * RETURNED_MAX, and those of several segments, with foreign buffers or more references, are freed.
 */
void returned_keep(struct returned *returned, struct rte_mbuf **pkts, uint16_t n);

/* Move up to n mbufs to the array. Returns their number. */
uint16_t returned_take(struct returned *returned, struct rte_mbuf **to, uint16_t n);

void returned_free(struct returned *returned);

#endif /* RETURNED_H */
