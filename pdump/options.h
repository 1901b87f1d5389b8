/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_OPTIONS_H
#define PDUMP_OPTIONS_H

/* The command line. It is written by pmdscope, but validated all the same. */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

/* A port of the app: its name, and its number of queues. */
struct port {
	uint16_t id;
	uint16_t nb_rxq;
	uint16_t nb_txq;
	char device[RTE_DEV_NAME_MAX_LEN];
};

struct options {
	const char *file_prefix;
	const char *cpu_list; /* As given; cpus is the parsed set. */
	cpu_set_t cpus;
	pid_t pid; /* Of the app. */
	int fd;	   /* Of the consumer. */
	bool force;
	unsigned int nb_ports;
	struct port ports[RTE_MAX_ETHPORTS];
};

enum options_result {
	OPTIONS_RUN,
	OPTIONS_SHOWN, /* Only --help or --version was requested. */
	OPTIONS_WRONG, /* why contains the reason. */
};

enum options_result
options_parse(int argc, char **argv, struct options *options, char *why, size_t why_size);

#endif /* PDUMP_OPTIONS_H */
