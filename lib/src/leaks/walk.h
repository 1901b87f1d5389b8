/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_WALK_H
#define PMDSCOPE_WALK_H

/* The walk over all mbufs, in slices. Control thread, state lock held. */

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"

/* Time settings of the walks. */
struct pmdscope_walk_conf {
	uint32_t epoch_ms;   /* Length of an epoch. */
	uint32_t walk_ms;    /* From walk to walk. */
	uint32_t hold_walks; /* Walks that take as long as the residence bound. */
};

void pmdscope_walk_start(const struct pmdscope_walk_conf *conf);
void pmdscope_walk_stop(void);
/* Stamps are armed from now on: objects missed by earlier walks prove nothing. */
void pmdscope_walk_arm(void);
/* Begin a walk, unless one is under way. */
void pmdscope_walk_begin(void);
bool pmdscope_walk_busy(void);
/* While armed: this pool needs more walks than usual before losses from before arming are known. */
bool pmdscope_walk_waits_longer(const struct pmdscope_ledger *ledger);
/* Continue for about a millisecond at most. */
void pmdscope_walk_slice(void);

#endif /* PMDSCOPE_WALK_H */
