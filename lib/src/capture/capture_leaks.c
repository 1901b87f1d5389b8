/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal_memconfig.h>
#include <rte_mbuf.h>
#include <rte_string_fns.h>

#include "classify.h"
#include "ledger.h"
#include "leak_sites.h"
#include "stamp.h"
#include "capture_leaks.h"
#include "capture_producer.h"

#define SLICE_US 1000
#define BATCH 256
/* A longer chain is cut: it may be a loop. */
#define SEGMENTS_MAX 256
/* Sites that are counted; mbufs of others are left out. */
#define SITES_MAX 1024

struct pmdscope_capture_leaks {
	unsigned int pool; /* Id of the ledger that is being read, or was read last. */
	uint32_t mark;
	unsigned int chunk;
	unsigned int nb_sites;
	struct {
		unsigned int pool;
		uint32_t place;
		uint32_t kind;
		uint32_t written;
	} sites[SITES_MAX];
};

struct pmdscope_capture_leaks *
pmdscope_capture_leak_create(void)
{
	return calloc(1, sizeof(struct pmdscope_capture_leaks));
}

/* Number of mbufs of this kind that were written; NULL if it cannot be counted. */
static uint32_t *
written_of(struct pmdscope_capture_leaks *leaks, unsigned int pool, uint32_t place, uint32_t kind)
{
	unsigned int i;

	for (i = 0; i < leaks->nb_sites; i++)
		if (leaks->sites[i].pool == pool && leaks->sites[i].place == place &&
				leaks->sites[i].kind == kind)
			return &leaks->sites[i].written;
	if (i == SITES_MAX)
		return NULL;
	leaks->sites[i].pool = pool;
	leaks->sites[i].place = place;
	leaks->sites[i].kind = kind;
	leaks->nb_sites++;
	return &leaks->sites[i].written;
}

/*
 * Whether the bytes belong to a pool that still exists: the one being walked, or another whose
 * index is still valid.
 */
static bool
is_readable(const struct pmdscope_ledger *own, uintptr_t addr, size_t len)
{
	const struct pmdscope_ledger *ledger;
	const struct rte_mempool *mp;
	unsigned int i;

	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++) {
		if (!pmdscope_index_contains(&ledger->index, addr, len))
			continue;
		if (ledger == own)
			return true;
		mp = pmdscope_pool_find(ledger->address, ledger->name);
		return mp != NULL && pmdscope_index_fits(&ledger->index, mp);
	}
	return false;
}

/* External buffers are left out: they may have been freed already, even if the mbuf leaked. */
static uint32_t
copy_bytes(const struct pmdscope_ledger *ledger, const struct rte_mbuf *m, uint8_t *to,
		uint32_t room)
{
	uint32_t done = 0, len;
	unsigned int i;
	uintptr_t data;

	for (i = 0; i < SEGMENTS_MAX && m != NULL && done < room; i++, m = m->next) {
		if (!is_readable(ledger, (uintptr_t)m, sizeof(*m)) || RTE_MBUF_HAS_EXTBUF(m))
			break;
		data = (uintptr_t)m->buf_addr + m->data_off;
		len = RTE_MIN((uint32_t)m->data_len, room - done);
		if (!is_readable(ledger, data, len))
			break;
		memcpy(to + done, (const void *)data, len);
		done += len;
	}
	return done;
}

static void
describe(struct pmdscope_record *rec, const struct pmdscope_ledger *ledger,
		const struct pmdscope_mark *mark, const struct rte_mbuf *m)
{
	static const uint8_t kinds[] = {
		[PMDSCOPE_LOSS_LEAK] = PMDSCOPE_LEAK_LOST,
		[PMDSCOPE_LOSS_TX] = PMDSCOPE_LEAK_TX_LOST,
		[PMDSCOPE_LOSS_PINNED] = PMDSCOPE_LEAK_PINNED,
	};
	struct pmdscope_leak *leak = (struct pmdscope_leak *)(rec + 1);
	const uint64_t origin = mark->stamp & PMDSCOPE_STAMP_ORIGIN;
	const bool known = !mark->stale && origin < PMDSCOPE_STAMP_SHARED;
	const bool tx = pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_TX;

	*leak = (struct pmdscope_leak){
		.mbuf = (uintptr_t)m,
		.age_ms = pmdscope_ledger_clock_ms() - mark->since_ms,
		.site = pmdscope_classify_place(ledger, mark),
		.kind = kinds[pmdscope_classify_kind(ledger, mark)],
	};
	strlcpy(leak->pool, ledger->name, sizeof(leak->pool));
	rec->type = PMDSCOPE_RECORD_LEAK;
	rec->dir = known ? (tx ? PMDSCOPE_DIR_TX : PMDSCOPE_DIR_RX) : 0;
	rec->flags = 0;
	rec->port = known ? PMDSCOPE_STAMP_PORT(origin) : PMDSCOPE_TEE_ANY;
	rec->queue = known ? PMDSCOPE_STAMP_QUEUE(origin) : PMDSCOPE_TEE_ANY;
	rec->gap = 0;
	rec->tsc = rte_rdtsc() - leak->age_ms * (rte_get_tsc_hz() / 1000);
}

/* False when the ring has no room now. */
static bool
write_lost(struct pmdscope_capture_producer *p, const struct pmdscope_ledger *ledger,
		const struct pmdscope_mark *mark, const struct rte_mbuf *m)
{
	const uint32_t fixed = sizeof(struct pmdscope_record) + sizeof(struct pmdscope_leak);
	/* As for packets, so that a record fits at any position of the head. */
	const uint32_t fits = pmdscope_capture_ring_snaplen((uint32_t)p->ring->size, UINT32_MAX) -
			      (uint32_t)sizeof(struct pmdscope_leak);
	const uint32_t room = RTE_MIN(p->ring->snaplen, fits);
	/* pkt_len is valid only in a first segment. */
	const uint32_t len = RTE_MAX(m->pkt_len, (uint32_t)m->data_len);
	uint32_t caplen = RTE_MIN(len, room);
	uint64_t head = p->head;
	struct pmdscope_record *rec = pmdscope_capture_reserve(p->ring, p->tail, &head,
			RTE_ALIGN_CEIL(fixed + caplen, PMDSCOPE_RING_ALIGN));

	__atomic_store_n(&p->full, rec == NULL, __ATOMIC_RELAXED);
	if (rec == NULL)
		return false;
	caplen = copy_bytes(ledger, m, (uint8_t *)rec + fixed, caplen);
	describe(rec, ledger, mark, m);
	rec->caplen = caplen;
	rec->len = len;
	rec->size = RTE_ALIGN_CEIL(fixed + caplen, PMDSCOPE_RING_ALIGN);
	p->records++;
	p->head = head + rec->size;
	__atomic_store_n(&p->ring->hdr->records, p->records, __ATOMIC_RELAXED);
	__atomic_store_n(&p->ring->hdr->head, p->head, __ATOMIC_RELEASE);
	return true;
}

/* Write one mark; false if it has to wait for room. */
static bool
offer(struct pmdscope_capture *capture, const struct pmdscope_ledger *ledger,
		const struct pmdscope_mark *mark, uintptr_t object)
{
	uint32_t *written;

	/* An mbuf that has moved since the walk is not lost, and must not be read. */
	if (mark->at == 0 || mark->kind == PMDSCOPE_LOSS_NONE ||
			pmdscope_stamp_get((struct rte_mbuf *)object) != mark->stamp)
		return true;
	written = written_of(capture->leaks, ledger->id, pmdscope_classify_place(ledger, mark),
			pmdscope_classify_kind(ledger, mark));
	if (written == NULL || *written >= capture->spec.sample)
		return true;
	if (!write_lost(&capture->producers[0], ledger, mark, (const struct rte_mbuf *)object))
		return false;
	(*written)++;
	return true;
}

/* The ledgers are sorted by id. */
static struct pmdscope_ledger *
present_ledger(struct pmdscope_capture_leaks *leaks)
{
	struct pmdscope_ledger *ledger;
	unsigned int i;

	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL && ledger->id < leaks->pool; i++)
		;
	if (ledger != NULL && ledger->id != leaks->pool) {
		leaks->pool = ledger->id;
		leaks->mark = 0;
		leaks->chunk = 0;
	}
	return ledger;
}

static void
next_ledger(struct pmdscope_capture_leaks *leaks)
{
	leaks->pool++;
	leaks->mark = 0;
	leaks->chunk = 0;
}

/* Write some marks of a pool; false when the ring is full. Tailq lock held. */
static bool
read_marks(struct pmdscope_capture *capture, const struct pmdscope_ledger *ledger)
{
	struct pmdscope_capture_leaks *leaks = capture->leaks;
	const struct rte_mempool *mp = pmdscope_pool_find(ledger->address, ledger->name);
	const struct pmdscope_index *index = &ledger->index;
	const uint32_t end = RTE_MIN(leaks->mark + BATCH, index->nb_marks);

	if (mp == NULL || ledger->parts.leaked == 0 || !pmdscope_index_fits(index, mp)) {
		leaks->mark = index->nb_marks;
		return true;
	}
	for (; leaks->mark < end; leaks->mark++)
		if (!offer(capture, ledger, &index->marks[leaks->mark],
				    pmdscope_index_object(index, leaks->mark, &leaks->chunk)))
			return false;
	return true;
}

bool
pmdscope_capture_leak_tick(struct pmdscope_capture *capture)
{
	const uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * SLICE_US;
	struct pmdscope_capture_producer *p = &capture->producers[0];
	struct pmdscope_ledger *ledger;
	bool room = true;

	if (!pmdscope_capture_accept_tail(p, p->ring))
		return false;
	while (room && (int64_t)(until - rte_rdtsc()) > 0) {
		ledger = present_ledger(capture->leaks);
		if (ledger == NULL)
			return true;
		rte_mcfg_tailq_read_lock();
		room = read_marks(capture, ledger);
		rte_mcfg_tailq_read_unlock();
		if (capture->leaks->mark >= ledger->index.nb_marks)
			next_ledger(capture->leaks);
	}
	return false;
}
