/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "options.h"
#include "schedule.h"

bool
schedule_parse(struct schedule *schedule, const char *text)
{
	const char *every;
	uint64_t one, n;

	if (strcmp(text, "once") == 0) {
		*schedule = (struct schedule){ .every = 1, .once = true };
		return true;
	}
	if (!option_number(text, '/', 1, 1, &one, &every) ||
			!option_number(every, '\0', 1, SCHEDULE_MAX, &n, NULL))
		return false;
	*schedule = (struct schedule){ .every = n };
	return true;
}
