/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SCHEDULE_H
#define SCHEDULE_H

/* When a fault happens: in exactly one of so many bursts, or in a single one. */

#include <stdbool.h>
#include <stdint.h>

/* Largest N of "1/N". */
#define SCHEDULE_MAX (UINT64_C(1) << 31)

struct schedule {
	uint64_t every;	 /* In one burst of so many; 0: never (again). */
	uint64_t bursts; /* Counted since the last one. */
	bool once;
};

/* What --help calls a schedule, and what an error says was wanted. */
#define SCHEDULE_VALUE "1/N|once"
#define SCHEDULE_WANTED "1/N with N from 1 to 2147483648, or once"

/* Read "1/N" or "once". False if text is neither; schedule is then untouched. */
bool schedule_parse(struct schedule *schedule, const char *text);

/* Count a burst that holds packets. True if the fault is to happen in this one. */
static inline bool
schedule_due(struct schedule *schedule)
{
	if (schedule->every == 0 || ++schedule->bursts < schedule->every)
		return false;
	schedule->bursts = 0;
	if (schedule->once)
		schedule->every = 0;
	return true;
}

#endif /* SCHEDULE_H */
