/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_OPTIONS_H
#define PDUMP_OPTIONS_H

/* The command line. pmdscope writes it; it is validated all the same. */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

/* A port of the app: what it calls it, and how many queues it has. */
struct port {
	uint16_t id;
	uint16_t nb_rxq;
	uint16_t nb_txq;
	char device[RTE_DEV_NAME_MAX_LEN];
};

struct options {
	const char *file_prefix;
	const char *cpu_list; /* As given; cpus is what it says. */
	cpu_set_t cpus;
	pid_t pid;  /* Of the app. */
	int fd;	    /* Of the consumer. */
	bool enter; /* The namespaces of the app. */
	bool force;
	unsigned int nb_ports;
	struct port ports[RTE_MAX_ETHPORTS];
};

enum options_result {
	OPTIONS_RUN,
	OPTIONS_SHOWN, /* --help or --version was all. */
	OPTIONS_WRONG, /* why says what. */
};

enum options_result
options_parse(int argc, char **argv, struct options *options, char *why, size_t why_size);

#endif /* PDUMP_OPTIONS_H */
