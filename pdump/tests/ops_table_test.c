/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "app_memory.h"
#include "elf_symbol.h"
#include "ops_table.h"
#include "process_memory.h"
#include "test.h"

/* This program is an app as well: its table is where an app's would be. */
struct rte_mempool_ops_table rte_mempool_ops_table;

static int
op_alloc(struct rte_mempool *mp)
{
	(void)mp;
	return 0;
}

static int
op_enqueue(struct rte_mempool *mp, void *const *objects, unsigned int n)
{
	(void)mp;
	(void)objects;
	return (int)n;
}

static int
op_dequeue(struct rte_mempool *mp, void **objects, unsigned int n)
{
	(void)mp;
	(void)objects;
	return (int)n;
}

static unsigned int
op_count(const struct rte_mempool *mp)
{
	(void)mp;
	return 0;
}

static void
fill(struct rte_mempool_ops_table *table, unsigned int n)
{
	static const char *const names[] = { "dpaa", "octeontx_fpavf", "ring_mp_mc", "ring_sp_sc",
		"stack", "lf_stack" };
	unsigned int i;

	memset(table, 0, sizeof(*table));
	table->num_ops = n;
	for (i = 0; i < n && i < RTE_DIM(names); i++) {
		snprintf(table->ops[i].name, sizeof(table->ops[i].name), "%s", names[i]);
		table->ops[i].alloc = op_alloc;
		table->ops[i].enqueue = op_enqueue;
		table->ops[i].dequeue = op_dequeue;
		table->ops[i].get_count = op_count;
	}
}

static struct ops_code
own_code(void)
{
	struct ops_code code = { 0 };
	struct mapping m;
	FILE *maps;

	open_memory_of(getpid());
	maps = app_memory_maps();
	CHECK(maps != NULL);
	while (code.nb < RTE_DIM(code.ranges) && app_memory_next(maps, &m)) {
		if (m.perms[2] != 'x')
			continue;
		code.ranges[code.nb].start = m.start;
		code.ranges[code.nb++].end = m.end;
	}
	fclose(maps);
	return code;
}

static void
test_valid(const struct ops_code *code)
{
	struct rte_mempool_ops_table t;

	fill(&t, 6);
	CHECK(ops_table_valid(&t, code));
	CHECK(ops_table_index(&t, "lf_stack") == 5);
	CHECK(ops_table_index(&t, "ring_mp_mc") == 2);
	CHECK(ops_table_index(&t, "ring_mp") == -1);

	fill(&t, 6);
	t.num_ops = 0;
	CHECK(!ops_table_valid(&t, code));
	t.num_ops = RTE_MEMPOOL_MAX_OPS_IDX + 1;
	CHECK(!ops_table_valid(&t, code));
	t.num_ops = 7; /* The last one is empty. */
	CHECK(!ops_table_valid(&t, code));
	fill(&t, 6);
	strcpy(t.ops[3].name, "dpaa"); /* Twice. */
	CHECK(!ops_table_valid(&t, code));
	fill(&t, 6);
	memset(t.ops[1].name, 'x', sizeof(t.ops[1].name)); /* Without an end. */
	CHECK(!ops_table_valid(&t, code));
	fill(&t, 6);
	t.ops[4].dequeue = NULL;
	CHECK(!ops_table_valid(&t, code));
	fill(&t, 6);
	*(void **)&t.ops[0].get_count = &t; /* No code. */
	CHECK(!ops_table_valid(&t, code));
	fill(&t, 2); /* No DPDK app is without ring_mp_mc. */
	CHECK(!ops_table_valid(&t, code));
}

/* Anywhere in data that is full of almost such tables. */
static void
test_scan(const struct ops_code *code)
{
	static uint8_t data[1 << 16] __rte_cache_aligned;
	struct rte_mempool_ops_table t, decoy;
	size_t at, size, i;

	fill(&t, 6);
	decoy = t;
	decoy.ops[5].alloc = NULL;
	srand(1);
	for (i = 0; i < 2000; i++) {
		size = sizeof(data) / 64 * (1 + rand() % 64);
		size &= ~(size_t)(RTE_CACHE_LINE_SIZE - 1);
		memset(data, rand() % 2, sizeof(data));
		CHECK(ops_table_scan(data, size, code) == NULL);
		if (size < 2 * sizeof(t))
			continue;
		memcpy(data, &decoy, sizeof(decoy));
		CHECK(ops_table_scan(data, size, code) == NULL);
		at = sizeof(t) + rand() % (size - 2 * sizeof(t) + 1);
		at &= ~(size_t)(RTE_CACHE_LINE_SIZE - 1);
		memcpy(data + at, &t, sizeof(t));
		CHECK(ops_table_scan(data, size, code) == (const void *)(data + at));
		/* Cut off. */
		CHECK(ops_table_scan(data, at + sizeof(t) - 1, code) == NULL);
	}
}

/* By its symbol, then without: a process with no symbol of ours has the table all the same. */
static void
test_process(void)
{
	const struct app_symbol symbols[] = { ops_table_symbol,
		{ "rte_mempool_ops_table", sizeof(struct rte_mempool_ops_table) + 1 },
		{ "no_such_symbol_anywhere", 8 } };
	struct rte_mempool_ops_table t;
	struct failure failure = { 0 };
	pid_t pid;
	int status;

	fill(&rte_mempool_ops_table, 5);
	pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	open_memory_of(pid);
	app_memory_find(symbols, RTE_DIM(symbols));
	CHECK(app_memory_symbol("rte_mempool_ops_table", sizeof(t)) ==
			(uintptr_t)&rte_mempool_ops_table);
	CHECK(app_memory_symbol("rte_mempool_ops_table", sizeof(t) + 1) == 0);
	CHECK(app_memory_symbol("no_such_symbol_anywhere", 8) == 0);
	fill(&rte_mempool_ops_table, 6); /* Ours, not the other's. */
	CHECK(ops_table_read(&t, &failure) == 0);
	CHECK_U64(t.num_ops, 5);
	CHECK(ops_table_index(&t, "stack") == 4);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	CHECK(ops_table_read(&t, &failure) == -1 && failure.text[0] != '\0');
}

/* Without rights to the mapped file itself, what is at its path now is opened: it may be a FIFO. */
static void
test_fifo_at_path(void)
{
	const struct app_symbol none = { "no_such_symbol_anywhere", 8 };
	char dir[] = "/tmp/pmdscope-ops-XXXXXX", path[64], fifo[96];
	int fd, status;
	pid_t pid;

	CHECK(mkdtemp(dir) != NULL && chmod(dir, 0755) == 0);
	snprintf(path, sizeof(path), "%s/x.so", dir);
	snprintf(fifo, sizeof(fifo), "%s (deleted)", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	CHECK(unlink(path) == 0 && mkfifo(fifo, 0666) == 0 && chmod(fifo, 0666) == 0);
	pid = fork();
	if (pid == 0) {
		alarm(10);
		CHECK(getuid() != 0 || setresuid(65534, 65534, 65534) == 0);
		/* Else what /proc tells of this process were for root only. */
		CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
		open_memory_of(getpid());
		app_memory_find(&none, 1);
		CHECK(app_memory_symbol(none.name, none.size) == 0);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(unlink(fifo) == 0 && rmdir(dir) == 0);
	CHECK(status == 0);
	close(fd);
}

/* A link in the root directory of the process, to a file of that name in ours, which has the symbol. */
static void
look_through_link(const char *dir)
{
	char root[64], path[32];
	int proc;

	alarm(10);
	CHECK(setresuid(65534, 65534, 65534) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
	snprintf(root, sizeof(root), "%s/root", dir);
	snprintf(path, sizeof(path), "/proc/%d", (int)getpid());
	proc = open(path, O_PATH | O_DIRECTORY);
	CHECK(app_memory_open(proc, open(root, O_PATH | O_DIRECTORY)));
	app_memory_find(&ops_table_symbol, 1);
	CHECK(app_memory_symbol(ops_table_symbol.name, ops_table_symbol.size) == 0);
	_exit(0);
}

static void
test_link_out_of_root(void)
{
	char dir[] = "/tmp/pmdscope-ops-XXXXXX", command[512], path[64];
	int fd, status;
	pid_t pid;

	if (getuid() != 0)
		return;
	CHECK(mkdtemp(dir) != NULL);
	snprintf(command, sizeof(command),
			"cd %s && chmod 755 . && cp /proc/%d/exe real && chmod 755 real && cp real x.so && "
			"mkdir -p root%s && ln -s %s/real root%s/x.so",
			dir, (int)getpid(), dir, dir, dir);
	CHECK(system(command) == 0);
	snprintf(path, sizeof(path), "%s/x.so", dir);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
	pid = fork();
	if (pid == 0)
		look_through_link(dir);
	CHECK(waitpid(pid, &status, 0) == pid);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	CHECK(system(command) == 0);
	CHECK(status == 0);
}

/* Garbage must not be read beyond its end; the allocation ends where the file does. */
static void
test_mutated_elf(void)
{
	struct elf_symbol symbol;
	uint64_t budget = 1;
	uint8_t *file, *copy;
	struct stat st;
	size_t len, i;
	int fd, round;

	fd = open("/proc/self/exe", O_RDONLY);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(file != MAP_FAILED);
	CHECK(!elf_symbol_find(
			file, (size_t)st.st_size, "rte_mempool_ops_table", &budget, &symbol));
	CHECK_U64(budget, 0);
	budget = UINT64_MAX;
	CHECK(elf_symbol_find(file, (size_t)st.st_size, "rte_mempool_ops_table", &budget, &symbol));
	CHECK_U64(symbol.size, sizeof(rte_mempool_ops_table));
	srand(2);
	for (round = 0; round < 500; round++) {
		len = round % 2 ? (size_t)st.st_size : (size_t)rand() % (size_t)st.st_size;
		copy = malloc(len + 1);
		CHECK(copy != NULL);
		memcpy(copy, file, len);
		/* The headers of the file, and those of its sections at the end. */
		for (i = 0; i < 8 && len > 4096; i++) {
			copy[rand() % 1024] = (uint8_t)rand();
			copy[len - 1 - rand() % 4096] = (uint8_t)rand();
		}
		budget = UINT64_MAX;
		elf_symbol_find(copy, len, "rte_mempool_ops_table", &budget, &symbol);
		free(copy);
	}
	munmap(file, (size_t)st.st_size);
	close(fd);
}

int
main(void)
{
	static struct ops_code code;

	code = own_code();
	test_valid(&code);
	test_scan(&code);
	test_process();
	test_fifo_at_path();
	test_link_out_of_root();
	test_mutated_elf();
	return 0;
}
