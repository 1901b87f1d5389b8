/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The EAL gets copies of the files with the app's locks. */

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <rte_version.h>

#include "control_files.h"
#include "locks.h"
#include "test.h"

static char dir[] = "/tmp/pmdscope-control-XXXXXX";
static struct app app;

static int
make_file(const char *name, size_t size)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	return fd;
}

static void *
map(int fd, size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* Whether data written to a mapping reaches the file. */
static bool
reaches_file(uint32_t *mapped, int fd, size_t size)
{
	const uint32_t *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	bool same;

	CHECK(file != MAP_FAILED);
	*mapped ^= 0x5a5a;
	same = *file == *mapped;
	munmap((void *)(uintptr_t)file, size);
	*mapped ^= 0x5a5a;
	return same;
}

int
main(void)
{
	const size_t size = sizeof(struct locks_config);
	struct locks_config *config, *copy;
	uint32_t *of_app, *of_others, *copied;
	int fd, array, own, timed, other;
	char command[64], name[64];

	CHECK(mkdtemp(dir) != NULL);
	snprintf(app.runtime_dir, sizeof(app.runtime_dir), "%s", dir);
	fd = make_file("config", size);
	array = make_file("fbarray_memzone", 8192);
	snprintf(name, sizeof(name), "fbarray_memzone_%d", (int)getpid());
	own = make_file(name, 8192);
	snprintf(name, sizeof(name), "fbarray_memzone_%d_3f5a01", (int)getpid());
	timed = make_file(name, 8192);
	other = make_file("hugepage_info", 8192);
	/* Before attaching, nothing is a copy. */
	config = map(fd, size);
	of_app = map(array, 8192);
	CHECK(config != MAP_FAILED && of_app != MAP_FAILED);
	CHECK(reaches_file(of_app, array, 8192));
	config->magic = RTE_MAGIC;
	config->version = RTE_VERSION;
	config->mem_cfg_addr = (uintptr_t)config & ~4095ULL;
	snprintf(config->memzones.name, sizeof(config->memzones.name), "memzone");
	config->memzones.elt_sz = sizeof(struct rte_memzone);
	snprintf(config->heaps[0].name, sizeof(config->heaps[0].name), "socket_0");
	*of_app = 1;

	control_files_begin_attach(&app);
	/* No process releases a lock in a copy. */
	if (locks_tested_release(RTE_VERSION)) {
		config->heaps[2].lock.locked = 1;
		CHECK(map(fd, size) == MAP_FAILED && errno == EBUSY);
		CHECK(strcmp(control_files_held(), "malloc_heaps[2].lock") == 0);
		config->heaps[2].lock.locked = 0;
	}
	config->mlock.cnt = RTE_RWLOCK_WAIT;
	copy = map(fd, size);
	config->mlock.cnt = 0;
	copied = map(array, 8192);
	CHECK(copy != MAP_FAILED && copied != MAP_FAILED);
	CHECK(copy->magic == RTE_MAGIC && *copied == 1);
	CHECK(!reaches_file(&copy->magic, fd, size));
	CHECK(!reaches_file(copied, array, 8192));
	rte_rwlock_write_lock(&copy->mlock);
	CHECK(config->mlock.cnt == 0);
	rte_rwlock_write_unlock(&copy->mlock);
	/* Our own arrays, and files without locks, are not copied. */
	of_others = map(own, 8192);
	CHECK(of_others != MAP_FAILED && reaches_file(of_others, own, 8192));
	of_others = map(timed, 8192);
	CHECK(of_others != MAP_FAILED && reaches_file(of_others, timed, 8192));
	of_others = map(other, 8192);
	CHECK(of_others != MAP_FAILED && reaches_file(of_others, other, 8192));
	/* A hugepage file that was removed is not created again. */
	snprintf(command, sizeof(command), "%s/rtemap_0", dir);
	CHECK(open(command, O_RDWR | O_CREAT, 0600) == -1 && errno == ENOENT);

	/* A copy does not change until it is refreshed. */
	*of_app = 2;
	CHECK(*copied == 1);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}
