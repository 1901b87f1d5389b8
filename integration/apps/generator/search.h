/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SEARCH_H
#define SEARCH_H

/*
 * The rates to try in a search for the highest that passes (RFC 2544, section 26.1): the highest,
 * then the lowest, then by bisection.
 */

#include <stdbool.h>
#include <stdint.h>

struct search {
	uint64_t low;	     /* Highest rate that passed; before that, the lowest to try. */
	uint64_t high;	     /* Lowest rate that failed; before that, the highest to try. */
	uint64_t resolution; /* The search ends when high - low is at most this. */
	uint64_t next;	     /* Rate to try; 0: the search is over. */
	uint64_t found;	     /* Highest rate that passed; 0: none. */
};

/* low is at most high, and both, as the resolution, are at least 1. */
void search_start(struct search *search, uint64_t low, uint64_t high, uint64_t resolution);

/* Report the result at search->next. */
void search_tell(struct search *search, bool passed);

#endif /* SEARCH_H */
