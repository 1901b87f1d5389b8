/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_thread.h>
#include <rte_version.h>

#include "args.h"
#include "clock.h"
#include "lcore.h"
#include "ledger.h"
#include "log.h"
#include "pool.h"
#include "port.h"
#include "queue.h"
#include "readers.h"
#include "ring.h"
#include "shutdown.h"
#include "state.h"
#include "capture.h"
#include "telemetry.h"
#include "window.h"

#define THREAD_NAME "pmdscope"
#define FLAGS (PMDSCOPE_F_NO_TEE | PMDSCOPE_F_FINI_FIRST | PMDSCOPE_F_COUNT_ON_DEMAND)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_SEC UINT64_C(1000000000)
#define DISCOVER_NS (200 * NS_PER_MS)
#define EVENTS_MAX 16
/* Pause between two slices of a walk over the mbufs. */
#define SLICE_PAUSE_MS 4
/* How often a waiting telemetry request checks whether the app ends. */
#define LOCK_WAIT_MS 20

#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
typedef rte_thread_t thread_t;
typedef uint32_t thread_ret_t;
#else
typedef pthread_t thread_t;
typedef void *thread_ret_t;
#endif

int pmdscope_logtype;
uint64_t pmdscope_window_now = 1;
unsigned int pmdscope_traced_units;

struct pmdscope_state pmdscope_state = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.stopping_lcore = LCORE_ID_ANY,
};

/* State of the control thread. */
enum control_state {
	STOPPED, /* Not running, or finished: it will not call DPDK any more. */
	RESTING, /* It waits for an event or for the state lock. */
	WORKING, /* It may be in a call of DPDK. */
	FENCED,	 /* Forbidden to continue; it was RESTING. */
};

static struct {
	thread_t thread;
	pthread_t self; /* The same as a pthread_t. */
	pid_t pid;	/* Process that it was started in. */
	enum control_state state;
	bool stop_asked;
	int epfd;
	int timer;
	int wake; /* Readable once the thread has to end. */
	uint64_t window_start_ns;
	uint64_t discovered_ns;
} control;

static uint64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* One window at most, so that each has a sample. Windows that were missed are skipped. */
static void
advance_window(uint64_t now)
{
	const uint64_t length = pmdscope_state.conf.window_ms * NS_PER_MS;

	if (now - control.window_start_ns < length)
		return;
	control.window_start_ns += length;
	if (now - control.window_start_ns >= length)
		control.window_start_ns = now;
	__atomic_store_n(&pmdscope_window_now, pmdscope_window_now + 1, __ATOMIC_RELAXED);
}

static void
tick(void)
{
	const uint64_t now = monotonic_ns();

	pmdscope_clock_tick();
	advance_window(now);
	pmdscope_lcore_tick();
	if (now - control.discovered_ns >= DISCOVER_NS) {
		control.discovered_ns = now;
		pmdscope_queue_discover(pmdscope_readers_want_queues(now));
		pmdscope_queue_reclaim();
		pmdscope_state.shares_cpu = pmdscope_lcore_shares_cpu();
	}
	pmdscope_port_sample();
	pmdscope_pool_sample();
	pmdscope_ring_sample();
	pmdscope_ledger_tick(now);
	if ((pmdscope_state.conf.flags & PMDSCOPE_F_NO_TEE) == 0)
		pmdscope_capture_tick();
}

/* A capture that has just begun does not wait for the next discovery of queues. */
static void
on_capture_event(const struct epoll_event *event)
{
	pmdscope_capture_event(event->data.ptr, event->events);
	if (!pmdscope_queue_counting() && pmdscope_capture_nb_sessions() != 0)
		pmdscope_queue_discover(true);
}

/* False when the thread has to end. */
static bool
dispatch(const struct epoll_event *event)
{
	uint64_t expirations;

	if (event->data.ptr == &control.wake)
		return false;
	if (event->data.ptr != NULL)
		on_capture_event(event);
	else if (read(control.timer, &expirations, sizeof(expirations)) > 0)
		tick();
	return true;
}

static bool
move_control(enum control_state from, enum control_state to)
{
	return __atomic_compare_exchange_n(
			&control.state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static enum control_state
control_state(void)
{
	return __atomic_load_n(&control.state, __ATOMIC_ACQUIRE);
}

static void stop_parts(void);

/* Returns the time to wait for the next event, milliseconds; -2: end. State lock held. */
static int
serve(const struct epoll_event *events, int n)
{
	int i;

	if (n == 0)
		pmdscope_ledger_slice();
	for (i = 0; i < n; i++)
		if (!dispatch(&events[i]))
			return -2;
	return pmdscope_ledger_busy() ? SLICE_PAUSE_MS : -1;
}

static thread_ret_t
control_main(void *arg __rte_unused)
{
	struct epoll_event events[EVENTS_MAX];
	int timeout = -1;

	control.self = pthread_self();
	while (timeout >= -1) {
		int n = epoll_wait(control.epfd, events, EVENTS_MAX, timeout);

		pthread_mutex_lock(&pmdscope_state.lock);
		if (!move_control(RESTING, WORKING)) {
			pthread_mutex_unlock(&pmdscope_state.lock);
			break;
		}
		timeout = serve(events, n);
		if (timeout < -1)
			stop_parts();
		move_control(WORKING, timeout < -1 ? STOPPED : RESTING);
		pthread_mutex_unlock(&pmdscope_state.lock);
	}
	return (thread_ret_t)0;
}

/* It inherits a mask of signals that leaves the app's handlers to the app's threads. */
static int
thread_start(void)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
	sigset_t blocked, before;
	unsigned int i;
	int ret;

	sigfillset(&blocked);
	for (i = 0; i < RTE_DIM(faults); i++)
		sigdelset(&blocked, faults[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	control.pid = getpid();
	control.stop_asked = false;
	pmdscope_state.stopping_lcore = LCORE_ID_ANY;
	__atomic_store_n(&control.state, RESTING, __ATOMIC_RELEASE);
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	ret = -rte_thread_create_control(&control.thread, THREAD_NAME, control_main, NULL);
#else
	ret = rte_ctrl_thread_create(&control.thread, THREAD_NAME, NULL, control_main, NULL);
#endif
	if (ret != 0)
		__atomic_store_n(&control.state, STOPPED, __ATOMIC_RELEASE);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

/* Writes once: the descriptor may soon belong to another file. */
static void
ask_thread_to_stop(void)
{
	const uint64_t one = 1;

	if (__atomic_exchange_n(&control.stop_asked, true, __ATOMIC_ACQ_REL))
		return;
	__atomic_store_n(&pmdscope_state.stopping_lcore, rte_lcore_id(), __ATOMIC_RELEASE);
	/* Cannot fail: the counter is at 0 and the descriptor ours. */
	while (write(control.wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void
join_thread(void)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	rte_thread_join(control.thread, NULL);
#else
	pthread_join(control.thread, NULL);
#endif
}

bool
pmdscope_control_is_here(void)
{
	return control.pid == getpid();
}

bool
pmdscope_control_stop(unsigned int timeout_ms)
{
	unsigned int ms;

	if (control_state() == STOPPED || !pmdscope_control_is_here() ||
			pthread_equal(control.self, pthread_self()))
		return true;
	ask_thread_to_stop();
	for (ms = 0; ms < timeout_ms; ms++) {
		if (control_state() == STOPPED)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = NS_PER_MS }, NULL);
	}
	return move_control(RESTING, FENCED) || control_state() != WORKING;
}

bool
pmdscope_state_lock_to_answer(void)
{
	struct timespec until;
	int ret;

	do {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOCK_WAIT_MS * (long)NS_PER_MS;
		until.tv_sec += until.tv_nsec / (long)NS_PER_SEC;
		until.tv_nsec %= (long)NS_PER_SEC;
		ret = pthread_mutex_timedlock(&pmdscope_state.lock, &until);
	} while (ret != 0 && !__atomic_load_n(&pmdscope_state.ending, __ATOMIC_ACQUIRE));
	return ret == 0;
}

static void
close_fds(void)
{
	const int fds[] = { control.epfd, control.timer, control.wake };
	unsigned int i;

	for (i = 0; i < RTE_DIM(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static int
watch(int fd, void *ptr)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = ptr };

	return epoll_ctl(control.epfd, EPOLL_CTL_ADD, fd, &event);
}

static int
open_fds(uint32_t sample_ms)
{
	const struct timespec period = {
		.tv_sec = sample_ms / 1000,
		.tv_nsec = sample_ms % 1000 * (long)NS_PER_MS,
	};
	const struct itimerspec spec = { .it_interval = period, .it_value = period };
	int ret = 0;

	control.epfd = epoll_create1(EPOLL_CLOEXEC);
	control.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	control.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (control.epfd < 0 || control.timer < 0 || control.wake < 0 ||
			timerfd_settime(control.timer, 0, &spec, NULL) != 0 ||
			watch(control.timer, NULL) != 0 ||
			watch(control.wake, &control.wake) != 0) {
		ret = -errno;
		close_fds();
	}
	return ret;
}

/* Give a field that is 0 its default; false when it is out of range. */
static bool
settle(const char *name, uint32_t *value, uint32_t by_default, uint32_t min, uint32_t max)
{
	if (*value == 0)
		*value = by_default;
	if (*value >= min && *value <= max)
		return true;
	PMDSCOPE_LOG(ERR, "%s is %u, must be %u to %u", name, *value, min, max);
	return false;
}

static int
settle_conf(const struct pmdscope_conf *given, struct pmdscope_conf *conf)
{
	*conf = (struct pmdscope_conf){ 0 };
	if (given != NULL)
		*conf = *given;
	if (!settle("sample_ms", &conf->sample_ms, 100, 10, 10000) ||
			!settle("window_ms", &conf->window_ms, 1000, 100, 60000) ||
			!settle("stall_us", &conf->stall_us, 1000, 1, 10000000) ||
			!settle("tee_sessions", &conf->tee_sessions, 4, 1, 8) ||
			!settle("tee_session_mb", &conf->tee_session_mb, 64, 1, 1024) ||
			!settle("tee_filter_cycles", &conf->tee_filter_cycles, 400, 50, 100000) ||
			!settle("leak_hold_ms", &conf->leak_hold_ms, 1000, 100, 3600000) ||
			!settle("leak_walk_ms", &conf->leak_walk_ms, 250, 50, 60000))
		return -EINVAL;
	if (conf->leak_mode > PMDSCOPE_LEAK_NEVER) {
		PMDSCOPE_LOG(ERR, "leak_mode %u is not known", (unsigned int)conf->leak_mode);
		return -EINVAL;
	}
	if ((conf->flags & ~FLAGS) != 0) {
		PMDSCOPE_LOG(ERR, "flags %#x are not known", conf->flags & ~FLAGS);
		return -EINVAL;
	}
	pmdscope_args_environment(conf);
	conf->window_ms = RTE_MAX(conf->window_ms, conf->sample_ms);
	conf->leak_walk_ms = RTE_MAX(conf->leak_walk_ms, conf->sample_ms);
	return 0;
}

static void
start_parts(void)
{
	const struct pmdscope_conf *conf = &pmdscope_state.conf;

	pmdscope_clock_start();
	control.window_start_ns = monotonic_ns();
	control.discovered_ns = control.window_start_ns;
	pmdscope_lcore_start(conf->stall_us);
	pmdscope_readers_start();
	pmdscope_queue_start(pmdscope_readers_want_queues(control.window_start_ns));
	pmdscope_pool_sample();
	pmdscope_ring_sample();
	pmdscope_ledger_start(conf);
	if ((conf->flags & PMDSCOPE_F_NO_TEE) == 0)
		pmdscope_capture_start(conf, control.epfd);
}

static void
stop_parts(void)
{
	if ((pmdscope_state.conf.flags & PMDSCOPE_F_NO_TEE) == 0)
		pmdscope_capture_stop();
	pmdscope_ledger_stop();
	pmdscope_queue_stop();
	pmdscope_lcore_stop();
	pmdscope_pool_stop();
	pmdscope_ring_stop();
	pmdscope_state.running = false;
}

/* State lock held; the control thread begins by waiting for it. */
static int
start(const struct pmdscope_conf *given)
{
	int ret;

	if (pmdscope_state.running)
		return -EALREADY;
	ret = settle_conf(given, &pmdscope_state.conf);
	if (ret == 0)
		ret = open_fds(pmdscope_state.conf.sample_ms);
	if (ret != 0)
		return ret;
	start_parts();
	ret = thread_start();
	if (ret != 0) {
		PMDSCOPE_LOG(ERR, "the control thread could not start: %s", strerror(-ret));
		stop_parts();
		close_fds();
		return ret;
	}
	pmdscope_state.running = true;
	pmdscope_rows_changed();
	ret = pmdscope_telemetry_register();
	if (ret != 0)
		PMDSCOPE_LOG(WARNING, "no telemetry: %s", strerror(-ret));
	return 0;
}

/* Start nothing that the end of the EAL could crash, if the library would not notice that end. */
static int
expect_end(const struct pmdscope_conf *given)
{
	const bool fini_first = given != NULL && (given->flags & PMDSCOPE_F_FINI_FIRST) != 0;

	if (__atomic_load_n(&pmdscope_state.ending, __ATOMIC_ACQUIRE))
		return -ESHUTDOWN;
	if (!pmdscope_shutdown_intercepts() && !fini_first) {
		PMDSCOPE_LOG(ERR,
				"cannot see the end of the EAL, at which the app could crash: link "
				"libpmdscope before DPDK's libraries (pkg-config --libs pmdscope "
				"libdpdk); with DPDK's static ones add -Wl,--wrap=rte_eal_cleanup "
				"-Wl,--wrap=rte_exit; or set PMDSCOPE_F_FINI_FIRST");
		return -ENOTSUP;
	}
	pmdscope_shutdown_prepare();
	return 0;
}

int
pmdscope_init(const struct pmdscope_conf *conf)
{
	int ret;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return -ENOTSUP;
	pthread_mutex_lock(&pmdscope_state.lock);
	if (pmdscope_logtype == 0)
		pmdscope_logtype = rte_log_register_type_and_pick_level("pmdscope", RTE_LOG_NOTICE);
	ret = expect_end(conf);
	if (ret == 0)
		ret = start(conf);
	pthread_mutex_unlock(&pmdscope_state.lock);
	return ret;
}

void
pmdscope_fini(void)
{
	bool was_running;

	/*
	 * A forked child has no control thread, and a copy of its parent's lock, which may be held.
	 */
	if (!pmdscope_control_is_here() ||
			__atomic_load_n(&pmdscope_state.ending, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&pmdscope_state.lock);
	was_running = pmdscope_state.running;
	pmdscope_state.running = false;
	pthread_mutex_unlock(&pmdscope_state.lock);
	if (!was_running)
		return;

	/* The thread may need the lock before it can end. */
	ask_thread_to_stop();
	join_thread();
	close_fds();
	if (!pmdscope_shutdown_intercepts())
		pmdscope_shutdown_telemetry();
}
