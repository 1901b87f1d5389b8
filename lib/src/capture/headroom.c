/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>

#include "headroom.h"

/* A process is seldom moved to another cgroup. */
#define FIND_AGAIN_S 1

/* Names of what a cgroup reports. */
struct files {
	/* Limits, and what counts against each. */
	struct {
		const char *limit;
		const char *usage;
	} pairs[2];
	/* In memory.stat: what the kernel can take back, except for what is not written yet. */
	const char *inactive, *dirty, *writeback;
};

/* Beyond memory.high a process is slowed down until it has given memory back. */
static const struct files files_v2 = {
	.pairs = { { "memory.max", "memory.current" }, { "memory.high", "memory.current" } },
	.inactive = "inactive_file",
	.dirty = "file_dirty",
	.writeback = "file_writeback",
};

static const struct files files_v1 = {
	.pairs = { { "memory.limit_in_bytes", "memory.usage_in_bytes" },
			{ "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes" } },
	.inactive = "total_inactive_file",
	.dirty = "total_dirty",
	.writeback = "total_writeback",
};

static FILE *
open_in(const char *dir, const char *name)
{
	char path[PATH_MAX];
	const int len = snprintf(path, sizeof(path), "%s/%s", dir, name);

	return len < 0 || (size_t)len >= sizeof(path) ? NULL : fopen(path, "re");
}

/* A file with one number; false if there is none, as of "max". */
static bool
read_number(const char *dir, const char *name, uint64_t *value)
{
	FILE *f = open_in(dir, name);
	char line[32], *end = line;

	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) != NULL && line[0] >= '0' && line[0] <= '9')
		*value = strtoull(line, &end, 10);
	fclose(f);
	return end != line;
}

/* The values of these keys, in lines of a key and a number; 0 for a key that is not there. */
static void
read_values(FILE *f, const char *const *keys, uint64_t *values, unsigned int n)
{
	unsigned long long value;
	char line[256], key[64];
	unsigned int i;

	memset(values, 0, n * sizeof(*values));
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%63s %llu", key, &value) != 2)
			continue;
		for (i = 0; i < n; i++)
			if (strcmp(key, keys[i]) == 0)
				values[i] = value;
	}
}

/* Pages of files that are clean and have not been used for long. */
static uint64_t
reclaimable(const char *dir, const struct files *files)
{
	const char *const keys[] = { files->inactive, files->dirty, files->writeback };
	uint64_t values[RTE_DIM(keys)];
	FILE *f = open_in(dir, "memory.stat");

	if (f == NULL)
		return 0;
	read_values(f, keys, values, RTE_DIM(keys));
	fclose(f);
	return values[0] - RTE_MIN(values[0], values[1] + values[2]);
}

/* What one cgroup leaves. */
static uint64_t
left_by(const char *dir, const struct files *files)
{
	uint64_t limit, usage, left = UINT64_MAX;
	unsigned int i;

	for (i = 0; i < RTE_DIM(files->pairs); i++) {
		if (!read_number(dir, files->pairs[i].limit, &limit) ||
				!read_number(dir, files->pairs[i].usage, &usage))
			continue;
		usage -= RTE_MIN(usage, reclaimable(dir, files));
		left = RTE_MIN(left, limit - RTE_MIN(limit, usage));
	}
	return left;
}

/* What a cgroup leaves, and those above it. */
static uint64_t
left_by_all(const struct pmdscope_cgroup *cgroup)
{
	const struct files *files = cgroup->v2 ? &files_v2 : &files_v1;
	uint64_t left = UINT64_MAX;
	char dir[PATH_MAX];
	char *end;

	memcpy(dir, cgroup->dir, sizeof(dir));
	for (;;) {
		left = RTE_MIN(left, left_by(dir, files));
		end = strrchr(dir, '/');
		if (end == NULL || end < dir + cgroup->top)
			return left;
		*end = '\0';
	}
}

static uint64_t
left_by_host(const char *root)
{
	const char *const keys[] = { "MemAvailable:" };
	uint64_t kib = 0;
	FILE *f = open_in(root, "proc/meminfo");

	if (f == NULL)
		return UINT64_MAX;
	read_values(f, keys, &kib, 1);
	fclose(f);
	return kib == 0 ? UINT64_MAX : kib << 10;
}

struct pmdscope_headroom
pmdscope_headroom_of(
		const char *root, const struct pmdscope_cgroup *cgroups, unsigned int nb_cgroups)
{
	struct pmdscope_headroom headroom = { .bytes = left_by_host(root) };
	unsigned int i;
	uint64_t left;

	for (i = 0; i < nb_cgroups; i++) {
		left = left_by_all(&cgroups[i]);
		if (left > headroom.bytes)
			continue;
		headroom.bytes = left;
		headroom.cgroup = left != UINT64_MAX;
	}
	return headroom;
}

/* Whether a list that is separated by commas has this word. */
static bool
has_word(const char *list, const char *word)
{
	const size_t len = strlen(word);
	const char *at;

	for (at = list; at != NULL; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, word, len) == 0 && (at[len] == ',' || at[len] == '\0'))
			return true;
	}
	return false;
}

/* Path of the process in a hierarchy, from a line of /proc/self/cgroup: ID:CONTROLLERS:PATH. */
static const char *
path_in(char *line, bool v2)
{
	char *controllers = strchr(line, ':');
	char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');

	if (path == NULL)
		return NULL;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	controllers++;
	if (v2 ? strncmp(line, "0:", 2) != 0 || controllers[0] != '\0'
	       : !has_word(controllers, "memory"))
		return NULL;
	return path;
}

/* Replace \040 and the like, by which mountinfo writes spaces. */
static void
unescape(char *text)
{
	char *to = text;
	unsigned int code;

	for (; *text != '\0'; to++) {
		if (text[0] == '\\' && sscanf(text + 1, "%3o", &code) == 1) {
			*to = (char)code;
			text += 4;
		} else {
			*to = *text++;
		}
	}
	*to = '\0';
}

/*
 * Mount point of a hierarchy, and the cgroup that is mounted there, from a line of mountinfo: ID
 * PARENT DEVICE ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS.
 */
static bool
mount_of(char *line, bool v2, char **mounted, char **point)
{
	char *rest = strstr(line, " - "), *type, *options = NULL, *save = NULL;
	unsigned int i;

	if (rest == NULL)
		return false;
	*rest = '\0';
	type = strtok_r(rest + 3, " \n", &save);
	if (type != NULL && strtok_r(NULL, " \n", &save) != NULL)
		options = strtok_r(NULL, " \n", &save);
	if (options == NULL || strcmp(type, v2 ? "cgroup2" : "cgroup") != 0 ||
			(!v2 && !has_word(options, "memory")))
		return false;
	*mounted = strtok_r(line, " ", &save);
	for (i = 0; i < 3 && *mounted != NULL; i++)
		*mounted = strtok_r(NULL, " ", &save);
	*point = *mounted == NULL ? NULL : strtok_r(NULL, " ", &save);
	if (*point == NULL)
		return false;
	unescape(*mounted);
	unescape(*point);
	return true;
}

/*
 * A mount may show only a part of the hierarchy, as in a container. If the process is not in that
 * part, its top is taken.
 */
static bool
place(const char *root, const char *path, const char *mounted, const char *point,
		struct pmdscope_cgroup *cgroup)
{
	const size_t len = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
	const char *below = "";
	int n;

	if (strncmp(path, mounted, len) == 0 && (path[len] == '/' || path[len] == '\0') &&
			strstr(path, "/..") == NULL)
		below = strcmp(path + len, "/") == 0 ? "" : path + len;
	n = snprintf(cgroup->dir, sizeof(cgroup->dir), "%s%s%s", root, point, below);
	cgroup->top = strlen(root) + strlen(point);
	return n > 0 && (size_t)n < sizeof(cgroup->dir);
}

/* The first line of a file for which visit() is true, which the caller frees; or NULL. */
static char *
find_line(const char *root, const char *name, bool v2, bool (*visit)(char *line, bool v2))
{
	FILE *f = open_in(root, name);
	char *line = NULL, *copy = NULL;
	size_t size = 0;

	if (f == NULL)
		return NULL;
	while (copy == NULL && getline(&line, &size, f) > 0) {
		copy = strdup(line);
		/* Cuts up the line. */
		if (copy != NULL && visit(line, v2))
			break;
		free(copy);
		copy = NULL;
	}
	free(line);
	fclose(f);
	return copy;
}

static bool
names_cgroup(char *line, bool v2)
{
	return path_in(line, v2) != NULL;
}

static bool
names_mount(char *line, bool v2)
{
	char *mounted, *point;

	return mount_of(line, v2, &mounted, &point);
}

unsigned int
pmdscope_cgroups_find(const char *root, struct pmdscope_cgroup cgroups[PMDSCOPE_CGROUPS_MAX])
{
	char *own, *mount, *mounted, *point;
	unsigned int n = 0, version;

	for (version = 1; version <= 2; version++) {
		const bool v2 = version == 2;

		own = find_line(root, "proc/self/cgroup", v2, names_cgroup);
		mount = find_line(root, "proc/self/mountinfo", v2, names_mount);
		cgroups[n].v2 = v2;
		if (own != NULL && mount != NULL && mount_of(mount, v2, &mounted, &point))
			n += place(root, path_in(own, v2), mounted, point, &cgroups[n]);
		free(own);
		free(mount);
	}
	return n;
}

struct pmdscope_headroom
pmdscope_headroom_now(void)
{
	static struct pmdscope_cgroup cgroups[PMDSCOPE_CGROUPS_MAX];
	static unsigned int nb_cgroups;
	static time_t found;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (found == 0 || now.tv_sec - found > FIND_AGAIN_S) {
		nb_cgroups = pmdscope_cgroups_find("", cgroups);
		found = now.tv_sec;
	}
	return pmdscope_headroom_of("", cgroups, nb_cgroups);
}

uint64_t
pmdscope_headroom_usable(const struct pmdscope_headroom *headroom)
{
	const uint64_t kept = RTE_MAX(PMDSCOPE_HEADROOM_MARGIN, headroom->bytes / 8);

	return headroom->bytes - RTE_MIN(headroom->bytes, kept);
}

bool
pmdscope_headroom_has(uint64_t bytes)
{
	const struct pmdscope_headroom headroom = pmdscope_headroom_now();

	return bytes <= headroom.bytes && headroom.bytes - bytes >= PMDSCOPE_HEADROOM_MARGIN;
}
