/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>

#include <rte_common.h>

#include "trend.h"

#define POINTS PMDSCOPE_TREND_POINTS
#define JOIN 4
#define PAIRS_MAX (POINTS * (POINTS - 1) / 2)
/*
 * Of the 120 pairs of a window, this many more must grow than shrink: Kendall's test at 3.8
 * standard deviations. A window that is not full is not tested.
 */
#define GROWING_PAIRS 84
/* Growth of fewer objects over the window is ignored. */
#define GROWTH_MIN 8

static void
add_point(struct pmdscope_trend *trend, unsigned int s, uint64_t value)
{
	struct pmdscope_trend_scale *scale = &trend->scales[s];

	scale->points[scale->nb++ % POINTS] = value;
	if (s + 1 == PMDSCOPE_TREND_SCALES)
		return;
	scale->low = scale->joined == 0 ? value : RTE_MIN(scale->low, value);
	if (++scale->joined == JOIN) {
		scale->joined = 0;
		add_point(trend, s + 1, scale->low);
	}
}

static void
note_sample(struct pmdscope_trend *trend, uint64_t now_ms, uint64_t value)
{
	trend->samples[trend->nb_samples++ % PMDSCOPE_TREND_SAMPLES] =
			(struct pmdscope_trend_sample){ .ms = now_ms, .value = value };
}

uint64_t
pmdscope_trend_grown_in_ms(const struct pmdscope_trend *trend, uint64_t by)
{
	const struct pmdscope_trend_sample *first = NULL, *last = NULL, *next;
	uint32_t i;

	if (trend->nb_samples < PMDSCOPE_TREND_SAMPLES)
		return UINT64_MAX;
	for (i = 0; i < PMDSCOPE_TREND_SAMPLES; i++, last = next) {
		next = &trend->samples[(trend->nb_samples + i) % PMDSCOPE_TREND_SAMPLES];
		if (last != NULL && next->value <= last->value)
			return UINT64_MAX;
		if (first == NULL)
			first = next;
	}
	return by * (last->ms - first->ms) / (last->value - first->value);
}

bool
pmdscope_trend_note(struct pmdscope_trend *trend, uint64_t now_ms, uint64_t value)
{
	note_sample(trend, now_ms, value);
	if (trend->point_ms == 0) {
		trend->point_ms = now_ms;
		trend->low = value;
		return false;
	}
	if (now_ms - trend->point_ms < PMDSCOPE_TREND_MS) {
		trend->low = RTE_MIN(trend->low, value);
		return false;
	}
	add_point(trend, 0, trend->low);
	trend->point_ms += PMDSCOPE_TREND_MS;
	if (now_ms - trend->point_ms >= PMDSCOPE_TREND_MS)
		trend->point_ms = now_ms;
	trend->low = value;
	return true;
}

/* Point i of the window, oldest first. */
static uint64_t
point(const struct pmdscope_trend_scale *scale, unsigned int i)
{
	return scale->points[scale->nb > POINTS ? (scale->nb + i) % POINTS : i];
}

static unsigned int
nb_points(const struct pmdscope_trend_scale *scale)
{
	return RTE_MIN(scale->nb, (uint32_t)POINTS);
}

static int
ascending(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int64_t
pmdscope_trend_slope_milli(const struct pmdscope_trend *trend)
{
	const struct pmdscope_trend_scale *scale = &trend->scales[PMDSCOPE_TREND_SLOPE_SCALE];
	const int64_t step_ms = PMDSCOPE_TREND_MS * (PMDSCOPE_TREND_SLOPE_SCALE * JOIN);
	int64_t slopes[PAIRS_MAX];
	unsigned int i, j, n = 0;

	for (j = 1; j < nb_points(scale); j++)
		for (i = 0; i < j; i++)
			slopes[n++] = ((int64_t)point(scale, j) - (int64_t)point(scale, i)) *
				      1000000 / ((int64_t)(j - i) * step_ms);
	if (n == 0)
		return 0;
	qsort(slopes, n, sizeof(slopes[0]), ascending);
	return slopes[n / 2];
}

static bool
scale_grows(const struct pmdscope_trend_scale *scale)
{
	unsigned int i, j;
	int balance = 0;

	if (scale->nb < POINTS || point(scale, POINTS - 1) < point(scale, 0) + GROWTH_MIN)
		return false;
	for (j = 1; j < POINTS; j++)
		for (i = 0; i < j; i++)
			balance += (point(scale, j) > point(scale, i)) -
				   (point(scale, j) < point(scale, i));
	return balance >= GROWING_PAIRS;
}

bool
pmdscope_trend_grows(const struct pmdscope_trend *trend)
{
	unsigned int s;

	for (s = 0; s < PMDSCOPE_TREND_SCALES; s++)
		if (scale_grows(&trend->scales[s]))
			return true;
	return false;
}
