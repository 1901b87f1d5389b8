/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "hugefiles.h"

static char dir[] = "/tmp/hugefiles_test.XXXXXX";
static char maps[64];

static const char *
path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* Make a file and a line of the maps that names it; `wrong` is added to the inode in the line. */
static void
map(const char *name, uint64_t wrong)
{
	FILE *out = fopen(maps, "a");
	struct stat st;
	const int fd = open(path_of(name), O_CREAT | O_RDWR, 0600);

	CHECK(out != NULL && fd >= 0 && fstat(fd, &st) == 0);
	fprintf(out, "100200000-100400000 rw-s 00000000 00:0f %" PRIu64 "          %s\n",
			(uint64_t)st.st_ino + wrong, path_of(name));
	fclose(out);
	close(fd);
}

static void
test_garbage(void)
{
	uint64_t random = 3;
	FILE *out = fopen(maps, "w");
	unsigned int i;

	CHECK(out != NULL);
	for (i = 0; i < 100000; i++)
		fputc((int)(check_random(&random) & 0xff), out);
	fclose(out);
	CHECK(hugefiles_read(maps, "") == NULL);
	unlink(maps);
}

int
main(void)
{
	static const char *const others[] = { "appmapX", "otherappmap_0", "appmap_7" };
	unsigned int i;

	CHECK(mkdtemp(dir) != NULL);
	snprintf(maps, sizeof(maps), "%s/maps", dir);
	CHECK(hugefiles_read(maps, "app") == NULL);
	test_garbage();

	map("appmap_0", 0);
	map("appmap_0", 0);
	map("appmap_1", 0);
	map(others[0], 0);
	map(others[1], 0);
	map(others[2], 1); /* Belongs to another process by now. */
	CHECK_EQ(hugefiles_remove(hugefiles_read(maps, "app")), 2);
	CHECK(access(path_of("appmap_0"), F_OK) != 0);
	for (i = 0; i < 3; i++) {
		CHECK(access(path_of(others[i]), F_OK) == 0);
		unlink(path_of(others[i]));
	}
	unlink(maps);
	rmdir(dir);
	return 0;
}
