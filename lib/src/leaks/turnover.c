/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "burst.h"
#include "queue.h"
#include "turnover.h"

/* Assumed descriptors of a queue whose driver does not report them. */
#define DESCRIPTORS_UNKNOWN 4096
/* Mbufs that drivers keep in addition to the descriptors, to refill or free in batches. */
#define SLACK 512

static uint64_t
capacity(const struct pmdscope_queue *q)
{
	const uint32_t descriptors = __atomic_load_n(&q->n.descriptors, __ATOMIC_RELAXED);

	return (descriptors != 0 ? descriptors : DESCRIPTORS_UNKNOWN) + SLACK;
}

/* Packets that came out since the counter was last read. */
static uint64_t
take_progress(struct pmdscope_queue *q, bool ask_drivers)
{
	const uint64_t packets = pmdscope_queue_sums(q).packets;
	uint64_t delta = packets - q->turnover.packets;

	if (packets < q->turnover.packets)
		delta = 0;
	q->turnover.packets = packets;
	/* Packets offered to a NIC that sends nothing stay in its queue. */
	if (ask_drivers && q->dir == PMDSCOPE_TX && delta != 0)
		delta = RTE_MIN(delta, pmdscope_queue_sent(q->port));
	return delta;
}

static void
begin_queue(struct pmdscope_queue *q, uint32_t walk, bool ask_drivers)
{
	struct pmdscope_turnover *t = &q->turnover;
	const uint64_t delta = take_progress(q, ask_drivers);
	uint32_t next;

	if (t->born == 0) {
		*t = (struct pmdscope_turnover){
			.born = walk, .moved = walk, .packets = t->packets
		};
		return;
	}
	t->progress += delta;
	if (delta != 0)
		t->moved = walk;
	next = RTE_MAX(t->turned + 1, t->born);
	if (walk > PMDSCOPE_TURNOVER_WALKS)
		next = RTE_MAX(next, walk - PMDSCOPE_TURNOVER_WALKS + 1);
	for (; next < walk; next++) {
		if (t->progress < t->at_end[next % PMDSCOPE_TURNOVER_WALKS] + capacity(q))
			break;
		t->turned = next;
	}
}

void
pmdscope_turnover_begin(uint32_t walk, bool ask_drivers)
{
	struct pmdscope_queue *q;
	unsigned int i;

	if (ask_drivers)
		pmdscope_queue_ask_sent();
	for (i = 0; (q = pmdscope_queue_row(i)) != NULL; i++)
		begin_queue(q, walk, ask_drivers);
}

/* Packets that came out during the walk, at most this many, must not be counted twice. */
void
pmdscope_turnover_end(uint32_t walk)
{
	struct pmdscope_queue *q;
	unsigned int i;

	for (i = 0; (q = pmdscope_queue_row(i)) != NULL; i++) {
		struct pmdscope_turnover *t = &q->turnover;
		const uint64_t packets = pmdscope_queue_sums(q).packets;

		t->at_end[walk % PMDSCOPE_TURNOVER_WALKS] =
				t->progress + (packets > t->packets ? packets - t->packets : 0);
	}
}

/* The driver may not report which pool a queue takes its mbufs from. */
static bool
feeds_on(const struct pmdscope_queue *q, const void *pool)
{
	const void *known = __atomic_load_n(&q->n.pool, __ATOMIC_RELAXED);

	return q->dir == PMDSCOPE_RX && (known == NULL || known == pool);
}

/*
 * A queue that has not turned over since the object was first missed may hold it, unless no
 * packet has come out of it since before then: a queue takes new mbufs only for packets that
 * came out.
 */
static bool
may_hold(const struct pmdscope_turnover *t, uint32_t first)
{
	return t->turned < first && t->moved + 1 >= first;
}

static void
add_queue(struct pmdscope_proof *proof, const struct pmdscope_queue *q)
{
	const struct pmdscope_turnover *t = &q->turnover;
	uint32_t back;

	for (back = 0; back < PMDSCOPE_TURNOVER_WALKS && back < proof->walk; back++)
		if (may_hold(t, proof->walk - back))
			proof->gone[back] = false;
	if (t->turned + PMDSCOPE_TURNOVER_WALKS <= proof->walk)
		proof->gone_from = RTE_MAX(proof->gone_from, t->moved + 2);
	if (t->turned + 1 < proof->walk)
		proof->may_hold += capacity(q) - SLACK;
	proof->all_turned = RTE_MIN(proof->all_turned, t->turned);
	proof->rx_turned = RTE_MIN(proof->rx_turned, t->turned);
	proof->rx_born = RTE_MAX(proof->rx_born, t->born);
	proof->rx_capacity += capacity(q);
}

void
pmdscope_turnover_proof(struct pmdscope_proof *proof, const void *pool, uint32_t walk)
{
	const struct pmdscope_queue *q;
	unsigned int i;

	*proof = (struct pmdscope_proof){ .walk = walk, .all_turned = walk, .rx_turned = walk };
	memset(proof->gone, true, sizeof(proof->gone));
	for (i = 0; (q = pmdscope_queue_row(i)) != NULL; i++) {
		if (feeds_on(q, pool))
			add_queue(proof, q);
		/*
		 * It is not known whose mbufs a transmit queue holds; one that was never used holds
		 * none.
		 */
		if (q->dir != PMDSCOPE_TX || q->turnover.packets == 0)
			continue;
		proof->all_turned = RTE_MIN(proof->all_turned, q->turnover.turned);
		if (q->turnover.turned + 1 < walk)
			proof->may_send += capacity(q) - SLACK;
	}
}

bool
pmdscope_proof_stamped(const struct pmdscope_proof *proof, uint32_t first)
{
	const uint32_t back = proof->walk - first;

	return back < PMDSCOPE_TURNOVER_WALKS ? proof->gone[back] : first >= proof->gone_from;
}

bool
pmdscope_turnover_sent(unsigned int port, unsigned int queue, uint32_t first)
{
	const struct pmdscope_queue *q = pmdscope_queue_tx(port, queue);

	/* A queue that was removed has freed its mbufs. */
	return q == NULL || q->turnover.turned >= first;
}
