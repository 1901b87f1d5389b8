/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CSV_H
#define CSV_H

/* --csv: a row per interval. docs/generator.md describes the columns. */

#include "interval.h"
#include "output.h"

void csv_begin(struct output *output);

void csv_row(struct output *output, const struct interval *interval, uint64_t tsc_hz);

#endif /* CSV_H */
