/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TRACK_H
#define PMDSCOPE_TRACK_H

/*
 * State about objects in DPDK's lists (pools, rings), which the app creates and frees. They are
 * identified by address and name; the address is never dereferenced.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_memzone.h>

#include "pmdscope.h"

/* First member of every tracked item. */
struct pmdscope_track {
	const void *address;
	char name[RTE_MEMZONE_NAMESIZE];
	bool seen;
	struct pmdscope_window window;
	uint64_t max;
};

struct pmdscope_tracks {
	const size_t item_size;
	char *items;
	unsigned int nb;
	unsigned int capacity;
	/* Likely index of the next object of a walk. */
	unsigned int hint;
	bool changed;
};

/* The item of an object found in a walk, added if it is missing; NULL without memory. */
void *pmdscope_track_meet(struct pmdscope_tracks *tracks, const void *address, const char *name);
/* Note a sample of the quantity with the high-water marks. */
void pmdscope_track_note(struct pmdscope_track *track, uint64_t value);
/* After a walk: forget the objects that it did not find. */
void pmdscope_track_sweep(struct pmdscope_tracks *tracks);
void *pmdscope_track_item(const struct pmdscope_tracks *tracks, unsigned int i);
void pmdscope_track_clear(struct pmdscope_tracks *tracks);

#endif /* PMDSCOPE_TRACK_H */
