/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-pdump on a real app: argv is the app and the program. */

#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <rte_pause.h>

#include "captured_app.h"
#include "locks.h"
#include "test.h"

#define SKIP 77
#define KILLS 24
/* When death comes at the latest: attaching and detaching take less. */
#define LATEST_US 120000
/* Captures until one is found in the app's allocator. */
#define CATCHES 40

/* All packets, in order, byte by byte; none is missing that is not counted. */
static void
test_packets(uint32_t snaplen)
{
	uint64_t n = 0, next = 0, missing = 0;
	struct capture c;
	unsigned int i;

	start(&c, PMDSCOPE_DIR_TX, snaplen);
	expect_ring(&c);
	for (i = 0; i < 100 || (n < 1000 && i < 5000); i++) {
		n += check_records(&c, snaplen, &next, &missing);
		sleep_ms(2);
	}
	CHECK(n >= 1000);
	CHECK_U64(c.hdr->records >= n, 1);
	CHECK(missing <= c.hdr->dropped);
	CHECK_U64(c.hdr->dropped, c.hdr->port_dropped[0]);
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* Read on until a record says that 1 in so many is kept from there. */
static bool
find_sample(struct capture *c, uint32_t sample)
{
	const uint64_t head = __atomic_load_n(&c->hdr->head, __ATOMIC_ACQUIRE);
	const uint8_t *data = (const uint8_t *)c->hdr + PMDSCOPE_RING_HDR_SIZE;
	const struct pmdscope_record *r;
	bool found = false;

	while (c->at < head && !found) {
		r = (const void *)(data + (c->at & (c->hdr->data_size - 1)));
		found = r->type == PMDSCOPE_RECORD_SAMPLE && r->len == sample;
		c->at += r->size;
	}
	__atomic_store_n(&c->tail->tail, c->at, __ATOMIC_RELEASE);
	return found;
}

/* From the word of the consumer on, 1 packet in 8. */
static void
test_sample(void)
{
	const struct pmdscope_tee_change change = {
		.magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_SAMPLE,
		.value = 8,
	};
	uint64_t n = 0, next = 0, missing = 0;
	struct capture c;
	unsigned int i;

	start(&c, PMDSCOPE_DIR_TX, 262144);
	expect_ring(&c);
	CHECK((c.hdr->features & PMDSCOPE_RING_F_RESAMPLE) != 0);
	CHECK(send(c.fd, &change, sizeof(change), 0) == sizeof(change));
	for (i = 0; !find_sample(&c, 8); i++) {
		CHECK(i < 5000);
		sleep_ms(2);
	}
	for (i = 0; n < 2000 && i < 5000; i++) {
		n += check_records(&c, 262144, &next, &missing);
		sleep_ms(2);
	}
	CHECK(n >= 2000);
	/* Which ones is chance. */
	CHECK(missing > 6 * n && missing < 8 * n + c.hdr->dropped);
	CHECK(missing <= c.hdr->sampled_out + c.hdr->dropped);
	CHECK_U64((unsigned int)stop(&c), 0);
}

static void
test_cycles(void)
{
	const struct report before = ask();
	struct report after;
	struct capture c;
	unsigned int i;

	for (i = 0; i < 20; i++) {
		start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
		expect_ring(&c);
		CHECK_U64((unsigned int)stop(&c), 0);
	}
	after = ask();
	CHECK(after.sent > before.sent);
	CHECK_U64(after.allocs, before.allocs);
	CHECK_U64(after.zones, before.zones);
}

/* Callbacks of a queue that the app gave up are called again once it has it back. */
static void
test_queues(void)
{
	const struct report before = say("2\n");
	struct report back, after;
	struct capture c;

	start_on("0,2,2,net_null0", &c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	say("1\n");
	CHECK_U64((unsigned int)stop(&c), 1);
	back = say("2\n");
	CHECK(back.zones == before.zones + 1);
	WAIT_FOR(ask().sent > back.sent);
	start_on("0,2,2,net_null0", &c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	/* This time they are back before the end. */
	say("1\n");
	say("2\n");
	CHECK_U64((unsigned int)stop(&c), 0);
	after = ask();
	CHECK_U64(after.allocs, before.allocs);
	CHECK_U64(after.zones, before.zones);
	say("1\n");
}

/* The app may add and remove devices; it ends when it cannot. */
static void
test_hotplug(void)
{
	struct capture c;

	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	say("h\n");
	CHECK_U64((unsigned int)stop(&c), 0);
}

static pid_t
worker_of(pid_t pid)
{
	char path[64];
	int child = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "r");
	if (f != NULL && fscanf(f, "%d", &child) != 1)
		child = 0;
	if (f != NULL)
		fclose(f);
	return child;
}

/* The state that a capture keeps of itself; NULL before and after. */
static const struct state *
map_state(pid_t pid)
{
	const struct state *state = MAP_FAILED;
	char path[PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/pmdscope-pdump.%d", pdump_app.runtime_dir, (int)pid);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		state = mmap(NULL, sizeof(*state), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
	}
	return state != MAP_FAILED ? state : NULL;
}

static bool
is_in_allocator(const struct state *state)
{
	return state != NULL && __atomic_load_n(&state->phase, __ATOMIC_SEQ_CST) == STATE_ALLOCATOR;
}

static char
state_of(pid_t pid)
{
	char path[64], state = 'X';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	if (f != NULL)
		fclose(f);
	return state;
}

/* Stop a process wherever it is. */
static void
freeze(pid_t pid)
{
	unsigned int i;

	kill(pid, SIGSTOP);
	for (i = 0; i < 10000 && strchr("TXZ", state_of(pid)) == NULL; i++)
		usleep(100);
}

/* Stop the worker of a capture at a moment at which it may be killed. */
static unsigned int
freeze_outside(pid_t pid, pid_t worker)
{
	const struct state *state = map_state(pid);
	unsigned int inside = 0;

	for (freeze(worker); is_in_allocator(state); freeze(worker)) {
		inside++;
		kill(worker, SIGCONT);
		sleep_ms(1);
	}
	if (state != NULL)
		munmap((void *)(uintptr_t)state, sizeof(*state));
	return inside;
}

static unsigned int
nb_kills(void)
{
	const char *wanted = getenv("PMDSCOPE_KILL_ROUNDS");

	return wanted != NULL ? (unsigned int)atoi(wanted) : KILLS;
}

/*
 * The worker, the watchdog, both: at any moment of beginning and ending a capture, but those that
 * the worker is in the app's allocator. No lock is held then, the next capture works, and nothing is left.
 */
static void
test_kills(void)
{
	const struct report before = ask();
	unsigned int i, inside = 0, caught = 0;
	struct pmdscope_tee_message m;
	char lock[LOCKS_NAME_MAX];
	struct report after;
	struct capture c;
	pid_t worker;
	int fds[2];

	srand((unsigned int)time(NULL));
	for (i = 0; i < nb_kills(); i++) {
		m.kind = 0;
		start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
		if (i % 2 != 0) {
			expect_ring(&c);
			shutdown(c.fd, SHUT_WR);
		}
		usleep((useconds_t)(rand() % LATEST_US));
		worker = worker_of(c.pid);
		if (worker > 0) {
			inside += freeze_outside(c.pid, worker);
			caught++;
			if (locks_wait(&pdump_app, 2000, lock) == LOCKS_HELD)
				fprintf(stderr, "kill %u: %s is held\n", i, lock);
			CHECK(locks_wait(&pdump_app, 0, lock) == LOCKS_FREE);
		}
		if (i % 3 != 1 && worker > 0)
			kill(worker, SIGKILL);
		if (i % 3 != 0 || worker == 0)
			kill(c.pid, SIGKILL);
		if (worker > 0)
			kill(worker, SIGCONT);
		/* One that was still cleaning up after the last one goes on to capture. */
		while (receive(&c, &m, fds) && m.kind != PMDSCOPE_TEE_RING)
			;
		if (m.kind == PMDSCOPE_TEE_RING) {
			close(fds[0]);
			close(fds[1]);
		}
		stop(&c);
		/* What takes locks of the app goes on. */
		CHECK(ask().sent >= before.sent);
	}
	fprintf(stderr, "%u of %u workers stopped; %u times in the allocator, and let go on\n",
			caught, i, inside);
	CHECK(i < KILLS || caught > 0);
	test_packets(262144);
	after = ask();
	CHECK(after.sent > before.sent);
	CHECK_U64(after.zones, before.zones);
}

/* A worker that is stopped with a lock of the app, and its capture. */
static pid_t
catch_in_allocator(struct capture *c, char *path, char *memory)
{
	const struct state *state;
	char lock[LOCKS_NAME_MAX];
	unsigned int i, spins;
	pid_t worker;
	bool caught;

	for (i = 0; i < CATCHES; i++) {
		start(c, PMDSCOPE_DIR_RX, 0);
		for (spins = 0; (state = map_state(c->pid)) == NULL && spins < 100000; spins++)
			;
		for (spins = 0; !is_in_allocator(state) && spins < 2000000; spins++)
			rte_pause();
		worker = worker_of(c->pid);
		if (worker > 0)
			freeze(worker);
		caught = worker > 0 && is_in_allocator(state) &&
			 locks_wait(&pdump_app, 200, lock) == LOCKS_HELD;
		if (state != NULL)
			munmap((void *)(uintptr_t)state, sizeof(*state));
		if (caught)
			return worker;
		if (worker > 0)
			kill(worker, SIGCONT);
		stop(c);
		/* This one has the memory now, and so gives less time. */
		stop_app();
		start_app(path, memory);
	}
	return 0;
}

static void
expect_refusal(const struct capture *c, const char *why)
{
	struct pmdscope_tee_message m = { 0 };
	int fds[2];

	CHECK(receive(c, &m, fds));
	if (m.kind != PMDSCOPE_TEE_REFUSE || strstr(m.text, why) == NULL)
		fprintf(stderr, "kind %u: %s\n", m.kind, m.text);
	CHECK(m.kind == PMDSCOPE_TEE_REFUSE && strstr(m.text, why) != NULL);
}

/* Hugepages that the app has. */
static size_t
nb_pages(void)
{
	char pattern[64];
	glob_t files;
	size_t n;

	snprintf(pattern, sizeof(pattern), "/dev/hugepages/%smap_*", app.prefix);
	n = glob(pattern, 0, NULL, &files) == 0 ? files.gl_pathc : 0;
	globfree(&files);
	return n;
}

/* An app without room for a capture gets memory once, and has it for those that follow. */
static void
test_memory_is_kept(void)
{
	const struct report before = ask();
	const size_t pages = nb_pages();
	struct capture c;
	unsigned int i;
	size_t kept;

	start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	if (strstr(c.remark, "which it keeps") == NULL)
		fprintf(stderr, "remark: %s\n", c.remark);
	CHECK(strstr(c.remark, "which it keeps") != NULL);
	kept = nb_pages();
	CHECK(kept > pages);
	CHECK_U64((unsigned int)stop(&c), 0);
	for (i = 0; i < 3; i++) {
		CHECK_U64(nb_pages(), kept);
		start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
		expect_ring(&c);
		CHECK(c.remark[0] == '\0');
		CHECK_U64(nb_pages(), kept);
		CHECK_U64((unsigned int)stop(&c), 0);
	}
	CHECK_U64(ask().allocs, before.allocs);
	CHECK_U64(ask().zones, before.zones);
}

/* The one moment that hurts. Nobody touches the lock; whoever comes is told. */
static void
test_killed_in_allocator(char *path_of_app, char *memory)
{
	static const char why[] = "was killed inside of the app's allocator";
	uint32_t before[LOCKS_MAX], after[LOCKS_MAX];
	const struct locks_config *config;
	char path[PATH_MAX + 16];
	struct capture c;
	pid_t worker;
	int fd;

	worker = catch_in_allocator(&c, path_of_app, memory);
	snprintf(path, sizeof(path), "%s/config", pdump_app.runtime_dir);
	fd = open(path, O_RDONLY);
	config = mmap(NULL, sizeof(*config), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && config != MAP_FAILED);
	CHECK(worker > 0);
	kill(worker, SIGKILL);
	expect_refusal(&c, why);
	CHECK(stop(&c) == 1);
	/* The app has given up what it did for us by now. */
	CHECK(locks_sample(config, before) > 0);
	start(&c, PMDSCOPE_DIR_RX, 0);
	expect_refusal(&c, why);
	CHECK(stop(&c) == 1);
	CHECK(locks_sample(config, after) > 0);
	CHECK(memcmp(before, after, sizeof(after)) == 0);
	CHECK(kill(app.pid, 0) == 0 && strchr("RS", state_of(app.pid)) != NULL);
	munmap((void *)(uintptr_t)config, sizeof(*config));
	close(fd);
}

/* A device that the app does not have. */
static void
test_refusal(void)
{
	struct pmdscope_tee_message m = { 0 };
	struct capture c, second;
	int fds[2];

	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	start(&second, PMDSCOPE_DIR_TX, 0);
	CHECK(receive(&second, &m, fds) && m.kind == PMDSCOPE_TEE_REFUSE);
	CHECK_U64(m.value, EBUSY);
	CHECK(strstr(m.text, "captures there") != NULL);
	stop(&second);
	/* The first one goes on. */
	CHECK(send(c.fd, "x", 1, 0) == 1);
	CHECK(receive(&c, &m, fds) && m.kind == PMDSCOPE_TEE_END && m.value == EPROTO);
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* An app of another update of our release. */
static void
test_update(void)
{
	struct locks_config *config;
	char path[PATH_MAX + 16];
	struct capture c;
	int fd;

	snprintf(path, sizeof(path), "%s/config", pdump_app.runtime_dir);
	fd = open(path, O_RDWR);
	config = mmap(NULL, sizeof(*config), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && config != MAP_FAILED);
	config->version ^= 3 << 8;
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	CHECK_U64((unsigned int)stop(&c), 0);
	/* And one whose memory is laid out in another way. */
	config->memzones.elt_sz++;
	if (locks_tested_release(RTE_VERSION)) {
		start(&c, PMDSCOPE_DIR_TX, 0);
		expect_refusal(&c, "is laid out otherwise");
		CHECK_U64((unsigned int)stop(&c), 1);
	}
	config->memzones.elt_sz--;
	config->version ^= 3 << 8;
	munmap(config, sizeof(*config));
	close(fd);
}

/* The app has a pool with fewer bytes of caches than ours would have. */
static void
test_pools(void)
{
	const struct report before = ask();
	struct report after;
	struct capture c;

	say("p\n");
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_refusal(&c, "mempool odd has");
	CHECK_U64((unsigned int)stop(&c), 1);
	after = say("p\n");
	CHECK_U64(after.allocs, before.allocs);
	CHECK_U64(after.zones, before.zones);
}

static unsigned int
free_hugepages(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	unsigned int n = 0;

	if (f == NULL || fscanf(f, "%u", &n) != 1)
		n = 0;
	if (f != NULL)
		fclose(f);
	return n;
}

int
main(int argc, char **argv)
{
	char enough[] = "64", little[] = "16";

	if (argc != 3)
		return 2;
	if (free_hugepages() < 64 || getuid() != 0 || sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		puts("needs root, two CPUs and 64 free hugepages of 2 MiB");
		return SKIP;
	}
	program = argv[2];
	atexit(stop_app);
	start_app(argv[1], enough);
	test_packets(262144);
	test_packets(100);
	test_sample();
	test_cycles();
	test_queues();
	test_hotplug();
	test_refusal();
	test_update();
	test_pools();
	if (locks_tested_release(RTE_VERSION)) {
		test_kills();
		stop_app();
		start_app(argv[1], little);
		test_memory_is_kept();
		stop_app();
		start_app(argv[1], little);
		test_killed_in_allocator(argv[1], little);
	}
	return 0;
}
