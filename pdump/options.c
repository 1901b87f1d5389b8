/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_version.h>

#include "options.h"

enum {
	FILE_PREFIX = 256,
	PID,
	FD,
	CPUS,
	PORT,
	FORCE,
	VERSION,
	HELP,
};

static const struct option longopts[] = {
	{ "file-prefix", required_argument, NULL, FILE_PREFIX },
	{ "pid", required_argument, NULL, PID },
	{ "fd", required_argument, NULL, FD },
	{ "cpus", required_argument, NULL, CPUS },
	{ "port", required_argument, NULL, PORT },
	{ "force", no_argument, NULL, FORCE },
	{ "version", no_argument, NULL, VERSION },
	{ "help", no_argument, NULL, HELP },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
		"Usage: pmdscope-pdump --file-prefix PREFIX --pid PID --fd N --cpus LIST\n"
		"                      --port ID,RXQ,TXQ,DEVICE [--port ...] [--force]\n"
		"\n"
		"Copy packets out of a DPDK app that called rte_pdump_init(), for the process at\n"
		"the other end of descriptor N. pmdscope starts it; it is not for use by hand.\n"
		"\n"
		"  --file-prefix PREFIX  the EAL file prefix of the app\n"
		"  --pid PID             its process\n"
		"  --fd N                a SOCK_SEQPACKET descriptor, over which the request comes\n"
		"  --cpus LIST           CPUs to run on, as 0,2-3; not those that the app polls on\n"
		"  --port ID,RXQ,TXQ,DEVICE  a port of the app: id, number of queues, device name\n"
		"  --force               also with a release of DPDK that is not tested\n"
		"  --version             show the versions of pmdscope and DPDK\n"
		"  --help                show this\n";

/* A decimal number of at most max, followed by the character end; returns the rest, or NULL. */
static const char *
parse_number(const char *s, unsigned long max, char end, unsigned long *value)
{
	char *rest;

	if (*s < '0' || *s > '9')
		return NULL;
	errno = 0;
	*value = strtoul(s, &rest, 10);
	if (errno != 0 || *value > max || *rest != end)
		return NULL;
	return end == '\0' ? rest : rest + 1;
}

static bool
parse_cpus(const char *list, cpu_set_t *cpus)
{
	unsigned long first, last;
	char *rest;

	CPU_ZERO(cpus);
	do {
		if (*list < '0' || *list > '9')
			return false;
		first = last = strtoul(list, &rest, 10);
		if (*rest == '-') {
			if (rest[1] < '0' || rest[1] > '9')
				return false;
			last = strtoul(rest + 1, &rest, 10);
		}
		if (first > last || last >= CPU_SETSIZE || (*rest != ',' && *rest != '\0'))
			return false;
		for (; first <= last; first++)
			CPU_SET(first, cpus);
		list = rest + 1;
	} while (*rest == ',');
	return true;
}

static bool
parse_port(const char *text, struct port *port)
{
	unsigned long id, nb_rxq, nb_txq;

	text = parse_number(text, RTE_MAX_ETHPORTS - 1, ',', &id);
	if (text != NULL)
		text = parse_number(text, RTE_MAX_QUEUES_PER_PORT, ',', &nb_rxq);
	if (text != NULL)
		text = parse_number(text, RTE_MAX_QUEUES_PER_PORT, ',', &nb_txq);
	if (text == NULL || *text == '\0' || strlen(text) >= sizeof(port->device))
		return false;
	*port = (struct port){ .id = id, .nb_rxq = nb_rxq, .nb_txq = nb_txq };
	strcpy(port->device, text);
	return true;
}

/* A name that is not a path, and not an option to the EAL. */
static bool
is_prefix(const char *s)
{
	return *s != '\0' && *s != '-' && *s != '.' && strchr(s, '/') == NULL &&
	       strlen(s) < NAME_MAX;
}

static bool
parse_option(int opt, const char *arg, struct options *o)
{
	unsigned long value = 0;

	switch (opt) {
	case FILE_PREFIX:
		o->file_prefix = arg;
		return is_prefix(arg);
	case PID:
		if (parse_number(arg, INT_MAX, '\0', &value) == NULL)
			return false;
		o->pid = (pid_t)value;
		return value > 0;
	case FD:
		if (parse_number(arg, INT_MAX, '\0', &value) == NULL)
			return false;
		o->fd = (int)value;
		return true;
	case CPUS:
		o->cpu_list = arg;
		return parse_cpus(arg, &o->cpus);
	case PORT:
		return o->nb_ports < RTE_DIM(o->ports) && parse_port(arg, &o->ports[o->nb_ports++]);
	default:
		o->force = true;
		return true;
	}
}

static const char *
missing(const struct options *o)
{
	if (o->file_prefix == NULL)
		return "--file-prefix";
	if (o->pid == 0)
		return "--pid";
	if (o->fd < 0)
		return "--fd";
	if (o->cpu_list == NULL)
		return "--cpus";
	return o->nb_ports == 0 ? "--port" : NULL;
}

enum options_result
options_parse(int argc, char **argv, struct options *options, char *why, size_t why_size)
{
	const char *absent;
	int opt, index;

	*options = (struct options){ .fd = -1 };
	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", longopts, &index)) != -1) {
		if (opt == '?') {
			snprintf(why, why_size, "%s: unknown, or without its value",
					argv[optind - 1]);
			return OPTIONS_WRONG;
		}
		if (opt == HELP || opt == VERSION) {
			if (opt == HELP)
				fputs(help, stdout);
			else
				printf("pmdscope-pdump %s (%s)\n", PMDSCOPE_VERSION, rte_version());
			return OPTIONS_SHOWN;
		}
		if (!parse_option(opt, optarg, options)) {
			snprintf(why, why_size, "--%s %s: not valid", longopts[index].name, optarg);
			return OPTIONS_WRONG;
		}
	}
	absent = missing(options);
	if (optind < argc)
		snprintf(why, why_size, "%s: not an option", argv[optind]);
	else if (absent != NULL)
		snprintf(why, why_size, "%s is needed", absent);
	else
		return OPTIONS_RUN;
	return OPTIONS_WRONG;
}
