/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/socket.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "arena.h"
#include "attach.h"
#include "callbacks.h"
#include "capture_memory.h"
#include "control_files.h"
#include "sigterm.h"
#include "grace.h"
#include "lost_ports.h"
#include "parked.h"
#include "pools.h"
#include "pump.h"
#include "capture_socket.h"
#include "worker.h"

/*
 * How long to sleep after a round with few packets: minimum, maximum, and maximum after a long
 * silence.
 */
#define SLEEP_MIN_NS 10000L
#define SLEEP_MAX_NS 100000L
#define SLEEP_SILENT_NS 1000000L
#define SILENCE_MS 100
/* This part of the mbufs counts as few: many packets at a time take less time each. */
#define LITTLE 32
/* Time between checks of everything except packets. */
#define TICK_MS 20

/* Reasons for the end of a capture. */
enum event {
	NOTHING,
	CONSUMER_GONE,
	APP_GONE,
	TOLD_TO_END,
};

struct capture {
	const struct worker *worker;
	struct pump *pump;
	struct ports ports;
	struct lost_ports lost;
};

/* How long to sleep; times in TSC cycles. */
struct rest {
	long ns;
	uint64_t last_packet;
	uint64_t silence;
};

/* Room for spec and gaps of all ports; too large for a stack. */
static struct pump the_pump;

/* What a consumer may send after its request. */
static bool
read_change(const struct capture *c)
{
	struct pmdscope_tee_change message, change;
	const ssize_t len = recv(c->worker->options->fd, &message, sizeof(message),
			MSG_DONTWAIT | MSG_TRUNC);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (len <= 0 || !pmdscope_capture_change_parse(&message, (size_t)len, &change))
		return false;
	if (change.kind == PMDSCOPE_TEE_MAPPED)
		return change.value == PUMP_LCORE &&
		       pmdscope_capture_ring_seal_tail(c->pump->producer.ring) == 0;
	c->pump->sample = RTE_MAX(change.value, 1U);
	return true;
}

static enum event
look_around(const struct capture *c, struct failure *failure)
{
	struct pollfd fds[] = {
		{ .fd = c->worker->options->fd, .events = POLLIN | POLLRDHUP },
		{ .fd = c->worker->watchdog, .events = 0 },
	};

	if (poll(fds, RTE_DIM(fds), 0) < 0)
		return NOTHING;
	if (app_ended(c->worker->state, 0)) {
		failure_set(failure, ESHUTDOWN, "the app has ended");
		return APP_GONE;
	}
	if ((fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
		return CONSUMER_GONE;
	if ((fds[0].revents & POLLIN) != 0 && !read_change(c)) {
		failure_set(failure, EPROTO, "a message from the consumer that is not valid");
		return TOLD_TO_END;
	}
	if (fds[1].revents != 0) {
		failure_set(failure, ECANCELED, "the watchdog of this capture was killed");
		return TOLD_TO_END;
	}
	if (sigterm_received()) {
		failure_set(failure, ECANCELED, "pmdscope-pdump was stopped");
		return TOLD_TO_END;
	}
	return NOTHING;
}

/* One round, and a sleep if there was little to do. */
static void
pump_or_rest(struct pump *pump, struct rest *rest)
{
	const struct timespec pause = { .tv_nsec = rest->ns };
	const unsigned int little = pump->arena.nb_mbufs / LITTLE, n = pump_round(pump);
	long most = SLEEP_MAX_NS;

	if (n != 0)
		rest->last_packet = rte_rdtsc();
	if (n >= little) {
		rest->ns = SLEEP_MIN_NS;
		return;
	}
	nanosleep(&pause, NULL);
	if (rte_rdtsc() - rest->last_packet > rest->silence)
		most = SLEEP_SILENT_NS;
	rest->ns = n > little / 2 ? RTE_MAX(rest->ns / 2, SLEEP_MIN_NS)
				  : RTE_MIN(2 * rest->ns, most);
}

static enum event
run(struct capture *c, struct failure *failure)
{
	const struct state *state = c->worker->state;
	const uint64_t tick = rte_get_tsc_hz() * TICK_MS / 1000;
	struct rest rest = {
		.ns = SLEEP_MIN_NS,
		.last_packet = rte_rdtsc(),
		.silence = rte_get_tsc_hz() * SILENCE_MS / 1000,
	};
	uint64_t next = 0;
	enum event event;

	for (;;) {
		pump_or_rest(c->pump, &rest);
		if (rte_rdtsc() < next)
			continue;
		next = rte_rdtsc() + tick;
		event = look_around(c, failure);
		if (event != NOTHING)
			return event;
		if (capture_memory_check(state, &c->ports, failure) < 0 ||
				lost_ports_check(&c->lost, c->pump, &c->ports, failure) < 0 ||
				pump_tick(c->pump, failure) < 0)
			return TOLD_TO_END;
	}
}

/* Whether all threads of the app have left our callbacks. */
static bool
silence(const struct worker *w)
{
	static struct grace grace;

	if (grace_begin(&grace, w->app->pid) && grace_wait(&grace))
		return true;
	if (app_ended(w->state, ENDING_MS))
		return false;
	complain("thread %d of the app (state %c) does not get on; the next capture frees the "
		 "memory of this one",
			(int)grace.threads[0].tid, grace.threads[0].state);
	return false;
}

/* Read what the app has copied until now. A port that is back may have the app copy more. */
static void
drain(struct pump *pump)
{
	unsigned int rounds = pump->arena.nb_mbufs;

	while (rounds-- > 0 && pump_round(pump) != 0)
		;
}

/* Keep what the app may still use for the taps that it cannot disable. */
static int
park(const struct worker *w)
{
	if (!capture_memory_retire(w->state) || !state_park(w->path, w->app))
		return WORKER_ABANDONED;
	complain("the app has removed a port or queue, and keeps its callback; a capture after its "
		 "return frees the memory for that");
	return WORKER_PARKED;
}

/*
 * Undo everything that was begun. Packets that the app copied until the end are still read,
 * unless there is no pump. If the app has ended, there is nothing to undo.
 */
static int
undo(const struct worker *w, const struct ports *ports, struct pump *pump)
{
	const enum taps_result taps = taps_disable(w->state, ports);
	const bool silent = taps != TAPS_UNANSWERED && silence(w);

	if (app_ended(w->state, silent ? 0 : ENDING_MS))
		return WORKER_DONE;
	if (!silent)
		return WORKER_ABANDONED;
	if (pump != NULL)
		drain(pump);
	control_files_refresh();
	if (taps == TAPS_LEFT)
		return park(w);
	return capture_memory_give_back(w->state) ? WORKER_DONE : WORKER_ABANDONED;
}

static int
prepare(struct capture *c, struct failure *failure)
{
	const struct worker *w = c->worker;

	if (pump_open(c->pump, w->spec, w->state, failure) < 0)
		return -1;
	if (control_files_announce(failure) < 0 || pools_check(failure) < 0 ||
			ports_find(&c->ports, w->options, failure) < 0)
		return -1;
	parked_clean(w->app, &c->ports, &w->state->others);
	if (capture_memory_take(w->state, &c->ports, w->ops_index, &c->pump->arena, failure) < 0 ||
			taps_enable(w->state, &c->pump->arena, w->app, failure) < 0)
		return -1;
	callbacks_note(w->state);
	c->pump->counts = counters_find()->addr;
	return pump_start(c->pump, failure);
}

static int
accept_consumer(const struct capture *c, struct failure *failure)
{
	const uint32_t snaplen = c->pump->producer.ring->snaplen;
	const int fd = c->worker->options->fd;
	struct failure remark = { 0 };

	if (snaplen < c->worker->spec->snaplen)
		failure_set(&remark, 0, "snaplen reduced to %u: half of ring_size", snaplen);
	if (pmdscope_capture_send(fd, PMDSCOPE_TEE_ACCEPT, (uint32_t)getpid(), remark.text) < 0 ||
			pmdscope_capture_send_ring(fd, PUMP_LCORE, c->pump->producer.ring) < 0)
		return failure_set(failure, EPIPE, "the consumer is gone");
	c->worker->state->accepted = 1;
	return 0;
}

int
worker_capture(const struct worker *w)
{
	struct failure failure = { 0 };
	struct capture c = { .worker = w, .pump = &the_pump };
	enum event event;
	int left;

	prctl(PR_SET_TIMERSLACK, 1000UL);
	if (attach(w->options, w->app, w->state, &failure) < 0) {
		if (failure.error == EAGAIN && !w->last_try)
			return WORKER_AGAIN;
		pmdscope_capture_send(w->options->fd, PMDSCOPE_TEE_REFUSE, (uint32_t)failure.error,
				failure.text);
		return WORKER_FAILED;
	}
	if (prepare(&c, &failure) < 0 || accept_consumer(&c, &failure) < 0) {
		left = undo(w, c.ports.stride != 0 ? &c.ports : NULL, NULL);
		pmdscope_capture_send(w->options->fd, PMDSCOPE_TEE_REFUSE, (uint32_t)failure.error,
				failure.text);
		return left == WORKER_DONE ? WORKER_FAILED : left;
	}
	event = run(&c, &failure);
	/* An app that has ended does not answer, and the kernel frees its memory. */
	if (event == APP_GONE) {
		pmdscope_capture_send(w->options->fd, PMDSCOPE_TEE_END, (uint32_t)failure.error,
				failure.text);
		return WORKER_DONE;
	}
	left = undo(w, &c.ports, event == TOLD_TO_END ? c.pump : NULL);
	if (event == TOLD_TO_END)
		pmdscope_capture_send(w->options->fd, PMDSCOPE_TEE_END, (uint32_t)failure.error,
				failure.text);
	return left;
}

int
worker_recover(const struct worker *w)
{
	struct failure failure;
	struct ports ports;
	bool has_ports;

	if (attach(w->options, w->app, w->state, &failure) < 0) {
		if (failure.error == ESHUTDOWN)
			return WORKER_DONE;
		if (failure.error == EAGAIN && !w->last_try)
			return WORKER_AGAIN;
		complain("cannot clean up after a killed capture: %s", failure.text);
		return WORKER_ABANDONED;
	}
	/* The worker may have been killed before it did so. */
	callbacks_note(w->state);
	has_ports = ports_find(&ports, w->options, &failure) == 0;
	return undo(w, has_ports ? &ports : NULL, NULL);
}
