/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>
#include <string.h>

#include "index.h"

/* A pool with more chunks of memory than this is not a pool of packets. */
#define CHUNKS_MAX (1U << 20)
#define UNIT 8

static uint64_t
mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

static uint64_t
fingerprint(const struct rte_mempool *mp)
{
	const struct rte_mempool_memhdr *chunk;
	uint64_t hash = mix((uintptr_t)mp->pool_data, mp->populated_size);

	STAILQ_FOREACH(chunk, &mp->mem_list, next)
	hash = mix(mix(hash, (uintptr_t)chunk->addr), chunk->len);
	return hash;
}

bool
pmdscope_index_fits(const struct pmdscope_index *index, const struct rte_mempool *mp)
{
	return index->marks != NULL && index->fingerprint == fingerprint(mp);
}

void
pmdscope_index_free(struct pmdscope_index *index)
{
	free(index->chunks);
	free(index->marks);
	*index = (struct pmdscope_index){ 0 };
}

static int
by_address(const void *a, const void *b)
{
	const struct pmdscope_chunk *x = a, *y = b;

	return (x->lo > y->lo) - (x->lo < y->lo);
}

static bool
collect_chunks(struct pmdscope_index *index, const struct rte_mempool *mp)
{
	const struct rte_mempool_memhdr *memory;
	uint64_t nb_marks = 0;
	unsigned int i = 0;

	if (mp->nb_mem_chunks == 0 || mp->nb_mem_chunks > CHUNKS_MAX)
		return false;
	index->chunks = calloc(mp->nb_mem_chunks, sizeof(*index->chunks));
	if (index->chunks == NULL)
		return false;
	STAILQ_FOREACH(memory, &mp->mem_list, next)
	{
		if (i == mp->nb_mem_chunks)
			return false;
		index->chunks[i].lo = (uintptr_t)memory->addr;
		index->chunks[i++].hi = (uintptr_t)memory->addr + memory->len;
	}
	index->nb_chunks = i;
	qsort(index->chunks, index->nb_chunks, sizeof(*index->chunks), by_address);
	for (i = 0; i < index->nb_chunks; i++) {
		struct pmdscope_chunk *chunk = &index->chunks[i];

		if ((chunk->hi - chunk->lo) / UNIT > UINT32_MAX)
			return false;
		chunk->base = (uint32_t)nb_marks;
		nb_marks += ((chunk->hi - chunk->lo) >> index->shift) + 1;
	}
	index->nb_marks = (uint32_t)nb_marks;
	return nb_marks <= UINT32_MAX;
}

bool
pmdscope_index_begin(struct pmdscope_index *index, struct rte_mempool *mp)
{
	const uint32_t stride = mp->header_size + mp->elt_size + mp->trailer_size;

	pmdscope_index_free(index);
	index->shift = 31 - (unsigned int)__builtin_clz(stride);
	if (!collect_chunks(index, mp)) {
		pmdscope_index_free(index);
		return false;
	}
	index->marks = calloc(index->nb_marks, sizeof(*index->marks));
	if (index->marks == NULL) {
		pmdscope_index_free(index);
		return false;
	}
	index->fingerprint = fingerprint(mp);
	index->next = STAILQ_FIRST(&mp->elt_list);
	return true;
}

static const struct pmdscope_chunk *
find_chunk(const struct pmdscope_index *index, uintptr_t object)
{
	unsigned int lo = 0, hi = index->nb_chunks;

	while (lo < hi) {
		const unsigned int mid = (lo + hi) / 2;

		if (object < index->chunks[mid].lo)
			hi = mid;
		else if (object >= index->chunks[mid].hi)
			lo = mid + 1;
		else
			return &index->chunks[mid];
	}
	return NULL;
}

static struct pmdscope_mark *
place(const struct pmdscope_index *index, const struct pmdscope_chunk *chunk, uintptr_t object)
{
	return &index->marks[chunk->base + ((object - chunk->lo) >> index->shift)];
}

unsigned int
pmdscope_index_build(struct pmdscope_index *index, unsigned int nb)
{
	const struct pmdscope_chunk *chunk;
	uintptr_t object;
	unsigned int n;

	for (n = 0; n < nb && index->next != NULL; n++) {
		object = (uintptr_t)(index->next + 1);
		chunk = find_chunk(index, object);
		if (chunk != NULL && (object - chunk->lo) % UNIT == 0) {
			place(index, chunk, object)->at = (uint32_t)((object - chunk->lo) / UNIT);
			index->nb_objects++;
		}
		index->next = STAILQ_NEXT(index->next, next);
	}
	index->built = index->next == NULL;
	return n;
}

struct pmdscope_mark *
pmdscope_index_find(const struct pmdscope_index *index, uintptr_t object)
{
	const struct pmdscope_chunk *chunk = find_chunk(index, object);
	struct pmdscope_mark *mark;

	if (chunk == NULL)
		return NULL;
	mark = place(index, chunk, object);
	if (mark->at == 0 || chunk->lo + (uintptr_t)mark->at * UNIT != object)
		return NULL;
	return mark;
}

bool
pmdscope_index_contains(const struct pmdscope_index *index, uintptr_t addr, size_t len)
{
	const struct pmdscope_chunk *chunk = find_chunk(index, addr);

	return chunk != NULL && len <= chunk->hi - addr;
}

uintptr_t
pmdscope_index_object(const struct pmdscope_index *index, uint32_t i, unsigned int *chunk)
{
	while (*chunk + 1 < index->nb_chunks && i >= index->chunks[*chunk + 1].base)
		(*chunk)++;
	return index->chunks[*chunk].lo + (uintptr_t)index->marks[i].at * UNIT;
}
