/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The cost of observing, in TSC cycles per forwarded packet.
 *
 * One lcore swaps the MAC addresses of packets between net_null queues. Short windows of all
 * variants are interleaved in one process, so that noise of the machine affects all of them; each
 * is compared with a window without pmdscope just before it.
 *
 *   base       the loop without pmdscope
 *   again      the same once more: the noise of this measurement
 *   callbacks  an RX and a TX callback that do nothing: what ethdev takes for calling them
 *   linked     with libpmdscope, no capture attached
 *   tsc        the loop without pmdscope, which reads the TSC in each iteration for itself
 *   linked tsc with libpmdscope, which gets that time; compared with tsc
 *   on demand, on demand tsc
 *              the same while queues are counted on demand, and nobody reads
 *   tee        as linked, and a capture copies RX and TX, 64 bytes a packet
 *   pdump      the peer: rte_pcapng_copy() into a pool and rte_ring_enqueue_burst(), which is
 *             what the callbacks of DPDK's pdump do in an app while dpdk-dumpcap runs
 */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_pcapng.h>
#include <rte_ring.h>
#include <rte_version.h>

#include <pmdscope.h>
#include <pmdscope_ring.h>

#define BURST 32
#define ROUNDS 61
#define WINDOW_BURSTS 5000U
/* The fastest of this many windows counts: the others were disturbed by other virtual machines. */
#define WINDOWS 8
#define SNAPLEN 64
#define POOL_SIZE 16383
#define PDUMP_RING 2048
#define PORT 0
#define SAMPLE_MS 20
/* Longer than until the first sample: before it every poll is a slow one. */
#define SETTLE_MS 50

enum variant {
	BASE,
	AGAIN,
	CALLBACKS,
	LINKED,
	ON_DEMAND,
	TSC,
	LINKED_TSC,
	ON_DEMAND_TSC,
	TEE,
	PDUMP,
	NB_VARIANTS
};

static const struct {
	const char *name;
	enum variant base;
	bool linked; /* With the library running. */
} variants[NB_VARIANTS] = {
	[BASE] = { "base", BASE, false },
	[AGAIN] = { "again", BASE, false },
	[CALLBACKS] = { "callbacks", BASE, false },
	[LINKED] = { "linked", BASE, true },
	[TSC] = { "tsc", BASE, false },
	[LINKED_TSC] = { "linked tsc", TSC, true },
	[ON_DEMAND] = { "on demand", BASE, true },
	[ON_DEMAND_TSC] = { "on demand tsc", TSC, true },
	[TEE] = { "tee", BASE, true },
	[PDUMP] = { "pdump", BASE, false },
};

static double cycles[NB_VARIANTS][ROUNDS], before[NB_VARIANTS][ROUNDS];

/* Orders of the main lcore to the worker, one window at a time. */
static volatile enum variant order;
static volatile uint32_t ordered, done;
static volatile double result;
static volatile bool quit;

static void
fail(const char *what, int error)
{
	fprintf(stderr, "cost: %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

static __rte_always_inline uint16_t
forward(void)
{
	struct rte_mbuf *pkts[BURST];
	struct rte_ether_hdr *eth;
	struct rte_ether_addr swap;
	uint16_t nb_rx, nb_tx, i;

	nb_rx = rte_eth_rx_burst(PORT, 0, pkts, BURST);
	for (i = 0; i < nb_rx; i++) {
		eth = rte_pktmbuf_mtod(pkts[i], struct rte_ether_hdr *);
		swap = eth->src_addr;
		eth->src_addr = eth->dst_addr;
		eth->dst_addr = swap;
	}
	nb_tx = rte_eth_tx_burst(PORT, 0, pkts, nb_rx);
	if (unlikely(nb_tx < nb_rx))
		rte_pktmbuf_free_bulk(pkts + nb_tx, nb_rx - nb_tx);
	return nb_rx;
}

static __rte_always_inline uint64_t
window(const bool reads_tsc, const bool polls)
{
	uint64_t packets = 0, now = 0;
	uint16_t nb_rx;
	uint32_t i;

	for (i = 0; i < WINDOW_BURSTS; i++) {
		if (reads_tsc) {
			now = rte_rdtsc();
			/* The app would use it. */
			asm volatile("" : "+r"(now));
		}
		nb_rx = forward();
		if (polls && reads_tsc)
			pmdscope_poll_tsc(nb_rx, now);
		else if (polls)
			pmdscope_poll(nb_rx);
		packets += nb_rx;
	}
	return packets;
}

static __rte_noinline uint64_t
window_plain(void)
{
	return window(false, false);
}

static __rte_noinline uint64_t
window_linked(void)
{
	return window(false, true);
}

static __rte_noinline uint64_t
window_tsc(void)
{
	return window(true, false);
}

static __rte_noinline uint64_t
window_linked_tsc(void)
{
	return window(true, true);
}

static uint64_t
run_window(enum variant variant)
{
	switch (variant) {
	case TSC:
		return window_tsc();
	case LINKED_TSC:
	case ON_DEMAND_TSC:
		return window_linked_tsc();
	default:
		return variants[variant].linked ? window_linked() : window_plain();
	}
}

static int
worker(void *arg __rte_unused)
{
	uint64_t start, packets;
	double fastest, spent;
	int i;

	while (!quit) {
		if (ordered == done) {
			rte_pause();
			continue;
		}
		/* The first pass warms up caches and predictors after the change of variant. */
		run_window(order);
		fastest = 0;
		for (i = 0; i < WINDOWS; i++) {
			start = rte_rdtsc_precise();
			packets = run_window(order);
			spent = (double)(rte_rdtsc_precise() - start) / packets;
			if (i == 0 || spent < fastest)
				fastest = spent;
		}
		result = fastest;
		done = ordered;
	}
	return 0;
}

/* A capture client that follows the protocol but only moves the tail. */
struct consumer {
	int sock;
	const struct pmdscope_ring_hdr *hdr;
	struct pmdscope_ring_tail *tail;
	uint64_t lost;
};

static int
receive(int sock, struct pmdscope_tee_message *message, int fds[2])
{
	char control[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = { .iov_base = message, .iov_len = sizeof(*message) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg;

	if (recvmsg(sock, &msg, 0) != sizeof(*message))
		return -EPROTO;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (cmsg != NULL)
		memcpy(fds, CMSG_DATA(cmsg), 2 * sizeof(int));
	return message->kind;
}

static void
consumer_open(struct consumer *consumer)
{
	struct {
		struct pmdscope_tee_request request;
		struct pmdscope_tee_select select;
	} ask = {
		.request = { .magic = PMDSCOPE_TEE_MAGIC,
				.version = PMDSCOPE_RING_VERSION,
				.hdr_size = sizeof(struct pmdscope_tee_request),
				.snaplen = SNAPLEN,
				.nb_selects = 1 },
		.select = { .port = PORT,
				.queue = PMDSCOPE_TEE_ANY,
				.dirs = PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX },
	};
	struct pmdscope_tee_change mapped = { .magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_MAPPED };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct pmdscope_tee_message message;
	int kind, fds[2] = { -1, -1 };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/pmdscope.sock",
			rte_eal_get_runtime_dir());
	consumer->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(consumer->sock, (struct sockaddr *)&address, sizeof(address)) < 0)
		fail(address.sun_path, errno);
	if (send(consumer->sock, &ask, sizeof(ask), 0) != sizeof(ask))
		fail("capture request", errno);
	while ((kind = receive(consumer->sock, &message, fds)) == PMDSCOPE_TEE_ACCEPT)
		;
	if (kind != PMDSCOPE_TEE_RING)
		fail("no capture ring", EPROTO);
	consumer->hdr = mmap(NULL, sizeof(*consumer->hdr), PROT_READ, MAP_SHARED, fds[0], 0);
	consumer->tail = mmap(NULL, sizeof(*consumer->tail), PROT_READ | PROT_WRITE, MAP_SHARED,
			fds[1], 0);
	if (consumer->hdr == MAP_FAILED || consumer->tail == MAP_FAILED)
		fail("map the capture ring", errno);
	mapped.value = message.value;
	if (send(consumer->sock, &mapped, sizeof(mapped), 0) != sizeof(mapped))
		fail("confirm the capture ring", errno);
	close(fds[0]);
	close(fds[1]);
}

static void
consumer_drain(struct consumer *consumer)
{
	__atomic_store_n(&consumer->tail->tail,
			__atomic_load_n(&consumer->hdr->head, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	consumer->lost = consumer->hdr->dropped;
}

static void
consumer_close(struct consumer *consumer)
{
	close(consumer->sock);
	munmap((void *)(uintptr_t)consumer->hdr, sizeof(*consumer->hdr));
	munmap(consumer->tail, sizeof(*consumer->tail));
}

/* The peer, with the ring and pool that dpdk-dumpcap creates. pdump refuses to serve a primary. */
static struct rte_ring *pdump_ring;
static struct rte_mempool *pdump_pool;

/*
 * The copy that rte_pdump makes of a packet; before 23.11 with the time, since then with a comment.
 */
static struct rte_mbuf *
pdump_copy_one(uint16_t queue, const struct rte_mbuf *pkt, uint64_t now,
		enum rte_pcapng_direction direction)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	RTE_SET_USED(now);
	return rte_pcapng_copy(PORT, queue, pkt, pdump_pool, SNAPLEN, direction, NULL);
#elif RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
	return rte_pcapng_copy(PORT, queue, pkt, pdump_pool, SNAPLEN, now, direction, NULL);
#else
	return rte_pcapng_copy(PORT, queue, pkt, pdump_pool, SNAPLEN, now, direction);
#endif
}

static void
pdump_copy(uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts,
		enum rte_pcapng_direction direction)
{
	const uint64_t now = rte_get_tsc_cycles();
	struct rte_mbuf *copies[BURST];
	unsigned int sent, n = 0;
	uint16_t i;

	for (i = 0; i < nb_pkts; i++) {
		copies[n] = pdump_copy_one(queue, pkts[i], now, direction);
		n += copies[n] != NULL;
	}
	sent = rte_ring_enqueue_burst(pdump_ring, (void *)copies, n, NULL);
	rte_pktmbuf_free_bulk(copies + sent, n - sent);
}

static uint16_t
pdump_rx(uint16_t port __rte_unused, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts,
		uint16_t max_pkts __rte_unused, void *arg __rte_unused)
{
	pdump_copy(queue, pkts, nb_pkts, RTE_PCAPNG_DIRECTION_IN);
	return nb_pkts;
}

static uint16_t
pdump_tx(uint16_t port __rte_unused, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts,
		void *arg __rte_unused)
{
	pdump_copy(queue, pkts, nb_pkts, RTE_PCAPNG_DIRECTION_OUT);
	return nb_pkts;
}

static void
pdump_drain(void)
{
	struct rte_mbuf *pkts[BURST];
	unsigned int nb;

	while ((nb = rte_ring_dequeue_burst(pdump_ring, (void **)pkts, BURST, NULL)) > 0)
		rte_pktmbuf_free_bulk(pkts, nb);
}

static void
pdump_create(void)
{
	pdump_ring = rte_ring_create("bench_pdump", PDUMP_RING, SOCKET_ID_ANY, 0);
	pdump_pool = rte_pktmbuf_pool_create("bench_pdump", 2 * PDUMP_RING - 1, 256, 0,
			rte_pcapng_mbuf_size(SNAPLEN), SOCKET_ID_ANY);
	if (pdump_ring == NULL || pdump_pool == NULL)
		fail("pdump ring and pool", rte_errno);
}

static uint16_t
empty_rx(uint16_t port __rte_unused, uint16_t queue __rte_unused,
		struct rte_mbuf **pkts __rte_unused, uint16_t nb_pkts,
		uint16_t max_pkts __rte_unused, void *arg __rte_unused)
{
	return nb_pkts;
}

static uint16_t
empty_tx(uint16_t port __rte_unused, uint16_t queue __rte_unused,
		struct rte_mbuf **pkts __rte_unused, uint16_t nb_pkts, void *arg __rte_unused)
{
	return nb_pkts;
}

static double
measure(enum variant variant)
{
	const struct rte_eth_rxtx_callback *rx = NULL, *tx = NULL;
	struct pmdscope_conf conf = { .sample_ms = SAMPLE_MS };
	struct consumer consumer = { 0 };
	int ret;

	if (variants[variant].linked) {
		if (variant == ON_DEMAND || variant == ON_DEMAND_TSC)
			conf.flags = PMDSCOPE_F_COUNT_ON_DEMAND;
		ret = pmdscope_init(&conf);
		if (ret < 0)
			fail("pmdscope_init", ret);
		rte_delay_us_sleep(SETTLE_MS * 1000);
		/* One iteration, so that the lcore is known to poll and gets its ring. */
		order = LINKED;
		ordered++;
		while (ordered != done)
			rte_pause();
	}
	if (variant == TEE)
		consumer_open(&consumer);
	if (variant == PDUMP || variant == CALLBACKS) {
		rx = rte_eth_add_first_rx_callback(
				PORT, 0, variant == PDUMP ? pdump_rx : empty_rx, NULL);
		tx = rte_eth_add_tx_callback(PORT, 0, variant == PDUMP ? pdump_tx : empty_tx, NULL);
		if (rx == NULL || tx == NULL)
			fail("callbacks", rte_errno);
	}

	order = variant;
	ordered++;
	while (ordered != done) {
		if (variant == TEE)
			consumer_drain(&consumer);
		else if (variant == PDUMP)
			pdump_drain();
		else
			rte_pause();
	}

	if (variant == TEE)
		consumer_close(&consumer);
	if (rx != NULL) {
		/* The worker idles between windows, so it is not in the callbacks. */
		rte_eth_remove_rx_callback(PORT, 0, rx);
		rte_eth_remove_tx_callback(PORT, 0, tx);
		pdump_drain();
	}
	if (variants[variant].linked)
		pmdscope_fini();
	return result;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
report(void)
{
	double delta[NB_VARIANTS][ROUNDS], base[ROUNDS];
	enum variant v;
	int i;

	memcpy(base, cycles[BASE], sizeof(base));
	qsort(base, ROUNDS, sizeof(double), by_value);
	printf("base: %.1f cycles/packet [%.1f .. %.1f], %d rounds, ", base[ROUNDS / 2],
			base[ROUNDS / 4], base[ROUNDS * 3 / 4], ROUNDS);
	printf("the fastest of %u windows of %u packets\n", WINDOWS, WINDOW_BURSTS * BURST);
	printf("%-14s %28s\n", "variant", "cycles/packet over base");
	for (v = AGAIN; v < NB_VARIANTS; v++) {
		for (i = 0; i < ROUNDS; i++)
			delta[v][i] = cycles[v][i] - before[v][i];
		qsort(delta[v], ROUNDS, sizeof(double), by_value);
		printf("%-14s %+8.2f  [%+.2f .. %+.2f]\n", variants[v].name, delta[v][ROUNDS / 2],
				delta[v][ROUNDS / 4], delta[v][ROUNDS * 3 / 4]);
	}
	printf("ratio pdump/tee: %.1f\n", delta[PDUMP][ROUNDS / 2] / delta[TEE][ROUNDS / 2]);
}

static void
start_port(void)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_mempool *pool;
	int ret;

	pool = rte_pktmbuf_pool_create(
			"bench", POOL_SIZE, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
	if (pool == NULL)
		fail("mbuf pool", rte_errno);
	ret = rte_eth_dev_configure(PORT, 1, 1, &conf);
	if (ret == 0)
		ret = rte_eth_rx_queue_setup(PORT, 0, 1024, rte_socket_id(), NULL, pool);
	if (ret == 0)
		ret = rte_eth_tx_queue_setup(PORT, 0, 1024, rte_socket_id(), NULL);
	if (ret == 0)
		ret = rte_eth_dev_start(PORT);
	if (ret < 0)
		fail("start net_null0", ret);
}

int
main(int argc, char **argv)
{
	unsigned int lcore;
	enum variant v;
	int ret, i;

	ret = rte_eal_init(argc, argv);
	if (ret < 0)
		fail("rte_eal_init", rte_errno);
	lcore = rte_get_next_lcore(-1, 1, 0);
	if (lcore == RTE_MAX_LCORE || rte_eth_dev_count_avail() == 0) {
		fprintf(stderr, "cost: needs two lcores and --vdev net_null0\n");
		return 2;
	}
	start_port();
	pdump_create();

	rte_eal_remote_launch(worker, NULL, lcore);
	for (i = 0; i < ROUNDS; i++)
		for (v = 0; v < NB_VARIANTS; v++) {
			before[v][i] = measure(variants[v].base);
			cycles[v][i] = measure(v);
		}
	quit = true;
	rte_eal_wait_lcore(lcore);
	report();

	rte_eth_dev_stop(PORT);
	rte_eal_cleanup();
	return 0;
}
