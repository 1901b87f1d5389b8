/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdbool.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_string_fns.h>

#include "log.h"
#include "port.h"

#define NS_PER_SEC UINT64_C(1000000000)

struct port {
	char device[RTE_ETH_NAME_MAX_LEN];
	bool known;
	bool started;
	uint64_t starts;
	uint64_t stops;
	/* Written by the thread on which the driver reports link changes. */
	uint64_t link_changes;
	uint64_t changed_realtime_ns;
};

static struct port ports[RTE_MAX_ETHPORTS];

/* Known ports, by id. */
static uint16_t rows[RTE_MAX_ETHPORTS];
static unsigned int nb_rows;

/* The function that DPDK sets in ports that are not started. */
static eth_rx_burst_t stopped_burst;
/* DPDK also sets it for drivers that do not count; NULL before DPDK 25.11. */
static eth_rx_queue_count_t stopped_count;

static void
note_change(struct port *port)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	__atomic_store_n(&port->changed_realtime_ns,
			(uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec,
			__ATOMIC_RELAXED);
}

/*
 * A port id that was never used has these functions. If all ids were used, starts and stops are not
 * counted. Drivers are not asked: they may be in the middle of a stop.
 */
static void
find_stopped_functions(void)
{
	const struct rte_eth_fp_ops *ops;
	unsigned int id;

	for (id = RTE_MAX_ETHPORTS; id-- > 0;) {
		ops = &rte_eth_fp_ops[id];
		if (rte_eth_dev_is_valid_port((uint16_t)id))
			continue;
		stopped_burst = __atomic_load_n(&ops->rx_pkt_burst, __ATOMIC_RELAXED);
		stopped_count = __atomic_load_n(&ops->rx_queue_count, __ATOMIC_RELAXED);
		return;
	}
}

bool
pmdscope_port_counts_waiting(uint16_t id)
{
	const eth_rx_queue_count_t count =
			__atomic_load_n(&rte_eth_fp_ops[id].rx_queue_count, __ATOMIC_RELAXED);

	return count != NULL && count != stopped_count;
}

static bool
is_started(uint16_t id)
{
	return stopped_burst != NULL &&
	       __atomic_load_n(&rte_eth_fp_ops[id].rx_pkt_burst, __ATOMIC_RELAXED) != stopped_burst;
}

/*
 * Runs on the thread on which the driver reports link changes, usually the EAL's interrupt thread.
 */
static int
on_link_event(uint16_t id, enum rte_eth_event_type event __rte_unused, void *arg __rte_unused,
		void *ret_param __rte_unused)
{
	if (id >= RTE_MAX_ETHPORTS)
		return 0;
	__atomic_fetch_add(&ports[id].link_changes, 1, __ATOMIC_RELAXED);
	note_change(&ports[id]);
	return 0;
}

void
pmdscope_port_start(void)
{
	unsigned int id;

	find_stopped_functions();
	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		pmdscope_port_forget((uint16_t)id);
	if (rte_eth_dev_callback_register(
			    RTE_ETH_ALL, RTE_ETH_EVENT_INTR_LSC, on_link_event, NULL) != 0)
		PMDSCOPE_LOG(WARNING, "no memory to follow links as they come and go");
}

/* A callback that is running now stays registered; it does no harm. */
void
pmdscope_port_stop(void)
{
	rte_eth_dev_callback_unregister(RTE_ETH_ALL, RTE_ETH_EVENT_INTR_LSC, on_link_event, NULL);
}

static void
rebuild_rows(void)
{
	unsigned int id;

	nb_rows = 0;
	for (id = 0; id < RTE_MAX_ETHPORTS; id++)
		if (ports[id].known)
			rows[nb_rows++] = (uint16_t)id;
	pmdscope_rows_changed();
}

void
pmdscope_port_see(uint16_t id, const char *device)
{
	struct port *port = &ports[id];

	if (port->known)
		return;
	rte_strscpy(port->device, device, sizeof(port->device));
	port->started = is_started(id);
	port->known = true;
	rebuild_rows();
}

void
pmdscope_port_forget(uint16_t id)
{
	struct port *port = &ports[id];
	const bool was_known = port->known;

	port->known = false;
	port->starts = 0;
	port->stops = 0;
	__atomic_store_n(&port->link_changes, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&port->changed_realtime_ns, 0, __ATOMIC_RELAXED);
	if (was_known)
		rebuild_rows();
}

/*
 * ethdev reports neither starts nor stops (RTE_ETH_EVENT_NEW and RTE_ETH_EVENT_DESTROY are about
 * the existence of a port), and does not count them: if the port is in the same state at two
 * samples, those in between are not seen.
 */
void
pmdscope_port_sample(void)
{
	unsigned int i;

	for (i = 0; i < nb_rows; i++) {
		struct port *port = &ports[rows[i]];
		const bool started = is_started(rows[i]);

		if (started == port->started)
			continue;
		port->started = started;
		if (started)
			port->starts++;
		else
			port->stops++;
		note_change(port);
	}
}

enum {
	COL_PORT,
	COL_DEVICE,
	COL_STARTED,
	COL_STARTS,
	COL_STOPS,
	COL_LINK_CHANGES,
	COL_CHANGED_REALTIME_NS,
};

static const struct pmdscope_column columns[] = {
	[COL_PORT] = { "port", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DEVICE] = { "device", PMDSCOPE_COLUMN_STR, 1 },
	[COL_STARTED] = { "started", PMDSCOPE_COLUMN_U64, 1 },
	[COL_STARTS] = { "starts", PMDSCOPE_COLUMN_U64, 1 },
	[COL_STOPS] = { "stops", PMDSCOPE_COLUMN_U64, 1 },
	[COL_LINK_CHANGES] = { "link_changes", PMDSCOPE_COLUMN_U64, 1 },
	[COL_CHANGED_REALTIME_NS] = { "changed_realtime_ns", PMDSCOPE_COLUMN_U64, 1 },
};

static unsigned int
port_count(void)
{
	return nb_rows;
}

static void
port_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct port *port = &ports[rows[i]];

	pmdscope_row_u64(row, COL_PORT, 0, rows[i]);
	pmdscope_row_str(row, COL_DEVICE, port->device);
	pmdscope_row_u64(row, COL_STARTED, 0, port->started);
	pmdscope_row_u64(row, COL_STARTS, 0, port->starts);
	pmdscope_row_u64(row, COL_STOPS, 0, port->stops);
	pmdscope_row_u64(row, COL_LINK_CHANGES, 0,
			__atomic_load_n(&port->link_changes, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, COL_CHANGED_REALTIME_NS, 0,
			__atomic_load_n(&port->changed_realtime_ns, __ATOMIC_RELAXED));
}

const struct pmdscope_table pmdscope_port_table = {
	.name = "ports",
	.help = "Ports: starts, stops, link changes. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = port_count,
	.fill = port_fill,
};
