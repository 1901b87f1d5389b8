/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef KERNEL_SETTINGS_H
#define KERNEL_SETTINGS_H

/* The command line of the generator and the reflector over sockets. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define KERNEL_EXIT_OK 0
#define KERNEL_EXIT_FAILED 1
#define KERNEL_EXIT_USAGE 2

#define KERNEL_MAX_THREADS 64
#define KERNEL_MAX_FLOWS 1024
#define KERNEL_MAX_BATCH 256

enum kernel_io {
	KERNEL_IO_MMSG,	 /* sendmmsg() and recvmmsg() */
	KERNEL_IO_URING, /* io_uring */
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct kernel_settings {
	uint64_t rate;	/* Packets per second of all flows; 0: as fast as possible. */
	uint64_t count; /* Number of packets; 0: no limit. */
	uint64_t duration_ms;
	uint64_t interval_ms;
	uint64_t drain_ms; /* Wait this long for late packets. */
	uint32_t size;	   /* Of a frame without FCS, as with the DPDK generator. */
	uint32_t flows;
	uint32_t threads;
	uint32_t batch;	 /* Packets per system call. */
	uint32_t port;	 /* UDP, of the reflector. */
	uint64_t buffer; /* Requested size of the socket buffers, bytes. */
	bool gso;
	bool gro;
	bool spin; /* Never wait for packets in the kernel. */
	bool quiet;
	enum kernel_io io;
	const char *json;
	union address local;  /* Generator: source, if given; reflector: where it listens. */
	union address remote; /* Generator: the reflector. */
};

extern struct kernel_settings settings;

/* Parse the command line. -1 to continue, otherwise an exit code: help or an error was printed. */
int settings_parse_generator(int argc, char **argv);
int settings_parse_reflector(int argc, char **argv);

static inline bool
settings_ipv6(const union address *address)
{
	return address->any.sa_family == AF_INET6;
}

static inline socklen_t
address_size(const union address *address)
{
	return settings_ipv6(address) ? sizeof(address->v6) : sizeof(address->v4);
}

static inline void
address_set_port(union address *address, uint16_t port)
{
	if (settings_ipv6(address))
		address->v6.sin6_port = htons(port);
	else
		address->v4.sin_port = htons(port);
}

#endif /* KERNEL_SETTINGS_H */
