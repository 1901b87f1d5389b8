/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "options.h"
#include "pattern.h"

#define MAX_IDLE_S 86400

bool
pattern_parse(struct pattern *pattern, const char *text)
{
	uint64_t seconds;

	if (strcmp(text, "steady") == 0)
		*pattern = (struct pattern){ .kind = PATTERN_STEADY };
	else if (strcmp(text, "bursty") == 0)
		*pattern = (struct pattern){ .kind = PATTERN_BURSTY };
	else if (strncmp(text, "idle:", 5) == 0 &&
			option_number(text + 5, '\0', 1, MAX_IDLE_S, &seconds, NULL))
		*pattern = (struct pattern){ .kind = PATTERN_IDLE, .idle_ms = seconds * 1000 };
	else
		return false;
	return true;
}

/* xorshift64* */
static uint64_t
next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

/* Length of the phase that begins, in TSC cycles. */
static uint64_t
phase(struct pattern *pattern)
{
	uint64_t ms;

	switch (pattern->kind) {
	case PATTERN_BURSTY:
		ms = PATTERN_MIN_MS +
		     (next_random(&pattern->random) >> 32) % (PATTERN_MAX_MS - PATTERN_MIN_MS + 1);
		break;
	case PATTERN_IDLE:
		ms = pattern->on ? PATTERN_BUSY_MS : pattern->idle_ms;
		break;
	default:
		return UINT64_MAX;
	}
	return (uint64_t)((unsigned __int128)ms * pattern->hz / 1000);
}

static void
begin(struct pattern *pattern, bool on, uint64_t now)
{
	uint64_t cycles;

	pattern->on = on;
	cycles = phase(pattern);
	pattern->next = cycles > UINT64_MAX - now ? UINT64_MAX : now + cycles;
}

void
pattern_start(struct pattern *pattern, uint64_t hz, uint64_t now, uint64_t seed)
{
	pattern->hz = hz;
	pattern->random = seed | 1;
	begin(pattern, true, now);
}

void
pattern_change(struct pattern *pattern, uint64_t now)
{
	/* From now, not from when it was due: a late loop must not skip phases. */
	begin(pattern, pattern->kind == PATTERN_STEADY || !pattern->on, now);
}
