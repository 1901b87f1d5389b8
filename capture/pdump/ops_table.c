/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "elf_symbol.h"
#include "ops_table.h"

#define SYMBOL "rte_mempool_ops_table"
/* Ops that every DPDK app has; their name is what a scan looks for. */
#define KNOWN_OPS "ring_mp_mc"
/* More data than a program has; a larger mapping is not looked through. */
#define SCAN_MAX (256UL << 20)

/* A line of /proc/PID/maps. */
struct mapping {
	uintptr_t start, end;
	uint64_t offset; /* In the file. */
	char perms[5];
	char path[PATH_MAX];
};

static bool
parse_mapping(const char *line, struct mapping *m)
{
	int at = 0;
	char *nl;

	if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %*s %n", &m->start, &m->end,
			    m->perms, &m->offset, &at) != 4 ||
			at == 0)
		return false;
	snprintf(m->path, sizeof(m->path), "%s", line + at);
	nl = strchr(m->path, '\n');
	if (nl != NULL)
		*nl = '\0';
	return true;
}

bool
ops_table_valid(const struct rte_mempool_ops_table *table, const struct ops_code *code)
{
	const struct rte_mempool_ops *ops;
	unsigned int i, j, k;

	if (table->num_ops == 0 || table->num_ops > RTE_MEMPOOL_MAX_OPS_IDX)
		return false;
	for (i = 0; i < table->num_ops; i++) {
		ops = &table->ops[i];
		const uintptr_t functions[] = { (uintptr_t)ops->alloc, (uintptr_t)ops->enqueue,
			(uintptr_t)ops->dequeue, (uintptr_t)ops->get_count };

		if (ops->name[0] == '\0' ||
				strnlen(ops->name, sizeof(ops->name)) == sizeof(ops->name))
			return false;
		for (j = 0; j < i; j++)
			if (strcmp(ops->name, table->ops[j].name) == 0)
				return false;
		for (j = 0; j < RTE_DIM(functions); j++) {
			for (k = 0; k < code->nb; k++)
				if (functions[j] >= code->ranges[k].start &&
						functions[j] < code->ranges[k].end)
					break;
			if (k == code->nb)
				return false;
		}
	}
	return ops_table_index(table, KNOWN_OPS) >= 0;
}

int
ops_table_index(const struct rte_mempool_ops_table *table, const char *name)
{
	unsigned int i;

	for (i = 0; i < table->num_ops; i++)
		if (strncmp(table->ops[i].name, name, sizeof(table->ops[i].name)) == 0)
			return (int)i;
	return -1;
}

const struct rte_mempool_ops_table *
ops_table_scan(const void *data, size_t size, const struct ops_code *code)
{
	const uint8_t *bytes = data;
	size_t at, i, back;

	for (at = 0; at + sizeof(struct rte_mempool_ops) <= size; at += RTE_CACHE_LINE_SIZE) {
		if (memcmp(bytes + at, KNOWN_OPS, sizeof(KNOWN_OPS)) != 0)
			continue;
		for (i = 0; i < RTE_MEMPOOL_MAX_OPS_IDX; i++) {
			back = offsetof(struct rte_mempool_ops_table, ops) +
			       i * sizeof(struct rte_mempool_ops);
			if (back > at || size - (at - back) < sizeof(struct rte_mempool_ops_table))
				continue;
			if (ops_table_valid((const void *)(bytes + at - back), code))
				return (const void *)(bytes + at - back);
		}
	}
	return NULL;
}

static bool
read_memory(pid_t pid, uintptr_t from, void *to, size_t len)
{
	const struct iovec local = { .iov_base = to, .iov_len = len };
	const struct iovec remote = { .iov_base = (void *)from, .iov_len = len };

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

/* A mapped file as the process sees it, also when it has been replaced since. */
static int
open_mapped(pid_t pid, const struct mapping *m)
{
	char path[PATH_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIxPTR "-%" PRIxPTR, (int)pid,
			m->start, m->end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, m->path);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool
find_symbol(pid_t pid, const struct mapping *m, uintptr_t *addr)
{
	struct elf_symbol symbol;
	const int fd = open_mapped(pid, m);
	struct stat st;
	bool found = false;
	void *file;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
		file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file != MAP_FAILED) {
			found = elf_symbol_find(file, (size_t)st.st_size, SYMBOL, &symbol) &&
				symbol.size == sizeof(struct rte_mempool_ops_table);
			munmap(file, (size_t)st.st_size);
		}
	}
	close(fd);
	if (found)
		*addr = m->start + (symbol.value - symbol.bias_of);
	return found;
}

/* What is known of a process while its table is looked for. */
struct search {
	pid_t pid;
	FILE *maps;
	struct ops_code code;
	struct rte_mempool_ops_table *table;
};

static void
collect_code(struct search *s)
{
	char line[PATH_MAX + 128];
	struct mapping m;

	rewind(s->maps);
	s->code.nb = 0;
	while (fgets(line, sizeof(line), s->maps) != NULL && s->code.nb < RTE_DIM(s->code.ranges)) {
		if (!parse_mapping(line, &m) || m.perms[2] != 'x')
			continue;
		s->code.ranges[s->code.nb].start = m.start;
		s->code.ranges[s->code.nb++].end = m.end;
	}
}

/*
 * The executable comes first in the search order of the linker: where it has a definition of its
 * own, by static linking or as a copy of a library's, everybody uses that one.
 */
static bool
read_by_symbol(struct search *s)
{
	char line[PATH_MAX + 128], exe[PATH_MAX], link[32];
	struct mapping m;
	uintptr_t addr;
	ssize_t n;
	int pass;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)s->pid);
	n = readlink(link, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	for (pass = 0; pass < 2; pass++) {
		rewind(s->maps);
		while (fgets(line, sizeof(line), s->maps) != NULL) {
			if (!parse_mapping(line, &m) || m.offset != 0 || m.path[0] != '/' ||
					(strcmp(m.path, exe) == 0) != (pass == 0))
				continue;
			if (pass == 1 && strstr(m.path, ".so") == NULL)
				continue;
			if (find_symbol(s->pid, &m, &addr) &&
					read_memory(s->pid, addr, s->table, sizeof(*s->table)) &&
					ops_table_valid(s->table, &s->code))
				return true;
		}
	}
	return false;
}

/* For an executable without symbols: its writable data, and what follows that (its .bss). */
static bool
read_by_scan(struct search *s)
{
	char line[PATH_MAX + 128];
	const struct rte_mempool_ops_table *found = NULL;
	struct mapping m;
	size_t len;
	void *data;

	rewind(s->maps);
	while (found == NULL && fgets(line, sizeof(line), s->maps) != NULL) {
		if (!parse_mapping(line, &m) || strncmp(m.perms, "rw-p", 4) != 0)
			continue;
		len = m.end - m.start;
		data = len <= SCAN_MAX ? malloc(len) : NULL;
		if (data == NULL)
			continue;
		if (read_memory(s->pid, m.start, data, len)) {
			found = ops_table_scan(data, len, &s->code);
			if (found != NULL)
				*s->table = *found;
		}
		free(data);
	}
	return found != NULL;
}

static bool
may_read(pid_t pid)
{
	char path[32];
	bool may;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	may = fd >= 0 || (errno != EACCES && errno != EPERM);
	if (fd >= 0)
		close(fd);
	return may;
}

int
ops_table_read(pid_t pid, struct rte_mempool_ops_table *table, struct verdict *verdict)
{
	static struct search s;
	char path[32];
	bool found;

	if (!may_read(pid))
		return verdict_set(verdict, EACCES,
				"may not read the app's mempool ops: run as root, or with CAP_SYS_PTRACE");
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	s = (struct search){ .pid = pid, .table = table, .maps = fopen(path, "re") };
	if (s.maps == NULL)
		return verdict_set(verdict, errno, "%s: %s", path, strerror(errno));
	collect_code(&s);
	found = read_by_symbol(&s) || read_by_scan(&s);
	fclose(s.maps);
	if (found)
		return 0;
	return verdict_set(verdict, ENOTSUP,
			"no table of mempool ops found in the app: is it a DPDK app of this version?");
}
