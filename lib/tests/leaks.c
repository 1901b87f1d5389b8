/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The leak ledger: what it finds, where, and that it finds nothing else. */

#include <pthread.h>
#include <sys/mman.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "leak_app.h"
#include "pmdscope.h"
#include "pmdscope_ring.h"
#include "state.h"
#include "test.h"

#define POOL_SIZE 8191
#define TEXT_MAX 128

static const struct pmdscope_conf always = {
	.sample_ms = 50,
	.leak_mode = PMDSCOPE_LEAK_ALWAYS,
	.leak_hold_ms = 500,
	.leak_walk_ms = 100,
};

static struct leak_app app;
static unsigned int worker;
/* The traced app's source, as in /pmdscope/sites. */
static const char *leak_file;

/* Orders to the worker. */
static volatile bool stop, idle, plain, paused;
static volatile enum leak_kind kind;
static volatile unsigned int nb_leaks; /* Still to be made, one every so many bursts. */
static volatile unsigned int every = 64;

static int
work(void *arg __rte_unused)
{
	unsigned int bursts = 0;

	while (!stop) {
		enum leak_kind now = LEAK_NONE;
		uint16_t nb = 0;

		while (paused && !stop)
			;
		if (nb_leaks > 0 && ++bursts % every == 0)
			now = kind;
		if (!idle)
			nb = plain ? leak_plain_poll(&app, now) : leak_traced_poll(&app, now);
		if (nb > 0 && now != LEAK_NONE)
			nb_leaks--;
		pmdscope_poll(nb);
	}
	return 0;
}

static void
start_port(uint16_t port, uint16_t nb_rx)
{
	const struct rte_eth_conf conf = { 0 };

	CHECK(rte_eth_dev_configure(port, nb_rx, 1, &conf) == 0);
	CHECK(nb_rx == 0 ||
			rte_eth_rx_queue_setup(port, 0, 256, SOCKET_ID_ANY, NULL, app.pool) == 0);
	CHECK(rte_eth_tx_queue_setup(port, 0, 256, SOCKET_ID_ANY, NULL) == 0);
	CHECK(rte_eth_dev_start(port) == 0);
}

static void
start_app(void)
{
	struct rte_ring *full = rte_ring_create("full_tx", 64, SOCKET_ID_ANY, 0);
	int port;

	app.pool = rte_pktmbuf_pool_create("pool", POOL_SIZE, 128, 64, 2048, SOCKET_ID_ANY);
	app.clones = rte_pktmbuf_pool_create("clones", 1023, 32, 0, 0, SOCKET_ID_ANY);
	app.ring = rte_ring_create("full", 64, SOCKET_ID_ANY, 0);
	CHECK(app.pool != NULL && app.clones != NULL && app.ring != NULL && full != NULL);
	while (rte_ring_enqueue(app.ring, full) == 0)
		;
	while (rte_ring_enqueue(full, app.ring) == 0)
		;
	CHECK(rte_eal_hotplug_add("vdev", "net_null0", "size=64") == 0);
	CHECK(rte_eth_dev_get_port_by_name("net_null0", &app.port) == 0);
	port = rte_eth_from_rings("full", &full, 1, &full, 1, SOCKET_ID_ANY);
	CHECK(port >= 0);
	app.full_port = (uint16_t)port;
	app.stage = pmdscope_stage("reassembly");
	CHECK(app.stage > 0);
	leak_file = leak_traced_file();
	start_port(app.port, 1);
	start_port(app.full_port, 0);
	worker = rte_get_next_lcore(-1, 1, 0);
	CHECK(rte_eal_remote_launch(work, NULL, worker) == 0);
}

static const char *
ask(const char *table)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "/pmdscope/%s", table);
	return tel_ask(cmd, "");
}

static uint64_t
ledger(const char *pool, const char *column)
{
	const char *body = ask("leaks");
	const int row = tel_find(body, "name", pool);

	CHECK(row >= 0);
	return tel_cell(body, column, (unsigned int)row);
}

/* The parts add up to the pool. */
static void
check_sum(const char *pool)
{
	static const char *const parts[] = { "common", "cached", "rx_posted", "tx_pending", "rings",
		"held", "leaked", "unplaced" };
	const char *body = ask("leaks");
	const int row = tel_find(body, "name", pool);
	uint64_t sum = 0;
	unsigned int i;

	CHECK(row >= 0);
	for (i = 0; i < RTE_DIM(parts); i++)
		sum += tel_cell(body, parts[i], (unsigned int)row);
	CHECK_U64(sum, tel_cell(body, "size", (unsigned int)row));
}

/* Lost or misused mbufs at a site, 0 when there is no such row. */
static uint64_t
site(const char *pool, const char *name, const char *what, const char *column)
{
	const char *body = ask("sites");
	const char *names = json_get(body, "site");
	unsigned int i;

	for (i = 0; i < json_len(names); i++)
		if (tel_cell_is(body, "site", i, name) && tel_cell_is(body, "pool", i, pool) &&
				tel_cell_is(body, "kind", i, what))
			return tel_cell(body, column, i);
	return 0;
}

static uint64_t
all_leaked(void)
{
	return ledger("pool", "leaked") + ledger("clones", "leaked");
}

static bool
has_site(const char *pool, const char *name, const char *what, uint64_t nb)
{
	return site(pool, name, what, "count") == nb;
}

/* Where the traced app lost it. */
static const char *
line_of(enum leak_kind k)
{
	static char name[TEXT_MAX];

	snprintf(name, sizeof(name), "%s:%u", leak_file, leak_traced_line(k));
	return name;
}

static void
lose(enum leak_kind k, unsigned int nb)
{
	kind = k;
	nb_leaks = nb;
	WAIT_FOR(nb_leaks == 0);
}

static void
restart(const struct pmdscope_conf *conf)
{
	pmdscope_fini();
	CHECK(pmdscope_init(conf) == 0);
	WAIT_FOR(tel_find(ask("leaks"), "name", "clones") >= 0);
}

/* Run clean for so long. */
static void
expect_no_leak(unsigned int ms)
{
	unsigned int i;

	for (i = 0; i < ms; i += 50) {
		rte_delay_us_sleep(50000);
		check_sum("pool");
	}
	CHECK_U64(all_leaked(), 0);
	CHECK_U64(tel_u64(ask("sites"), "total"), 0);
}

/* Each kind is found in full, at its line, and nothing else is. */
static void
test_traced(void)
{
	restart(&always);
	expect_no_leak(700);
	lose(LEAK_RX, 7);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 7));
	lose(LEAK_RX, 1);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 8));
	lose(LEAK_CLONE, 5);
	WAIT_FOR(has_site("clones", line_of(LEAK_CLONE), "leak", 5));
	WAIT_FOR(ledger("pool", "leaked") == 8 + 5);
	lose(LEAK_TAIL, 4);
	WAIT_FOR(has_site("pool", line_of(LEAK_TAIL), "leak", 4));
	lose(LEAK_UNSENT, 3);
	WAIT_FOR(has_site("pool", line_of(LEAK_UNSENT), "leak", 3));
	lose(LEAK_OVERFLOW, 2);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 8 + 2));
	lose(LEAK_MARKED, 1);
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 1));
	lose(LEAK_DOUBLE_FREE, 2);
	WAIT_FOR(has_site("pool", line_of(LEAK_DOUBLE_FREE), "double_free", 2));
	lose(LEAK_USE_AFTER_FREE, 2);
	WAIT_FOR(has_site("pool", line_of(LEAK_USE_AFTER_FREE), "use_after_free", 2));
	CHECK_U64(ledger("pool", "double_frees"), 2);
	CHECK_U64(ledger("pool", "use_after_frees"), 2);
	CHECK_U64(ledger("clones", "leaked"), 5);
	CHECK_U64(ledger("pool", "leaked"), 8 + 5 + 4 + 3 + 2 + 1);
	CHECK(ledger("pool", "first_leak_realtime_ns") != 0);
	CHECK_U64(ledger("pool", "prearm"), 0);
	check_sum("pool");
}

/* Without call sites: the queue is named, and the call for the rest. */
static void
test_plain(void)
{
	plain = true;
	restart(&always);
	expect_no_leak(700);
	lose(LEAK_RX, 3);
	WAIT_FOR(has_site("pool", "rx port 0 queue 0", "leak", 3));
	lose(LEAK_UNSENT, 2);
	rte_delay_us_sleep(1000000);
	/* Given to a NIC that sends nothing: there they may be. */
	CHECK_U64(ledger("pool", "leaked"), 3);
	CHECK(ledger("pool", "tx_pending") >= 2);
	lose(LEAK_MARKED, 2);
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 2));
	lose(LEAK_CLONE, 2);
	WAIT_FOR(ledger("clones", "leaked") == 2);
	check_sum("pool");
	plain = false;
}

/* --- The bytes of what was lost ------------------------------------------------------- */

static int
tee_connect(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	const char *path = json_get(tel_ask("/pmdscope", ""), "tee_socket");
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(path != NULL && fd >= 0);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.*s",
			(int)(json_string_end(path) - path - 2), path + 1);
	CHECK(connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0);
	return fd;
}

/* The next message, which must be of this kind; its descriptors where it has some. */
static uint32_t
tee_receive(int fd, uint16_t expected, int fds[2])
{
	union {
		struct cmsghdr hdr;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct pmdscope_tee_message message;
	struct iovec iov = { .iov_base = &message, .iov_len = sizeof(message) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };

	CHECK(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) == sizeof(message));
	CHECK_U64(message.kind, expected);
	if (fds != NULL) {
		CHECK(CMSG_FIRSTHDR(&msg) != NULL);
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), 2 * sizeof(int));
	}
	return message.value;
}

static const struct pmdscope_ring_hdr *
tee_dump(uint32_t sample)
{
	const struct {
		struct pmdscope_tee_request hdr;
		struct pmdscope_tee_select select;
	} request = {
		.hdr = {
			.magic = PMDSCOPE_TEE_MAGIC,
			.version = PMDSCOPE_RING_VERSION,
			.hdr_size = sizeof(request.hdr),
			.sample = sample,
			.nb_selects = 1,
			.flags = PMDSCOPE_TEE_F_LEAKED,
		},
		.select = {PMDSCOPE_TEE_ANY, PMDSCOPE_TEE_ANY, 3, 0},
	};
	const int fd = tee_connect();
	const struct pmdscope_ring_hdr *hdr;
	int fds[2];

	CHECK(write(fd, &request, sizeof(request)) == sizeof(request));
	tee_receive(fd, PMDSCOPE_TEE_ACCEPT, NULL);
	CHECK_U64(tee_receive(fd, PMDSCOPE_TEE_RING, fds), 0xffff);
	CHECK_U64(tee_receive(fd, PMDSCOPE_TEE_END, NULL), 0);
	hdr = mmap(NULL, PMDSCOPE_RING_HDR_SIZE + (1U << 20), PROT_READ, MAP_SHARED, fds[0], 0);
	CHECK(hdr != MAP_FAILED);
	CHECK_U64(hdr->lcore, 0xffff);
	close(fds[0]);
	close(fds[1]);
	close(fd);
	return hdr;
}

/* Records of a site, each checked; the address of the last mbuf in *mbuf. */
static unsigned int
count_records(const struct pmdscope_ring_hdr *hdr, uint64_t id, uint64_t *mbuf)
{
	const uint8_t *data = (const uint8_t *)hdr + PMDSCOPE_RING_HDR_SIZE;
	unsigned int nb = 0;
	uint64_t at = 0;

	while (at < hdr->head) {
		const struct pmdscope_record *rec = (const struct pmdscope_record *)(data + at);
		const struct pmdscope_leak *leak = (const struct pmdscope_leak *)(rec + 1);
		const struct rte_mbuf *m = (const struct rte_mbuf *)(uintptr_t)leak->mbuf;

		CHECK_U64(rec->type, PMDSCOPE_RECORD_LEAK);
		CHECK(rec->caplen <= rec->len && leak->age_ms >= 500 && leak->age_ms < 30000);
		CHECK(strcmp(leak->pool, m->pool->name) == 0);
		CHECK(memcmp(leak + 1, rte_pktmbuf_mtod(m, const void *), rec->caplen) == 0);
		if (leak->site == id) {
			*mbuf = leak->mbuf;
			nb++;
		}
		at += rec->size;
	}
	CHECK_U64(at, hdr->head);
	return nb;
}

static void
test_dump(void)
{
	const struct pmdscope_ring_hdr *hdr;
	uint64_t rx, marked, mbuf = 0;

	restart(&always);
	CHECK_U64(tee_dump(0)->head, 0);
	lose(LEAK_RX, 20);
	lose(LEAK_MARKED, 1);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 20));
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 1));
	rx = site("pool", line_of(LEAK_RX), "leak", "id");
	marked = site("pool", "stage reassembly", "leak", "id");
	hdr = tee_dump(5);
	CHECK_U64(hdr->records, 5 + 1);
	CHECK_U64(count_records(hdr, rx, &mbuf), 5);
	CHECK_U64(count_records(hdr, marked, &mbuf), 1);
	CHECK_U64(mbuf, (uintptr_t)app.lost);
	/* 8 by default. */
	CHECK_U64(count_records(tee_dump(0), rx, &mbuf), 8);
	check_sum("pool");
}

/* A pool of a million is walked in slices, and the one that is lost of it is found. */
static void
test_large(void)
{
	struct rte_mempool *mp =
			rte_pktmbuf_pool_create("large", 1000000, 256, 0, 0, SOCKET_ID_ANY);
	const int stage = pmdscope_stage("large");
	struct rte_mbuf *m;
	uint64_t now, last, longest = 0, end;

	CHECK(mp != NULL);
	restart(&always);
	m = rte_pktmbuf_alloc(mp);
	pmdscope_mark(m, stage);
	WAIT_FOR(ledger("large", "leaked") == 1);
	CHECK_U64(site("large", "stage large", "leak", "count"), 1);
	check_sum("large");
	CHECK_U64(ledger("large", "common") + ledger("large", "cached"), 999999);
	/* The state lock is never held for long: a slice, and what the scheduler adds. */
	end = rte_rdtsc() + rte_get_tsc_hz();
	for (last = rte_rdtsc(); last < end; last = now) {
		pthread_mutex_lock(&pmdscope_state.lock);
		pthread_mutex_unlock(&pmdscope_state.lock);
		now = rte_rdtsc();
		longest = RTE_MAX(longest, now - last);
	}
	CHECK(longest < rte_get_tsc_hz() / 20);
	rte_pktmbuf_free(m);
	WAIT_FOR(ledger("large", "leaked") == 0);
	rte_mempool_free(mp);
}

/* Lose all there is: nothing moves any more that could prove anything. */
static void
exhaust(void)
{
	restart(&always);
	expect_no_leak(700);
	every = 1;
	kind = LEAK_RX;
	nb_leaks = UINT32_MAX;
	WAIT_FOR(rte_mempool_avail_count(app.pool) < LEAK_BURST);
}

static void
test_exhausted(void)
{
	/* Frees are traced: what a call site had last cannot be posted. */
	exhaust();
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > POOL_SIZE * 9 / 10);
	check_sum("pool");
}

/* The driver does not tell what it may hold: 4096 are assumed. */
static void
test_exhausted_plain(void)
{
	plain = true;
	exhaust();
	WAIT_FOR(ledger("pool", "lost_at_least") > (POOL_SIZE - 4096) * 9 / 10);
	CHECK(ledger("pool", "lost_at_least") <= POOL_SIZE - 4096);
	check_sum("pool");
}

/* Held for long, and let go: no leak, or one that is taken back and not claimed again. */
static void
test_hold(void)
{
	struct rte_mbuf *held[300];
	const int stage = pmdscope_stage("queue");
	const int keeper = pmdscope_stage("keeper");
	unsigned int i;

	restart(&always);
	CHECK(pmdscope_stage("") == -EINVAL);
	CHECK(pmdscope_stage_hold(0) == -EINVAL && pmdscope_stage_hold(9999) == -EINVAL);
	CHECK(keeper != stage && pmdscope_stage("queue") == stage);
	CHECK(pmdscope_stage_hold(keeper) == 0);
	CHECK(rte_pktmbuf_alloc_bulk(app.pool, held, 300) == 0);
	pmdscope_mark_bulk(held, 300, keeper);
	expect_no_leak(2000);
	WAIT_FOR(ledger("pool", "held") >= 300);

	pmdscope_mark_bulk(held, 300, stage);
	WAIT_FOR(has_site("pool", "stage queue", "leak", 300));
	for (i = 0; i < 300; i++)
		rte_pktmbuf_free(held[i]);
	WAIT_FOR(ledger("pool", "leaked") == 0);
	CHECK_U64(site("pool", "stage queue", "leak", "events"), 300);
}

/* In a software ring nothing is lost, however long. */
static void
test_ring(void)
{
	struct rte_ring *r = rte_ring_create("waiting", 512, SOCKET_ID_ANY, 0);
	const int stage = pmdscope_stage("ring");
	struct rte_mbuf *m;
	unsigned int i;

	CHECK(r != NULL);
	restart(&always);
	for (i = 0; i < 200; i++) {
		m = rte_pktmbuf_alloc(app.pool);
		CHECK(m != NULL);
		pmdscope_mark(m, stage);
		CHECK(rte_ring_enqueue(r, m) == 0);
	}
	expect_no_leak(1500);
	CHECK_U64(ledger("pool", "rings"), 200);
	while (rte_ring_dequeue(r, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(r);
}

/* Traffic that stops and goes, and a poller that stands still with packets in its hands. */
static void
test_pauses(void)
{
	struct rte_mbuf *held[32];
	const int stage = pmdscope_stage("pause");
	unsigned int i;

	restart(&always);
	for (i = 0; i < 8; i++) {
		idle = !idle;
		expect_no_leak(i % 3 * 300 + 50);
	}
	idle = false;
	CHECK(rte_pktmbuf_alloc_bulk(app.pool, held, 32) == 0);
	pmdscope_mark_bulk(held, 32, stage);
	paused = true;
	expect_no_leak(2500);
	rte_pktmbuf_free_bulk(held, 32);
	paused = false;
	expect_no_leak(1500);
}

/* Stamps by need: counts alone arm them, and what was lost before is told as such. */
static void
test_auto(void)
{
	static const struct pmdscope_conf conf = {
		.sample_ms = 50,
		.leak_hold_ms = 500,
		.leak_walk_ms = 100,
	};

	restart(&conf);
	CHECK_U64(ledger("pool", "armed"), 0);
	CHECK(tel_cell_is(ask("leaks"), "mode", 0, "auto"));
	check_sum("pool");
	every = 16384;
	kind = LEAK_RX;
	nb_leaks = 100000;
	WAIT_FOR(ledger("pool", "armed") == 1);
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > 0);
	WAIT_FOR(ledger("pool", "prearm") > 0);
	CHECK((int)ledger("pool", "slope_milli") > 0);
	CHECK(ledger("pool", "exhausted_in_ms") > 0);
	nb_leaks = 0;
	every = 64;
	/* They stay known after that. */
	CHECK(tel_ask("/pmdscope/arm", "0") != NULL);
	rte_delay_us_sleep(300000);
	CHECK_U64(ledger("pool", "armed"), 0);
	CHECK(ledger("pool", "leaked") > 0);
	check_sum("pool");
}

static void
test_arm(void)
{
	static const struct pmdscope_conf on_demand = {
		.sample_ms = 50,
		.leak_hold_ms = 500,
		.leak_walk_ms = 100,
	};
	static const struct pmdscope_conf never = { .leak_mode = PMDSCOPE_LEAK_NEVER };
	static const char *const bad[] = { "", "x", "-1", "86401", "1 ", "999999999999" };
	unsigned int i;

	restart(&never);
	CHECK(tel_ask("/pmdscope/arm", "5") == NULL);
	CHECK_U64(pmdscope_stamp_now(), 0);
	restart(&on_demand);
	for (i = 0; i < RTE_DIM(bad); i++)
		CHECK(tel_ask("/pmdscope/arm", bad[i]) == NULL);
	CHECK_U64(pmdscope_stamp_now(), 0);
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "1"), "armed"), 1);
	CHECK(pmdscope_stamp_now() != 0);
	WAIT_FOR(pmdscope_stamp_now() == 0);
	/* A single one, lost long before. */
	lose(LEAK_RX, 1);
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	WAIT_FOR(has_site("pool", "before arming", "leak", 1));
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "0"), "armed"), 0);
}

/* Pools come and go while they are walked. */
static void
test_churn(void)
{
	const uint64_t end = rte_get_tsc_cycles() + rte_get_tsc_hz();
	struct rte_mempool *mp;
	struct rte_mbuf *m;

	restart(&always);
	while (rte_get_tsc_cycles() < end) {
		mp = rte_pktmbuf_pool_create("churn", 255, 32, 32, 512, SOCKET_ID_ANY);
		CHECK(mp != NULL);
		m = rte_pktmbuf_alloc(mp);
		rte_delay_us_sleep((unsigned int)rte_rdtsc() % 60000);
		rte_pktmbuf_free(m);
		rte_mempool_free(mp);
	}
	WAIT_FOR(tel_find(ask("leaks"), "name", "churn") < 0);
	CHECK_U64(ledger("pool", "leaked") + ledger("clones", "leaked"), 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "hold", test_hold },
	{ "ring", test_ring },
	{ "pauses", test_pauses },
	{ "churn", test_churn },
	{ "arm", test_arm },
	{ "auto", test_auto },
	{ "plain", test_plain },
	{ "traced", test_traced },
	{ "dump", test_dump },
	{ "large", test_large },
	{ "exhausted", test_exhausted },
	{ "exhausted_plain", test_exhausted_plain },
};

/* One test a process: what one has lost, the next would find. */
int
main(int argc, char **argv)
{
	unsigned int i, ran = 0;

	test_eal_mb("0@(0,1),1@(0,1)", "512");
	CHECK(pmdscope_init(&always) == 0);
	start_app();
	for (i = 0; i < RTE_DIM(tests); i++)
		if (argc == 2 && strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			ran++;
		}
	CHECK(ran == 1);
	stop = true;
	rte_eal_mp_wait_lcore();
	pmdscope_fini();
	rte_eal_cleanup();
	return 0;
}
