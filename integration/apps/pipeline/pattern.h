/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PATTERN_H
#define PATTERN_H

/* Traffic patterns that must not be reported as leaks. */

#include <stdbool.h>
#include <stdint.h>

enum pattern_kind {
	PATTERN_STEADY,
	PATTERN_BURSTY, /* On and off in turn, each for a random time. */
	PATTERN_IDLE,	/* On for PATTERN_BUSY_MS, off for idle_ms, and so on. */
};

/* Shortest and longest phase of PATTERN_BURSTY. */
#define PATTERN_MIN_MS 5
#define PATTERN_MAX_MS 1500
#define PATTERN_BUSY_MS 5000

struct pattern {
	enum pattern_kind kind;
	uint64_t idle_ms;
	/* Set by pattern_start(). */
	uint64_t hz;
	uint64_t next; /* TSC of the next change. */
	uint64_t random;
	bool on;
};

/* Read "steady", "bursty" or "idle:SECONDS". False if text is none of these. */
bool pattern_parse(struct pattern *pattern, const char *text);

/* Begin with traffic at a TSC; hz is its frequency. The same seed gives the same phases. */
void pattern_start(struct pattern *pattern, uint64_t hz, uint64_t now, uint64_t seed);

/* Change to the phase of this moment. */
void pattern_change(struct pattern *pattern, uint64_t now);

/* True while traffic flows. */
static inline bool
pattern_on(struct pattern *pattern, uint64_t now)
{
	if (now >= pattern->next)
		pattern_change(pattern, now);
	return pattern->on;
}

#endif /* PATTERN_H */
