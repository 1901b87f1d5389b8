/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "sizes.h"

struct kind {
	uint16_t size;
	uint32_t weight;
	int64_t credit; /* How far it is behind its share. */
};

struct mix {
	struct kind kind[SIZES_MAX_KINDS];
	unsigned int nb;
	uint32_t round; /* Sum of the weights. */
};

/* The "simple IMIX": frames of 64, 594 and 1518 bytes with FCS. */
static const struct mix imix = {
	.kind = { { 60, 7, 0 }, { 590, 4, 0 }, { 1514, 1, 0 } },
	.nb = 3,
	.round = 12,
};

static bool
add_kind(struct mix *mix, uint64_t size, uint64_t weight)
{
	if (mix->nb == SIZES_MAX_KINDS || mix->round + weight > SIZES_MAX_ROUND)
		return false;
	mix->kind[mix->nb++] = (struct kind){ (uint16_t)size, (uint32_t)weight, 0 };
	mix->round += (uint32_t)weight;
	return true;
}

/* "SIZE" or "SIZE:WEIGHT" */
static bool
read_kind(struct mix *mix, const char *text, uint16_t least, uint16_t most)
{
	uint64_t size, weight = 1;
	const char *rest;

	if (strchr(text, ':') == NULL)
		return option_number(text, '\0', least, most, &size, NULL) &&
		       add_kind(mix, size, weight);
	return option_number(text, ':', least, most, &size, &rest) &&
	       option_number(rest, '\0', 1, SIZES_MAX_ROUND, &weight, NULL) &&
	       add_kind(mix, size, weight);
}

static bool
read_list(struct mix *mix, char *text, uint16_t least, uint16_t most)
{
	char *item;

	while ((item = strsep(&text, ",")) != NULL)
		if (!read_kind(mix, item, least, most))
			return false;
	return true;
}

static bool
read_range(struct mix *mix, const char *text, uint16_t least, uint16_t most, uint16_t *last)
{
	uint64_t min, max;
	const char *rest;

	if (!option_number(text, '-', least, most, &min, &rest) ||
			!option_number(rest, '\0', min, most, &max, NULL))
		return false;
	*last = (uint16_t)max;
	return add_kind(mix, min, max - min + 1);
}

/* Smooth weighted round-robin: next is the size that is furthest behind its share. */
static void
spread(struct mix *mix, uint16_t *sizes)
{
	unsigned int kind, best;
	uint32_t i;

	for (i = 0; i < mix->round; i++) {
		best = 0;
		for (kind = 0; kind < mix->nb; kind++) {
			mix->kind[kind].credit += mix->kind[kind].weight;
			if (mix->kind[kind].credit > mix->kind[best].credit)
				best = kind;
		}
		mix->kind[best].credit -= mix->round;
		sizes[i] = mix->kind[best].size;
	}
}

static void
find_extremes(struct sizes *sizes)
{
	uint32_t i;

	sizes->min = sizes->max = sizes->size[0];
	for (i = 1; i < sizes->nb; i++) {
		if (sizes->size[i] < sizes->min)
			sizes->min = sizes->size[i];
		if (sizes->size[i] > sizes->max)
			sizes->max = sizes->size[i];
	}
}

static bool
read_mix(struct mix *mix, const char *text, uint16_t least, uint16_t most, uint16_t *last)
{
	char *copy;
	bool ok;

	if (strcmp(text, "imix") == 0) {
		*mix = imix;
		if (mix->kind[0].size < least)
			mix->kind[0].size = least;
		return true;
	}
	if (strchr(text, '-') != NULL)
		return read_range(mix, text, least, most, last);
	copy = strdup(text);
	ok = copy != NULL && read_list(mix, copy, least, most);
	free(copy);
	return ok;
}

int
sizes_parse(struct sizes *sizes, const char *text, uint16_t least, uint16_t most)
{
	struct mix mix = { .nb = 0 };
	uint16_t last = 0;
	struct sizes read;
	uint32_t i;

	if (!read_mix(&mix, text, least, most, &last))
		return -EINVAL;
	read.nb = mix.round;
	read.size = calloc(read.nb, sizeof(*read.size));
	if (read.size == NULL)
		return -ENOMEM;
	if (last != 0)
		for (i = 0; i < read.nb; i++)
			read.size[i] = (uint16_t)(mix.kind[0].size + i);
	else
		spread(&mix, read.size);
	find_extremes(&read);
	*sizes = read;
	return 0;
}

void
sizes_free(struct sizes *sizes)
{
	free(sizes->size);
	*sizes = (struct sizes){ 0 };
}
