/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "lcore.h"
#include "log.h"
#include "queue.h"
#include "tee.h"
#include "window.h"

#define BURST_BUCKETS 8
#define DEPTH_BUCKETS 13

/* The driver is asked for a depth once in so many bursts that received, and full bursts. */
#define DEPTH_EVERY_BUSY 64
#define DEPTH_EVERY_FULL 8
/* What rarely changes is asked of the driver once in so many polls; a power of two. */
#define ASK_EVERY (1U << 20)

/* Longest wait for lcores to leave the callbacks in pmdscope_fini(). */
#define STOP_WAIT_MS 200
/* Longest wait of a thread that closes a port; see on_port_event(). */
#define EVENT_WAIT_MS 100

enum dir {
	RX,
	TX,
	NB_DIRS,
};

enum depth_state {
	DEPTH_UNKNOWN,
	DEPTH_SUPPORTED,
	DEPTH_UNSUPPORTED,
};

/* Counters of one queue and direction; the lcore that polls the queue writes them. */
struct counters {
	uint64_t polls;
	uint64_t empty;
	uint64_t packets;
	uint64_t bytes;
	uint64_t bursts[BURST_BUCKETS];
	/* Samples of bursts that received; those of depth 0 are the empty polls. */
	uint64_t depths[DEPTH_BUCKETS];
	struct pmdscope_window depth_window;
	uint64_t depth_max;
	uint32_t depth;
	uint32_t depth_state;
	uint32_t busy_left;
	uint32_t full_left;
	uint32_t descriptors;
};

struct __rte_cache_aligned queue {
	struct counters n;
	/* The rest belongs to the control side. */
	uint16_t port;
	uint16_t queue;
	enum dir dir;
	/* The port has this queue: it is a row. */
	bool present;
	uint64_t polls_seen;
	/*
	 * Our callback. DPDK removes one only from a queue that the port has at that moment, and
	 * keeps the others over reconfiguration, even for the next port in the same place. So it
	 * stays here until it could be removed, and the object with it.
	 */
	const struct rte_eth_rxtx_callback *callback;
};

struct port {
	char device[RTE_ETH_NAME_MAX_LEN];
	bool known;
	/* Set by on_port_event(): being destroyed; has been since the last discovery. */
	uint8_t gone;
	uint8_t replaced;
	struct queue *queues[NB_DIRS][RTE_MAX_QUEUES_PER_PORT];
	unsigned int nb_queues[NB_DIRS]; /* Objects, present or not. */
};

/*
 * Guards ports against the threads that create and destroy them. Taken inside the state lock;
 * no driver is called under it but for what on_port_event() is prepared for.
 */
static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct port ports[RTE_MAX_ETHPORTS];

/* Present queues, by port, direction and number. Guarded by the state lock. */
static struct queue **rows;
static unsigned int nb_rows;
static bool rows_stale;

/* Removed callbacks: new ones, and those whose grace period runs. Guarded by ports_lock. */
struct graveyard {
	void **items;
	unsigned int nb;
	unsigned int capacity;
};

static struct graveyard fresh, waiting;
static struct pmdscope_grace waiting_grace;

static bool unsupported; /* This DPDK was built without callbacks. */

static void
reset_counters(struct queue *q)
{
	q->n = (struct counters){.busy_left = 1, .full_left = 1};
	q->polls_seen = 0;
}

/* 1, 2, 3-4, 5-8, ... packets. */
static inline unsigned int
burst_bucket(uint16_t nb)
{
	const uint32_t n = ((uint32_t)nb - 1) << 1 | 1;

	return RTE_MIN(31U - (unsigned int)__builtin_clz(n), BURST_BUCKETS - 1U);
}

/* 1, 2-3, 4-7, ... packets. */
static inline unsigned int
depth_bucket(uint32_t depth)
{
	return RTE_MIN(32U - (unsigned int)__builtin_clz(depth), DEPTH_BUCKETS - 1U);
}

static inline void
count_burst(struct counters *n, struct rte_mbuf **pkts, uint16_t nb)
{
	uint64_t bytes = 0;
	uint16_t i;

	for (i = 0; i < nb; i++)
		bytes += pkts[i]->pkt_len;
	n->packets += nb;
	n->bytes += bytes;
	n->bursts[burst_bucket(nb)]++;
}

/* Here and not on the control thread: only the lcore that polls a queue knows that it is there. */
static __rte_noinline void
ask_rx(struct queue *q)
{
	struct rte_eth_rxq_info info;

	pmdscope_lcore_bursts();
	if (rte_eth_rx_queue_info_get(q->port, q->queue, &info) == 0)
		q->n.descriptors = info.nb_desc;
}

static __rte_noinline void
ask_tx(struct queue *q)
{
	struct rte_eth_txq_info info;

	pmdscope_lcore_bursts();
	if (rte_eth_tx_queue_info_get(q->port, q->queue, &info) == 0)
		q->n.descriptors = info.nb_desc;
}

/*
 * On the polling lcore as well: vhost counts under a lock that its data path only tries, so that
 * a count from elsewhere would cost the app a burst.
 */
static __rte_noinline void
sample_depth(struct queue *q, uint16_t nb_rx)
{
	struct counters *n = &q->n;
	const int left = rte_eth_rx_queue_count(q->port, q->queue);

	if (left < 0) {
		if (left == -ENOTSUP)
			n->depth_state = DEPTH_UNSUPPORTED;
		return;
	}
	n->depth_state = DEPTH_SUPPORTED;
	n->depth = (uint32_t)left + nb_rx;
	n->depths[depth_bucket(n->depth)]++;
	if (n->depth > n->depth_max)
		n->depth_max = n->depth;
	pmdscope_window_note(&n->depth_window, n->depth);
}

static inline bool
depth_is_due(struct counters *n, bool full)
{
	bool due = false;

	if (--n->busy_left == 0) {
		n->busy_left = DEPTH_EVERY_BUSY;
		due = true;
	}
	if (full && --n->full_left == 0) {
		n->full_left = DEPTH_EVERY_FULL;
		due = true;
	}
	return due;
}

static uint16_t
on_rx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_rx, uint16_t max_pkts,
		void *arg)
{
	struct queue *q = arg;
	struct counters *n = &q->n;

	if (unlikely((n->polls++ & (ASK_EVERY - 1)) == 0))
		ask_rx(q);
	if (nb_rx == 0) {
		n->empty++;
		n->depth = 0;
		return 0;
	}
	count_burst(n, pkts, nb_rx);
	if (n->depth_state != DEPTH_UNSUPPORTED && depth_is_due(n, nb_rx == max_pkts))
		sample_depth(q, nb_rx);
	pmdscope_tee_burst(port, queue, PMDSCOPE_DIR_RX, pkts, nb_rx);
	return nb_rx;
}

static uint16_t
on_tx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts, void *arg)
{
	struct queue *q = arg;
	struct counters *n = &q->n;

	if (unlikely((n->polls++ & (ASK_EVERY - 1)) == 0))
		ask_tx(q);
	if (nb_pkts == 0) {
		n->empty++;
		return 0;
	}
	count_burst(n, pkts, nb_pkts);
	pmdscope_tee_burst(port, queue, PMDSCOPE_DIR_TX, pkts, nb_pkts);
	return nb_pkts;
}

/* What cannot be remembered is lost: a callback of 64 bytes. */
static void
bury(const struct rte_eth_rxtx_callback *callback)
{
	if (fresh.nb == fresh.capacity) {
		const unsigned int capacity = fresh.capacity == 0 ? 16 : 2 * fresh.capacity;
		void **items = realloc(fresh.items, capacity * sizeof(*items));

		if (items == NULL)
			return;
		fresh.items = items;
		fresh.capacity = capacity;
	}
	fresh.items[fresh.nb++] = (void *)(uintptr_t)callback;
}

static void
free_waiting(void)
{
	unsigned int i;

	for (i = 0; i < waiting.nb; i++)
		rte_free(waiting.items[i]);
	waiting.nb = 0;
}

static void
begin_waiting(void)
{
	const struct graveyard empty = waiting;

	waiting = fresh;
	fresh = empty;
	pmdscope_grace_begin(&waiting_grace);
}

void
pmdscope_queue_reclaim(void)
{
	pthread_mutex_lock(&ports_lock);
	if (waiting.nb != 0 && pmdscope_grace_over(&waiting_grace))
		free_waiting();
	if (waiting.nb == 0 && fresh.nb != 0)
		begin_waiting();
	pthread_mutex_unlock(&ports_lock);
}

/* False when the queue already has a callback or cannot have one, with rte_errno set. */
static bool
install(struct queue *q)
{
	if (q->dir == RX)
		q->callback = rte_eth_add_first_rx_callback(q->port, q->queue, on_rx, q);
	else
		q->callback = rte_eth_add_tx_callback(q->port, q->queue, on_tx, q);
	return q->callback != NULL;
}

/* False when DPDK cannot remove it now, because the port has fewer queues. */
static bool
uninstall(struct queue *q)
{
	int ret;

	if (q->callback == NULL)
		return true;
	if (q->dir == RX)
		ret = rte_eth_remove_rx_callback(q->port, q->queue, q->callback);
	else
		ret = rte_eth_remove_tx_callback(q->port, q->queue, q->callback);
	if (ret != 0)
		return false;
	bury(q->callback);
	q->callback = NULL;
	return true;
}

static struct queue *
queue_create(uint16_t port, enum dir dir, uint16_t queue)
{
	struct queue *q = rte_zmalloc_socket("pmdscope_queue", sizeof(*q), RTE_CACHE_LINE_SIZE,
			rte_eth_dev_socket_id(port));

	if (q == NULL)
		q = rte_zmalloc("pmdscope_queue", sizeof(*q), RTE_CACHE_LINE_SIZE);
	if (q == NULL)
		return NULL;
	q->port = port;
	q->queue = queue;
	q->dir = dir;
	reset_counters(q);
	return q;
}

/*
 * Put a callback on a queue. False when the port does not have it: DPDK says so as it adds a
 * callback, which spares us asking the driver of a port that may be about to close.
 */
static bool
adopt(struct port *port, uint16_t id, enum dir dir, uint16_t queue)
{
	struct queue *q = port->queues[dir][queue];

	if (q == NULL) {
		q = queue_create(id, dir, queue);
		if (q == NULL)
			return false;
	}
	/* One that could not be removed comes off if, and only if, the queue is back. */
	if (!uninstall(q))
		return false;
	if (!install(q)) {
		if (rte_errno == ENOTSUP && !unsupported) {
			unsupported = true;
			PMDSCOPE_LOG(WARNING, "DPDK was built without RTE_ETHDEV_RXTX_CALLBACKS: "
				"queues cannot be observed");
		}
		if (port->queues[dir][queue] == NULL)
			rte_free(q);
		return false;
	}
	port->queues[dir][queue] = q;
	port->nb_queues[dir] = RTE_MAX(port->nb_queues[dir], queue + 1U);
	q->present = true;
	rows_stale = true;
	return true;
}

static void
adopt_all(struct port *port, uint16_t id, enum dir dir)
{
	uint16_t i;

	for (i = 0; i < RTE_MAX_QUEUES_PER_PORT; i++) {
		const struct queue *q = port->queues[dir][i];

		if (q != NULL && q->present)
			continue;
		if (!adopt(port, id, dir, i))
			break;
	}
}

/* A queue that is polled is there. True when some are polled and others are not. */
static bool
may_have_shrunk(struct port *port)
{
	bool polled = false, silent = false;
	unsigned int dir, i;

	for (dir = 0; dir < NB_DIRS; dir++) {
		for (i = 0; i < port->nb_queues[dir]; i++) {
			struct queue *q = port->queues[dir][i];
			uint64_t polls;

			if (q == NULL || !q->present)
				continue;
			polls = __atomic_load_n(&q->n.polls, __ATOMIC_RELAXED);
			if (polls != q->polls_seen)
				polled = true;
			else
				silent = true;
			q->polls_seen = polls;
		}
	}
	return polled && silent;
}

static void
drop_rows(struct port *port, enum dir dir, unsigned int from)
{
	unsigned int i;

	for (i = from; i < port->nb_queues[dir]; i++) {
		struct queue *q = port->queues[dir][i];

		if (q == NULL || !q->present)
			continue;
		q->present = false;
		rows_stale = true;
	}
}

/* The driver is asked only while the app uses the port, so not while it closes it. */
static void
follow_shrinking(struct port *port, uint16_t id)
{
	struct rte_eth_dev_info info;

	if (!may_have_shrunk(port) || rte_eth_dev_info_get(id, &info) != 0)
		return;
	drop_rows(port, RX, info.nb_rx_queues);
	drop_rows(port, TX, info.nb_tx_queues);
}

/* Another device in the same place starts from 0. */
static void
forget(struct port *port)
{
	unsigned int dir, i;

	port->known = false;
	for (dir = 0; dir < NB_DIRS; dir++) {
		drop_rows(port, dir, 0);
		for (i = 0; i < port->nb_queues[dir]; i++)
			if (port->queues[dir][i] != NULL)
				reset_counters(port->queues[dir][i]);
	}
}

static void
discover(struct port *port, uint16_t id)
{
	if (__atomic_exchange_n(&port->replaced, 0, __ATOMIC_ACQ_REL))
		forget(port);
	if (__atomic_load_n(&port->gone, __ATOMIC_ACQUIRE) || !rte_eth_dev_is_valid_port(id))
		return;
	if (!port->known) {
		if (rte_eth_dev_get_name_by_port(id, port->device) != 0)
			return;
		port->known = true;
	}
	adopt_all(port, id, RX);
	adopt_all(port, id, TX);
	follow_shrinking(port, id);
}

static void
rebuild_rows(void)
{
	unsigned int id, dir, i, n = 0;
	struct queue **grown;

	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		n += ports[id].nb_queues[RX] + ports[id].nb_queues[TX];
	grown = realloc(rows, RTE_MAX(n, 1U) * sizeof(*rows));
	if (grown == NULL)
		return;
	rows = grown;
	nb_rows = 0;
	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		for (dir = 0; dir < NB_DIRS; dir++)
			for (i = 0; i < ports[id].nb_queues[dir]; i++) {
				struct queue *q = ports[id].queues[dir][i];

				if (q != NULL && q->present)
					rows[nb_rows++] = q;
			}
	rows_stale = false;
	pmdscope_rows_changed();
}

void
pmdscope_queue_discover(void)
{
	uint16_t id;

	/* All ports, also those that belong to a bond or a failsafe: they carry the packets. */
	for (id = 0; id < RTE_MAX_ETHPORTS && !unsupported; id++) {
		pthread_mutex_lock(&ports_lock);
		discover(&ports[id], id);
		pthread_mutex_unlock(&ports_lock);
	}
	if (rows_stale)
		rebuild_rows();
}

/*
 * On the thread that creates or destroys a port. A destroyed port must lose our callbacks now,
 * and discovery must be through with it: hence the lock. But the wait is bounded, for a driver
 * that discovery calls may itself wait for this thread (failsafe holds its lock while it closes
 * a port below it); then the callbacks stay for discovery to find.
 */
static int
on_port_event(uint16_t id, enum rte_eth_event_type event, void *arg __rte_unused,
		void *ret_param __rte_unused)
{
	struct port *port = &ports[id];
	struct timespec until;
	bool locked;
	unsigned int dir, i;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += EVENT_WAIT_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	locked = pthread_mutex_timedlock(&ports_lock, &until) == 0;

	if (event == RTE_ETH_EVENT_DESTROY) {
		__atomic_store_n(&port->gone, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&port->replaced, 1, __ATOMIC_RELEASE);
		for (dir = 0; locked && dir < NB_DIRS; dir++)
			for (i = 0; i < port->nb_queues[dir]; i++)
				if (port->queues[dir][i] != NULL)
					uninstall(port->queues[dir][i]);
	} else {
		__atomic_store_n(&port->gone, 0, __ATOMIC_RELEASE);
	}
	if (locked)
		pthread_mutex_unlock(&ports_lock);
	return 0;
}

void
pmdscope_queue_start(void)
{
	unsigned int id;

	/* Objects that the last run could not free are taken over. */
	for (id = 0; id < RTE_MAX_ETHPORTS; id++) {
		__atomic_store_n(&ports[id].gone, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&ports[id].replaced, 1, __ATOMIC_RELEASE);
	}
	if (rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_DESTROY, on_port_event,
				NULL) != 0 ||
			rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_NEW,
				on_port_event, NULL) != 0)
		PMDSCOPE_LOG(WARNING, "no memory to follow ports as they come and go");
	pmdscope_queue_discover();
}

/* One that is running now stays registered; it does no harm. */
static void
unregister_events(void)
{
	rte_eth_dev_callback_unregister(RTE_ETH_ALL, RTE_ETH_EVENT_DESTROY, on_port_event, NULL);
	rte_eth_dev_callback_unregister(RTE_ETH_ALL, RTE_ETH_EVENT_NEW, on_port_event, NULL);
}

static void
uninstall_port(struct port *port, uint16_t id)
{
	unsigned int dir, i;

	for (dir = 0; dir < NB_DIRS; dir++)
		for (i = 0; i < port->nb_queues[dir]; i++) {
			struct queue *q = port->queues[dir][i];

			if (q == NULL)
				continue;
			q->present = false;
			if (rte_eth_dev_is_valid_port(id))
				uninstall(q);
		}
}

/* Objects that DPDK still holds a callback of stay. */
static void
free_queues(struct port *port)
{
	unsigned int dir, i;

	for (dir = 0; dir < NB_DIRS; dir++)
		for (i = 0; i < port->nb_queues[dir]; i++) {
			struct queue *q = port->queues[dir][i];

			if (q == NULL || q->callback != NULL)
				continue;
			port->queues[dir][i] = NULL;
			rte_free(q);
		}
}

/* What is not free by the end of the wait stays for the next pmdscope_init(). */
static bool
wait_for_lcores(void)
{
	unsigned int ms;

	pmdscope_grace_begin(&waiting_grace);
	for (ms = 0; ms < STOP_WAIT_MS; ms++) {
		if (pmdscope_grace_over(&waiting_grace))
			return true;
		rte_delay_us_sleep(1000);
	}
	return false;
}

void
pmdscope_queue_stop(void)
{
	uint16_t id;

	unregister_events();
	pthread_mutex_lock(&ports_lock);
	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		uninstall_port(&ports[id], id);
	if (wait_for_lcores()) {
		free_waiting();
		begin_waiting();
		free_waiting();
		for (id = 0; id < RTE_MAX_ETHPORTS; id++)
			free_queues(&ports[id]);
	} else {
		PMDSCOPE_LOG(NOTICE, "an lcore may still be in a burst: the memory of the queues "
			"is kept");
	}
	pthread_mutex_unlock(&ports_lock);
	free(rows);
	rows = NULL;
	nb_rows = 0;
}

enum {
	COL_PORT,
	COL_DEVICE,
	COL_QUEUE,
	COL_DIR,
	COL_POLLS,
	COL_EMPTY,
	COL_PACKETS,
	COL_BYTES,
	COL_DEPTH_SUPPORTED,
	COL_DEPTH,
	COL_DEPTH_WINDOW_MAX,
	COL_DEPTH_MAX,
	COL_DESCRIPTORS,
	COL_BURSTS,
	COL_DEPTHS,
};

static const struct pmdscope_column columns[] = {
	[COL_PORT] = {"port", PMDSCOPE_COLUMN_U64, 1},
	[COL_DEVICE] = {"device", PMDSCOPE_COLUMN_STR, 1},
	[COL_QUEUE] = {"queue", PMDSCOPE_COLUMN_U64, 1},
	[COL_DIR] = {"dir", PMDSCOPE_COLUMN_STR, 1},
	[COL_POLLS] = {"polls", PMDSCOPE_COLUMN_U64, 1},
	[COL_EMPTY] = {"empty", PMDSCOPE_COLUMN_U64, 1},
	[COL_PACKETS] = {"packets", PMDSCOPE_COLUMN_U64, 1},
	[COL_BYTES] = {"bytes", PMDSCOPE_COLUMN_U64, 1},
	[COL_DEPTH_SUPPORTED] = {"depth_supported", PMDSCOPE_COLUMN_U64, 1},
	[COL_DEPTH] = {"depth", PMDSCOPE_COLUMN_U64, 1},
	[COL_DEPTH_WINDOW_MAX] = {"depth_window_max", PMDSCOPE_COLUMN_U64, 1},
	[COL_DEPTH_MAX] = {"depth_max", PMDSCOPE_COLUMN_U64, 1},
	[COL_DESCRIPTORS] = {"descriptors", PMDSCOPE_COLUMN_U64, 1},
	[COL_BURSTS] = {"bursts", PMDSCOPE_COLUMN_U64, BURST_BUCKETS},
	[COL_DEPTHS] = {"depths", PMDSCOPE_COLUMN_U64, DEPTH_BUCKETS},
};

static unsigned int
queue_count(void)
{
	return nb_rows;
}

static uint64_t
load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void
fill_depth(const struct counters *n, struct pmdscope_row *row)
{
	unsigned int i;

	if (__atomic_load_n(&n->depth_state, __ATOMIC_RELAXED) != DEPTH_SUPPORTED)
		return;
	pmdscope_row_u64(row, COL_DEPTH_SUPPORTED, 0, 1);
	pmdscope_row_u64(row, COL_DEPTH, 0, __atomic_load_n(&n->depth, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, COL_DEPTH_WINDOW_MAX, 0, pmdscope_window_last(&n->depth_window));
	pmdscope_row_u64(row, COL_DEPTH_MAX, 0, load(&n->depth_max));
	pmdscope_row_u64(row, COL_DEPTHS, 0, load(&n->empty));
	for (i = 1; i < DEPTH_BUCKETS; i++)
		pmdscope_row_u64(row, COL_DEPTHS, i, load(&n->depths[i]));
}

static void
queue_fill(unsigned int row_index, struct pmdscope_row *row)
{
	const struct queue *q = rows[row_index];
	const struct counters *n = &q->n;
	unsigned int i;

	pmdscope_row_u64(row, COL_PORT, 0, q->port);
	pmdscope_row_str(row, COL_DEVICE, ports[q->port].device);
	pmdscope_row_u64(row, COL_QUEUE, 0, q->queue);
	pmdscope_row_str(row, COL_DIR, q->dir == RX ? "rx" : "tx");
	pmdscope_row_u64(row, COL_POLLS, 0, load(&n->polls));
	pmdscope_row_u64(row, COL_EMPTY, 0, load(&n->empty));
	pmdscope_row_u64(row, COL_PACKETS, 0, load(&n->packets));
	pmdscope_row_u64(row, COL_BYTES, 0, load(&n->bytes));
	pmdscope_row_u64(row, COL_DESCRIPTORS, 0,
			__atomic_load_n(&n->descriptors, __ATOMIC_RELAXED));
	for (i = 0; i < BURST_BUCKETS; i++)
		pmdscope_row_u64(row, COL_BURSTS, i, load(&n->bursts[i]));
	fill_depth(n, row);
}

const struct pmdscope_table pmdscope_queue_table = {
	.name = "queues",
	.help = "Queues: polls, packets, depth. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = queue_count,
	.fill = queue_fill,
};
