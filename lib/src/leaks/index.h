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

/* Where a walk has found an object. */
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
	uint32_t first; /* First walk that missed it with this stamp. */
	/* Time of its last known move, on the walker's clock; while it is free, the epoch of the
	 * walk that last found it free, or 0.
	 */
	uint32_t since_ms;
	uint16_t pin;	      /* Walk that found a clone of it, and whether that clone is alive. */
	uint8_t where : 5;    /* In the current walk. */
	uint8_t met : 1;      /* A walk has found it before. */
	uint8_t untraced : 1; /* Taken from the pool after its stamp, by untraced code. */
	uint8_t copied : 1;   /* A clone whose stamp may be a copy of the original's. */
	uint8_t hits : 2;
	uint8_t kind : 3;  /* Of the loss, 0 if not lost. */
	uint8_t sent : 1;  /* Its transmit queue has turned over. */
	uint8_t freed : 1; /* A lost one that the last walk found in a cache. */
	uint8_t stale : 1; /* Its stamp is from before this arming, or of an earlier life. */
};

struct pmdscope_chunk {
	uintptr_t lo;
	uintptr_t hi;
	uint32_t base; /* Index of its first mark. */
};

struct pmdscope_index {
	struct pmdscope_chunk *chunks; /* By address. */
	unsigned int nb_chunks;
	unsigned int shift; /* Objects are at least 1 << shift apart. */
	struct pmdscope_mark *marks;
	uint32_t nb_marks;
	uint32_t nb_objects;
	/*
	 * Fingerprint of the pool's memory: the marks are valid for this pool while it is
	 * unchanged.
	 */
	uint64_t fingerprint;
	/* The object at which building continues. */
	const struct rte_mempool_objhdr *next;
	bool built;
};

/* The index is valid for this pool in its current state. */
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

/* Address of the object of mark i, which is in *chunk or a later one; advances *chunk. */
uintptr_t
pmdscope_index_object(const struct pmdscope_index *index, uint32_t i, unsigned int *chunk);

#endif /* PMDSCOPE_INDEX_H */
