/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_ARMING_H
#define PMDSCOPE_ARMING_H

/* When stamps are armed, and for how long. Control thread and tables, with the state lock held. */

#include <stdbool.h>
#include <stdint.h>

#include "pmdscope.h"

void pmdscope_arming_start(const struct pmdscope_conf *conf);
void pmdscope_arming_stop(void);
/* Once per sample, when the ledgers know the counts of their pools. Growth is a reason to arm. */
void pmdscope_arming_decide(uint64_t now_ms, bool grows);
/* Something was found: a reason to stay armed. */
void pmdscope_arming_news(void);

/*
 * Arm for this many seconds, or disarm with 0. 0, or -EPERM in mode never, -ENODEV without stamps.
 */
int pmdscope_arming_ask(uint32_t seconds);
/* There is room for stamps, and the mode permits them. */
bool pmdscope_arming_possible(void);
bool pmdscope_arming_on(void);
/* Stamps are armed, and have been since before this epoch. */
bool pmdscope_arming_covers(uint32_t epoch);
const char *pmdscope_arming_mode_name(void);

#endif /* PMDSCOPE_ARMING_H */
