/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Batches by sendmmsg() and recvmmsg(). With --batch 1 each system call carries one message. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "counter.h"
#include "message.h"
#include "transport.h"

struct mmsg {
	struct mmsghdr rx[KERNEL_MAX_BATCH];
	struct mmsghdr tx[KERNEL_MAX_BATCH];
	struct iovec rx_iov[KERNEL_MAX_BATCH];
	struct iovec tx_iov[KERNEL_MAX_BATCH];
	union message_control rx_control[KERNEL_MAX_BATCH];
	union message_control tx_control[KERNEL_MAX_BATCH];
	union address peer[KERNEL_MAX_BATCH];
	uint8_t *room; /* For the payload of a batch. */
};

static int
mmsg_open(struct transport *transport)
{
	struct mmsg *mmsg = calloc(1, sizeof(*mmsg));
	unsigned int i;

	if (mmsg != NULL)
		mmsg->room = malloc((size_t)settings.batch * transport_room());
	if (mmsg == NULL || mmsg->room == NULL) {
		free(mmsg);
		fprintf(stderr, "%s: no memory for a batch of %u messages\n",
				program_invocation_short_name, settings.batch);
		return -1;
	}
	for (i = 0; i < settings.batch; i++) {
		mmsg->rx_iov[i].iov_base = mmsg->room + (size_t)i * transport_room();
		mmsg->rx_iov[i].iov_len = transport_room();
	}
	transport->state = mmsg;
	return 0;
}

/* recvmmsg() changes the sizes, so they are set before each call. */
static void
prepare_receive(struct mmsg *mmsg, unsigned int index)
{
	mmsg->rx[index].msg_hdr = (struct msghdr){
		.msg_name = &mmsg->peer[index],
		.msg_namelen = sizeof(mmsg->peer[index]),
		.msg_iov = &mmsg->rx_iov[index],
		.msg_iovlen = 1,
		.msg_control = settings.gro ? &mmsg->rx_control[index] : NULL,
		.msg_controllen = settings.gro ? sizeof(mmsg->rx_control[index]) : 0,
	};
}

/* False if the message did not fit. */
static bool
take(struct mmsg *mmsg, unsigned int index, struct datagram *datagram)
{
	struct mmsghdr *msg = &mmsg->rx[index];

	if ((msg->msg_hdr.msg_flags & MSG_TRUNC) != 0)
		return false;
	*datagram = (struct datagram){
		.data = mmsg->rx_iov[index].iov_base,
		.size = msg->msg_len,
		.segment = message_segment(CMSG_FIRSTHDR(&msg->msg_hdr), msg->msg_len),
		.peer = &mmsg->peer[index].any,
		.peer_size = msg->msg_hdr.msg_namelen,
	};
	return true;
}

static unsigned int
mmsg_receive(struct transport *transport, bool wait)
{
	struct mmsg *mmsg = transport->state;
	unsigned int i, nb_taken = 0;
	uint64_t packets = 0;
	int n;

	for (i = 0; i < settings.batch; i++)
		prepare_receive(mmsg, i);
	n = recvmmsg(transport->fd, mmsg->rx, settings.batch, wait ? MSG_WAITFORONE : MSG_DONTWAIT,
			NULL);
	counter_add(&transport->stats.receive_calls, 1);
	if (n < 0) {
		/* No message, or none in time. */
		counter_add(&transport->stats.empty_calls, 1);
		if (errno != EAGAIN)
			transport_count_error(transport, errno);
		return 0;
	}
	for (i = 0; i < (unsigned int)n; i++) {
		if (!take(mmsg, i, &transport->received[nb_taken])) {
			counter_add(&transport->stats.truncated, 1);
			continue;
		}
		packets += datagram_packets(&transport->received[nb_taken++]);
	}
	counter_add(&transport->stats.received, packets);
	return nb_taken;
}

static unsigned int
mmsg_send(struct transport *transport, const struct datagram *messages, unsigned int nb_messages)
{
	struct mmsg *mmsg = transport->state;
	uint64_t packets = 0;
	unsigned int i;
	int n;

	for (i = 0; i < nb_messages; i++)
		message_describe(&mmsg->tx[i].msg_hdr, &mmsg->tx_iov[i], &mmsg->tx_control[i],
				&messages[i]);
	n = sendmmsg(transport->fd, mmsg->tx, nb_messages, MSG_DONTWAIT);
	counter_add(&transport->stats.send_calls, 1);
	if (n < 0) {
		transport_count_error(transport, errno);
		/* These are retried: a full buffer, and an error caused by an earlier packet. */
		return errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED;
	}
	for (i = 0; i < (unsigned int)n; i++)
		packets += datagram_packets(&messages[i]);
	counter_add(&transport->stats.sent, packets);
	return (unsigned int)n;
}

static void
mmsg_close(struct transport *transport)
{
	struct mmsg *mmsg = transport->state;

	free(mmsg->room);
	free(mmsg);
}

const struct transport_ops transport_mmsg = {
	.open = mmsg_open,
	.receive = mmsg_receive,
	.send = mmsg_send,
	.close = mmsg_close,
};
