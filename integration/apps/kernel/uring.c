/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Batches by io_uring. One ring receives: a single request (multishot recvmsg, Linux 6.0) stores
 * each message in a buffer that the kernel takes from a ring of buffers. The other sends: a batch
 * of requests is submitted, and its results awaited, by one system call.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <liburing.h>

#include "counter.h"
#include "message.h"
#include "transport.h"

/* Number of batches that may wait in the buffers until they are processed. */
#define BATCHES 4
#define BUFFER_GROUP 1

struct uring {
	struct io_uring rx;
	struct io_uring tx;
	struct io_uring_buf_ring *ring;
	unsigned int nb_buffers; /* A power of two. */
	uint32_t buffer_size;
	uint8_t *buffers;
	bool armed;	       /* The receive request is active. */
	struct msghdr shape;   /* The required parts of a message. */
	unsigned int nb_taken; /* Buffers with the result of the last call. */
	uint16_t taken[KERNEL_MAX_BATCH];
	struct msghdr msg[KERNEL_MAX_BATCH];
	struct iovec iov[KERNEL_MAX_BATCH];
	union message_control control[KERNEL_MAX_BATCH];
};

static unsigned int
power_of_two(unsigned int least)
{
	unsigned int size = 1;

	while (size < least)
		size *= 2;
	return size;
}

static int
unavailable(const char *what, int error)
{
	fprintf(stderr,
			"%s: io_uring is not available: %s: %s; Linux 6.0 is needed, "
			"kernel.io_uring_disabled must be 0 (2: for nobody, 1: for root), and a "
			"container's seccomp profile must let it through. --io mmsg does without\n",
			program_invocation_short_name, what, strerror(error));
	return -1;
}

static size_t
ring_bytes(const struct uring *uring)
{
	return uring->nb_buffers * sizeof(struct io_uring_buf);
}

static void
give_back(struct uring *uring, uint16_t id, unsigned int offset)
{
	io_uring_buf_ring_add(uring->ring, uring->buffers + (size_t)id * uring->buffer_size,
			uring->buffer_size, id, io_uring_buf_ring_mask(uring->nb_buffers),
			(int)offset);
}

static int
open_buffers(struct uring *uring)
{
	struct io_uring_buf_reg reg = { 0 };
	unsigned int i;
	int rc;

	uring->nb_buffers = power_of_two(settings.batch * BATCHES);
	uring->shape.msg_namelen = sizeof(union address);
	uring->shape.msg_controllen = settings.gro ? sizeof(union message_control) : 0;
	uring->buffer_size =
			(uint32_t)(sizeof(struct io_uring_recvmsg_out) + uring->shape.msg_namelen +
					uring->shape.msg_controllen) +
			transport_room();
	uring->buffers = malloc((size_t)uring->nb_buffers * uring->buffer_size);
	uring->ring = mmap(NULL, ring_bytes(uring), PROT_READ | PROT_WRITE,
			MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	if (uring->buffers == NULL || uring->ring == MAP_FAILED)
		return unavailable("memory for buffers", ENOMEM);
	io_uring_buf_ring_init(uring->ring);
	reg.ring_addr = (uint64_t)(uintptr_t)uring->ring;
	reg.ring_entries = uring->nb_buffers;
	reg.bgid = BUFFER_GROUP;
	rc = io_uring_register_buf_ring(&uring->rx, &reg, 0);
	if (rc != 0)
		return unavailable("ring of buffers", -rc);
	for (i = 0; i < uring->nb_buffers; i++)
		give_back(uring, (uint16_t)i, i);
	io_uring_buf_ring_advance(uring->ring, (int)uring->nb_buffers);
	return 0;
}

static void
close_rings(struct uring *uring)
{
	if (uring->rx.ring_fd > 0)
		io_uring_queue_exit(&uring->rx);
	if (uring->tx.ring_fd > 0)
		io_uring_queue_exit(&uring->tx);
	if (uring->ring != NULL && uring->ring != MAP_FAILED)
		munmap(uring->ring, ring_bytes(uring));
	free(uring->buffers);
	free(uring);
}

/* The kernel frees a ring later; until then a request in it keeps the socket and its port. */
static void
disarm(struct uring *uring)
{
	struct __kernel_timespec timeout = { .tv_sec = 1 };
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->rx);
	struct io_uring_cqe *cqe;

	if (sqe == NULL || !uring->armed)
		return;
	io_uring_prep_cancel64(sqe, 0, 0);
	io_uring_sqe_set_data64(sqe, 1);
	io_uring_submit(&uring->rx);
	while (uring->armed && io_uring_wait_cqe_timeout(&uring->rx, &cqe, &timeout) == 0) {
		if (cqe->user_data == 0 && (cqe->flags & IORING_CQE_F_MORE) == 0)
			uring->armed = false;
		io_uring_cqe_seen(&uring->rx, cqe);
	}
}

static void
uring_close(struct transport *transport)
{
	disarm(transport->state);
	close_rings(transport->state);
}

static int
uring_open(struct transport *transport)
{
	struct uring *uring = calloc(1, sizeof(*uring));
	struct io_uring_params params = { 0 };
	int rc;

	if (uring == NULL)
		return unavailable("memory", ENOMEM);
	params.flags = IORING_SETUP_CQSIZE;
	params.cq_entries = power_of_two(settings.batch * BATCHES * 2);
	rc = io_uring_queue_init_params(4, &uring->rx, &params);
	if (rc == 0)
		rc = io_uring_queue_init(power_of_two(settings.batch), &uring->tx, 0);
	rc = rc != 0 ? unavailable("io_uring_setup", -rc) : open_buffers(uring);
	if (rc != 0) {
		close_rings(uring);
		return -1;
	}
	transport->state = uring;
	return 0;
}

/* Request messages, until the kernel runs out of buffers or an error ends the request. */
static void
arm(struct transport *transport, struct uring *uring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->rx);

	if (sqe == NULL)
		return;
	io_uring_prep_recvmsg_multishot(sqe, transport->fd, &uring->shape, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = BUFFER_GROUP;
	io_uring_sqe_set_data64(sqe, 0);
	uring->armed = io_uring_submit(&uring->rx) == 1;
	counter_add(&transport->stats.receive_calls, 1);
}

static void
give_back_all(struct uring *uring)
{
	unsigned int i;

	for (i = 0; i < uring->nb_taken; i++)
		give_back(uring, uring->taken[i], i);
	io_uring_buf_ring_advance(uring->ring, (int)uring->nb_taken);
	uring->nb_taken = 0;
}

/* The message in a buffer. False if it did not fit. */
static bool
read_buffer(struct uring *uring, uint16_t id, int size, struct datagram *datagram)
{
	struct io_uring_recvmsg_out *out = io_uring_recvmsg_validate(
			uring->buffers + (size_t)id * uring->buffer_size, size, &uring->shape);

	if (out == NULL || (out->flags & MSG_TRUNC) != 0)
		return false;
	*datagram = (struct datagram){
		.data = io_uring_recvmsg_payload(out, &uring->shape),
		.size = out->payloadlen,
		.peer = io_uring_recvmsg_name(out),
		.peer_size = out->namelen,
	};
	datagram->segment = message_segment(
			io_uring_recvmsg_cmsg_firsthdr(out, &uring->shape), datagram->size);
	return true;
}

/* Process a result; returns the number of messages in it: 0 or 1. */
static unsigned int
take(struct transport *transport, struct uring *uring, const struct io_uring_cqe *cqe,
		struct datagram *datagram)
{
	const uint16_t id = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);

	if ((cqe->flags & IORING_CQE_F_MORE) == 0)
		uring->armed = false;
	if (cqe->res < 0) {
		/* All buffers are full: not an error, as they are about to be returned. */
		if (cqe->res != -ENOBUFS && cqe->res != -EAGAIN)
			transport_count_error(transport, -cqe->res);
		return 0;
	}
	if ((cqe->flags & IORING_CQE_F_BUFFER) == 0)
		return 0;
	uring->taken[uring->nb_taken++] = id;
	if (!read_buffer(uring, id, cqe->res, datagram)) {
		counter_add(&transport->stats.truncated, 1);
		return 0;
	}
	counter_add(&transport->stats.received, datagram_packets(datagram));
	return 1;
}

static unsigned int
uring_receive(struct transport *transport, bool wait)
{
	struct __kernel_timespec timeout = { .tv_nsec = TRANSPORT_WAIT_MS * 1000000L };
	struct io_uring_cqe *cqes[KERNEL_MAX_BATCH], *first;
	struct uring *uring = transport->state;
	unsigned int i, n, nb_received = 0;

	give_back_all(uring);
	if (!uring->armed)
		arm(transport, uring);
	n = io_uring_peek_batch_cqe(&uring->rx, cqes, settings.batch);
	if (n == 0 && wait) {
		counter_add(&transport->stats.receive_calls, 1);
		if (io_uring_wait_cqe_timeout(&uring->rx, &first, &timeout) == 0)
			n = io_uring_peek_batch_cqe(&uring->rx, cqes, settings.batch);
		else
			counter_add(&transport->stats.empty_calls, 1);
	}
	for (i = 0; i < n; i++)
		nb_received += take(transport, uring, cqes[i], &transport->received[nb_received]);
	io_uring_cq_advance(&uring->rx, n);
	return nb_received;
}

/* All messages are completed: the kernel waits for room itself, and failures are counted. */
static unsigned int
uring_send(struct transport *transport, const struct datagram *messages, unsigned int nb_messages)
{
	struct uring *uring = transport->state;
	struct io_uring_cqe *cqe;
	uint64_t packets = 0;
	unsigned int i;

	for (i = 0; i < nb_messages; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->tx);

		message_describe(&uring->msg[i], &uring->iov[i], &uring->control[i], &messages[i]);
		io_uring_prep_sendmsg(sqe, transport->fd, &uring->msg[i], 0);
		io_uring_sqe_set_data64(sqe, i);
	}
	io_uring_submit_and_wait(&uring->tx, nb_messages);
	counter_add(&transport->stats.send_calls, 1);
	for (i = 0; i < nb_messages; i++) {
		while (io_uring_wait_cqe(&uring->tx, &cqe) == -EINTR)
			;
		if (cqe->res < 0)
			transport_count_error(transport, -cqe->res);
		else
			packets += datagram_packets(&messages[io_uring_cqe_get_data64(cqe)]);
		io_uring_cqe_seen(&uring->tx, cqe);
	}
	counter_add(&transport->stats.sent, packets);
	return nb_messages;
}

const struct transport_ops transport_uring = {
	.open = uring_open,
	.receive = uring_receive,
	.send = uring_send,
	.close = uring_close,
};
