/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include "app_memory.h"
#include "locks.h"

#define SAMPLE_MS 5
/* An app that gets large memory from the kernel may hold a lock for so long. */
#define BUSY_MS 15000

/* Of mp_status. */
#define MP_FORBIDDEN 1

#ifndef RTE_RWLOCK_WAIT /* Before DPDK 22.11. */
#define RTE_RWLOCK_WAIT 0
#endif

bool
locks_known_layout(const struct locks_config *config, uint64_t size)
{
	return size == sizeof(*config) && config->magic == RTE_MAGIC &&
	       config->version == RTE_VERSION && RTE_VERSION <= LOCKS_LAST_VERSION &&
	       config->mem_cfg_addr != 0 && config->mem_cfg_addr % 4096 == 0 &&
	       config->legacy_mem <= 1 && config->single_file_segments <= 1;
}

/* The i-th lock. All are 32-bit words that are 0 when free; some have a bit for waiting writers. */
static uint32_t *
lock_at(struct locks_config *c, unsigned int i, uint32_t *waiting)
{
	*waiting = RTE_RWLOCK_WAIT;
	switch (i) {
	case 0:
		return (uint32_t *)&c->memory_hotplug_lock.cnt;
	case 1:
		return (uint32_t *)&c->mlock.cnt;
	case 2:
		return (uint32_t *)&c->qlock.cnt;
	case 3:
		return (uint32_t *)&c->mplock.cnt;
	case 4:
		return (uint32_t *)&c->memzones.rwlock.cnt;
	default:
		i -= 5;
	}
	if (i < RTE_MAX_MEMSEG_LISTS)
		return (uint32_t *)&c->memsegs[i].memseg_arr.rwlock.cnt;
	*waiting = 0;
	return (uint32_t *)(uintptr_t)&c->heaps[i - RTE_MAX_MEMSEG_LISTS].lock.locked;
}

unsigned int
locks_sample(const struct locks_config *config, uint32_t values[LOCKS_MAX])
{
	struct locks_config *c = (struct locks_config *)(uintptr_t)config;
	unsigned int i, held = 0;
	uint32_t waiting;

	for (i = 0; i < LOCKS_MAX; i++) {
		const uint32_t *lock = lock_at(c, i, &waiting);

		values[i] = __atomic_load_n(lock, __ATOMIC_RELAXED) & ~waiting;
		held += values[i] != 0;
	}
	return held;
}

void
locks_release(struct locks_config *config, const uint32_t values[LOCKS_MAX])
{
	uint32_t waiting, now;
	unsigned int i;
	uint32_t *lock;

	for (i = 0; i < LOCKS_MAX; i++) {
		lock = lock_at(config, i, &waiting);
		now = __atomic_load_n(lock, __ATOMIC_RELAXED);
		while (values[i] != 0 && (now & ~waiting) == values[i] &&
				!__atomic_compare_exchange_n(lock, &now, now & waiting, false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			;
	}
}

/* Forget what has been let go of, or taken anew. */
static unsigned int
keep_unchanged(uint32_t held[LOCKS_MAX], const uint32_t now[LOCKS_MAX])
{
	unsigned int i, nb = 0;

	for (i = 0; i < LOCKS_MAX; i++) {
		if (held[i] != now[i])
			held[i] = 0;
		nb += held[i] != 0;
	}
	return nb;
}

/* Has the app mapped its configuration where that says it is? */
static bool
is_mapped_at(const struct app *app, uint64_t addr)
{
	FILE *maps = app_memory_maps(app->pid);
	bool found = false;
	struct mapping m;
	const char *name;

	while (maps != NULL && !found && app_memory_next(maps, &m)) {
		name = strrchr(m.path, '/');
		found = m.start == addr && m.offset == 0 && name != NULL &&
			strncmp(name, "/config", strlen("/config")) == 0;
	}
	if (maps != NULL)
		fclose(maps);
	return found;
}

static struct locks_config *
map_config(const struct app *app, uint64_t *size)
{
	struct locks_config *config;
	char path[PATH_MAX + 8];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/config", app->runtime_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	config = fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof(*config)
				 ? mmap(NULL, sizeof(*config), PROT_READ | PROT_WRITE, MAP_SHARED,
						   fd, 0)
				 : MAP_FAILED;
	close(fd);
	*size = (uint64_t)st.st_size;
	return config != MAP_FAILED ? config : NULL;
}

bool
locks_attach_forbidden(const struct app *app)
{
	struct locks_config *config;
	bool forbidden;
	uint64_t size;

	config = map_config(app, &size);
	if (config == NULL)
		return false;
	forbidden = locks_known_layout(config, size) &&
		    __atomic_load_n(&config->mp_status, __ATOMIC_RELAXED) == MP_FORBIDDEN;
	munmap(config, sizeof(*config));
	return forbidden;
}

/* Does the app work in the kernel, a quarter of the time? It may be clearing hugepages. */
static bool
is_busy(const struct app *app, uint64_t system_before, uint64_t ms)
{
	const uint64_t ticks = app_process_stat(app->pid, APP_STAT_SYSTEM) - system_before;

	return ms < BUSY_MS && ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) > ms / 4;
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

enum locks_result
locks_settle(const struct app *app, bool owner_dead, unsigned int (*patience)(const void *arg),
		const void *arg)
{
	const uint64_t system = app_process_stat(app->pid, APP_STAT_SYSTEM), from = now_ms();
	const struct timespec pause = { .tv_nsec = SAMPLE_MS * 1000000L };
	uint32_t held[LOCKS_MAX], now[LOCKS_MAX];
	struct locks_config *config;
	uint64_t size, ms = 0;
	unsigned int nb;
	bool known;

	config = map_config(app, &size);
	if (config == NULL)
		return LOCKS_UNKNOWN;
	known = locks_known_layout(config, size) && is_mapped_at(app, config->mem_cfg_addr);
	nb = known ? locks_sample(config, held) : 0;
	while (nb > 0 && (ms < patience(arg) || is_busy(app, system, ms))) {
		nanosleep(&pause, NULL);
		locks_sample(config, now);
		nb = keep_unchanged(held, now);
		ms = now_ms() - from;
	}
	if (nb > 0 && owner_dead) {
		locks_release(config, held);
		complain("released %u lock(s) of the app's memory that a killed capture held", nb);
		nb = 0;
	}
	munmap(config, sizeof(*config));
	if (!known)
		return LOCKS_UNKNOWN;
	return nb > 0 ? LOCKS_HELD : LOCKS_FREE;
}
