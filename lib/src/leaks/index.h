/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_INDEX_H
#define PMDSCOPE_INDEX_H

/*
 * The marks of the walker for every object of a pool, found by the address of the object without
 * access to it. Control thread only. Functions that take a pool need the tailq lock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mempool.h>

/* Where a walk has met an object. */
enum pmdscope_where {
	PMDSCOPE_WHERE_NONE,
	PMDSCOPE_WHERE_CACHE,
	PMDSCOPE_WHERE_COMMON,
	PMDSCOPE_WHERE_RING, /* A software ring. */
};

/* 24 bytes: there may be millions. */
struct pmdscope_mark {
	uint64_t stamp; /* Last one seen. */
	uint32_t at;	/* Place in the chunk, in units of 8 bytes; 0: no object. */
	uint32_t first; /* Walk that first missed it with this stamp. */
	/* When it was last seen to move, on the walker's clock; while it is free, the epoch of the
	 * walk that last met it there, 0 for none.
	 */
	uint32_t since_ms;
	uint16_t pin;	      /* Walk that met a clone of it, and whether that one is alive. */
	uint8_t where : 5;    /* In the present walk. */
	uint8_t met : 1;      /* Some walk has met it. */
	uint8_t untraced : 1; /* Taken from the pool since its stamp, by code that stamps nothing. */
	uint8_t copied : 1;   /* A clone whose stamp may be that of the mbuf it was made of. */
	uint8_t hits : 2;
	uint8_t kind : 3;  /* Of the loss, 0 while there is none. */
	uint8_t sent : 1;  /* Its transmit queue has turned over. */
	uint8_t freed : 1; /* A lost one that the last walk met in a cache. */
	uint8_t stale : 1; /* Its stamp is from before this arming, or of an earlier life. */
};

struct pmdscope_chunk {
	uintptr_t lo;
	uintptr_t hi;
	uint32_t base; /* Its first mark. */
};

struct pmdscope_index {
	struct pmdscope_chunk *chunks; /* By address. */
	unsigned int nb_chunks;
	unsigned int shift; /* Objects are at least 1 << shift apart. */
	struct pmdscope_mark *marks;
	uint32_t nb_marks;
	uint32_t nb_objects;
	/* Of the pool's memory: the marks are of this pool while it stays the same. */
	uint64_t fingerprint;
	/* Where building goes on. */
	const struct rte_mempool_objhdr *next;
	bool built;
};

/* The index is of this pool as it is now. */
bool pmdscope_index_fits(const struct pmdscope_index *index, const struct rte_mempool *mp);
/* Begin a new index; false without memory. */
bool pmdscope_index_begin(struct pmdscope_index *index, struct rte_mempool *mp);
/* Add at most nb objects; the index is built once this returns less than that. */
unsigned int pmdscope_index_build(struct pmdscope_index *index, unsigned int nb);
void pmdscope_index_free(struct pmdscope_index *index);

/* The mark of an object, NULL when the address is not one of this pool. */
struct pmdscope_mark *pmdscope_index_find(const struct pmdscope_index *index, uintptr_t object);

/* These bytes are memory of the pool. */
bool pmdscope_index_contains(const struct pmdscope_index *index, uintptr_t addr, size_t len);

/* Address of the object of mark i, which lies at or behind *chunk; advances *chunk. */
uintptr_t
pmdscope_index_object(const struct pmdscope_index *index, uint32_t i, unsigned int *chunk);

#endif /* PMDSCOPE_INDEX_H */
