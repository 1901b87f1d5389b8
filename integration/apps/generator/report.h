/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REPORT_H
#define REPORT_H

/* Reports during the run: a line for each interval, and the files of a run. */

#include <stdint.h>

#include "clock.h"

/* Open the files that the settings name. 0 or a negative errno, reported. */
int report_open(uint64_t tsc_hz);

/* A run begins, with all counters at 0. */
void report_start(const struct moment *start);

/* Report an interval. For app_run(). */
void report(uint64_t elapsed_ns, uint64_t span_ns);

/* The run has ended: report events since the last interval and close the files. 0 or -EIO. */
int report_close(const struct moment *end);

#endif /* REPORT_H */
