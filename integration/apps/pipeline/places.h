/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PLACES_H
#define PLACES_H

/* Holds mbufs in every place where an app can keep them, a different number in each. */

#include <rte_mbuf.h>
#include <rte_mempool.h>

/* On the stack of the worker. */
#define PLACES_STACK 7

/* A place, and the number of its mbufs. */
struct place {
	const char *kind; /* Of the reference: global, ring, heap_element and so on. */
	const char *name;
	const struct rte_mempool *pool;
	unsigned int mbufs;
};

/*
 * Fill all places except those of a thread. 0 or -errno; then places_drain() empties those filled.
 */
int places_fill(struct rte_mempool *packets, struct rte_mempool *clones);

/* The same for stack and thread-local storage of the calling thread. */
int places_fill_thread(struct rte_mempool *packets, struct rte_mbuf *volatile *on_stack);

/* Free them; on the thread that filled them. */
void places_drain_thread(struct rte_mbuf *volatile *on_stack);
void places_drain(void);

/* Lists the places that are filled; returns their number. */
unsigned int places_list(const struct place **list);

#endif /* PLACES_H */
