/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_LOCKS_H
#define PDUMP_LOCKS_H

/*
 * Reads the locks in the memory that an app shares with its secondary processes. A process that is
 * killed while it holds one leaves it held forever: the app then blocks at its next allocation, and
 * no other process can attach. A lock has no owner, and a thread of the app may sleep with a lock
 * held. So no lock of an app is ever released here.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_fbarray.h>
#include <rte_memory.h>
#include <rte_memzone.h>
#include <rte_rwlock.h>
#include <rte_spinlock.h>
#include <rte_tailq.h>
#include <rte_version.h>

#include "app.h"

#ifndef RTE_RWLOCK_WAIT /* Before DPDK 22.11, where no bit is for waiting writers. */
#define RTE_RWLOCK_WAIT 0
#define RTE_RWLOCK_READ 1
#define RTE_RWLOCK_WRITE -1
#endif

/* Layout as in malloc_heap.h of the EAL, which is not installed. */
struct locks_heap {
	rte_spinlock_t lock;
	void *free_head[13];
	void *first, *last;
	unsigned int alloc_count;
	unsigned int socket_id;
	size_t total_size;
	char name[32];
} __rte_cache_aligned;

/* Year and month of a release, which its updates share. */
#define LOCKS_RELEASE(version) ((version) >> 16)

/* Layout of struct rte_mem_config in eal_memcfg.h. */
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
#if RTE_VERSION >= RTE_VERSION_NUM(26, 7, 0, 0)
	uintptr_t mem_va_addr;
	size_t mem_va_len, mem_va_page_sz;
#endif
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

/* Whether the layout of this release, and of its updates, was tested against apps. */
bool locks_tested_release(uint32_t version);

/* Whether a file of this size has this layout, from an app of our release or an update of it. */
bool locks_known_layout(const struct locks_config *config, uint64_t size);

/* Whether the app's memory has this layout. */
bool locks_layout_matches(const struct app *app);

/* Locks that secondary processes take. */
#define LOCKS_MAX (5 + RTE_MAX_MEMSEG_LISTS + RTE_MAX_HEAPS)

/* Their values; returns how many are held. Waiting writers do not count as holders. */
unsigned int locks_sample(const struct locks_config *config, uint32_t values[LOCKS_MAX]);

/* Free all locks in a private copy, in which no process waits for them. */
void locks_clear_copy(struct locks_config *copy);

/* Longest name of a lock. */
#define LOCKS_NAME_MAX 48

/* The name of the first lock that is held, as the EAL's sources call it. */
void locks_name_held(const uint32_t values[LOCKS_MAX], char name[LOCKS_NAME_MAX]);

/* Whether the app has called rte_mp_disable(). The EAL then refuses to attach, without a reason. */
bool locks_attach_forbidden(const struct app *app);

enum locks_result {
	LOCKS_FREE,
	LOCKS_HELD,
	LOCKS_UNKNOWN, /* The layout is not the one known here. */
};

/*
 * Wait until all locks that are held now have been released, for at most this time, or longer if
 * the app is busy in the kernel. The name is that of a lock that is still held.
 */
enum locks_result locks_wait(const struct app *app, unsigned int ms, char held[LOCKS_NAME_MAX]);

#endif /* PDUMP_LOCKS_H */
