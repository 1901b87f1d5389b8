/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-pdump: packets of an app that called rte_pdump_init(), for a process that
 * uses the protocol of the capture ring. This process never attaches to the app: it forks processes
 * that do so, and cleans up after them.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <rte_version.h>

#include "app.h"
#include "arena.h"
#include "launch.h"
#include "locks.h"
#include "ops_table.h"
#include "options.h"
#include "sigterm.h"
#include "state.h"
#include "capture_socket.h"
#include "worker.h"

/* Timeout for the request of a consumer. */
#define REQUEST_MS 2000
/* Number of recoveries; each of them may be killed as well. */
#define RECOVERIES 3
/* Number of attempts to attach if the app changes its memory. */
#define ATTACH_TRIES 5
/* Timeout for a held lock. */
#define HELD_MS 2000

/* Too large for a stack. */
static struct pmdscope_capture_spec the_spec;

static int
read_request(int fd, struct pmdscope_capture_spec *spec, struct failure *failure)
{
	static uint8_t buf[PMDSCOPE_CAPTURE_REQUEST_MAX + 1];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	ssize_t len;
	int ret;

	if (poll(&pfd, 1, REQUEST_MS) <= 0)
		return failure_set(failure, ETIMEDOUT, "no request within 2 seconds");
	len = recv(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC);
	if (len <= 0)
		return failure_set(failure, EPIPE, "no request: %s",
				len < 0 ? strerror(errno) : "the consumer hung up");
	ret = pmdscope_capture_request_parse(
			buf, (size_t)len, spec, failure->text, sizeof(failure->text));
	failure->error = -ret;
	if (ret == 0 && spec->leaked)
		return failure_set(failure, ENOTSUP,
				"lost packets are known to apps with libpmdscope only");
	return ret < 0 ? -1 : 0;
}

static void
add_taps(const struct port *port, const struct pmdscope_capture_spec *spec, uint8_t dir,
		struct state *state)
{
	const unsigned int end = dir == PMDSCOPE_DIR_RX ? port->nb_rxq : port->nb_txq;
	struct state_tap *tap;
	unsigned int queue;

	for (queue = 0; queue < end; queue++) {
		if ((spec->dirs[port->id][queue] & dir) == 0)
			continue;
		/* If there are too many, the last one is counted but not stored. */
		if (state->nb_taps++ >= STATE_MAX_TAPS)
			continue;
		tap = &state->taps[state->nb_taps - 1];
		memcpy(tap->device, port->device, sizeof(tap->device));
		tap->port = port->id;
		tap->queue = (uint16_t)queue;
		tap->dir = dir;
	}
}

static int
select_taps(const struct worker *w, struct failure *failure)
{
	const struct options *o = w->options;
	unsigned int i, nb;

	for (i = 0; i < o->nb_ports; i++) {
		add_taps(&o->ports[i], w->spec, PMDSCOPE_DIR_RX, w->state);
		add_taps(&o->ports[i], w->spec, PMDSCOPE_DIR_TX, w->state);
	}
	nb = w->state->nb_taps;
	if (nb == 0)
		return failure_set(failure, ENODEV, "the app has no such port or queue");
	if (nb <= STATE_MAX_TAPS)
		return 0;
	w->state->nb_taps = 0;
	return failure_set(failure, E2BIG, "%u queues are more than %u: select some", nb,
			STATE_MAX_TAPS);
}

static int
find_ops(struct worker *w, struct failure *failure)
{
	static struct rte_mempool_ops_table table;

	if (ops_table_read(&table, failure) < 0)
		return -1;
	w->ops_index = ops_table_index(&table, ARENA_OPS);
	if (w->ops_index >= 0)
		return 0;
	return failure_set(failure, ENOTSUP,
			"the app has no mempool ops " ARENA_OPS
			": link it with librte_mempool_ring");
}

static int
await_worker(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/*
 * Run a worker in a process of its own; its exit code, or -1 when it was killed. Its end of
 * the pipe is hung up when this process dies for any reason.
 */
static int
run_worker_once(struct worker *w, const char *path, int (*run)(const struct worker *))
{
	int ret, watchdog[2];
	pid_t pid;

	if (pipe(watchdog) < 0)
		return -1;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(watchdog[1]);
		w->watchdog = watchdog[0];
		w->path = path;
		ret = run(w);
		/* The watchdog may already be dead. */
		if (ret == WORKER_DONE || ret == WORKER_FAILED)
			unlink(path);
		app_leave(w->app);
		_exit(ret);
	}
	sigterm_forward_to(pid);
	close(watchdog[0]);
	ret = pid > 0 ? await_worker(pid) : -1;
	sigterm_forward_to(0);
	close(watchdog[1]);
	if (pid > 0)
		app_sweep(w->app, pid);
	return ret;
}

static int
run_worker(struct worker *w, const char *path, int (*run)(const struct worker *))
{
	int tries, ret = WORKER_AGAIN;

	for (tries = 1; ret == WORKER_AGAIN; tries++) {
		w->last_try = tries == ATTACH_TRIES;
		ret = run_worker_once(w, path, run);
	}
	return ret;
}

/* A worker cannot copy the app's locks while one is held. */
static int
await_locks(const struct app *app, struct failure *failure)
{
	char lock[LOCKS_NAME_MAX];

	if (locks_wait(app, HELD_MS, lock) != LOCKS_HELD)
		return 0;
	return failure_set(failure, EBUSY,
			"%s of the app has been held for %u s: let it go on, else restart it", lock,
			HELD_MS / 1000);
}

/* Undo the changes that a killed worker left in the app, and close its file. */
static bool
recover(struct worker *w, struct state_file *file, struct failure *failure)
{
	unsigned int i;
	int ret = -1;

	w->state = file->state;
	for (i = 0; i < RECOVERIES && ret < 0 && app_alive(w->app); i++) {
		app_sweep(w->app, w->state->worker);
		if (await_locks(w->app, failure) < 0)
			break;
		ret = run_worker(w, file->path, worker_recover);
	}
	if (ret == WORKER_DONE || !app_alive(w->app)) {
		state_remove(file);
		return true;
	}
	state_close(file);
	return ret == WORKER_PARKED;
}

static int
cannot_recover(const struct app *app, struct failure *failure)
{
	if (failure->text[0] != '\0')
		return -1;
	if (state_parked_full(app))
		return failure_set(failure, EBUSY,
				"the app removed ports during more than %u captures and keeps their callbacks: add "
				"them again, or restart it",
				STATE_MAX_PARKED);
	return failure_set(failure, EAGAIN,
			"what an earlier capture left in the app cannot be undone yet; "
			"try again later");
}

static int
recover_left(struct worker *w, struct failure *failure)
{
	struct state_file left;

	if (await_locks(w->app, failure) < 0)
		return -1;
	while (state_find_left(&left, w->app))
		if (!recover(w, &left, failure))
			return cannot_recover(w->app, failure);
	return 0;
}

/* The worker was killed by another process. */
static void
clean_up(struct worker *w, struct state_file *file)
{
	const bool accepted = file->state->accepted;
	struct failure failure = { 0 };
	const char *text;

	if (recover(w, file, &failure))
		text = "pmdscope-pdump was killed; the app has been cleaned up after it";
	else if (failure.text[0] != '\0')
		text = failure.text;
	else
		text = "pmdscope-pdump was killed; the next capture cleans up after it";
	pmdscope_capture_send(w->options->fd, accepted ? PMDSCOPE_TEE_END : PMDSCOPE_TEE_REFUSE,
			EIO, text);
}

/* The layout of the app's locks is known only for tested releases. */
static int
check_release(const struct options *options, const struct app *app, struct failure *failure)
{
	if (!locks_tested_release(RTE_VERSION)) {
		if (options->force)
			return 0;
		return failure_set(failure, ENOTSUP,
				"not tested with %s, whose memory may be laid out otherwise; force",
				rte_version());
	}
	if (locks_layout_matches(app))
		return 0;
	return failure_set(failure, EPROTONOSUPPORT,
			"the app's memory is laid out otherwise: its DPDK was changed or configured; build "
			"pmdscope-pdump with it");
}

/* A capture uses all the memory, so there can be only one. */
static int
check_alone(const struct state_file *file, const struct app *app, struct failure *failure)
{
	const pid_t other = state_find_other(file, app);

	if (other == 0)
		return 0;
	return failure_set(failure, EBUSY, "process %d captures from the app; stop it first",
			(int)other);
}

static int
capture(const struct options *options, struct failure *failure)
{
	struct worker w = { .options = options, .spec = &the_spec };
	struct state_file file;
	struct app app;
	int ret;

	w.app = &app;
	if (read_request(options->fd, w.spec, failure) < 0 ||
			app_open(&app, options->pid, options->file_prefix, failure) < 0 ||
			check_release(options, &app, failure) < 0)
		return -1;
	if (locks_attach_forbidden(&app))
		return failure_set(failure, EACCES,
				"the app forbids others to attach (rte_mp_disable()), as Open vSwitch "
				"without pdump does");
	if (recover_left(&w, failure) < 0)
		return -1;
	if (sigterm_received())
		return failure_set(failure, ECANCELED, "pmdscope-pdump was stopped");
	if (find_ops(&w, failure) < 0 || state_create(&file, &app, failure) < 0)
		return -1;
	w.state = file.state;
	if (check_alone(&file, &app, failure) < 0 || select_taps(&w, failure) < 0) {
		state_remove(&file);
		return -1;
	}
	ret = run_worker(&w, file.path, worker_capture);
	if (ret < 0)
		clean_up(&w, &file);
	else if (ret == WORKER_ABANDONED || ret == WORKER_PARKED)
		state_close(&file);
	else
		state_remove(&file);
	return ret == WORKER_DONE ? 0 : 1;
}

int
main(int argc, char **argv)
{
	struct failure failure = { 0 };
	struct options options;
	char why[256];
	int ret;

	switch (options_parse(argc, argv, &options, why, sizeof(why))) {
	case OPTIONS_SHOWN:
		return 0;
	case OPTIONS_WRONG:
		complain("%s; see --help", why);
		return 2;
	case OPTIONS_RUN:
		break;
	}
	/* pmdscope recognises the process by this name, whatever the file is called. */
	prctl(PR_SET_NAME, "pmdscope-pdump");
	sigterm_watch();
	/* A terminal's ^C and ^Z are for the consumer, which ends us by closing its socket. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTSTP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	ret = launch(&options, argv, &failure);
	if (ret == 0)
		ret = capture(&options, &failure);
	if (ret < 0) {
		pmdscope_capture_send(options.fd, PMDSCOPE_TEE_REFUSE, (uint32_t)failure.error,
				failure.text);
		complain("%s", failure.text);
		return 1;
	}
	return ret;
}
