/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SCHEDULE_H
#define SCHEDULE_H

/* The times of a fault: in exactly one of N bursts, or in a single one. */

#include <stdbool.h>
#include <stdint.h>

/* Largest N of "1/N". */
#define SCHEDULE_MAX (UINT64_C(1) << 31)

struct schedule {
	uint64_t every;	 /* In one of this many bursts; 0: never (again). */
	uint64_t bursts; /* Counted since the last one. */
	bool once;
};

/* Name of a schedule in --help and in errors. */
#define SCHEDULE_VALUE "1/N|once"
#define SCHEDULE_WANTED "1/N with N from 1 to 2147483648, or once"

/* Read "1/N" or "once". False if text is neither; schedule is then untouched. */
bool schedule_parse(struct schedule *schedule, const char *text);

/* Count a burst with packets. True if the fault is due in this one. */
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
