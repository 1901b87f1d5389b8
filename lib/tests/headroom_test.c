/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Limits of memory in made-up trees of /proc and /sys/fs/cgroup. */

#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "test.h"
#include "headroom.h"

#define MIB (UINT64_C(1) << 20)
#define V2_MOUNT "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static char root[] = "/tmp/pmdscope-headroom-XXXXXX";

static void
put(const char *name, const char *format, ...)
{
	char path[PATH_MAX], *slash;
	va_list ap;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (slash = path + sizeof(root); (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	f = fopen(path, "w");
	CHECK(f != NULL);
	va_start(ap, format);
	vfprintf(f, format, ap);
	va_end(ap);
	fclose(f);
}

static int
remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void
clear(void)
{
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A host with 1,000 MiB and a process in these cgroups. */
static void
begin(const char *cgroups, const char *mounts)
{
	clear();
	CHECK(mkdir(root, 0755) == 0);
	put("proc/meminfo", "MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\nMemFree: 5 kB\n");
	put("proc/self/cgroup", "%s", cgroups);
	put("proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n%s", mounts);
}

static void
put_v2(const char *dir, const char *limit, uint64_t used_mib)
{
	char name[256];

	snprintf(name, sizeof(name), "sys/fs/cgroup%s/memory.max", dir);
	put(name, "%s\n", limit);
	snprintf(name, sizeof(name), "sys/fs/cgroup%s/memory.current", dir);
	put(name, "%" PRIu64 "\n", used_mib * MIB);
}

static struct pmdscope_headroom
look(void)
{
	struct pmdscope_cgroup cgroups[PMDSCOPE_CGROUPS_MAX];
	const unsigned int n = pmdscope_cgroups_find(root, cgroups);

	return pmdscope_headroom_of(root, cgroups, n);
}

static void
expect(uint64_t mib, bool cgroup)
{
	const struct pmdscope_headroom found = look();

	CHECK_U64(found.bytes, mib * MIB);
	CHECK(found.cgroup == cgroup);
}

static void
test_v2(void)
{
	begin("0::/apps/one\n", V2_MOUNT);
	expect(1000, false);
	put_v2("/apps/one", "max", 100);
	expect(1000, false);
	put_v2("/apps/one", "209715200", 150);
	expect(50, true);
	/* Levels above, also one that has no processes, and the root without limits. */
	put_v2("/apps", "314572800", 270);
	expect(30, true);
	put("sys/fs/cgroup/apps/memory.high", "293601280\n");
	expect(10, true);
	/* Below what is used. */
	put("sys/fs/cgroup/apps/memory.high", "1\n");
	expect(0, true);
	put("sys/fs/cgroup/apps/memory.high", "max\n");
	expect(30, true);
	/* Pages of files count if they are clean and were not used. */
	put("sys/fs/cgroup/apps/memory.stat", "anon 1\ninactive_file 20971520\nactive_file "
					      "41943040\nfile_dirty 5242880\nfile_writeback "
					      "1048576\n");
	expect(44, true);
	put("sys/fs/cgroup/apps/memory.stat", "inactive_file 1\nfile_dirty 5242880\n");
	expect(30, true);
	/* More than the host has. */
	put_v2("/apps", "9223372036854771712", 270);
	put_v2("/apps/one", "9223372036854771712", 270);
	expect(1000, false);
}

static void
test_v1(void)
{
	static const char mounts[] =
			"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
			"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

	begin("7:cpu,cpuacct:/other\n4:memory:/pod/app\n0::/\n", mounts);
	put("sys/fs/cgroup/memory/pod/app/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/pod/app/memory.usage_in_bytes", "%" PRIu64 "\n", 10 * MIB);
	expect(1000, false);
	put("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "%" PRIu64 "\n", 100 * MIB);
	put("sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "%" PRIu64 "\n", 60 * MIB);
	expect(40, true);
	put("sys/fs/cgroup/memory/pod/memory.stat",
			"inactive_file 1\ntotal_inactive_file 5242880\ntotal_dirty 1048576\n");
	expect(44, true);
	/* With swap. */
	put("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "%" PRIu64 "\n", 100 * MIB);
	put("sys/fs/cgroup/memory/memory.memsw.usage_in_bytes", "%" PRIu64 "\n", 77 * MIB);
	expect(23, true);
}

/* A container sees its own part of the hierarchy, with or without a cgroup namespace. */
static void
test_containers(void)
{
	begin("0::/\n", V2_MOUNT);
	put_v2("", "104857600", 50);
	expect(50, true);

	begin("0::/docker/abc/inner\n",
			"31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
	put_v2("", "104857600", 60);
	put_v2("/inner", "104857600", 10);
	expect(40, true);

	/* Not in the part that is mounted: a process that has joined from outside. */
	begin("0::/../other\n", V2_MOUNT);
	put_v2("", "104857600", 70);
	put_v2("/other", "1", 0);
	expect(30, true);
	begin("0::/docker/abcdef\n",
			"31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
	put_v2("", "104857600", 80);
	expect(20, true);

	begin("0::/one\n", "31 23 0:28 / /my\\040cgroups rw - cgroup2 cgroup2 rw\n");
	put("my cgroups/one/memory.max", "%" PRIu64 "\n", 5 * MIB);
	put("my cgroups/one/memory.current", "0\n");
	expect(5, true);
}

/* What cannot be read is left out; the rest still counts. */
static void
test_unreadable(void)
{
	begin("0::/apps/one\n", V2_MOUNT);
	put_v2("/apps", "104857600", 30);
	put("sys/fs/cgroup/apps/one/memory.max", "1\n");
	expect(70, true);
	put("sys/fs/cgroup/apps/one/memory.current", "");
	expect(70, true);
	put("sys/fs/cgroup/apps/one/memory.current", "-5\n");
	expect(70, true);
	put("proc/meminfo", "MemTotal: 1 kB\n");
	expect(70, true);
	put("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2\n - \n31 -\n");
	CHECK_U64(look().bytes, UINT64_MAX);
	begin("", "");
	expect(1000, false);
	begin("0\n:\n::\n4:memory\n4:memory,:/x\n", V2_MOUNT);
	expect(1000, false);
	clear();
	CHECK_U64(look().bytes, UINT64_MAX);
}

static void
test_margin(void)
{
	struct pmdscope_headroom left = { .bytes = 64 * MIB };

	CHECK_U64(pmdscope_headroom_usable(&left), 56 * MIB);
	left.bytes = 800 * MIB;
	CHECK_U64(pmdscope_headroom_usable(&left), 700 * MIB);
	left.bytes = 8 * MIB;
	CHECK_U64(pmdscope_headroom_usable(&left), 0);
	left.bytes = 0;
	CHECK_U64(pmdscope_headroom_usable(&left), 0);
	/* This test has some memory, and not all that there could be. */
	CHECK(pmdscope_headroom_has(1) && !pmdscope_headroom_has(UINT64_MAX));
	CHECK(pmdscope_headroom_now().bytes != UINT64_MAX);
}

int
main(void)
{
	CHECK(mkdtemp(root) != NULL);
	atexit(clear);
	test_v2();
	test_v1();
	test_containers();
	test_unreadable();
	test_margin();
	return EXIT_SUCCESS;
}
