/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_STAGE_H
#define PMDSCOPE_STAGE_H

/*
 * Places that hold mbufs, according to their stamps, and the usual holding times. Control thread
 * and tables, with the state lock held. Times are in epochs.
 */

#include <stdbool.h>
#include <stdint.h>

#include "page.h"

/* /pmdscope/stages. */
extern const struct pmdscope_table pmdscope_stage_table;

struct pmdscope_stage {
	uint32_t place;	  /* Of pmdscope_stamp_place(). */
	uint32_t held;	  /* Mbufs, as of the last walk. */
	uint32_t counted; /* In the current walk. */
	uint32_t bound;	  /* Mbufs held for longer are suspect. */
	uint32_t longest; /* Longest residence that was no loss. */
};

/* bound is the initial bound of every stage. */
void pmdscope_stage_start(uint32_t bound, uint32_t epoch_ms);
void pmdscope_stage_stop(void);
/* The stage of a place, which is added if it is missing; NULL without memory. */
struct pmdscope_stage *pmdscope_stage_get(uint32_t place);
bool pmdscope_stage_holds(const struct pmdscope_stage *stage);
/* A residence has ended: the bound of the stage is raised to at least twice its length. */
void pmdscope_stage_learn(struct pmdscope_stage *stage, uint32_t residence);
/* The walk is complete: publish its counts. */
void pmdscope_stage_publish(void);

/* Name and operation of a place. */
void pmdscope_place_name(uint32_t place, char name[PMDSCOPE_TEXT_MAX]);
const char *pmdscope_place_operation(uint32_t place);

#endif /* PMDSCOPE_STAGE_H */
