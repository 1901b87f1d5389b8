/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>
#include <string.h>

#include <rte_string_fns.h>

#include "page.h"
#include "track.h"
#include "window.h"

void *
pmdscope_track_item(const struct pmdscope_tracks *tracks, unsigned int i)
{
	return tracks->items + i * tracks->item_size;
}

static struct pmdscope_track *
find(struct pmdscope_tracks *tracks, const void *address, const char *name)
{
	unsigned int i;

	for (i = 0; i < tracks->nb; i++) {
		const unsigned int at = (tracks->hint + i) % tracks->nb;
		struct pmdscope_track *track = pmdscope_track_item(tracks, at);

		if (track->address == address && strcmp(track->name, name) == 0) {
			tracks->hint = at + 1;
			return track;
		}
	}
	return NULL;
}

static struct pmdscope_track *
append(struct pmdscope_tracks *tracks, const void *address, const char *name)
{
	struct pmdscope_track *track;

	if (tracks->nb == tracks->capacity) {
		const unsigned int capacity = tracks->capacity == 0 ? 16 : 2 * tracks->capacity;
		char *items = realloc(tracks->items, capacity * tracks->item_size);

		if (items == NULL)
			return NULL;
		tracks->items = items;
		tracks->capacity = capacity;
	}
	track = pmdscope_track_item(tracks, tracks->nb++);
	memset(track, 0, tracks->item_size);
	track->address = address;
	strlcpy(track->name, name, sizeof(track->name));
	tracks->changed = true;
	return track;
}

void *
pmdscope_track_meet(struct pmdscope_tracks *tracks, const void *address, const char *name)
{
	struct pmdscope_track *track = find(tracks, address, name);

	if (track == NULL)
		track = append(tracks, address, name);
	if (track != NULL)
		track->seen = true;
	return track;
}

void
pmdscope_track_note(struct pmdscope_track *track, uint64_t value)
{
	pmdscope_window_note(&track->window, value);
	if (value > track->max)
		track->max = value;
}

void
pmdscope_track_sweep(struct pmdscope_tracks *tracks)
{
	unsigned int i, kept = 0;

	for (i = 0; i < tracks->nb; i++) {
		struct pmdscope_track *track = pmdscope_track_item(tracks, i);

		if (!track->seen)
			continue;
		track->seen = false;
		if (kept != i)
			memcpy(pmdscope_track_item(tracks, kept), track, tracks->item_size);
		kept++;
	}
	if (kept != tracks->nb || tracks->changed)
		pmdscope_rows_changed();
	tracks->nb = kept;
	tracks->hint = 0;
	tracks->changed = false;
}

void
pmdscope_track_clear(struct pmdscope_tracks *tracks)
{
	free(tracks->items);
	tracks->items = NULL;
	tracks->nb = 0;
	tracks->capacity = 0;
}
