/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>
#include <rte_ethdev.h>

#include "port.h"

const char *
port_name(uint16_t port)
{
	static __thread char name[RTE_ETH_NAME_MAX_LEN];

	if (rte_eth_dev_get_name_by_port(port, name) != 0)
		snprintf(name, sizeof(name), "unknown");
	return name;
}

static int
port_failed(uint16_t port, const char *call, int rc, const char *advice)
{
	fprintf(stderr, "%s: port %u (%s): %s: %s (%d). %s\n", program_invocation_short_name, port,
			port_name(port), call, rte_strerror(-rc), rc, advice);
	return rc;
}

static int
check_queues(uint16_t port, const struct rte_eth_dev_info *info, uint16_t rx_queues,
		uint16_t tx_queues)
{
	const uint16_t queues = RTE_MAX(rx_queues, tx_queues);

	if (rx_queues <= info->max_rx_queues && tx_queues <= info->max_tx_queues)
		return 0;
	fprintf(stderr,
			"%s: port %u (%s) has %u RX and %u TX queues, fewer than the %u and %u asked for. "
			"Lower --queues, or give a virtual device more (queues=%u, for net_af_packet "
			"qpairs=%u)\n",
			program_invocation_short_name, port, port_name(port), info->max_rx_queues,
			info->max_tx_queues, rx_queues, tx_queues, queues, queues);
	return -EINVAL;
}

static struct rte_eth_conf
port_conf(const struct rte_eth_dev_info *info, uint16_t rx_queues)
{
	struct rte_eth_conf conf = { 0 };
	const uint64_t hash = info->flow_type_rss_offloads &
			      (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);

	/*
	 * Virtual links connect queue i of one side to queue i of the other; NICs must distribute.
	 */
	if (rx_queues > 1 && hash != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hash;
	}
	return conf;
}

static int
setup_queues(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t descriptors,
		struct rte_mempool *pool)
{
	const char *advice = "Try other --descriptors or fewer --queues";
	const int socket = rte_eth_dev_socket_id(port);
	uint16_t nb_rx = descriptors, nb_tx = descriptors, queue;
	int rc;

	rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &nb_rx, &nb_tx);
	if (rc != 0)
		return port_failed(port, "rte_eth_dev_adjust_nb_rx_tx_desc", rc, advice);
	for (queue = 0; queue < rx_queues; queue++) {
		rc = rte_eth_rx_queue_setup(port, queue, nb_rx, (unsigned int)socket, NULL, pool);
		if (rc != 0)
			return port_failed(port, "rte_eth_rx_queue_setup", rc, advice);
	}
	for (queue = 0; queue < tx_queues; queue++) {
		rc = rte_eth_tx_queue_setup(port, queue, nb_tx, (unsigned int)socket, NULL);
		if (rc != 0)
			return port_failed(port, "rte_eth_tx_queue_setup", rc, advice);
	}
	if (nb_rx != descriptors || nb_tx != descriptors)
		fprintf(stderr, "%s: port %u (%s): %u RX and %u TX descriptors, as the driver wants\n",
				program_invocation_short_name, port, port_name(port), nb_rx, nb_tx);
	return 0;
}

int
port_start(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t descriptors,
		struct rte_mempool *pool)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	int rc;

	rc = rte_eth_dev_info_get(port, &info);
	if (rc != 0)
		return port_failed(port, "rte_eth_dev_info_get", rc,
				"Leave this device out of the EAL arguments");
	rc = check_queues(port, &info, rx_queues, tx_queues);
	if (rc != 0)
		return rc;

	conf = port_conf(&info, rx_queues);
	rc = rte_eth_dev_configure(port, rx_queues, tx_queues, &conf);
	if (rc != 0)
		return port_failed(port, "rte_eth_dev_configure", rc,
				"Try fewer --queues; if the device listens on a socket, remove what a "
				"killed run left at its path");
	rc = setup_queues(port, rx_queues, tx_queues, descriptors, pool);
	if (rc != 0)
		return rc;

	rc = rte_eth_dev_start(port);
	if (rc != 0)
		return port_failed(port, "rte_eth_dev_start", rc,
				"See the driver's message above. A client wants its server to run "
				"first; virtio_user wants --single-file-segments");
	rc = rte_eth_promiscuous_enable(port);
	if (rc != 0 && rc != -ENOTSUP)
		fprintf(stderr,
				"%s: port %u (%s): no promiscuous mode: %s. Only packets to its own "
				"address arrive\n",
				program_invocation_short_name, port, port_name(port),
				rte_strerror(-rc));
	return 0;
}

bool
port_link_up(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

void
port_stop(uint16_t port)
{
	const int rc = rte_eth_dev_stop(port);

	if (rc != 0)
		port_failed(port, "rte_eth_dev_stop", rc, "Its packets may stay out of the pool");
}

void
port_close(uint16_t port)
{
	const int rc = rte_eth_dev_close(port);

	if (rc != 0)
		port_failed(port, "rte_eth_dev_close", rc, "Its socket or files may remain");
}
