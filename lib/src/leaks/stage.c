/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_string_fns.h>

#include "site.h"
#include "stage.h"
#include "stamp.h"

/* Stages by place, in a hash table with open addressing. */
#define STAGES_MAX (1U << 15)
#define SLOTS (2 * STAGES_MAX)

/* Prefix of the last known place of an mbuf. */
#define NOT_PROVEN "not proven, after "
/* The rest of a long path says more than its beginning. */
#define LAST_MAX (PMDSCOPE_TEXT_MAX - sizeof(NOT_PROVEN))

static struct pmdscope_stage *stages;
static unsigned int nb_stages, capacity;
static uint32_t *slots; /* Number of a stage plus 1, 0 for free. */
static uint32_t start_bound, epoch_length_ms;

void
pmdscope_stage_start(uint32_t bound, uint32_t epoch_ms)
{
	start_bound = bound;
	epoch_length_ms = epoch_ms;
}

void
pmdscope_stage_stop(void)
{
	free(stages);
	free(slots);
	stages = NULL;
	slots = NULL;
	nb_stages = 0;
	capacity = 0;
}

static struct pmdscope_stage *
append(uint32_t place, uint32_t slot)
{
	if (nb_stages == STAGES_MAX)
		return NULL;
	if (nb_stages == capacity) {
		const unsigned int grown = capacity == 0 ? 64 : 2 * capacity;
		struct pmdscope_stage *items = realloc(stages, grown * sizeof(*items));

		if (items == NULL)
			return NULL;
		stages = items;
		capacity = grown;
	}
	stages[nb_stages] = (struct pmdscope_stage){ .place = place, .bound = start_bound };
	slots[slot] = ++nb_stages;
	pmdscope_rows_changed();
	return &stages[nb_stages - 1];
}

struct pmdscope_stage *
pmdscope_stage_get(uint32_t place)
{
	uint32_t slot = (place * UINT32_C(0x9e3779b1)) >> 16;

	if (slots == NULL)
		slots = calloc(SLOTS, sizeof(*slots));
	if (slots == NULL)
		return NULL;
	for (; slots[slot] != 0; slot = (slot + 1) % SLOTS)
		if (stages[slots[slot] - 1].place == place)
			return &stages[slots[slot] - 1];
	return append(place, slot);
}

static const struct pmdscope_site_info *
info_of(uint32_t place)
{
	return pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID((uint64_t)place));
}

bool
pmdscope_stage_holds(const struct pmdscope_stage *stage)
{
	const struct pmdscope_site_info *info = info_of(stage->place);

	return info != NULL && __atomic_load_n(&info->hold, __ATOMIC_RELAXED);
}

void
pmdscope_stage_learn(struct pmdscope_stage *stage, uint32_t residence)
{
	if (residence <= stage->longest)
		return;
	stage->longest = residence;
	stage->bound = RTE_MAX(start_bound, RTE_MIN(residence, UINT32_MAX / 2) * 2);
}

void
pmdscope_stage_publish(void)
{
	unsigned int i;

	for (i = 0; i < nb_stages; i++) {
		stages[i].held = stages[i].counted;
		stages[i].counted = 0;
	}
}

void
pmdscope_place_name(uint32_t place, char name[PMDSCOPE_TEXT_MAX])
{
	const struct pmdscope_site_info *info = info_of(place);
	const uint64_t stamp_class = pmdscope_stamp_class(place);
	char last[PMDSCOPE_TEXT_MAX];

	if (pmdscope_place_is_unproven(place)) {
		pmdscope_place_name(pmdscope_place_proven(place), last);
		snprintf(name, PMDSCOPE_TEXT_MAX, NOT_PROVEN "%s",
				last + RTE_MAX(strlen(last), LAST_MAX) - LAST_MAX);
	} else if (info != NULL)
		strlcpy(name, info->name, PMDSCOPE_TEXT_MAX);
	else if (place == 0)
		strlcpy(name, "before arming", PMDSCOPE_TEXT_MAX);
	else
		snprintf(name, PMDSCOPE_TEXT_MAX, "%s port %u queue %u",
				stamp_class == PMDSCOPE_STAMP_TX ? "tx" : "rx",
				PMDSCOPE_STAMP_PORT((uint64_t)place),
				PMDSCOPE_STAMP_QUEUE((uint64_t)place));
}

const char *
pmdscope_place_operation(uint32_t place)
{
	const struct pmdscope_site_info *info;

	if (pmdscope_place_is_unproven(place))
		return pmdscope_place_operation(pmdscope_place_proven(place));
	info = info_of(place);
	if (info != NULL)
		return info->operation;
	if (place == 0)
		return "";
	return pmdscope_stamp_class(place) == PMDSCOPE_STAMP_TX ? "tx" : "rx";
}

enum {
	STAGE,
	HELD,
	HOLD,
	BOUND_MS,
	LONGEST_MS,
};

static const struct pmdscope_column columns[] = {
	[STAGE] = { "stage", PMDSCOPE_COLUMN_STR, 1 },
	[HELD] = { "held", PMDSCOPE_COLUMN_U64, 1 },
	[HOLD] = { "hold", PMDSCOPE_COLUMN_U64, 1 },
	[BOUND_MS] = { "bound_ms", PMDSCOPE_COLUMN_U64, 1 },
	[LONGEST_MS] = { "longest_ms", PMDSCOPE_COLUMN_U64, 1 },
};

static unsigned int
stage_count(void)
{
	return nb_stages;
}

static void
stage_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct pmdscope_stage *stage = &stages[i];
	char name[PMDSCOPE_TEXT_MAX];

	pmdscope_place_name(stage->place, name);
	pmdscope_row_str(row, STAGE, name);
	pmdscope_row_u64(row, HELD, 0, stage->held);
	pmdscope_row_u64(row, HOLD, 0, pmdscope_stage_holds(stage));
	pmdscope_row_u64(row, BOUND_MS, 0, (uint64_t)stage->bound * epoch_length_ms);
	pmdscope_row_u64(row, LONGEST_MS, 0, (uint64_t)stage->longest * epoch_length_ms);
}

const struct pmdscope_table pmdscope_stage_table = {
	.name = "stages",
	.help = "Stages that hold mbufs, and how long. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = stage_count,
	.fill = stage_fill,
};
