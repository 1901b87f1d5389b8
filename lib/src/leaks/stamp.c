/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "log.h"
#include "stamp.h"

/* Limits of the search for a misused mbuf in its pool: per lcore and epoch, and in depth. */
#define LOOKS_PER_EPOCH 16
#define LOOK_BACK 512
#define EVENTS_MAX 64
/* Slots, by hash of the pool, for untraced takes that are pending at a time. */
#define TAKES_MAX 64

struct pmdscope_stamps pmdscope_stamps;

static uint32_t epoch = 1;

/* The last one is for threads without an lcore id. */
static struct {
	uint32_t epoch;
	uint32_t looks;
} __rte_cache_aligned looks[RTE_MAX_LCORE + 1];

static struct {
	struct pmdscope_misuse_event items[EVENTS_MAX];
	uint8_t full[EVENTS_MAX];
	uint32_t tail; /* Control thread. */
	uint32_t head __rte_cache_aligned;
} events;

/* A take whose slot is used by another pool has to wait for the next sample. */
static struct pmdscope_untraced_take takes[TAKES_MAX];

int
pmdscope_stamp_start(void)
{
	static const struct rte_mbuf_dynfield field = {
		.name = "pmdscope_dynfield_stamp",
		.size = sizeof(uint64_t),
		.align = sizeof(uint64_t),
	};
	const int offset = rte_mbuf_dynfield_register(&field);

	if (offset < 0) {
		PMDSCOPE_LOG(WARNING,
				"leaks are only counted: no room for a stamp of 8 bytes in "
				"struct rte_mbuf: %s",
				strerror(rte_errno));
		return -rte_errno;
	}
	pmdscope_stamps.offset = (uint64_t)offset;
	return 0;
}

void
pmdscope_stamp_arm(void)
{
	__atomic_store_n(&pmdscope_stamps.now, (uint64_t)epoch << 32, __ATOMIC_RELEASE);
}

void
pmdscope_stamp_disarm(void)
{
	__atomic_store_n(&pmdscope_stamps.now, 0, __ATOMIC_RELEASE);
}

void
pmdscope_stamp_advance(void)
{
	if (++epoch == 0)
		epoch = 1;
	if (pmdscope_stamp_now() != 0)
		pmdscope_stamp_arm();
}

uint32_t
pmdscope_stamp_epoch(void)
{
	return epoch;
}

static bool
may_look(unsigned int lcore)
{
	const uint32_t now = PMDSCOPE_STAMP_EPOCH(pmdscope_stamp_now());

	if (looks[lcore].epoch != now) {
		looks[lcore].epoch = now;
		looks[lcore].looks = 0;
	}
	return looks[lcore].looks++ < LOOKS_PER_EPOCH;
}

/* Only the caller's own cache does not change. */
static bool
in_own_cache(const struct rte_mempool *mp, const void *obj, unsigned int lcore)
{
	const struct rte_mempool_cache *cache;
	unsigned int i;

	if (lcore >= RTE_MAX_LCORE || mp->cache_size == 0)
		return false;
	cache = &mp->local_cache[lcore];
	for (i = 0; i < RTE_MIN(cache->len, (uint32_t)RTE_DIM(cache->objs)); i++)
		if (cache->objs[i] == obj)
			return true;
	return false;
}

/*
 * A slot between the consumers' head and the producers' tail cannot change until the head has
 * passed it. Rings of the newer sync types keep their head elsewhere and are not searched.
 */
static bool
in_ring(const struct rte_mempool *mp, const void *obj)
{
	const struct rte_ring *r = mp->pool_data;
	void *const *slots = (void *const *)&r[1];
	uint32_t i, tail;

	if (strncmp(rte_mempool_get_ops(mp->ops_index)->name, "ring_", strlen("ring_")) != 0 ||
			(r->prod.sync_type != RTE_RING_SYNC_ST &&
					r->prod.sync_type != RTE_RING_SYNC_MT) ||
			(r->cons.sync_type != RTE_RING_SYNC_ST &&
					r->cons.sync_type != RTE_RING_SYNC_MT))
		return false;
	tail = __atomic_load_n(&r->prod.tail, __ATOMIC_ACQUIRE);
	for (i = tail - 1; tail - i <= LOOK_BACK; i--) {
		if ((int32_t)(i - __atomic_load_n(&r->cons.head, __ATOMIC_ACQUIRE)) < 0)
			return false;
		if (slots[i & r->mask] == obj &&
				(int32_t)(i - __atomic_load_n(&r->cons.head, __ATOMIC_ACQUIRE)) >=
						0)
			return true;
	}
	return false;
}

/* An event that finds no room is dropped. */
static void
file(const struct pmdscope_misuse_event *event)
{
	uint32_t head = __atomic_load_n(&events.head, __ATOMIC_RELAXED);

	do {
		if (__atomic_load_n(&events.full[head % EVENTS_MAX], __ATOMIC_ACQUIRE))
			return;
	} while (!__atomic_compare_exchange_n(
			&events.head, &head, head + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	events.items[head % EVENTS_MAX] = *event;
	__atomic_store_n(&events.full[head % EVENTS_MAX], 1, __ATOMIC_RELEASE);
}

void
pmdscope_trace_misuse(const struct rte_mbuf *m, uint64_t stamp, enum pmdscope_misuse misuse)
{
	const unsigned int lcore = RTE_MIN(rte_lcore_id(), (unsigned int)RTE_MAX_LCORE);
	const struct pmdscope_misuse_event event = {
		.pool = m->pool,
		.stamp = stamp,
		.misuse = misuse,
	};
	struct rte_mbuf *taken = (struct rte_mbuf *)(uintptr_t)m;

	if (pmdscope_stamp_class(pmdscope_stamp_get(taken)) == PMDSCOPE_STAMP_TX) {
		pmdscope_stamp_untraced_take(taken);
		return;
	}
	if (pmdscope_stamp_is_shared(pmdscope_stamp_get(taken)) || !may_look(lcore))
		return;
	if (in_own_cache(m->pool, m, lcore) || in_ring(m->pool, m))
		file(&event);
	else
		pmdscope_stamp_untraced_take(taken);
}

void
pmdscope_stamp_untraced_take(struct rte_mbuf *m)
{
	const uint64_t stamp = pmdscope_stamp_get(m);
	const void *pool = m->pool;
	struct pmdscope_untraced_take *take =
			&takes[((uintptr_t)pool >> RTE_CACHE_LINE_SIZE_LOG2) % TAKES_MAX];

	if (rte_mbuf_refcnt_read(m) != 1 || pmdscope_stamp_is_shared(stamp) ||
			__atomic_load_n(&take->pool, __ATOMIC_RELAXED) != NULL)
		return;
	__atomic_store_n(&take->stamp, stamp, __ATOMIC_RELAXED);
	__atomic_store_n(&take->pool, pool, __ATOMIC_RELEASE);
}

bool
pmdscope_stamp_untraced_take_next(struct pmdscope_untraced_take *take)
{
	unsigned int i;

	for (i = 0; i < TAKES_MAX; i++) {
		take->pool = __atomic_load_n(&takes[i].pool, __ATOMIC_ACQUIRE);
		if (take->pool == NULL)
			continue;
		take->stamp = __atomic_load_n(&takes[i].stamp, __ATOMIC_RELAXED);
		__atomic_store_n(&takes[i].pool, NULL, __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

bool
pmdscope_stamp_misuse_next(struct pmdscope_misuse_event *event)
{
	const uint32_t at = events.tail % EVENTS_MAX;

	if (!__atomic_load_n(&events.full[at], __ATOMIC_ACQUIRE))
		return false;
	*event = events.items[at];
	events.tail++;
	__atomic_store_n(&events.full[at], 0, __ATOMIC_RELEASE);
	return true;
}
