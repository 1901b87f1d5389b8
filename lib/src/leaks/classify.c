/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_mbuf.h>

#include "classify.h"
#include "clone.h"
#include "leak_sites.h"
#include "missing.h"
#include "site.h"
#include "stage.h"
#include "stamp.h"

/* A walk checks who freed an object: of all objects in caches, and of 1 in this many others. */
#define ASK_FREE_EVERY 16
/* Minimum number of checks before the result counts. */
#define TRACED_FREES_MIN 64
/* Untraced frees count once this many walks, and this part of all walks, have found some. */
#define UNTRACED_WALKS_MIN 3
#define UNTRACED_WALKS_PART 16
/* Turnover proves nothing in a pool of which less than this part is free. */
#define EMPTY_PART 32
/* Number of further proofs, from later walks, that are needed after the first. */
#define HITS_NEEDED 1

/* Its stamp shows that the app holds it. */
static bool
is_held(uint64_t stamp)
{
	return pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_APP || pmdscope_stamp_is_shared(stamp);
}

static bool
is_stale(const struct pmdscope_walk_context *ctx, uint64_t stamp)
{
	return stamp == 0 || (int32_t)(PMDSCOPE_STAMP_EPOCH(stamp) - ctx->armed_epoch) < 0;
}

static uint32_t
age_of(const struct pmdscope_walk_context *ctx, uint64_t stamp)
{
	const int32_t age = (int32_t)(ctx->epoch - PMDSCOPE_STAMP_EPOCH(stamp));

	return age > 0 ? (uint32_t)age : 0;
}

static uint64_t
load_stamp(uintptr_t object)
{
	return pmdscope_stamp_get((struct rte_mbuf *)object);
}

bool
pmdscope_is_nearly_empty(uint32_t nb_free, uint32_t size)
{
	return nb_free * (uint64_t)EMPTY_PART < size;
}

void
pmdscope_classify_begin(struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger)
{
	const struct pmdscope_pool_counts *counts = &ledger->counts;

	pmdscope_turnover_proof(&ctx->proof, ledger->address, ctx->walk);
	ctx->strict = pmdscope_is_nearly_empty(counts->common + counts->cached, counts->size) &&
		      ledger->untraced_frees == 0 && ledger->traced_frees >= TRACED_FREES_MIN;
	ctx->max_missed_walks = pmdscope_missing_walks_allowed(ctx, ledger);
	ledger->counting = (struct pmdscope_parts){ 0 };
}

/*
 * The residence at the place of the old stamp has ended, unless the mbuf was elsewhere before the
 * new stamp, unseen by any walk: on its way to a NIC and back.
 */
static void
learn(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark)
{
	struct pmdscope_stage *stage;

	if (mark->first == 0 || mark->stale ||
			pmdscope_stamp_class(mark->stamp) != PMDSCOPE_STAMP_APP)
		return;
	stage = pmdscope_stage_get(pmdscope_stamp_place(mark->stamp));
	if (stage != NULL)
		pmdscope_stage_learn(stage, age_of(ctx, mark->stamp));
}

static bool
comes_from_elsewhere(uint64_t stamp)
{
	const struct pmdscope_site_info *info = pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID(stamp));

	if (info != NULL)
		return info->source && pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_APP;
	return pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_APP;
}

/* The mbuf is free now. If it was received again in between, it was not held all the time. */
static void
learn_freed(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark,
		uint64_t stamp)
{
	if (stamp == mark->stamp || !comes_from_elsewhere(stamp))
		learn(ctx, mark);
}

/* The mbuf was reported as lost, but is not lost. */
static void
retract(const struct pmdscope_walk_context *ctx, struct pmdscope_mark *mark)
{
	learn(ctx, mark);
	mark->kind = PMDSCOPE_LOSS_NONE;
	mark->freed = 0;
}

static struct pmdscope_leak_site *
site_of(const struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark)
{
	return pmdscope_leak_site_get(ledger->id, pmdscope_classify_place(ledger, mark),
			pmdscope_classify_kind(ledger, mark));
}

static void
count_lost(struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark)
{
	struct pmdscope_leak_site *site = site_of(ledger, mark);

	ledger->counting.leaked++;
	ledger->counting.prearm += mark->stale && !mark->untraced;
	if (site != NULL)
		pmdscope_leak_site_count(site, mark->since_ms);
}

/* Frees by untraced code leave the app's stamp on free mbufs. */
static void
ask_who_freed(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		uintptr_t object)
{
	const uint64_t stamp = load_stamp(object);

	/* Stamped in this epoch: the mbuf may have been free, and be in use again. */
	if (is_stale(ctx, stamp) || age_of(ctx, stamp) == 0)
		return;
	if (pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_APP) {
		ledger->untraced_frees++;
		ledger->counting.untraced_frees++;
	} else {
		ledger->traced_frees++;
		ledger->counting.untraced_last_frees += pmdscope_stamp_is_shared(stamp);
	}
}

/*
 * A walk begins with a new epoch, so an older stamp is from before the mbuf became free. An mbuf
 * in a ring has not been free since it was taken. A cache may show an mbuf that has just left
 * it, but not in two walks.
 */
static void
note_free(const struct pmdscope_walk_context *ctx, struct pmdscope_mark *mark)
{
	if (mark->where == PMDSCOPE_WHERE_COMMON)
		mark->since_ms = ctx->epoch;
	else if (mark->where == PMDSCOPE_WHERE_CACHE)
		mark->since_ms = mark->first == 0 && mark->met ? ctx->epoch : 0;
	else if (mark->first != 0)
		mark->since_ms = mark->untraced ? PMDSCOPE_STAMP_EPOCH(mark->stamp) + 1 : 0;
}

/* The walk has found the object in a pool, cache or ring. */
static void
classify_met(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		struct pmdscope_mark *mark, uintptr_t object)
{
	struct pmdscope_parts *parts = &ledger->counting;
	const enum pmdscope_where where = (enum pmdscope_where)mark->where;

	/* A cache may show an object that has just left it, but not twice. */
	if (mark->kind != PMDSCOPE_LOSS_NONE && where == PMDSCOPE_WHERE_CACHE && !mark->freed) {
		mark->freed = 1;
		count_lost(ledger, mark);
		return;
	}
	if (pmdscope_is_missing(ctx, mark))
		pmdscope_missing_learn(ctx, ledger, mark);
	if (mark->kind != PMDSCOPE_LOSS_NONE)
		retract(ctx, mark);
	else if (ctx->armed && where != PMDSCOPE_WHERE_RING && mark->first != 0)
		learn_freed(ctx, mark, load_stamp(object));
	parts->common += where == PMDSCOPE_WHERE_COMMON;
	parts->cached += where == PMDSCOPE_WHERE_CACHE;
	parts->rings += where == PMDSCOPE_WHERE_RING;
	note_free(ctx, mark);
	mark->first = 0;
	mark->hits = 0;
	mark->sent = 0;
	mark->freed = 0;
	mark->met = 1;
}

/* Freed by a call that puts it into its pool. */
static bool
is_freed(uint64_t stamp)
{
	const struct pmdscope_site_info *info = pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID(stamp));

	return pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_FREE &&
	       !pmdscope_stamp_is_shared(stamp) && (info == NULL || !info->keeps);
}

/* It has been in its pool since the stamp was written. */
static bool
was_free(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark, uint64_t stamp)
{
	const uint32_t epoch = mark->first == 0 && mark->met ? mark->since_ms : 0;

	if (!is_stale(ctx, stamp) && is_freed(stamp))
		return true;
	return epoch != 0 && (int32_t)(epoch - ctx->armed_epoch) >= 0 &&
	       (int32_t)(PMDSCOPE_STAMP_EPOCH(stamp) - epoch) < 0;
}

/* From this walk on the object is missing, with this stamp. */
static void
miss(const struct pmdscope_walk_context *ctx, struct pmdscope_mark *mark, uint64_t stamp)
{
	const bool unseen = mark->first != 0 && mark->stale;

	mark->untraced = ctx->armed && was_free(ctx, mark, stamp);
	mark->copied = 0;
	mark->stamp = stamp;
	mark->first = ctx->walk;
	mark->hits = 0;
	mark->sent = 0;
	mark->stale = !ctx->armed || mark->untraced || is_stale(ctx, stamp);
	if (!mark->stale)
		mark->since_ms = ctx->clock_ms - age_of(ctx, stamp) * ctx->epoch_ms;
	else if (!unseen)
		mark->since_ms = ctx->clock_ms;
}

static void
account(struct pmdscope_parts *parts, const struct pmdscope_mark *mark)
{
	if (mark->stale)
		parts->rx_posted++;
	else if (is_held(mark->stamp))
		parts->held++;
	else if (pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_TX)
		parts->tx_pending++;
	else
		parts->rx_posted++;
}

/* --- Lost or not ----------------------------------------------------------------------- */

/* It has been missing for longer than is usual at its place. */
static bool
is_overdue(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark,
		const struct pmdscope_stage *stage)
{
	if (mark->stale)
		return pmdscope_is_missing(ctx, mark);
	return stage != NULL && !pmdscope_stage_holds(stage) &&
	       age_of(ctx, mark->stamp) > stage->bound;
}

/* It cannot be in a NIC queue. */
static bool
is_in_no_queue(const struct pmdscope_walk_context *ctx, struct pmdscope_mark *mark)
{
	if (mark->untraced)
		return pmdscope_proof_stamped(&ctx->proof, mark->first);
	if (mark->stale)
		return mark->first <= ctx->proof.all_turned;
	if (pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_TX && !mark->sent) {
		if (!pmdscope_turnover_sent(PMDSCOPE_STAMP_PORT(mark->stamp),
				    PMDSCOPE_STAMP_QUEUE(mark->stamp), mark->first))
			return false;
		/* Sent; since then it may have been posted for receiving. */
		mark->sent = 1;
		mark->first = ctx->walk;
		return false;
	}
	if (pmdscope_proof_stamped(&ctx->proof, mark->first))
		return true;
	/*
	 * Mbufs of an empty pool do not move; but traced code posts none that has the app's stamp.
	 */
	return ctx->strict && pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_APP &&
	       PMDSCOPE_STAMP_SITE_ID(mark->stamp) != 0;
}

static enum pmdscope_loss_kind
kind_of(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark)
{
	if (pmdscope_clone_pins(ctx, mark))
		return PMDSCOPE_LOSS_PINNED;
	if (!mark->stale && pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_TX)
		return PMDSCOPE_LOSS_TX;
	return PMDSCOPE_LOSS_LEAK;
}

static void
confirm(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		struct pmdscope_mark *mark)
{
	struct pmdscope_leak_site *site;

	mark->kind = (uint8_t)kind_of(ctx, mark);
	ledger->untraced_takes += mark->untraced;
	site = site_of(ledger, mark);
	if (site != NULL)
		pmdscope_leak_site_event(site);
	pmdscope_ledger_found(ledger);
}

/* The required number of proofs, each from a later walk, show that it is in no queue. */
static bool
is_confirmed(const struct pmdscope_walk_context *ctx, struct pmdscope_mark *mark)
{
	if (ctx->walk == mark->first || !is_in_no_queue(ctx, mark))
		return false;
	if (mark->hits == HITS_NEEDED)
		return true;
	mark->hits++;
	mark->first = ctx->walk;
	return false;
}

/* True if this walk confirms that it is lost. */
static bool
check_mark(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		struct pmdscope_mark *mark, const struct pmdscope_stage *stage)
{
	if (pmdscope_clone_alive_pins(ctx, mark) || !is_overdue(ctx, mark, stage))
		return false;
	if (is_confirmed(ctx, mark)) {
		confirm(ctx, ledger, mark);
		return true;
	}
	/* Only unconfirmed mbufs: confirmed ones are counted as lost. */
	ledger->counting.missing += mark->stale;
	ledger->counting.suspects += !mark->stale && is_held(mark->stamp);
	return false;
}

static void
classify_missed(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		struct pmdscope_mark *mark, uintptr_t object)
{
	const uint64_t stamp = load_stamp(object);
	struct pmdscope_stage *stage = NULL;

	if (mark->kind != PMDSCOPE_LOSS_NONE && stamp == mark->stamp) {
		mark->freed = 0;
		pmdscope_clone_pin_direct(ctx, mark, object);
		count_lost(ledger, mark);
		return;
	}
	if (mark->kind != PMDSCOPE_LOSS_NONE)
		retract(ctx, mark);
	if (stamp != mark->stamp && !comes_from_elsewhere(stamp))
		learn(ctx, mark);
	if (mark->first < ctx->armed_walk || stamp != mark->stamp) {
		miss(ctx, mark, stamp);
		pmdscope_clone_note(mark, object);
	}
	if (!mark->stale && pmdscope_stamp_class(stamp) != 0)
		stage = pmdscope_stage_get(pmdscope_stamp_place(stamp));
	if (stage != NULL && (is_held(stamp) || pmdscope_stamp_class(stamp) == PMDSCOPE_STAMP_TX))
		stage->counted++;
	if (check_mark(ctx, ledger, mark, stage)) {
		pmdscope_clone_pin_direct(ctx, mark, object);
		count_lost(ledger, mark);
		return;
	}
	pmdscope_clone_pin_direct(ctx, mark, object);
	account(&ledger->counting, mark);
}

/* Without stamps, an mbuf that is missing for long and in no queue is a reason to arm. */
static void
suspect(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		struct pmdscope_mark *mark)
{
	if (mark->first == 0 || !mark->stale)
		miss(ctx, mark, 0);
	ledger->counting.missing +=
			pmdscope_is_missing(ctx, mark) && mark->first <= ctx->proof.all_turned;
}

void
pmdscope_classify(struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger, uint32_t i)
{
	struct pmdscope_mark *mark = &ledger->index.marks[i];
	const uintptr_t object = pmdscope_index_object(&ledger->index, i, &ledger->chunk_at);

	if (ctx->aborted) {
		mark->where = PMDSCOPE_WHERE_NONE;
	} else if (mark->where != PMDSCOPE_WHERE_NONE) {
		if (ctx->armed &&
				(mark->where == PMDSCOPE_WHERE_CACHE ||
						(mark->where == PMDSCOPE_WHERE_COMMON &&
								i % ASK_FREE_EVERY ==
										ctx->walk % ASK_FREE_EVERY)))
			ask_who_freed(ctx, ledger, object);
		classify_met(ctx, ledger, mark, object);
		mark->where = PMDSCOPE_WHERE_NONE;
	} else if (ctx->armed) {
		classify_missed(ctx, ledger, mark, object);
	} else if (mark->kind != PMDSCOPE_LOSS_NONE) {
		count_lost(ledger, mark);
	} else {
		suspect(ctx, ledger, mark);
	}
}

/* Occasional cases are ignored: a walk may find an object in a cache that has just left it. */
static bool
is_usual(uint32_t walks, uint32_t of)
{
	return walks >= UNTRACED_WALKS_MIN && walks >= of / UNTRACED_WALKS_PART;
}

static void
note_untraced_frees(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger)
{
	if (!ctx->armed)
		return;
	ledger->armed_walks++;
	ledger->free_walks += ledger->counting.untraced_frees != 0;
	ledger->last_free_walks += ledger->counting.untraced_last_frees != 0;
	ledger->frees_untraced |= is_usual(ledger->free_walks, ledger->armed_walks);
	ledger->last_frees_untraced |= is_usual(ledger->last_free_walks, ledger->armed_walks);
}

/* An mbuf that was never stamped may also be in a transmit queue. */
static uint32_t
lost_at_least(const struct pmdscope_walk_context *ctx, const struct pmdscope_ledger *ledger)
{
	const struct pmdscope_parts *parts = &ledger->counting;
	const struct pmdscope_proof *proof = &ctx->proof;
	const uint64_t unsent = RTE_MIN(proof->may_send, (uint64_t)parts->missing);
	const uint64_t most = pmdscope_rx_fill_most(&ledger->rx_fill);
	const uint64_t posted = RTE_MIN(proof->may_hold, most);
	const uint64_t overdue = parts->suspects + parts->missing - unsent;

	return overdue > posted ? (uint32_t)(overdue - posted) : 0;
}

void
pmdscope_classify_end(struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger)
{
	struct pmdscope_parts *parts = &ledger->counting;
	bool is_empty;

	if (ctx->aborted)
		return;
	is_empty = pmdscope_is_nearly_empty(
			parts->common + parts->cached, ledger->index.nb_objects);
	pmdscope_rx_fill_note(&ledger->rx_fill, &ctx->proof, &ledger->counts, is_empty);
	if (ctx->armed && is_empty)
		parts->lost_at_least = lost_at_least(ctx, ledger);
	note_untraced_frees(ctx, ledger);
	ledger->parts = *parts;
	ledger->placed = ctx->armed;
	ledger->walks++;
	pmdscope_leak_site_publish(ledger->id);
}
