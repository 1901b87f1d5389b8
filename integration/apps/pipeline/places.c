/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_ring.h>

#include "places.h"

/* Different numbers that identify the places. */
#define NB_GLOBAL 23
#define NB_STATIC 29
#define NB_RING 31
#define NB_RTE_MALLOC 37
#define NB_MALLOC 41
#define NB_DATA 11
#define NB_CLONES 3
#define NB_CHAINS 2
#define NB_TAILS 4
#define NB_EXTERNAL 3
#define NB_TLS 5
#define NB_PLACES 16

#define RING_SIZE 64
#define EXTERNAL_BYTES 512

/* Each is named after the only reference to it. */
struct rte_mbuf *held_global[NB_GLOBAL];
static struct rte_mbuf *held_static[NB_STATIC];
static struct rte_ring *held_ring;
static struct rte_mbuf **held_rte_malloc;
static struct rte_mbuf **held_malloc;
/* Only pointers to the packets' data, as in an app that finds the mbuf from its data. */
static char *held_data[NB_DATA];
/* Their originals, from the other pool, have no other references. */
static struct rte_mbuf *held_clones[NB_CLONES];
/* First segments, which have the only references to the others. */
static struct rte_mbuf *held_chains[NB_CHAINS];
/* Their buffers are from rte_malloc(), and refer to the mbuf that is freed with them. */
static struct rte_mbuf *held_external[NB_EXTERNAL];
static __thread struct rte_mbuf *held_tls[NB_TLS];

static struct place places[NB_PLACES];
static unsigned int nb_places;

static void
place(const char *kind, const char *name, const struct rte_mempool *pool, unsigned int mbufs)
{
	const unsigned int i = __atomic_load_n(&nb_places, __ATOMIC_RELAXED);

	places[i] = (struct place){ .kind = kind, .name = name, .pool = pool, .mbufs = mbufs };
	__atomic_store_n(&nb_places, i + 1, __ATOMIC_RELEASE);
}

static int
take(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, n);
}

static int
fill_tables(struct rte_mempool *packets)
{
	unsigned int i;
	int rc;

	rc = take(packets, held_global, NB_GLOBAL);
	if (rc != 0)
		return rc;
	place("global", "held_global", packets, NB_GLOBAL);
	rc = take(packets, held_static, NB_STATIC);
	if (rc != 0)
		return rc;
	place("global", "held_static", packets, NB_STATIC);
	for (i = 0; i < NB_DATA; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(packets);

		if (m == NULL)
			return -ENOMEM;
		held_data[i] = rte_pktmbuf_mtod(m, char *);
	}
	place("global", "held_data", packets, NB_DATA);
	return 0;
}

static int
fill_ring(struct rte_mempool *packets)
{
	unsigned int i;

	held_ring = rte_ring_create("held_ring", RING_SIZE, (int)rte_socket_id(), 0);
	if (held_ring == NULL)
		return -rte_errno;
	for (i = 0; i < NB_RING; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(packets);

		if (m == NULL)
			return -ENOMEM;
		rte_ring_enqueue(held_ring, m);
	}
	place("ring", "held_ring", packets, NB_RING);
	return 0;
}

static int
fill_heaps(struct rte_mempool *packets)
{
	int rc;

	held_rte_malloc = rte_zmalloc("held", NB_RTE_MALLOC * sizeof(*held_rte_malloc), 0);
	held_malloc = calloc(NB_MALLOC, sizeof(*held_malloc));
	if (held_rte_malloc == NULL || held_malloc == NULL)
		return -ENOMEM;
	rc = take(packets, held_rte_malloc, NB_RTE_MALLOC);
	if (rc != 0)
		return rc;
	place("heap_element", "held_rte_malloc", packets, NB_RTE_MALLOC);
	rc = take(packets, held_malloc, NB_MALLOC);
	if (rc != 0)
		return rc;
	place("process_heap", "held_malloc", packets, NB_MALLOC);
	return 0;
}

static int
fill_clones(struct rte_mempool *packets, struct rte_mempool *clones)
{
	unsigned int i;

	for (i = 0; i < NB_CLONES; i++) {
		struct rte_mbuf *original = rte_pktmbuf_alloc(packets);

		if (original == NULL)
			return -ENOMEM;
		held_clones[i] = rte_pktmbuf_clone(original, clones);
		rte_pktmbuf_free(original);
		if (held_clones[i] == NULL)
			return -ENOMEM;
	}
	place("global", "held_clones", clones, NB_CLONES);
	place("mbuf", "held_clones", packets, NB_CLONES);
	return 0;
}

static int
fill_chains(struct rte_mempool *packets)
{
	unsigned int i, tail;

	for (i = 0; i < NB_CHAINS; i++) {
		held_chains[i] = rte_pktmbuf_alloc(packets);
		for (tail = 0; held_chains[i] != NULL && tail < NB_TAILS; tail++) {
			struct rte_mbuf *m = rte_pktmbuf_alloc(packets);

			if (m == NULL || rte_pktmbuf_chain(held_chains[i], m) != 0)
				return -ENOMEM;
		}
		if (held_chains[i] == NULL)
			return -ENOMEM;
	}
	place("global", "held_chains", packets, NB_CHAINS);
	place("mbuf", "held_chains", packets, NB_CHAINS * NB_TAILS);
	return 0;
}

static void
free_external(void *buffer, void *owner)
{
	rte_free(buffer);
	rte_pktmbuf_free(owner);
}

static int
fill_external(struct rte_mempool *packets)
{
	unsigned int i;

	for (i = 0; i < NB_EXTERNAL; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(packets);
		struct rte_mbuf *owner = rte_pktmbuf_alloc(packets);
		char *buffer = rte_zmalloc("external", EXTERNAL_BYTES, 0);
		struct rte_mbuf_ext_shared_info *shared;
		uint16_t bytes = EXTERNAL_BYTES;

		if (m == NULL || owner == NULL || buffer == NULL)
			return -ENOMEM;
		shared = rte_pktmbuf_ext_shinfo_init_helper(buffer, &bytes, free_external, owner);
		rte_pktmbuf_attach_extbuf(m, buffer, rte_malloc_virt2iova(buffer), bytes, shared);
		held_external[i] = m;
	}
	place("global", "held_external", packets, NB_EXTERNAL);
	place("heap_element", "held_external", packets, NB_EXTERNAL);
	return 0;
}

int
places_fill(struct rte_mempool *packets, struct rte_mempool *clones)
{
	int rc = fill_tables(packets);

	if (rc == 0)
		rc = fill_ring(packets);
	if (rc == 0)
		rc = fill_heaps(packets);
	if (rc == 0)
		rc = fill_clones(packets, clones);
	if (rc == 0)
		rc = fill_chains(packets);
	if (rc == 0)
		rc = fill_external(packets);
	return rc;
}

int
places_fill_thread(struct rte_mempool *packets, struct rte_mbuf *volatile *on_stack)
{
	unsigned int i;
	int rc = take(packets, held_tls, NB_TLS);

	if (rc != 0)
		return rc;
	for (i = 0; i < PLACES_STACK; i++) {
		on_stack[i] = rte_pktmbuf_alloc(packets);
		if (on_stack[i] == NULL)
			return -ENOMEM;
	}
	place("thread_local", "held_tls", packets, NB_TLS);
	place("stack", "on_stack", packets, PLACES_STACK);
	return 0;
}

void
places_drain_thread(struct rte_mbuf *volatile *on_stack)
{
	unsigned int i;

	rte_pktmbuf_free_bulk(held_tls, NB_TLS);
	for (i = 0; i < PLACES_STACK; i++)
		rte_pktmbuf_free(on_stack[i]);
}

void
places_drain(void)
{
	struct rte_mbuf *m;
	unsigned int i;

	rte_pktmbuf_free_bulk(held_global, NB_GLOBAL);
	rte_pktmbuf_free_bulk(held_static, NB_STATIC);
	for (i = 0; i < NB_DATA && held_data[i] != NULL; i++) {
		m = (struct rte_mbuf *)(uintptr_t)(held_data[i] - RTE_PKTMBUF_HEADROOM) - 1;
		rte_pktmbuf_free(m);
	}
	while (held_ring != NULL && rte_ring_dequeue(held_ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(held_ring);
	if (held_rte_malloc != NULL)
		rte_pktmbuf_free_bulk(held_rte_malloc, NB_RTE_MALLOC);
	if (held_malloc != NULL)
		rte_pktmbuf_free_bulk(held_malloc, NB_MALLOC);
	rte_free(held_rte_malloc);
	free(held_malloc);
	rte_pktmbuf_free_bulk(held_clones, NB_CLONES);
	rte_pktmbuf_free_bulk(held_chains, NB_CHAINS);
	rte_pktmbuf_free_bulk(held_external, NB_EXTERNAL);
}

unsigned int
places_list(const struct place **list)
{
	*list = places;
	return __atomic_load_n(&nb_places, __ATOMIC_ACQUIRE);
}
