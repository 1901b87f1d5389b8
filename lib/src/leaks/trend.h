/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TREND_H
#define PMDSCOPE_TREND_H

/*
 * Whether a count that goes up and down all the time grows. Of every quarter of a second its
 * lowest sample is kept: what is in use only for a moment does not show there. Points are
 * joined to ever longer ones, so that slow growth is seen as well.
 */

#include <stdbool.h>
#include <stdint.h>

#define PMDSCOPE_TREND_POINTS 16
#define PMDSCOPE_TREND_SCALES 4
/* Of the finest scale; each next one is four times as coarse. */
#define PMDSCOPE_TREND_MS 250
/* The scale whose window the slope is of. */
#define PMDSCOPE_TREND_SLOPE_SCALE 1

struct pmdscope_trend_scale {
	uint64_t points[PMDSCOPE_TREND_POINTS]; /* A ring. */
	uint32_t nb;				/* Points ever. */
	uint32_t joined;			/* Finer points in low. */
	uint64_t low;
};

struct pmdscope_trend {
	struct pmdscope_trend_scale scales[PMDSCOPE_TREND_SCALES];
	uint64_t low;
	uint64_t point_ms; /* When the present point began, 0: none. */
};

/* Note a sample. True when a point has been completed. */
bool pmdscope_trend_note(struct pmdscope_trend *trend, uint64_t now_ms, uint64_t value);

/* Growth over the sliding window, per 1000 s: the median of the slopes between all its points. */
int64_t pmdscope_trend_slope_milli(const struct pmdscope_trend *trend);

/* Hardly by chance: on some scale nearly all points are above those before them. */
bool pmdscope_trend_grows(const struct pmdscope_trend *trend);

#endif /* PMDSCOPE_TREND_H */
