/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hugefiles.h"

struct hugefiles {
	struct hugefiles *next;
	uint64_t inode;
	char path[];
};

static bool
is_ours(const char *path, const char *prefix)
{
	const char *name = strrchr(path, '/');
	const size_t len = strlen(prefix);

	return name != NULL && strncmp(name + 1, prefix, len) == 0 &&
	       strncmp(name + 1 + len, "map_", 4) == 0;
}

static struct hugefiles *
note(const char *path, uint64_t inode, struct hugefiles *next)
{
	struct hugefiles *file;

	/* With --single-file-segments one file has many mappings. */
	for (file = next; file != NULL; file = file->next)
		if (file->inode == inode)
			return next;
	file = malloc(sizeof(*file) + strlen(path) + 1);
	if (file == NULL)
		return next;
	file->next = next;
	file->inode = inode;
	strcpy(file->path, path);
	return file;
}

struct hugefiles *
hugefiles_read(const char *maps, const char *prefix)
{
	FILE *in = fopen(maps, "re");
	struct hugefiles *files = NULL;
	char line[PATH_MAX + 128], path[PATH_MAX];
	uint64_t inode;

	if (in == NULL)
		return NULL;
	while (fgets(line, sizeof(line), in) != NULL)
		if (sscanf(line, "%*s %*s %*s %*s %" SCNu64 " %4095[^\n]", &inode, path) == 2 &&
				is_ours(path, prefix))
			files = note(path, inode, files);
	fclose(in);
	return files;
}

struct hugefiles *
hugefiles_note(const char *prefix)
{
	return hugefiles_read("/proc/self/maps", prefix);
}

size_t
hugefiles_remove(struct hugefiles *files)
{
	struct hugefiles *next;
	size_t removed = 0;
	struct stat st;

	for (; files != NULL; files = next) {
		next = files->next;
		/* Another process with this name may have created its own file by now. */
		if (lstat(files->path, &st) == 0 && st.st_ino == files->inode)
			removed += unlink(files->path) == 0;
		free(files);
	}
	return removed;
}
