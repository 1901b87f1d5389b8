/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_LOCKS_H
#define PDUMP_LOCKS_H

/*
 * The locks in the memory that an app shares with its secondary processes. One that is
 * killed while it holds one leaves it held for ever: the app then stops at its next allocation,
 * and no other process can attach. No owner is recorded, and a thread of the app may well sleep
 * with a lock held. So a lock counts as orphaned only where a capture is known to have died at a
 * moment when it could hold one, and the lock stays held, unchanged.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_fbarray.h>
#include <rte_memory.h>
#include <rte_rwlock.h>
#include <rte_spinlock.h>
#include <rte_tailq.h>
#include <rte_version.h>

#include "app.h"

/* As in malloc_heap.h of the EAL, which does not install it. */
struct locks_heap {
	rte_spinlock_t lock;
	void *free_head[13];
	void *first, *last;
	unsigned int alloc_count;
	unsigned int socket_id;
	size_t total_size;
	char name[32];
} __rte_cache_aligned;

/* The last release of DPDK whose layout is known here. */
#define LOCKS_LAST_VERSION RTE_VERSION_NUM(26, 3, 99, 99)

/* As struct rte_mem_config in eal_memcfg.h, from DPDK 21.11 on. */
struct locks_config {
	uint32_t magic;
	uint32_t version;
	uint32_t nchannel, nrank;
	rte_rwlock_t mlock, qlock, mplock;
	rte_spinlock_t tlock;
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	rte_spinlock_t ethdev_lock;
#endif
	rte_rwlock_t memory_hotplug_lock;
	uint8_t mp_status;
	struct rte_fbarray memzones;
	struct rte_memseg_list memsegs[RTE_MAX_MEMSEG_LISTS];
	struct rte_tailq_head tailq_head[RTE_MAX_TAILQ];
	struct locks_heap heaps[RTE_MAX_HEAPS];
	int next_socket_id;
	uint64_t mem_cfg_addr;
	uint32_t legacy_mem, single_file_segments;
	uint64_t tsc_hz;
	uint8_t dma_maskbits;
#if RTE_VERSION >= RTE_VERSION_NUM(23, 7, 0, 0)
	size_t max_memzone;
#endif
};

/* Is a file of this size laid out like that? */
bool locks_known_layout(const struct locks_config *config, uint64_t size);

/* Locks that secondary processes take. */
#define LOCKS_MAX (5 + RTE_MAX_MEMSEG_LISTS + RTE_MAX_HEAPS)

/* Their values; returns how many are held. Waiting writers do not count as holders. */
unsigned int locks_sample(const struct locks_config *config, uint32_t values[LOCKS_MAX]);

/* Release the locks that have these values still. */
void locks_release(struct locks_config *config, const uint32_t values[LOCKS_MAX]);

/* Has the app called rte_mp_disable()? The EAL then refuses to attach, and does not say why. */
bool locks_attach_forbidden(const struct app *app);

enum locks_result {
	LOCKS_FREE,
	LOCKS_HELD,
	LOCKS_UNKNOWN, /* The layout is not the one known here. */
};

/*
 * Wait until all that is held now has been let go of, for as long as patience() says, in
 * milliseconds; it is asked time and again. An app that is at work in the kernel is given more time.
 * What is held then is released if its owner is known to be dead.
 */
enum locks_result locks_settle(const struct app *app, bool owner_dead,
		unsigned int (*patience)(const void *arg), const void *arg);

#endif /* PDUMP_LOCKS_H */
