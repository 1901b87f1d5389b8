/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef FIND_RATE_H
#define FIND_RATE_H

/* --find-rate: the highest rate with a loss within the limit, as in RFC 2544. */

#include "app.h"

/*
 * Run the trials, print a line for each and the result, and write --json. 0, or negative if no rate
 * passes, after a signal or on failure, reported.
 */
int find_rate(struct app *app, uint64_t tsc_hz);

#endif /* FIND_RATE_H */
