/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_STAMP_H
#define PMDSCOPE_STAMP_H

/*
 * The stamps of mbufs: their field, their clock, their gate. The ethdev callbacks stamp through
 * the inline functions; the rest is for the control thread with the state lock held.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "pmdscope.h"

#define PMDSCOPE_STAMP_EPOCH(stamp) ((uint32_t)((stamp) >> 32))
#define PMDSCOPE_STAMP_SITE_ID(stamp) \
	((unsigned int)(((stamp)&PMDSCOPE_STAMP_SITE) >> PMDSCOPE_STAMP_SITE_SHIFT))
#define PMDSCOPE_STAMP_PORT(stamp) ((unsigned int)((stamp) >> 10 & 0x3f))
#define PMDSCOPE_STAMP_QUEUE(stamp) ((unsigned int)((stamp)&0x3ff))

/* PMDSCOPE_STAMP_APP, _TX or _FREE; 0 of what was never stamped. */
static inline uint64_t
pmdscope_stamp_class(uint64_t stamp)
{
	return stamp & PMDSCOPE_STAMP_CLASS;
}

/* One of several references was given back; the others live. */
static inline bool
pmdscope_stamp_is_shared(uint64_t stamp)
{
	return pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_FREE &&
	       (stamp & PMDSCOPE_STAMP_ORIGIN) == PMDSCOPE_STAMP_SHARED;
}

/*
 * What a stamp tells of the place: its site, or else direction, port and queue. The id of rows in
 * /pmdscope/sites and of leak records.
 */
static inline uint32_t
pmdscope_stamp_place(uint64_t stamp)
{
	if ((stamp & PMDSCOPE_STAMP_SITE) != 0)
		return (uint32_t)(stamp & PMDSCOPE_STAMP_SITE);
	return (uint32_t)(stamp & (PMDSCOPE_STAMP_CLASS | PMDSCOPE_STAMP_ORIGIN));
}

/* Received; a traced call site stamps again afterwards. */
static inline void
pmdscope_stamp_rx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb)
{
	const uint64_t now = pmdscope_stamp_now();
	uint64_t stamp;
	uint16_t i;

	if (likely(now == 0))
		return;
	stamp = now | PMDSCOPE_STAMP_APP | pmdscope_stamp_origin(port, queue);
	for (i = 0; i < nb; i++)
		pmdscope_stamp_packet(pkts[i], stamp);
}

/* Offered to a NIC. Whoever stamped the same in this epoch (a call site, a bond) knows more. */
static inline void
pmdscope_stamp_tx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb)
{
	const uint64_t now = pmdscope_stamp_now();
	uint64_t stamp;
	uint16_t i;

	if (likely(now == 0))
		return;
	stamp = now | PMDSCOPE_STAMP_TX;
	for (i = 0; i < nb; i++)
		if (((pmdscope_stamp_get(pkts[i]) ^ stamp) >> 30) != 0)
			pmdscope_stamp_packet(pkts[i], stamp | pmdscope_stamp_origin(port, queue));
}

/* Reserve the field of the stamps. 0, or a negative errno (logged): there are no stamps then. */
int pmdscope_stamp_start(void);
/* Write stamps from now on. */
void pmdscope_stamp_arm(void);
void pmdscope_stamp_disarm(void);
/* Open a new epoch. */
void pmdscope_stamp_advance(void);
uint32_t pmdscope_stamp_epoch(void);

/* A use of an mbuf that was in its pool. */
struct pmdscope_misuse_event {
	const struct rte_mempool *pool;
	uint64_t stamp; /* Of the use. */
	enum pmdscope_misuse misuse;
};

/* The next event, oldest first; false when there is none. */
bool pmdscope_stamp_misuse_next(struct pmdscope_misuse_event *event);

#endif /* PMDSCOPE_STAMP_H */
