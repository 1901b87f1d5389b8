/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-faulty-app [EAL options] -- MODE: an app without libpmdscope that misuses its mbufs, or
 * keeps them in structures of DPDK's libraries. Once the fault is there, it says so and stays so.
 *
 * Modes: cached (lcores that only free take all mbufs into their caches), double-free,
 * use-after-free, events (an event ring), tables (a hash, a reorder buffer, IP fragments),
 * ring-blocked (the consumer of a ring waits for ever, and the pool is empty), ring-slow (it takes
 * less than is put in), pools (the pool that feeds the port is empty, a larger one is half free),
 * heap (rte_malloc() without rte_free()), wrappers (mbufs in blocks of malloc() that are lost, and
 * others in a list of such blocks).
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_event_ring.h>
#include <rte_hash.h>
#include <rte_ip_frag.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_reorder.h>
#include <rte_ring.h>

#define NB_MBUFS 2047
#define CACHE_SIZE 256
#define BURST 32
#define NB_WRONG 4
#define NB_EVENTS 40
#define NB_IN_TABLE 24
#define IDLE_US 100
/* A slow consumer takes a burst in this time. */
#define SLOW_US 20000
#define NB_FEED 8
#define BLOCK_BYTES 2048
#define BLOCK_US 1000
/* Time without a packet after which none will come. */
#define DEAD_MS 300

static struct rte_mempool *pool;
static struct rte_ring *ring;
static struct rte_mbuf *kept[NB_EVENTS];
static volatile sig_atomic_t stopped;

static void
stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static void
require(bool holds, const char *what)
{
	if (!holds)
		rte_exit(EXIT_FAILURE, "%s failed\n", what);
}

static struct rte_mbuf *
take(void)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	require(m != NULL, "rte_pktmbuf_alloc");
	return m;
}

static void
flush(void)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());

	if (cache != NULL)
		rte_mempool_cache_flush(cache, pool);
}

/* Frees what it gets, and never allocates. */
static int
consume(void *unused)
{
	struct rte_mbuf *mbufs[BURST];

	(void)unused;
	while (!stopped) {
		const unsigned int n = rte_ring_dequeue_burst(ring, (void **)mbufs, BURST, NULL);

		rte_pktmbuf_free_bulk(mbufs, n);
		if (n == 0)
			rte_delay_us_sleep(IDLE_US);
	}
	return 0;
}

/* Takes one burst, and holds it while it waits for ever. */
static int
take_and_wait(void *unused)
{
	struct rte_mbuf *mbufs[BURST];
	unsigned int n = 0;

	(void)unused;
	while (!stopped && n == 0)
		n = rte_ring_dequeue_burst(ring, (void **)mbufs, BURST, NULL);
	while (!stopped)
		rte_delay_us_sleep(SLOW_US);
	rte_pktmbuf_free_bulk(mbufs, n);
	return 0;
}

static int
consume_slowly(void *unused)
{
	struct rte_mbuf *mbufs[BURST];

	(void)unused;
	while (!stopped) {
		rte_pktmbuf_free_bulk(
				mbufs, rte_ring_dequeue_burst(ring, (void **)mbufs, BURST, NULL));
		rte_delay_us_sleep(SLOW_US);
	}
	return 0;
}

/* Puts what the port receives into the ring, as far as it has room. */
static int
produce(void *unused)
{
	struct rte_mbuf *mbufs[BURST];

	(void)unused;
	while (!stopped) {
		const uint16_t n = rte_eth_rx_burst(0, 0, mbufs, BURST);
		const unsigned int put = rte_ring_enqueue_burst(ring, (void **)mbufs, n, NULL);

		rte_pktmbuf_free_bulk(mbufs + put, n - put);
		rte_delay_us_sleep(IDLE_US);
	}
	return 0;
}

static int
receive(void *unused)
{
	struct rte_mbuf *mbufs[BURST];

	(void)unused;
	while (!stopped) {
		rte_pktmbuf_free_bulk(mbufs, rte_eth_rx_burst(0, 0, mbufs, 1));
		rte_delay_us_sleep(BLOCK_US);
	}
	return 0;
}

static int
allocate(void *unused)
{
	(void)unused;
	while (!stopped) {
		/* Lost on purpose. */
		if (rte_malloc("lost", BLOCK_BYTES, 0) == NULL)
			rte_delay_us_sleep(SLOW_US);
		rte_delay_us_sleep(BLOCK_US);
	}
	return 0;
}

static void
start_port(void)
{
	const struct rte_eth_conf conf = { 0 };

	require(rte_eth_dev_configure(0, 1, 1, &conf) == 0, "rte_eth_dev_configure");
	require(rte_eth_rx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL, pool) == 0,
			"rte_eth_rx_queue_setup");
	require(rte_eth_tx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL) == 0,
			"rte_eth_tx_queue_setup");
	require(rte_eth_dev_start(0) == 0, "rte_eth_dev_start");
}

/* The main lcore receives until there are no mbufs that it can allocate. */
static void
fill_caches(void)
{
	struct rte_mbuf *mbufs[BURST];
	const uint64_t patience = rte_get_timer_hz() * DEAD_MS / 1000;
	uint64_t last;

	ring = rte_ring_create("to_workers", 4096, SOCKET_ID_ANY, 0);
	require(ring != NULL, "rte_ring_create");
	start_port();
	rte_eal_mp_remote_launch(consume, NULL, SKIP_MAIN);
	last = rte_get_timer_cycles();
	while (!stopped && rte_get_timer_cycles() - last < patience) {
		const uint16_t n = rte_eth_rx_burst(0, 0, mbufs, BURST);
		unsigned int sent;

		if (n == 0) {
			rte_delay_us_sleep(IDLE_US);
			continue;
		}
		last = rte_get_timer_cycles();
		sent = rte_ring_enqueue_burst(ring, (void **)mbufs, n, NULL);
		rte_pktmbuf_free_bulk(mbufs + sent, n - sent);
	}
}

static void
run_pipeline(unsigned int entries, lcore_function_t *consumer)
{
	ring = rte_ring_create("to_worker", entries, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	require(ring != NULL, "rte_ring_create");
	start_port();
	require(rte_eal_remote_launch(produce, NULL, 1) == 0, "rte_eal_remote_launch");
	require(rte_eal_remote_launch(consumer, NULL, 2) == 0, "rte_eal_remote_launch");
}

static void
block_consumer(void)
{
	run_pipeline(4096, take_and_wait);
	while (!stopped && rte_mempool_avail_count(pool) >= BURST)
		rte_delay_us_sleep(IDLE_US);
}

static void
slow_consumer(void)
{
	run_pipeline(512, consume_slowly);
	while (!stopped && rte_ring_free_count(ring) > BURST)
		rte_delay_us_sleep(IDLE_US);
}

/* Half of the large pool is in use, and all of the one that feeds the port. */
static void
empty_feeding_pool(void)
{
	unsigned int i;

	for (i = 0; i < NB_MBUFS / 2; i++)
		(void)take();
	flush();
	pool = rte_pktmbuf_pool_create(
			"feed", NB_FEED, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	require(pool != NULL, "rte_pktmbuf_pool_create");
	start_port();
	for (i = 0; i < NB_FEED; i++)
		kept[i] = take();
	require(rte_eal_remote_launch(receive, NULL, 1) == 0, "rte_eal_remote_launch");
}

static void
lose_heap(void)
{
	start_port();
	require(rte_eal_remote_launch(allocate, NULL, 1) == 0, "rte_eal_remote_launch");
}

static void
free_twice(void)
{
	unsigned int i;

	/* As many stay in use: the common part has room for all mbufs, but not for some twice. */
	for (i = 0; i < NB_WRONG; i++)
		(void)take();
	for (i = 0; i < NB_WRONG; i++)
		kept[i] = take();
	for (i = 0; i < 2 * NB_WRONG; i++)
		rte_pktmbuf_free(kept[i % NB_WRONG]);
	flush();
}

static void
use_after_free(void)
{
	unsigned int i;

	for (i = 0; i < NB_WRONG; i++)
		kept[i] = take();
	for (i = 0; i < NB_WRONG; i++)
		rte_pktmbuf_free(kept[i]);
	flush();
	for (i = 0; i < NB_WRONG; i++)
		rte_mbuf_refcnt_update(kept[i], 1);
}

/* All slots were used; those that are empty now lead to mbufs that the app still has. */
static void
queue_events(void)
{
	struct rte_event_ring *events = rte_event_ring_create("events", 64, SOCKET_ID_ANY, 0);
	struct rte_event event = { 0 };
	unsigned int round, i;

	require(events != NULL, "rte_event_ring_create");
	for (round = 0; round < 3; round++) {
		for (i = 0; i < NB_EVENTS; i++) {
			if (kept[i] == NULL)
				kept[i] = take();
			event.mbuf = kept[i];
			require(rte_event_ring_enqueue_burst(events, &event, 1, NULL) == 1,
					"rte_event_ring_enqueue_burst");
		}
		for (i = 0; i < NB_EVENTS; i++)
			require(rte_event_ring_dequeue_burst(events, &event, 1, NULL) == 1,
					"rte_event_ring_dequeue_burst");
	}
	/* From here on only the ring has half of them. */
	for (i = 0; i < NB_EVENTS / 2; i++) {
		event.mbuf = kept[i];
		require(rte_event_ring_enqueue_burst(events, &event, 1, NULL) == 1,
				"rte_event_ring_enqueue_burst");
		kept[i] = NULL;
	}
}

static void
fill_hash(void)
{
	const struct rte_hash_parameters params = {
		.name = "flows",
		.entries = 1024,
		.key_len = sizeof(uint32_t),
		.socket_id = SOCKET_ID_ANY,
	};
	struct rte_hash *hash = rte_hash_create(&params);
	uint32_t key;

	require(hash != NULL, "rte_hash_create");
	for (key = 0; key < NB_IN_TABLE; key++)
		require(rte_hash_add_key_data(hash, &key, take()) == 0, "rte_hash_add_key_data");
}

static void
fill_reorder_buffer(void)
{
	struct rte_reorder_buffer *buffer = rte_reorder_create("in_order", SOCKET_ID_ANY, 64);
	unsigned int i;

	require(buffer != NULL, "rte_reorder_create");
	for (i = 0; i < NB_IN_TABLE; i++) {
		struct rte_mbuf *m = take();

		*rte_reorder_seqn(m) = i;
		require(rte_reorder_insert(buffer, m) == 0, "rte_reorder_insert");
	}
}

/* Each is the first fragment of a packet of its own. */
static void
keep_fragments(void)
{
	static struct rte_ip_frag_death_row dead;
	struct rte_ip_frag_tbl *table = rte_ip_frag_table_create(
			1024, 4, 1024, rte_get_tsc_hz() * 3600, SOCKET_ID_ANY);
	unsigned int i;

	require(table != NULL, "rte_ip_frag_table_create");
	for (i = 0; i < NB_IN_TABLE; i++) {
		struct rte_mbuf *m = take();
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *);

		memset(ip, 0, sizeof(*ip));
		m->l2_len = 0;
		m->l3_len = sizeof(*ip);
		m->data_len = 820;
		m->pkt_len = m->data_len;
		ip->version_ihl = 0x45;
		ip->total_length = rte_cpu_to_be_16(m->data_len);
		ip->packet_id = rte_cpu_to_be_16(i);
		ip->fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG);
		ip->src_addr = rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, 1) + i);
		ip->dst_addr = rte_cpu_to_be_32(RTE_IPV4(10, 0, 1, 1));
		require(rte_ipv4_frag_reassemble_packet(table, &dead, m, rte_rdtsc(), ip) == NULL,
				"rte_ipv4_frag_reassemble_packet");
	}
	rte_ip_frag_free_death_row(&dead, 0);
}

static void
fill_tables(void)
{
	fill_hash();
	fill_reorder_buffer();
	keep_fragments();
}

static struct wrapper {
	struct rte_mbuf *m;
	struct wrapper *next;
	char pad[48];
} *volatile wrappers;

static __rte_noinline struct wrapper *
wrap(struct wrapper *next)
{
	struct wrapper *w = malloc(sizeof(*w));

	require(w != NULL, "malloc");
	w->m = take();
	w->next = next;
	/* The compiler must not leave out what nobody reads. */
	asm volatile("" : : "r"(w) : "memory");
	return w;
}

static __rte_noinline void
lose_wrappers(void)
{
	unsigned int i;

	for (i = 0; i < NB_IN_TABLE; i++)
		(void)wrap(NULL);
}

/* Overwrites what calls have left on the stack. */
static __rte_noinline void
clear_stack(void)
{
	volatile char old[8192];
	size_t i;

	for (i = 0; i < sizeof(old); i++)
		old[i] = 0;
}

static void
keep_and_lose_wrappers(void)
{
	unsigned int i;

	lose_wrappers();
	clear_stack();
	for (i = 0; i < NB_IN_TABLE; i++)
		wrappers = wrap(wrappers);
	clear_stack();
}

static const struct {
	const char *name;
	void (*run)(void);
} modes[] = {
	{ "cached", fill_caches },
	{ "double-free", free_twice },
	{ "use-after-free", use_after_free },
	{ "events", queue_events },
	{ "tables", fill_tables },
	{ "ring-blocked", block_consumer },
	{ "ring-slow", slow_consumer },
	{ "pools", empty_feeding_pool },
	{ "heap", lose_heap },
	{ "wrappers", keep_and_lose_wrappers },
};

int
main(int argc, char **argv)
{
	const int parsed = rte_eal_init(argc, argv);
	const char *mode;
	size_t i;

	if (parsed < 0 || parsed + 1 >= argc)
		rte_exit(EXIT_FAILURE, "usage: %s [EAL options] -- MODE\n", argv[0]);
	mode = argv[parsed + 1];
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	pool = rte_pktmbuf_pool_create("packets", NB_MBUFS, CACHE_SIZE, 0,
			RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	require(pool != NULL, "rte_pktmbuf_pool_create");
	for (i = 0; i < RTE_DIM(modes) && strcmp(modes[i].name, mode) != 0; i++)
		;
	require(i < RTE_DIM(modes), "finding the mode");
	modes[i].run();
	printf("%s from now on\n", mode);
	fflush(stdout);
	while (!stopped)
		pause();
	rte_eal_mp_wait_lcore();
	rte_eal_cleanup();
	return 0;
}
