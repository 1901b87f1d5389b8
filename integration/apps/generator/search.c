/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "search.h"

void
search_start(struct search *search, uint64_t low, uint64_t high, uint64_t resolution)
{
	*search = (struct search){
		.low = low, .high = high, .resolution = resolution, .next = high
	};
}

void
search_tell(struct search *search, bool passed)
{
	const uint64_t tried = search->next;

	search->next = 0;
	if (passed && tried == search->high) {
		search->found = tried;
		return;
	}
	if (!passed && tried == search->low)
		return;
	if (passed)
		search->found = search->low = tried;
	else
		search->high = tried;
	if (search->found == 0)
		search->next = search->low;
	else if (search->high - search->low > search->resolution)
		search->next = search->low + (search->high - search->low) / 2;
}
