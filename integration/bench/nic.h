/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef NIC_H
#define NIC_H

/*
 * Emulates a NIC behind a net_ring port, on the lcore that polls it. Mbufs wait in full RX and TX
 * rings of descriptors before they return to the pool, so that the working set is as large as with
 * hardware.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#define NIC_BURST 32

struct nic {
	uint16_t port;
	uint16_t descriptors; /* Of each direction, a power of 2. */
	bool history;	      /* Mark allocation and free as DPDK 25.11's mbuf history does. */
	struct rte_mempool *pool;
	struct rte_ring *rx;
	struct rte_ring *tx;
	struct rte_mbuf **posted;
	struct rte_mbuf **sent;
	uint32_t posted_head;
	uint32_t posted_tail;
	uint32_t sent_head;
	uint32_t sent_tail;
};

/* Create a started port with this many descriptors and a shuffled pool of mbufs. 0 or -errno. */
int nic_open(struct nic *nic, const char *name, uint16_t descriptors, unsigned int mbufs);

/* Take a burst that was sent, free the oldest mbufs, post new ones and receive a burst. */
void nic_step(struct nic *nic);

/*
 * The idea of DPDK 25.11's mbuf history: the last 16 operations of an mbuf, 4 bits each, in
 * 64 bits of dynamic field, shifted in by compare and swap.
 */
enum history_op {
	HISTORY_ALLOC = 1,
	HISTORY_FREE,
	HISTORY_RX,
	HISTORY_TX,
};

extern int history_offset;

static inline void
history_mark(struct rte_mbuf *m, enum history_op op)
{
	uint64_t *history = RTE_MBUF_DYNFIELD(m, history_offset, uint64_t *);
	uint64_t old = __atomic_load_n(history, __ATOMIC_ACQUIRE);

	while (!__atomic_compare_exchange_n(
			history, &old, old << 4 | op, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
}

static inline void
history_mark_bulk(struct rte_mbuf **pkts, unsigned int nb_pkts, enum history_op op)
{
	unsigned int i;

	for (i = 0; i < nb_pkts; i++)
		history_mark(pkts[i], op);
}

#endif /* NIC_H */
