/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_MISSING_H
#define PMDSCOPE_MISSING_H

/* For how many walks objects without a stamp are usually missing. */

#include <stdbool.h>
#include <stdint.h>

#include "classify.h"

/* Walks for which an object of this pool may be missing. */
uint32_t pmdscope_missing_walks_allowed(
		const struct pmdscope_walk_context *ctx, const struct pmdscope_ledger *ledger);
/* This object is missing for more walks than allowed. */
bool pmdscope_is_missing(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark);
/* An object that was considered missing is back. */
void pmdscope_missing_learn(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		const struct pmdscope_mark *mark);
/*
 * While armed: objects without a stamp may be missing from this pool for more walks than usual, and
 * there were fewer walks than that since arming.
 */
bool pmdscope_missing_waits_longer(
		const struct pmdscope_walk_context *ctx, const struct pmdscope_ledger *ledger);

#endif /* PMDSCOPE_MISSING_H */
