/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TREND_H
#define PMDSCOPE_TREND_H

/*
 * Detects growth of a count that varies. The lowest sample of every quarter of a second is kept,
 * which hides short use. Points are merged to longer and longer ones, so that slow growth is
 * detected as well.
 */

#include <stdbool.h>
#include <stdint.h>

#define PMDSCOPE_TREND_POINTS 16
#define PMDSCOPE_TREND_SCALES 4
/* Length of a point of the finest scale; each further scale is four times as coarse. */
#define PMDSCOPE_TREND_MS 250
/* Minimum time that pmdscope_trend_grows() needs. */
#define PMDSCOPE_TREND_WINDOW_MS (PMDSCOPE_TREND_POINTS * PMDSCOPE_TREND_MS)
/* The scale whose window gives the slope. */
#define PMDSCOPE_TREND_SLOPE_SCALE 1

struct pmdscope_trend_scale {
	uint64_t points[PMDSCOPE_TREND_POINTS]; /* A ring. */
	uint32_t nb;				/* Points so far. */
	uint32_t joined;			/* Finer points included in low. */
	uint64_t low;
};

/* Samples that must each exceed the one before, for growth that needs a quick reaction. */
#define PMDSCOPE_TREND_SAMPLES 5

struct pmdscope_trend_sample {
	uint64_t ms;
	uint64_t value;
};

struct pmdscope_trend {
	struct pmdscope_trend_sample samples[PMDSCOPE_TREND_SAMPLES]; /* A ring. */
	uint32_t nb_samples;
	struct pmdscope_trend_scale scales[PMDSCOPE_TREND_SCALES];
	uint64_t low;
	uint64_t point_ms; /* Start of the current point, 0: none. */
};

/* Note a sample. True when a point has been completed. */
bool pmdscope_trend_note(struct pmdscope_trend *trend, uint64_t now_ms, uint64_t value);

/* Growth over the sliding window, per 1000 s: the median of the slopes between all its points. */
int64_t pmdscope_trend_slope_milli(const struct pmdscope_trend *trend);

/*
 * Growth that is unlikely to be chance: on some scale nearly all points exceed those before them.
 */
bool pmdscope_trend_grows(const struct pmdscope_trend *trend);

/*
 * Time until the value has grown by this amount at the rate of the last samples,
 * milliseconds; UINT64_MAX unless each of them was above the one before.
 */
uint64_t pmdscope_trend_grown_in_ms(const struct pmdscope_trend *trend, uint64_t by);

#endif /* PMDSCOPE_TREND_H */
