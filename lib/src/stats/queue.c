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

#include "burst.h"
#include "callback.h"
#include "log.h"
#include "port.h"
#include "queue.h"
#include "reclaim.h"

/* Longest wait for lcores to leave the callbacks in pmdscope_fini(). */
#define STOP_WAIT_MS 200
/* Longest wait of a thread that closes a port; see on_port_event(). */
#define EVENT_WAIT_MS 100
/* A port that is not polled for this long is not queried. */
#define POLLED_US 200

struct port {
	char device[RTE_ETH_NAME_MAX_LEN];
	bool known;
	/* Set by on_port_event(): being destroyed; was destroyed since the last discovery. */
	uint8_t gone;
	uint8_t replaced;
	struct pmdscope_queue *queues[PMDSCOPE_NB_DIRS][RTE_MAX_QUEUES_PER_PORT];
	unsigned int nb_queues[PMDSCOPE_NB_DIRS]; /* Allocated, present or not. */
	/*
	 * Packets offered; sent, as the driver reports; and the increase of that since the last
	 * time.
	 */
	uint64_t offered;
	uint64_t opackets;
	uint64_t sent;
};

/*
 * Guards ports against the threads that create and destroy them. Taken inside the state lock;
 * no driver is called under it, except where on_port_event() allows for it.
 */
static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct port ports[RTE_MAX_ETHPORTS];

/* Present queues, by port, direction and number. Guarded by the state lock. */
static struct pmdscope_queue **rows;
static unsigned int nb_rows;
static bool rows_stale;

static bool counting;
static bool unsupported; /* This DPDK was built without callbacks. */

void
pmdscope_queue_reclaim(void)
{
	pthread_mutex_lock(&ports_lock);
	pmdscope_reclaim_tick();
	pthread_mutex_unlock(&ports_lock);
}

/*
 * Put a callback on a queue. False if the port does not have it, which DPDK checks when it
 * adds a callback. So the driver of a port that may be about to close need not be asked. The
 * object is kept for the next try.
 */
static bool
adopt(struct port *port, uint16_t id, enum pmdscope_dir dir, uint16_t queue)
{
	struct pmdscope_queue *q = port->queues[dir][queue];

	if (q == NULL) {
		q = pmdscope_queue_create(id, dir, queue);
		if (q == NULL)
			return false;
		port->queues[dir][queue] = q;
		port->nb_queues[dir] = RTE_MAX(port->nb_queues[dir], queue + 1U);
	}
	/*
	 * A callback that could not be removed earlier can be removed only when the queue is back.
	 */
	if (!pmdscope_callback_remove(q))
		return false;
	if (!pmdscope_callback_add(q)) {
		if (rte_errno == ENOTSUP && !unsupported) {
			unsupported = true;
			PMDSCOPE_LOG(WARNING, "DPDK was built without RTE_ETHDEV_RXTX_CALLBACKS: "
					      "queues cannot be observed");
		}
		return false;
	}
	q->present = true;
	rows_stale = true;
	return true;
}

static void
adopt_all(struct port *port, uint16_t id, enum pmdscope_dir dir)
{
	uint16_t i;

	for (i = 0; i < RTE_MAX_QUEUES_PER_PORT; i++) {
		const struct pmdscope_queue *q = port->queues[dir][i];

		if (q != NULL && q->present)
			continue;
		if (!adopt(port, id, dir, i))
			break;
	}
}

/* A queue that is polled exists. True when some queues are polled and others are not. */
static bool
may_have_shrunk(struct port *port)
{
	bool polled = false, silent = false;
	unsigned int dir, i;

	for (dir = 0; dir < PMDSCOPE_NB_DIRS; dir++) {
		for (i = 0; i < port->nb_queues[dir]; i++) {
			struct pmdscope_queue *q = port->queues[dir][i];
			uint64_t polls;

			if (q == NULL || !q->present)
				continue;
			polls = pmdscope_queue_sums(q).polls;
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
drop_rows(struct port *port, enum pmdscope_dir dir, unsigned int from)
{
	unsigned int i;

	for (i = from; i < port->nb_queues[dir]; i++) {
		struct pmdscope_queue *q = port->queues[dir][i];

		if (q == NULL || !q->present)
			continue;
		q->present = false;
		rows_stale = true;
	}
}

/* Ask the driver only while the app uses the port, and so does not close it. */
static void
follow_shrinking(struct port *port, uint16_t id)
{
	struct rte_eth_dev_info info;

	if (!may_have_shrunk(port) || rte_eth_dev_info_get(id, &info) != 0)
		return;
	drop_rows(port, PMDSCOPE_RX, info.nb_rx_queues);
	drop_rows(port, PMDSCOPE_TX, info.nb_tx_queues);
}

static void
reset_port(struct port *port)
{
	unsigned int dir, i;

	for (dir = 0; dir < PMDSCOPE_NB_DIRS; dir++)
		for (i = 0; i < port->nb_queues[dir]; i++)
			if (port->queues[dir][i] != NULL)
				pmdscope_counters_reset(port->queues[dir][i]);
}

/* Another device with the same id starts from 0. */
static void
forget(struct port *port)
{
	port->known = false;
	pmdscope_port_forget((uint16_t)(port - ports));
	drop_rows(port, PMDSCOPE_RX, 0);
	drop_rows(port, PMDSCOPE_TX, 0);
	reset_port(port);
}

static void
uninstall_port(struct port *port, uint16_t id)
{
	unsigned int dir, i;

	for (dir = 0; dir < PMDSCOPE_NB_DIRS; dir++)
		for (i = 0; i < port->nb_queues[dir]; i++) {
			struct pmdscope_queue *q = port->queues[dir][i];

			if (q == NULL)
				continue;
			rows_stale |= q->present;
			q->present = false;
			if (rte_eth_dev_is_valid_port(id))
				pmdscope_callback_remove(q);
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
	pmdscope_port_see(id, port->device);
	if (!counting) {
		uninstall_port(port, id);
		return;
	}
	adopt_all(port, id, PMDSCOPE_RX);
	adopt_all(port, id, PMDSCOPE_TX);
	follow_shrinking(port, id);
}

static void
rebuild_rows(void)
{
	unsigned int id, dir, i, n = 0;
	struct pmdscope_queue **grown;

	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		n += ports[id].nb_queues[PMDSCOPE_RX] + ports[id].nb_queues[PMDSCOPE_TX];
	grown = realloc(rows, RTE_MAX(n, 1U) * sizeof(*rows));
	if (grown == NULL)
		return;
	rows = grown;
	nb_rows = 0;
	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		for (dir = 0; dir < PMDSCOPE_NB_DIRS; dir++)
			for (i = 0; i < ports[id].nb_queues[dir]; i++) {
				struct pmdscope_queue *q = ports[id].queues[dir][i];

				if (q != NULL && q->present)
					rows[nb_rows++] = q;
			}
	rows_stale = false;
	pmdscope_rows_changed();
}

void
pmdscope_queue_discover(bool count)
{
	uint16_t id;

	/* What was counted before a pause would look like a low rate. */
	for (id = 0; id < RTE_MAX_ETHPORTS && count && !counting; id++)
		reset_port(&ports[id]);
	counting = count;
	/* All ports, including members of a bond or a failsafe device: these carry the packets. */
	for (id = 0; id < RTE_MAX_ETHPORTS && !unsupported; id++) {
		pthread_mutex_lock(&ports_lock);
		discover(&ports[id], id);
		pthread_mutex_unlock(&ports_lock);
	}
	if (rows_stale)
		rebuild_rows();
}

/*
 * Runs on the thread that creates or destroys a port. Our callbacks must be removed from a
 * destroyed port now, and discovery must not be using it: hence the lock. But the wait is
 * bounded, as a driver that discovery calls may itself wait for this thread (failsafe holds its
 * lock while it closes a port below it). In that case discovery removes the callbacks later.
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
		for (dir = 0; locked && dir < PMDSCOPE_NB_DIRS; dir++)
			for (i = 0; i < port->nb_queues[dir]; i++)
				if (port->queues[dir][i] != NULL)
					pmdscope_callback_remove(port->queues[dir][i]);
	} else {
		__atomic_store_n(&port->gone, 0, __ATOMIC_RELEASE);
	}
	if (locked)
		pthread_mutex_unlock(&ports_lock);
	return 0;
}

void
pmdscope_queue_start(bool count)
{
	unsigned int id;

	/* Objects that the last run could not free are reused. */
	for (id = 0; id < RTE_MAX_ETHPORTS; id++) {
		__atomic_store_n(&ports[id].gone, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&ports[id].replaced, 1, __ATOMIC_RELEASE);
	}
	if (rte_eth_dev_callback_register(
			    RTE_ETH_ALL, RTE_ETH_EVENT_DESTROY, on_port_event, NULL) != 0 ||
			rte_eth_dev_callback_register(
					RTE_ETH_ALL, RTE_ETH_EVENT_NEW, on_port_event, NULL) != 0)
		PMDSCOPE_LOG(WARNING, "no memory to follow ports as they come and go");
	pmdscope_port_start();
	pmdscope_queue_discover(count);
}

/* A callback that is running now stays registered; it does no harm. */
static void
unregister_events(void)
{
	rte_eth_dev_callback_unregister(RTE_ETH_ALL, RTE_ETH_EVENT_DESTROY, on_port_event, NULL);
	rte_eth_dev_callback_unregister(RTE_ETH_ALL, RTE_ETH_EVENT_NEW, on_port_event, NULL);
}

/* Objects with a callback that DPDK still holds are kept. */
static void
free_queues(struct port *port)
{
	unsigned int dir, i;

	for (dir = 0; dir < PMDSCOPE_NB_DIRS; dir++)
		for (i = 0; i < port->nb_queues[dir]; i++) {
			struct pmdscope_queue *q = port->queues[dir][i];

			if (q == NULL || q->callback != NULL)
				continue;
			port->queues[dir][i] = NULL;
			rte_free(q);
		}
}

void
pmdscope_queue_stop(void)
{
	uint16_t id;

	unregister_events();
	pmdscope_port_stop();
	pthread_mutex_lock(&ports_lock);
	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		uninstall_port(&ports[id], id);
	/* Objects that are not free by then are kept for the next pmdscope_init(). */
	if (pmdscope_reclaim_all(STOP_WAIT_MS)) {
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
	counting = false;
}

bool
pmdscope_queue_counting(void)
{
	return counting;
}

struct pmdscope_queue *
pmdscope_queue_row(unsigned int i)
{
	return i < nb_rows ? rows[i] : NULL;
}

unsigned int
pmdscope_queue_rows(void)
{
	return nb_rows;
}

const char *
pmdscope_queue_device(const struct pmdscope_queue *q)
{
	return ports[q->port].device;
}

const struct pmdscope_queue *
pmdscope_queue_tx(unsigned int port, unsigned int queue)
{
	const struct pmdscope_queue *q;

	if (port >= RTE_MAX_ETHPORTS || queue >= RTE_MAX_QUEUES_PER_PORT)
		return NULL;
	q = ports[port].queues[PMDSCOPE_TX][queue];
	return q != NULL && q->present ? q : NULL;
}

/* Sum over all present queues of the port. */
static void
sum_port(const struct port *port, uint64_t *polls, uint64_t *offered)
{
	const struct pmdscope_queue *q;
	struct pmdscope_burst_sums sums;
	unsigned int dir, i;

	*polls = 0;
	*offered = 0;
	for (dir = 0; dir < PMDSCOPE_NB_DIRS; dir++)
		for (i = 0; i < port->nb_queues[dir]; i++) {
			q = port->queues[dir][i];
			if (q == NULL || !q->present)
				continue;
			sums = pmdscope_queue_sums(q);
			*polls += sums.polls;
			if (dir == PMDSCOPE_TX)
				*offered += sums.packets;
		}
}

/*
 * The app is in its poll loop at this moment, so it does not close the port: drivers must not
 * be called during that. This thread sleeps in order not to take a CPU from a poller.
 */
static bool
is_polled_now(const struct port *port, uint64_t polls)
{
	const uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * POLLED_US;
	uint64_t now, offered;

	do {
		nanosleep(&(struct timespec){ .tv_nsec = 1000 }, NULL);
		sum_port(port, &now, &offered);
	} while (now == polls && rte_rdtsc() < until);
	return now != polls;
}

static void
ask_sent(struct port *port, uint16_t id)
{
	struct rte_eth_stats stats;
	uint64_t polls, offered;

	sum_port(port, &polls, &offered);
	port->sent = 0;
	if (!port->known || __atomic_load_n(&port->gone, __ATOMIC_ACQUIRE) ||
			offered == port->offered || !is_polled_now(port, polls))
		return;
	port->offered = offered;
	if (rte_eth_stats_get(id, &stats) != 0) {
		port->sent = UINT64_MAX;
		return;
	}
	port->sent = stats.opackets >= port->opackets ? stats.opackets - port->opackets : 0;
	port->opackets = stats.opackets;
}

void
pmdscope_queue_ask_sent(void)
{
	uint16_t id;

	for (id = 0; id < RTE_MAX_ETHPORTS; id++) {
		pthread_mutex_lock(&ports_lock);
		ask_sent(&ports[id], id);
		pthread_mutex_unlock(&ports_lock);
	}
}

uint64_t
pmdscope_queue_sent(unsigned int port)
{
	return ports[port].sent;
}
