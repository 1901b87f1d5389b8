/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_STAMP_H
#define PMDSCOPE_STAMP_H

/*
 * The stamps of mbufs: their dynamic field, their clock, and whether they are armed. The ethdev
 * callbacks use the inline functions; the rest is for the control thread with the state lock held.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "pmdscope.h"
#include "site.h"

#define PMDSCOPE_STAMP_EPOCH(stamp) ((uint32_t)((stamp) >> 32))
#define PMDSCOPE_STAMP_SITE_ID(stamp) \
	((unsigned int)(((stamp)&PMDSCOPE_STAMP_SITE) >> PMDSCOPE_STAMP_SITE_SHIFT))
#define PMDSCOPE_STAMP_PORT(stamp) ((unsigned int)((stamp) >> 10 & 0x3f))
#define PMDSCOPE_STAMP_QUEUE(stamp) ((unsigned int)((stamp)&0x3ff))

/* PMDSCOPE_STAMP_APP, _TX or _FREE; 0 for an mbuf that was never stamped. */
static inline uint64_t
pmdscope_stamp_class(uint64_t stamp)
{
	return stamp & PMDSCOPE_STAMP_CLASS;
}

/* One of several references was released; the others remain. */
static inline bool
pmdscope_stamp_is_shared(uint64_t stamp)
{
	return pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_FREE &&
	       (stamp & PMDSCOPE_STAMP_ORIGIN) == PMDSCOPE_STAMP_SHARED;
}

/*
 * The place in a stamp: its site, or else direction, port and queue. It is the id of rows in
 * /pmdscope/sites and of leak records.
 */
static inline uint32_t
pmdscope_stamp_place(uint64_t stamp)
{
	if ((stamp & PMDSCOPE_STAMP_SITE) != 0)
		return (uint32_t)(stamp & PMDSCOPE_STAMP_SITE);
	return (uint32_t)(stamp & (PMDSCOPE_STAMP_CLASS | PMDSCOPE_STAMP_ORIGIN));
}

/* Place of a loss whose stamp is from an earlier allocation. */
#define PMDSCOPE_PLACE_UNTRACED ((uint32_t)PMDSCOPE_SITE_UNTRACED << PMDSCOPE_STAMP_SITE_SHIFT)

/*
 * The last known place of an mbuf, if it is not proven that no other place had it since. No
 * stamp has such a place: those of sites have no origin, those of queues no site.
 */
static inline uint32_t
pmdscope_place_unproven(uint32_t place)
{
	return place | (pmdscope_stamp_class(place) != 0 ? PMDSCOPE_PLACE_UNTRACED : 1);
}

static inline bool
pmdscope_place_is_unproven(uint32_t place)
{
	return pmdscope_stamp_class(place) != 0 ? (place & PMDSCOPE_STAMP_SITE) != 0
						: (place & 1) != 0;
}

/* The original of an unproven place. */
static inline uint32_t
pmdscope_place_proven(uint32_t place)
{
	return pmdscope_stamp_class(place) != 0 ? place & ~(uint32_t)PMDSCOPE_STAMP_SITE
						: place & ~(uint32_t)PMDSCOPE_STAMP_ORIGIN;
}

/* Stamp received packets; a traced call site stamps them again afterwards. */
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

/* Epochs within which a packet passes from a traced call to the ethdev callback. */
#define PMDSCOPE_STAMP_TX_EPOCHS 2

/*
 * An mbuf that is to be sent, although its stamp says that it was already sent or freed. Unless it
 * has other references, untraced code has taken it from its pool since. Any thread.
 */
void pmdscope_stamp_untraced_take(struct rte_mbuf *m);

/*
 * A pool whose mbufs were taken by untraced code, and the stamp of one; false if there are no more.
 */
struct pmdscope_untraced_take {
	const void *pool;
	uint64_t stamp;
};
bool pmdscope_stamp_untraced_take_next(struct pmdscope_untraced_take *take);

/*
 * Offered to a NIC. If a call site or a bond has stamped it TX in this epoch, that stamp says more.
 */
static inline void
pmdscope_stamp_tx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb)
{
	const uint64_t now = pmdscope_stamp_now();
	uint64_t stamp, old;
	uint16_t i;

	if (likely(now == 0))
		return;
	stamp = now | PMDSCOPE_STAMP_TX;
	for (i = 0; i < nb; i++) {
		old = pmdscope_stamp_get(pkts[i]);
		if (((old ^ stamp) >> 30) == 0)
			continue;
		/* A traced call that offered it shortly before may have been interrupted. */
		if (unlikely((old & PMDSCOPE_STAMP_TX) != 0 &&
				    (uint32_t)((now - old) >> 32) > PMDSCOPE_STAMP_TX_EPOCHS))
			pmdscope_stamp_untraced_take(pkts[i]);
		pmdscope_stamp_packet(pkts[i], stamp | pmdscope_stamp_origin(port, queue));
	}
}

/* Reserve the field of the stamps. 0, or a negative errno (logged) if there can be no stamps. */
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
