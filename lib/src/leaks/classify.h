/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CLASSIFY_H
#define PMDSCOPE_CLASSIFY_H

/* Classifies each object after a walk: where it is, and whether it is lost. */

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"
#include "leak_sites.h"
#include "turnover.h"

/* The values that are the same for all objects of a walk. */
struct pmdscope_walk_context {
	uint32_t walk;
	uint32_t epoch; /* Epoch in which it began. */
	uint32_t clock_ms;
	bool armed;
	bool aborted;	      /* Arming has changed during the walk: nothing is classified. */
	uint32_t armed_epoch; /* Older stamps are of an earlier arming. */
	uint32_t armed_walk;  /* Objects missed in earlier walks are forgotten. */
	uint32_t epoch_ms;
	uint32_t walk_ms;
	uint32_t hold_walks;
	struct pmdscope_proof proof; /* Of the present pool. */
	bool strict;		     /* Its free set is empty, and all its frees are traced. */
	uint32_t max_missed_walks;   /* For which objects without a stamp may be missing. */
};

/* The objects of a pool: begin, each mark that has an object, end. Tailq lock held. */
void pmdscope_classify_begin(struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger);
void
pmdscope_classify(struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger, uint32_t i);
void pmdscope_classify_end(struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger);

/* In loss_place.c: the last proven place of a lost mbuf, and the kind of the loss. */
uint32_t
pmdscope_classify_place(const struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark);
enum pmdscope_loss_kind
pmdscope_classify_kind(const struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark);

/* So few objects are free that the queues of a pool of this size do not turn over. */
bool pmdscope_is_nearly_empty(uint32_t nb_free, uint32_t size);

#endif /* PMDSCOPE_CLASSIFY_H */
