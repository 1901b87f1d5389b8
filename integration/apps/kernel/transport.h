/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef TRANSPORT_H
#define TRANSPORT_H

/* Sends and receives batches of messages on a UDP socket, through one of two kernel interfaces. */

#include <stdbool.h>
#include <stdint.h>

#include "datagram.h"
#include "settings.h"

/* One thread writes them, others may read them. */
struct transport_stats {
	uint64_t sent; /* Packets that the kernel took. */
	uint64_t received;
	uint64_t send_calls; /* System calls. */
	uint64_t receive_calls;
	uint64_t empty_calls; /* Of those, the ones without a result. */
	uint64_t no_room;     /* EAGAIN: the send buffer was full. */
	uint64_t no_buffers;  /* ENOBUFS: a queue on the path was full. */
	uint64_t refused;     /* ECONNREFUSED: there was no listener for an earlier packet. */
	uint64_t other_errors;
	uint64_t last_error; /* errno of the latest of these; 0: none. */
	uint64_t truncated;  /* Received, but larger than the buffer; left out. */
};

struct transport;

struct transport_ops {
	int (*open)(struct transport *transport);
	unsigned int (*receive)(struct transport *transport, bool wait);
	unsigned int (*send)(struct transport *transport, const struct datagram *messages,
			unsigned int nb_messages);
	void (*close)(struct transport *transport);
};

extern const struct transport_ops transport_mmsg, transport_uring;

struct transport {
	const struct transport_ops *ops;
	void *state;
	int fd;
	/* Result of the last transport_receive(); valid until the next. */
	struct datagram received[KERNEL_MAX_BATCH];
	struct transport_stats stats;
};

/* Maximum wait of transport_receive(), milliseconds. */
#define TRANSPORT_WAIT_MS 50

/*
 * Open a UDP socket that is bound to local, unless that has no address family, and connected to
 * remote, unless NULL. 0, or -1 after a message.
 */
int transport_open(struct transport *transport, const union address *local,
		const union address *remote);

/*
 * Receive up to --batch messages into transport->received. With wait it sleeps until the first one,
 * for a limited time.
 */
static inline unsigned int
transport_receive(struct transport *transport, bool wait)
{
	return transport->ops->receive(transport, wait);
}

/*
 * Offer messages, --batch at most. Returns the number of completed ones: the kernel has
 * taken them (stats.sent counts their packets) or failed to send them. The rest may be
 * offered again.
 */
static inline unsigned int
transport_send(struct transport *transport, const struct datagram *messages,
		unsigned int nb_messages)
{
	return transport->ops->send(transport, messages, nb_messages);
}

/* Count an error of sending or receiving. */
void transport_count_error(struct transport *transport, int error);

/* Room for the payload of a received message, bytes. */
uint32_t transport_room(void);

/* Drops of the kernel at the receive buffer: packets, or with GRO whole messages. */
uint64_t transport_drops(const struct transport *transport);

/* Size of a buffer as the kernel counts it: SO_RCVBUF or SO_SNDBUF. Bytes. */
uint64_t transport_buffer(const struct transport *transport, int option);

void transport_close(struct transport *transport);

#endif /* TRANSPORT_H */
