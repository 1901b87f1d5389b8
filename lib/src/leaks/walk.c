/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * A walk finds the objects of the pools that are free, in a cache or in a common ring, and those in
 * software rings. All others are in use, and are classified (classify.c). A walk may miss objects
 * that move in the meantime, so one walk does not prove a loss.
 */

#include <string.h>

#include <rte_cycles.h>
#include <rte_eal_memconfig.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#include "arming.h"
#include "clock.h"
#include "classify.h"
#include "ledger.h"
#include "missing.h"
#include "leak_sites.h"
#include "stage.h"
#include "stamp.h"
#include "walk.h"

/* Objects between two checks of the time. */
#define BATCH 256
#define SLICE_US 1000

enum phase {
	IDLE,
	FREE,  /* Caches and common ring of each pool. */
	RINGS, /* Software rings. */
	MOVED, /* Objects freed to caches and common ring meanwhile. */
	CLASSIFY,
};

static struct {
	enum phase phase;
	unsigned int pool; /* Number of the ledger being read. */
	unsigned int ring; /* Number of the memzone being read, and how far. */
	uint32_t ring_done;
	uint64_t until; /* TSC at the end of the slice. */
	struct pmdscope_walk_context ctx;
} walk;

static bool
time_is_up(void)
{
	return (int64_t)(rte_rdtsc() - walk.until) >= 0;
}

static void
meet(const struct pmdscope_ledger *ledger, const void *object, enum pmdscope_where where)
{
	struct pmdscope_mark *mark = pmdscope_index_find(&ledger->index, (uintptr_t)object);

	if (mark != NULL)
		mark->where = (uint8_t)where;
}

/* The lcore may be using the cache: an entry may have just left it. */
static void
meet_cache(const struct pmdscope_ledger *ledger, const struct rte_mempool_cache *cache)
{
	const uint32_t len = __atomic_load_n(&cache->len, __ATOMIC_ACQUIRE);
	uint32_t i;

	for (i = 0; i < RTE_MIN(len, (uint32_t)RTE_DIM(cache->objs)); i++)
		meet(ledger, __atomic_load_n(&cache->objs[i], __ATOMIC_RELAXED),
				PMDSCOPE_WHERE_CACHE);
}

static void
meet_caches(const struct pmdscope_ledger *ledger, const struct rte_mempool *mp)
{
	unsigned int i;

	for (i = 0; mp->cache_size != 0 && i < RTE_MAX_LCORE; i++)
		meet_cache(ledger, &mp->local_cache[i]);
}

/*
 * Entries of the common ring from where the last call ended, to the current producers' tail. They
 * stay where they are until they are consumed, however long the walk takes. True at the end.
 */
static bool
meet_common(struct pmdscope_ledger *ledger, const struct rte_mempool *mp)
{
	const struct rte_ring *r = mp->pool_data;
	void *const *slots = (void *const *)&r[1];
	const uint32_t head = __atomic_load_n(&r->cons.tail, __ATOMIC_ACQUIRE);
	const uint32_t tail = __atomic_load_n(&r->prod.tail, __ATOMIC_ACQUIRE);
	uint32_t left, i;

	/* Entries consumed meanwhile are not free any more. */
	if ((int32_t)(head - ledger->ring_at) > 0)
		ledger->ring_at = head;
	for (left = tail - ledger->ring_at; left != 0 && (int32_t)left > 0;
			left = tail - ledger->ring_at) {
		for (i = 0; i < RTE_MIN(left, (uint32_t)BATCH); i++)
			meet(ledger,
					__atomic_load_n(&slots[(ledger->ring_at + i) & r->mask],
							__ATOMIC_RELAXED),
					PMDSCOPE_WHERE_COMMON);
		ledger->ring_at += i;
		if (time_is_up())
			return ledger->ring_at == tail;
	}
	return true;
}

/* The ring of a ring pool; valid as long as the tailq lock is held. */
static void
begin_common(struct pmdscope_ledger *ledger, const struct rte_mempool *mp)
{
	const struct rte_ring *r = mp->pool_data;

	ledger->ring_at = __atomic_load_n(&r->cons.tail, __ATOMIC_ACQUIRE);
}

/* Forget a pool that has changed; the next walk begins anew. */
static void
drop(struct pmdscope_ledger *ledger)
{
	pmdscope_index_free(&ledger->index);
	ledger->walking = false;
	ledger->placed = false;
}

/* True once the pool is ready, or cannot be walked. */
static bool
prepare(struct pmdscope_ledger *ledger, struct rte_mempool *mp)
{
	if (!pmdscope_index_fits(&ledger->index, mp)) {
		if (ledger->index.marks != NULL)
			pmdscope_leak_site_forget(ledger->id);
		if (!pmdscope_index_begin(&ledger->index, mp)) {
			ledger->lost_memory = true;
			drop(ledger);
			return true;
		}
		ledger->lost_memory = false;
	}
	while (!ledger->index.built) {
		pmdscope_index_build(&ledger->index, BATCH);
		if (time_is_up())
			return false;
	}
	return true;
}

/* Each step of a phase: true when it is complete for this pool. */
static bool
step_free(struct pmdscope_ledger *ledger, struct rte_mempool *mp)
{
	const bool begun = ledger->walking;

	if (!begun) {
		if (!prepare(ledger, mp))
			return false;
		if (!ledger->index.built)
			return true;
		ledger->walking = true;
		ledger->walk_cycles = 0;
		ledger->mark_at = 0;
		ledger->chunk_at = 0;
		meet_caches(ledger, mp);
		begin_common(ledger, mp);
	}
	return meet_common(ledger, mp);
}

static bool
step_moved(struct pmdscope_ledger *ledger, struct rte_mempool *mp)
{
	meet_caches(ledger, mp);
	if (!meet_common(ledger, mp))
		return false;
	meet_caches(ledger, mp);
	return true;
}

static bool
step_classify(struct pmdscope_ledger *ledger, struct rte_mempool *mp __rte_unused)
{
	const struct pmdscope_index *index = &ledger->index;
	uint32_t i, end;

	if (ledger->mark_at == 0)
		pmdscope_classify_begin(&walk.ctx, ledger);
	while (ledger->mark_at < index->nb_marks) {
		end = RTE_MIN(ledger->mark_at + BATCH, index->nb_marks);
		for (i = ledger->mark_at; i < end; i++)
			if (index->marks[i].at != 0)
				pmdscope_classify(&walk.ctx, ledger, i);
		ledger->mark_at = end;
		if (end < index->nb_marks && time_is_up())
			return false;
	}
	pmdscope_classify_end(&walk.ctx, ledger);
	return true;
}

typedef bool (*step_fn)(struct pmdscope_ledger *ledger, struct rte_mempool *mp);

/*
 * One step for the current pool, if it still exists: it cannot be freed while we hold the tailq
 * lock. True when the pool has completed the phase.
 */
static bool
step_pool(struct pmdscope_ledger *ledger, step_fn step)
{
	const uint64_t start = rte_rdtsc();
	struct rte_mempool *mp;
	bool done = true;

	rte_mcfg_tailq_read_lock();
	mp = pmdscope_pool_find(ledger->address, ledger->name);
	if (mp == NULL || !pmdscope_pool_is_readable(mp) ||
			(step != step_free && !pmdscope_index_fits(&ledger->index, mp)))
		drop(ledger);
	else
		done = step(ledger, mp);
	rte_mcfg_tailq_read_unlock();
	ledger->walk_cycles += rte_rdtsc() - start;
	if (done && step == step_classify)
		ledger->walk_us = pmdscope_clock_us(ledger->walk_cycles);
	return done;
}

/* Run a phase over all pools that take part. True at its end. */
static bool
phase_pools(step_fn step)
{
	struct pmdscope_ledger *ledger;

	for (; (ledger = pmdscope_ledger_get(walk.pool)) != NULL; walk.pool++) {
		if (step == step_free ? !ledger->counts.readable : !ledger->walking)
			continue;
		do {
			if (time_is_up())
				return false;
		} while (!step_pool(ledger, step));
	}
	walk.pool = 0;
	return true;
}

static void
meet_any(const void *object)
{
	struct pmdscope_mark *mark = pmdscope_ledger_find_mark((uintptr_t)object);

	if (mark != NULL && mark->where == PMDSCOPE_WHERE_NONE)
		mark->where = PMDSCOPE_WHERE_RING;
}

/*
 * The entries of one ring, all 8-byte words of them: a ring may hold structures with mbufs in
 * them. False when the time is up; ring_done is then the number of entries read.
 */
static bool
meet_ring(const struct rte_ring *r, size_t len)
{
	const size_t words = (len - sizeof(*r)) / r->size / sizeof(void *);
	void *const *slots = (void *const *)&r[1];
	const uint32_t head = __atomic_load_n(&r->cons.tail, __ATOMIC_ACQUIRE);
	const uint32_t used =
			RTE_MIN(__atomic_load_n(&r->prod.tail, __ATOMIC_ACQUIRE) - head, r->size);
	size_t w;

	for (; walk.ring_done < used; walk.ring_done++) {
		for (w = 0; w < words; w++)
			meet_any(__atomic_load_n(
					&slots[((head + walk.ring_done) & r->mask) * words + w],
					__ATOMIC_RELAXED));
		if (walk.ring_done % BATCH == BATCH - 1 && time_is_up())
			return false;
	}
	walk.ring_done = 0;
	return true;
}

struct ring_search {
	unsigned int number;
	bool up;
};

/* Skips rings of mempools. A memzone cannot be freed during the walk over memzones. */
static void
visit_ring(const struct rte_memzone *mz, void *arg)
{
	const struct rte_ring *r = mz->addr;
	struct ring_search *search = arg;

	if (search->up || search->number++ != walk.ring)
		return;
	if (strncmp(mz->name, RTE_RING_MZ_PREFIX, strlen(RTE_RING_MZ_PREFIX)) == 0 &&
			r->memzone == mz &&
			strncmp(r->name, RTE_MEMPOOL_MZ_PREFIX, strlen(RTE_MEMPOOL_MZ_PREFIX)) !=
					0 &&
			!meet_ring(r, mz->len))
		search->up = true;
	else
		walk.ring++;
}

/* True at the end. */
static bool
phase_rings(void)
{
	struct ring_search search = { 0 };

	rte_memzone_walk(visit_ring, &search);
	return !search.up;
}

static void
go_on(void)
{
	switch (walk.phase) {
	case FREE:
		if (phase_pools(step_free))
			walk.phase = RINGS;
		break;
	case RINGS:
		if (phase_rings())
			walk.phase = MOVED;
		break;
	case MOVED:
		if (phase_pools(step_moved))
			walk.phase = CLASSIFY;
		break;
	case CLASSIFY:
		if (!phase_pools(step_classify))
			break;
		pmdscope_turnover_end(walk.ctx.walk);
		if (walk.ctx.armed && !walk.ctx.aborted)
			pmdscope_stage_publish();
		walk.phase = IDLE;
		break;
	case IDLE:
		break;
	}
}

void
pmdscope_walk_slice(void)
{
	walk.until = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * SLICE_US;
	do
		go_on();
	while (walk.phase != IDLE && !time_is_up());
}

void
pmdscope_walk_begin(void)
{
	struct pmdscope_ledger *ledger;
	unsigned int i;

	if (walk.phase != IDLE)
		return;
	walk.ctx.walk++;
	walk.ctx.epoch = pmdscope_stamp_epoch();
	walk.ctx.clock_ms = pmdscope_ledger_clock_ms();
	walk.ctx.armed = pmdscope_arming_on();
	walk.ctx.aborted = false;
	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++)
		ledger->walking = false;
	pmdscope_turnover_begin(walk.ctx.walk, walk.ctx.armed);
	walk.pool = 0;
	walk.ring = 0;
	walk.ring_done = 0;
	walk.phase = FREE;
}

bool
pmdscope_walk_busy(void)
{
	return walk.phase != IDLE;
}

void
pmdscope_walk_arm(void)
{
	struct pmdscope_ledger *ledger;
	unsigned int i;

	/* The current walk would compare times of two epochs. */
	walk.ctx.aborted = true;
	walk.ctx.armed_epoch = pmdscope_stamp_epoch();
	walk.ctx.armed_walk = walk.ctx.walk + 1;
	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++) {
		ledger->placed = false;
		ledger->traced_frees = 0;
		ledger->untraced_frees = 0;
	}
}

bool
pmdscope_walk_waits_longer(const struct pmdscope_ledger *ledger)
{
	return pmdscope_missing_waits_longer(&walk.ctx, ledger);
}

void
pmdscope_walk_start(const struct pmdscope_walk_conf *conf)
{
	walk.ctx.epoch_ms = conf->epoch_ms;
	walk.ctx.walk_ms = conf->walk_ms;
	walk.ctx.hold_walks = conf->hold_walks;
	walk.phase = IDLE;
}

void
pmdscope_walk_stop(void)
{
	walk.phase = IDLE;
}
