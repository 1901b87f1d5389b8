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
/* An app that allocates much memory from the kernel may hold a lock for this long. */
#define BUSY_MS 15000

/* A value of mp_status. */
#define MP_FORBIDDEN 1

/* Releases that were tested: attaching to their apps had no harmful effect. */
static const uint32_t tested[] = {
	RTE_VERSION_NUM(21, 11, 0, 0),
	RTE_VERSION_NUM(22, 11, 0, 0),
	RTE_VERSION_NUM(23, 11, 0, 0),
	RTE_VERSION_NUM(24, 11, 0, 0),
	RTE_VERSION_NUM(25, 11, 0, 0),
	RTE_VERSION_NUM(26, 7, 0, 0),
};

bool
locks_tested_release(uint32_t version)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(tested); i++)
		if (LOCKS_RELEASE(version) == LOCKS_RELEASE(tested[i]))
			return true;
	return false;
}

/* The app's list of memzones has the expected place and element type. */
static bool
has_memzones(const struct locks_config *config)
{
	return strcmp(config->memzones.name, "memzone") == 0 &&
	       config->memzones.elt_sz == sizeof(struct rte_memzone) &&
	       config->memzones.count <= config->memzones.len;
}

/* The same for the heaps, of which the first always exists. */
static bool
has_heaps(const struct locks_config *config)
{
	return strncmp(config->heaps[0].name, "socket_", strlen("socket_")) == 0 &&
	       memchr(config->heaps[0].name, '\0', sizeof(config->heaps[0].name)) != NULL;
}

bool
locks_known_layout(const struct locks_config *config, uint64_t size)
{
	return locks_tested_release(RTE_VERSION) && size == sizeof(*config) &&
	       config->magic == RTE_MAGIC &&
	       LOCKS_RELEASE(config->version) == LOCKS_RELEASE(RTE_VERSION) &&
	       config->mem_cfg_addr != 0 && config->mem_cfg_addr % 4096 == 0 &&
	       config->legacy_mem <= 1 && config->single_file_segments <= 1 &&
	       has_memzones(config) && has_heaps(config);
}

/* The i-th lock. All are 32-bit words that are 0 when free; some have a bit for waiting writers. */
static uint32_t *
lock_at(struct locks_config *c, unsigned int i, uint32_t *waiting)
{
	*waiting = RTE_RWLOCK_WAIT;
	switch (i) {
	case 0:
		return (uint32_t *)(uintptr_t)&c->memory_hotplug_lock.cnt;
	case 1:
		return (uint32_t *)(uintptr_t)&c->mlock.cnt;
	case 2:
		return (uint32_t *)(uintptr_t)&c->qlock.cnt;
	case 3:
		return (uint32_t *)(uintptr_t)&c->mplock.cnt;
	case 4:
		return (uint32_t *)(uintptr_t)&c->memzones.rwlock.cnt;
	default:
		i -= 5;
	}
	if (i < RTE_MAX_MEMSEG_LISTS)
		return (uint32_t *)(uintptr_t)&c->memsegs[i].memseg_arr.rwlock.cnt;
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
locks_clear_copy(struct locks_config *copy)
{
	uint32_t waiting;
	unsigned int i;

	for (i = 0; i < LOCKS_MAX; i++)
		__atomic_store_n(lock_at(copy, i, &waiting), 0, __ATOMIC_RELAXED);
}

void
locks_name_held(const uint32_t values[LOCKS_MAX], char name[LOCKS_NAME_MAX])
{
	static const char *const names[] = { "memory_hotplug_lock", "mlock", "qlock", "mplock",
		"memzones.rwlock" };
	unsigned int i = 0;

	while (i < LOCKS_MAX && values[i] == 0)
		i++;
	if (i < RTE_DIM(names))
		snprintf(name, LOCKS_NAME_MAX, "%s", names[i]);
	else if (i < RTE_DIM(names) + RTE_MAX_MEMSEG_LISTS)
		snprintf(name, LOCKS_NAME_MAX, "memsegs[%u].memseg_arr.rwlock",
				i - (unsigned int)RTE_DIM(names));
	else
		snprintf(name, LOCKS_NAME_MAX, "malloc_heaps[%u].lock",
				i - (unsigned int)RTE_DIM(names) - RTE_MAX_MEMSEG_LISTS);
}

/* Forget locks that were released, or released and taken again. */
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

/* Whether the app has mapped its configuration at the address stored in it. */
static bool
is_mapped_at(uint64_t addr)
{
	FILE *maps = app_memory_maps();
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

/* The app's configuration, read-only; NULL if its layout is not known. */
static const struct locks_config *
map_config(const struct app *app)
{
	const struct locks_config *config = MAP_FAILED;
	char path[PATH_MAX + 8];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/config", app->runtime_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof(*config))
		config = mmap(NULL, sizeof(*config), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (config == MAP_FAILED)
		return NULL;
	if (locks_known_layout(config, sizeof(*config)))
		return config;
	munmap((void *)(uintptr_t)config, sizeof(*config));
	return NULL;
}

static void
unmap_config(const struct locks_config *config)
{
	munmap((void *)(uintptr_t)config, sizeof(*config));
}

bool
locks_layout_matches(const struct app *app)
{
	const struct locks_config *config = map_config(app);

	if (config == NULL)
		return false;
	unmap_config(config);
	return true;
}

bool
locks_attach_forbidden(const struct app *app)
{
	const struct locks_config *config = map_config(app);
	bool forbidden;

	if (config == NULL)
		return false;
	forbidden = __atomic_load_n(&config->mp_status, __ATOMIC_RELAXED) == MP_FORBIDDEN;
	unmap_config(config);
	return forbidden;
}

/* Whether the app spends a quarter of the time in the kernel. It may be clearing hugepages. */
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
locks_wait(const struct app *app, unsigned int limit_ms, char name[LOCKS_NAME_MAX])
{
	const uint64_t system = app_process_stat(app->pid, APP_STAT_SYSTEM), from = now_ms();
	const struct timespec pause = { .tv_nsec = SAMPLE_MS * 1000000L };
	const struct locks_config *config = map_config(app);
	uint32_t held[LOCKS_MAX], now[LOCKS_MAX];
	uint64_t ms = 0;
	unsigned int nb;

	if (config == NULL)
		return LOCKS_UNKNOWN;
	if (!is_mapped_at(config->mem_cfg_addr)) {
		unmap_config(config);
		return LOCKS_UNKNOWN;
	}
	nb = locks_sample(config, held);
	while (nb > 0 && (ms < limit_ms || is_busy(app, system, ms))) {
		nanosleep(&pause, NULL);
		locks_sample(config, now);
		nb = keep_unchanged(held, now);
		ms = now_ms() - from;
	}
	unmap_config(config);
	if (nb == 0)
		return LOCKS_FREE;
	locks_name_held(held, name);
	return LOCKS_HELD;
}
