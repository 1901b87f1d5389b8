/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/sock_diag.h>

#include "counter.h"
#include "transport.h"

/* Room for any packet of an Ethernet, jumbo frames included. */
#define PACKET_ROOM 9216
/* Maximum that GRO joins, with a reserve. */
#define MESSAGE_ROOM 65536

static int
fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	return -1;
}

static int
set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

/*
 * Root may exceed net.core.rmem_max and wmem_max; for others the kernel silently limits the size.
 */
static void
set_buffer(int fd, int option, int forced)
{
	if (set(fd, SOL_SOCKET, forced, (int)settings.buffer) != 0)
		set(fd, SOL_SOCKET, option, (int)settings.buffer);
}

static int
bind_to(int fd, const union address *local)
{
	if (local->any.sa_family == AF_UNSPEC || bind(fd, &local->any, address_size(local)) == 0)
		return 0;
	fprintf(stderr,
			"%s: bind: %s; is the port taken, or below 1024 and you are not "
			"root? --port and --listen or --src-ip choose others\n",
			program_invocation_short_name, strerror(errno));
	return -1;
}

static int
prepare(int fd, const union address *local, const union address *remote)
{
	const struct timeval wait = { .tv_usec = TRANSPORT_WAIT_MS * 1000 };

	set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE);
	set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) != 0)
		return fail("SO_RCVTIMEO");
	/* Threads of a reflector share a port; two reflectors, or generators, do not. */
	if (remote == NULL && settings.threads > 1 && set(fd, SOL_SOCKET, SO_REUSEPORT, 1) != 0)
		return fail("SO_REUSEPORT");
	if (settings.gro && set(fd, SOL_UDP, UDP_GRO, 1) != 0)
		return fail("--gro needs Linux 5.0: UDP_GRO");
	if (settings.gso && set(fd, SOL_UDP, UDP_SEGMENT, 0) != 0)
		return fail("--gso needs Linux 4.18: UDP_SEGMENT");
	if (bind_to(fd, local) != 0)
		return -1;
	if (remote != NULL && connect(fd, &remote->any, address_size(remote)) != 0)
		return fail("connect to --dst-ip");
	return 0;
}

int
transport_open(struct transport *transport, const union address *local, const union address *remote)
{
	const union address *family = remote != NULL ? remote : local;

	memset(transport, 0, sizeof(*transport));
	transport->fd = socket(family->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (transport->fd < 0)
		return fail("socket");
	transport->ops = settings.io == KERNEL_IO_URING ? &transport_uring : &transport_mmsg;
	if (prepare(transport->fd, local, remote) == 0 && transport->ops->open(transport) == 0)
		return 0;
	close(transport->fd);
	transport->ops = NULL;
	return -1;
}

void
transport_close(struct transport *transport)
{
	if (transport->ops == NULL)
		return;
	transport->ops->close(transport);
	close(transport->fd);
	transport->ops = NULL;
}

void
transport_count_error(struct transport *transport, int error)
{
	struct transport_stats *stats = &transport->stats;

	switch (error) {
	case EINTR:
		return;
	case EAGAIN:
		counter_add(&stats->no_room, 1);
		return;
	case ENOBUFS:
		counter_add(&stats->no_buffers, 1);
		break;
	case ECONNREFUSED:
		counter_add(&stats->refused, 1);
		break;
	default:
		counter_add(&stats->other_errors, 1);
		break;
	}
	counter_set(&stats->last_error, (uint64_t)error);
}

uint32_t
transport_room(void)
{
	return settings.gro ? MESSAGE_ROOM : PACKET_ROOM;
}

uint64_t
transport_drops(const struct transport *transport)
{
	uint32_t memory[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(memory);

	if (getsockopt(transport->fd, SOL_SOCKET, SO_MEMINFO, memory, &size) != 0)
		return 0;
	return memory[SK_MEMINFO_DROPS];
}

uint64_t
transport_buffer(const struct transport *transport, int option)
{
	int bytes = 0;
	socklen_t size = sizeof(bytes);

	getsockopt(transport->fd, SOL_SOCKET, option, &bytes, &size);
	return (uint64_t)bytes;
}
