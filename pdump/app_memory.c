/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "app_memory.h"
#include "elf_symbol.h"

#define SYMBOLS_MAX 4

/* Files and symbols that are searched for one: more than any app has, and a second of work. */
#define FILES_MAX 1024
#define BUDGET (1U << 24)

/* The process; descriptors are -1 if not open. */
static struct {
	int proc, root, mem, maps;
	char exe[PATH_MAX]; /* Path of its program. */
	unsigned int nb;
	struct app_symbol symbols[SYMBOLS_MAX];
	uintptr_t addresses[SYMBOLS_MAX];
} kept = { .proc = -1, .root = -1, .mem = -1, .maps = -1 };

FILE *
app_memory_maps(void)
{
	const int fd = fcntl(kept.maps, F_DUPFD_CLOEXEC, 0);
	FILE *maps;

	if (fd < 0)
		return NULL;
	lseek(fd, 0, SEEK_SET);
	maps = fdopen(fd, "r");
	if (maps == NULL)
		close(fd);
	return maps;
}

bool
app_memory_next(FILE *maps, struct mapping *m)
{
	char line[PATH_MAX + 128];
	int at = 0;

	if (fgets(line, sizeof(line), maps) == NULL)
		return false;
	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %" SCNu64 " %n", &m->start,
			    &m->end, m->perms, &m->offset, &m->inode, &at) != 5)
		return false;
	snprintf(m->path, sizeof(m->path), "%s", line + at);
	return true;
}

bool
app_memory_read(uintptr_t from, void *to, size_t len)
{
	return pread(kept.mem, to, len, (off_t)from) == (ssize_t)len;
}

/* A mapped file as the process sees it. Only with more rights can it be found after it was replaced. */
static int
find_mapped(const struct mapping *m)
{
	const struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		/* A link leads to nowhere else than in the process. */
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "map_files/%" PRIxPTR "-%" PRIxPTR, m->start, m->end);
	fd = openat(kept.proc, path, O_PATH | O_CLOEXEC);
	return fd >= 0 ? fd : (int)syscall(SYS_openat2, kept.root, m->path, &how, sizeof(how));
}

/*
 * Open it for reading if it is a regular file. A process that may replace the file could otherwise make open()
 * block for ever or have side effects, as with a FIFO or a device.
 */
static int
open_mapped(const struct mapping *m)
{
	const int found = find_mapped(m);
	char link[32];
	struct stat st;
	int fd = -1;

	if (found < 0)
		return -1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	if (fstat(found, &st) == 0 && S_ISREG(st.st_mode))
		fd = open(link, O_RDONLY | O_CLOEXEC);
	close(found);
	return fd;
}

static uintptr_t
find_in_file(const struct mapping *m, const struct app_symbol *wanted, uint64_t *budget)
{
	struct elf_symbol symbol;
	const int fd = open_mapped(m);
	struct stat st;
	bool found = false;
	void *file;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file != MAP_FAILED) {
			found = elf_symbol_find(file, (size_t)st.st_size, wanted->name, budget,
						&symbol) &&
				symbol.size == wanted->size;
			munmap(file, (size_t)st.st_size);
		}
	}
	close(fd);
	return found ? m->start + (symbol.value - symbol.first_page) : 0;
}

/* Search the executable, or the libraries. */
static uintptr_t
find_in_files(FILE *maps, bool libraries, const struct app_symbol *wanted, uint64_t *budget)
{
	unsigned int nb = 0;
	struct mapping m;
	uintptr_t addr = 0;

	rewind(maps);
	while (addr == 0 && nb < FILES_MAX && app_memory_next(maps, &m)) {
		if (m.offset != 0 || m.path[0] != '/' ||
				(strcmp(m.path, kept.exe) != 0) != libraries)
			continue;
		if (libraries && strstr(m.path, ".so") == NULL)
			continue;
		addr = find_in_file(&m, wanted, budget);
		nb++;
	}
	return addr;
}

static uintptr_t
find_symbol(const struct app_symbol *wanted)
{
	FILE *maps = app_memory_maps();
	uint64_t budget = BUDGET;
	uintptr_t addr;

	if (maps == NULL)
		return 0;
	addr = find_in_files(maps, false, wanted, &budget);
	if (addr == 0)
		addr = find_in_files(maps, true, wanted, &budget);
	fclose(maps);
	return addr;
}

uintptr_t
app_memory_symbol(const char *name, size_t size)
{
	unsigned int i;

	for (i = 0; i < kept.nb; i++)
		if (strcmp(kept.symbols[i].name, name) == 0 && kept.symbols[i].size == size)
			return kept.addresses[i];
	return 0;
}

bool
app_memory_open(int proc, int root)
{
	ssize_t n;

	kept.proc = proc;
	kept.root = root;
	kept.mem = openat(proc, "mem", O_RDONLY | O_CLOEXEC);
	kept.maps = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	n = readlinkat(proc, "exe", kept.exe, sizeof(kept.exe) - 1);
	kept.exe[n > 0 ? n : 0] = '\0';
	return kept.mem >= 0 && kept.maps >= 0;
}

void
app_memory_find(const struct app_symbol *symbols, unsigned int nb)
{
	for (kept.nb = 0; kept.nb < nb && kept.nb < SYMBOLS_MAX; kept.nb++) {
		kept.symbols[kept.nb] = symbols[kept.nb];
		kept.addresses[kept.nb] = find_symbol(&symbols[kept.nb]);
	}
	close(kept.proc);
	close(kept.root);
	kept.proc = kept.root = -1;
}
