/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "line_set.h"

/* Lines from first up to end. */
struct range {
	size_t first, end;
};

/* Those of some bytes; none if the bytes are not all in the counters. */
static struct range
lines_of(const void *base, const void *begin, size_t bytes)
{
	const uintptr_t from = (uintptr_t)base, at = (uintptr_t)begin;
	const size_t size = LINE_SET_LINES * RTE_CACHE_LINE_SIZE;
	const size_t offset = at - from;

	if (at < from || offset > size || bytes > size - offset)
		return (struct range){ 0, 0 };
	return (struct range){ offset / RTE_CACHE_LINE_SIZE,
		(offset + bytes + RTE_CACHE_LINE_SIZE - 1) / RTE_CACHE_LINE_SIZE };
}

bool
line_set_has(const struct line_set *set, size_t line)
{
	return line < LINE_SET_LINES && (set->words[line / 64] >> line % 64 & 1) != 0;
}

void
line_set_add(struct line_set *set, const void *base, const void *begin, size_t bytes)
{
	const struct range range = lines_of(base, begin, bytes);
	size_t line;

	for (line = range.first; line < range.end; line++)
		set->words[line / 64] |= UINT64_C(1) << line % 64;
}

void
line_set_remove(struct line_set *set, const void *base, const void *begin, size_t bytes)
{
	const struct range range = lines_of(base, begin, bytes);
	size_t line;

	for (line = range.first; line < range.end; line++)
		set->words[line / 64] &= ~(UINT64_C(1) << line % 64);
}

bool
line_set_touches(const struct line_set *set, const void *base, const void *begin, size_t bytes)
{
	const struct range range = lines_of(base, begin, bytes);
	size_t line;

	for (line = range.first; line < range.end; line++)
		if (line_set_has(set, line))
			return true;
	return false;
}

void
line_set_join(struct line_set *set, const struct line_set *other)
{
	size_t i;

	for (i = 0; i < LINE_SET_WORDS; i++)
		set->words[i] |= other->words[i];
}

bool
line_set_is_empty(const struct line_set *set)
{
	size_t i;

	for (i = 0; i < LINE_SET_WORDS; i++)
		if (set->words[i] != 0)
			return false;
	return true;
}
