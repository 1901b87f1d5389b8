/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The locks of an app, in a known layout. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rte_version.h>

#include "app.h"
#include "locks.h"
#include "process_memory.h"
#include "test.h"

static char dir[] = "/tmp/pmdscope-pdump-XXXXXX";

static bool fstat_fails;

int __real_fstat64(int fd, struct stat64 *st);
int __wrap_fstat64(int fd, struct stat64 *st);

int
__wrap_fstat64(int fd, struct stat64 *st)
{
	if (!fstat_fails)
		return __real_fstat64(fd, st);
	errno = EOVERFLOW;
	return -1;
}

static struct app
this_app(void)
{
	struct app app = { .pid = getpid(), .start = app_process_stat(getpid(), APP_STAT_START) };

	snprintf(app.runtime_dir, sizeof(app.runtime_dir), "%s", dir);
	return app;
}

static struct locks_config *
make_config(void)
{
	struct locks_config *config;
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/config", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && ftruncate(fd, sizeof(*config)) == 0);
	config = mmap(NULL, sizeof(*config), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(config != MAP_FAILED);
	close(fd);
	config->magic = RTE_MAGIC;
	config->version = RTE_VERSION;
	config->mem_cfg_addr = (uintptr_t)config;
	snprintf(config->memzones.name, sizeof(config->memzones.name), "memzone");
	config->memzones.elt_sz = sizeof(struct rte_memzone);
	snprintf(config->heaps[0].name, sizeof(config->heaps[0].name), "socket_0");
	return config;
}

static void
test_layout(struct locks_config *config)
{
	CHECK(locks_known_layout(config, sizeof(*config)));
	CHECK(!locks_known_layout(config, sizeof(*config) + 64));
	/* An update of the release, and another release. */
	config->version ^= 3 << 8;
	CHECK(locks_known_layout(config, sizeof(*config)));
	config->version ^= 3 << 8 | 1 << 16;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->version ^= 1 << 16;
	config->legacy_mem = 7;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->legacy_mem = 0;
	config->mem_cfg_addr++;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->mem_cfg_addr--;
	/* Something else is in its place, or has another size. */
	config->memzones.elt_sz++;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->memzones.elt_sz--;
	config->memzones.name[0] = 'x';
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->memzones.name[0] = 'm';
	config->heaps[0].name[0] = '\0';
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->heaps[0].name[0] = 's';
	CHECK(locks_known_layout(config, sizeof(*config)));
}

static void
test_releases(void)
{
	CHECK(locks_tested_release(RTE_VERSION_NUM(22, 11, 0, 99)));
	CHECK(locks_tested_release(RTE_VERSION_NUM(22, 11, 11, 99)));
	CHECK(locks_tested_release(RTE_VERSION_NUM(23, 11, 7, 99)));
	CHECK(locks_tested_release(RTE_VERSION_NUM(25, 11, 2, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(20, 11, 9, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(22, 7, 0, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(23, 3, 0, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(26, 3, 0, 99)));
}

static void
test_names(void)
{
	uint32_t values[LOCKS_MAX] = { 0 };
	char name[LOCKS_NAME_MAX];

	values[LOCKS_MAX - 1] = 1;
	locks_name_held(values, name);
	CHECK(strcmp(name, "malloc_heaps[31].lock") == 0);
	values[5 + 3] = 1;
	locks_name_held(values, name);
	CHECK(strcmp(name, "memsegs[3].memseg_arr.rwlock") == 0);
	values[1] = 1;
	locks_name_held(values, name);
	CHECK(strcmp(name, "mlock") == 0);
}

static void
test_forbidden(struct locks_config *config)
{
	struct app app = this_app();
	char name[LOCKS_NAME_MAX];

	CHECK(!locks_attach_forbidden(&app));
	config->mp_status = 1;
	CHECK(locks_attach_forbidden(&app));
	/* If the file cannot be read, its layout is not known. */
	fstat_fails = true;
	CHECK(!locks_attach_forbidden(&app));
	CHECK(locks_wait(&app, 50, name) == LOCKS_UNKNOWN);
	fstat_fails = false;
	config->mp_status = 2;
	CHECK(!locks_attach_forbidden(&app));
}

/* A lock that is held remains held, whoever held it. */
static void
test_held(struct locks_config *config)
{
	struct app app = this_app();
	char name[LOCKS_NAME_MAX];
	uint32_t values[LOCKS_MAX];
	struct locks_config *before = malloc(sizeof(*before));

	CHECK_U64(locks_sample(config, values), 0);
	CHECK(locks_wait(&app, 50, name) == LOCKS_FREE);

	/* A reader with a waiting writer, a writer, an owner of a heap. */
	config->memory_hotplug_lock.cnt = RTE_RWLOCK_READ | RTE_RWLOCK_WAIT;
	config->memsegs[3].memseg_arr.rwlock.cnt = RTE_RWLOCK_WRITE;
	config->heaps[RTE_MAX_HEAPS - 1].lock.locked = 1;
	CHECK_U64(locks_sample(config, values), 3);
	memcpy(before, config, sizeof(*before));
	CHECK(locks_wait(&app, 50, name) == LOCKS_HELD);
	CHECK(strcmp(name, "memory_hotplug_lock") == 0);
	CHECK(memcmp(before, config, sizeof(*before)) == 0);
	free(before);

	/* The copy is private. */
	locks_clear_copy(config);
	CHECK_U64(locks_sample(config, values), 0);
}

/* Waits for a lock that is taken and released. */
static void
test_busy(struct locks_config *config)
{
	const struct timespec pause_ns = { .tv_nsec = 20000000 };
	struct app app = this_app();
	char name[LOCKS_NAME_MAX];
	uint32_t values[LOCKS_MAX];
	pid_t pid;
	int i;

	config->mlock.cnt = RTE_RWLOCK_WRITE;
	pid = fork();
	if (pid == 0) {
		nanosleep(&pause_ns, NULL);
		rte_rwlock_write_unlock(&config->mlock);
		rte_rwlock_read_lock(&config->mlock);
		for (i = 0; i < 3000; i++)
			nanosleep(&pause_ns, NULL);
		_exit(0);
	}
	CHECK(locks_wait(&app, 2000, name) == LOCKS_FREE);
	WAIT_FOR(config->mlock.cnt == RTE_RWLOCK_READ);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_U64(locks_sample(config, values), 1);
	/* Nothing is known with an unknown layout, or if the app has mapped it elsewhere. */
	config->mlock.cnt = RTE_RWLOCK_WRITE;
	config->mem_cfg_addr += 4096;
	CHECK(locks_wait(&app, 50, name) == LOCKS_UNKNOWN);
	config->mem_cfg_addr -= 4096;
	config->magic++;
	CHECK(locks_wait(&app, 50, name) == LOCKS_UNKNOWN);
	CHECK_U64(config->mlock.cnt, RTE_RWLOCK_WRITE);
}

int
main(void)
{
	char command[64];
	struct locks_config *config;

	CHECK(mkdtemp(dir) != NULL);
	test_releases();
	test_names();
	if (locks_tested_release(RTE_VERSION)) {
		open_memory_of(getpid());
		config = make_config();
		test_layout(config);
		test_forbidden(config);
		test_held(config);
		test_busy(config);
	} else {
		printf("SKIP: locks of %s are not known\n", rte_version());
	}
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}
