/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "app_memory.h"
#include "elf_symbol.h"

#define SYMBOLS_MAX 4

/* State of app_memory_keep(). */
static struct {
	int mem, maps; /* -1 if not open. */
	unsigned int nb;
	struct app_symbol symbols[SYMBOLS_MAX];
	uintptr_t addresses[SYMBOLS_MAX];
} kept = { .mem = -1, .maps = -1 };

static FILE *
kept_maps(void)
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

FILE *
app_memory_maps(pid_t pid)
{
	char path[32];

	if (kept.maps >= 0)
		return kept_maps();
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	return fopen(path, "re");
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
app_memory_read(pid_t pid, uintptr_t from, void *to, size_t len)
{
	const struct iovec local = { .iov_base = to, .iov_len = len };
	const struct iovec remote = { .iov_base = (void *)from, .iov_len = len };

	if (kept.mem >= 0)
		return pread(kept.mem, to, len, (off_t)from) == (ssize_t)len;
	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

/*
 * Open a regular file for reading. A process that may replace the file could otherwise make open()
 * block for ever or have side effects, as with a FIFO or a device.
 */
static int
open_regular(const char *path)
{
	const int found = open(path, O_PATH | O_CLOEXEC);
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

/* A mapped file as the process sees it, even if it has been replaced since. */
static int
open_mapped(pid_t pid, const struct mapping *m)
{
	char path[PATH_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIxPTR "-%" PRIxPTR, (int)pid,
			m->start, m->end);
	fd = open_regular(path);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, m->path);
	return open_regular(path);
}

static uintptr_t
find_in_file(pid_t pid, const struct mapping *m, const char *name, size_t size)
{
	struct elf_symbol symbol;
	const int fd = open_mapped(pid, m);
	struct stat st;
	bool found = false;
	void *file;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file != MAP_FAILED) {
			found = elf_symbol_find(file, (size_t)st.st_size, name, &symbol) &&
				symbol.size == size;
			munmap(file, (size_t)st.st_size);
		}
	}
	close(fd);
	return found ? m->start + (symbol.value - symbol.first_page) : 0;
}

/* Search the executable, or the libraries. */
static uintptr_t
find_in_files(pid_t pid, FILE *maps, const char *exe, bool libraries, const char *name, size_t size)
{
	struct mapping m;
	uintptr_t addr = 0;

	rewind(maps);
	while (addr == 0 && app_memory_next(maps, &m)) {
		if (m.offset != 0 || m.path[0] != '/' || (strcmp(m.path, exe) != 0) != libraries)
			continue;
		if (!libraries || strstr(m.path, ".so") != NULL)
			addr = find_in_file(pid, &m, name, size);
	}
	return addr;
}

static uintptr_t
find_symbol(pid_t pid, const char *name, size_t size)
{
	char exe[PATH_MAX], link[32];
	FILE *maps = app_memory_maps(pid);
	uintptr_t addr;
	ssize_t n;

	if (maps == NULL)
		return 0;
	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	addr = find_in_files(pid, maps, exe, false, name, size);
	if (addr == 0)
		addr = find_in_files(pid, maps, exe, true, name, size);
	fclose(maps);
	return addr;
}

uintptr_t
app_memory_symbol(pid_t pid, const char *name, size_t size)
{
	unsigned int i;

	if (kept.mem < 0)
		return find_symbol(pid, name, size);
	for (i = 0; i < kept.nb; i++)
		if (strcmp(kept.symbols[i].name, name) == 0 && kept.symbols[i].size == size)
			return kept.addresses[i];
	return 0;
}

static int
open_memory(pid_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

bool
app_memory_keep(pid_t pid, const struct app_symbol *symbols, unsigned int nb)
{
	char path[32];
	int mem, maps;

	for (kept.nb = 0; kept.nb < nb && kept.nb < SYMBOLS_MAX; kept.nb++) {
		kept.symbols[kept.nb] = symbols[kept.nb];
		kept.addresses[kept.nb] =
				find_symbol(pid, symbols[kept.nb].name, symbols[kept.nb].size);
	}
	mem = open_memory(pid);
	if (mem < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = open(path, O_RDONLY | O_CLOEXEC);
	if (maps < 0) {
		close(mem);
		return false;
	}
	kept.mem = mem;
	kept.maps = maps;
	return true;
}

bool
app_memory_may_read(pid_t pid)
{
	int fd;

	if (kept.mem >= 0)
		return true;
	fd = open_memory(pid);
	if (fd < 0)
		return errno != EACCES && errno != EPERM;
	close(fd);
	return true;
}
