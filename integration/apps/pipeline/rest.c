/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "control.h"
#include "rest.h"

/* Enough polls for all packets under way to leave. */
#define SETTLE_POLLS 4096
/* Deeper than any function of a poll loop. */
#define STACK_BYTES 65536

enum rest_phase rest_phase;

static unsigned int nb_lcores;
static unsigned int nb_quiet;
static unsigned int nb_settled;
static unsigned int nb_still;
static void (*print_truth)(void);
static pthread_t thread;
static bool started;
static bool ending;

static void
signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGUSR2);
}

void
rest_prepare(void)
{
	sigset_t set;

	signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static unsigned int
count(const unsigned int *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void
add(unsigned int *counter, unsigned int n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_ACQ_REL);
}

static void
pause_ms(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	nanosleep(&ms, NULL);
}

/* Returned functions leave pointers on the stack, which may refer to mbufs that were lost since. */
static __attribute__((noinline)) void
wipe_stack(void)
{
	volatile char bytes[STACK_BYTES];
	unsigned int i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = 0;
}

static void
stand_still(struct rest_lcore *lcore)
{
	wipe_stack();
	add(&nb_still, 1);
	while (rest_asked() == REST_STILL && !control_stopping())
		pause_ms();
	memset(lcore, 0, sizeof(*lcore));
	add(&nb_still, -1U);
}

void
rest_obey(struct rest_lcore *lcore)
{
	if (rest_asked() == REST_STILL) {
		stand_still(lcore);
		return;
	}
	if (!lcore->quiet) {
		lcore->quiet = true;
		add(&nb_quiet, 1);
	}
	if (lcore->settled || count(&nb_quiet) < nb_lcores)
		return;
	if (++lcore->polls == SETTLE_POLLS) {
		lcore->settled = true;
		add(&nb_settled, 1);
	}
}

static void
ask(enum rest_phase phase)
{
	__atomic_store_n(&rest_phase, phase, __ATOMIC_RELEASE);
}

static bool
stopped(void)
{
	return control_stopping() || __atomic_load_n(&ending, __ATOMIC_RELAXED);
}

/* False if the run has ended meanwhile. */
static bool
wait_for(const unsigned int *counter, unsigned int wanted)
{
	while (count(counter) != wanted && !stopped())
		pause_ms();
	return !stopped();
}

static void
go_on(void)
{
	if (rest_asked() == REST_NONE)
		return;
	ask(REST_NONE);
	wait_for(&nb_still, 0);
}

/*
 * Pending signals are handled in the order of their numbers: an earlier SIGUSR2 waits behind
 * SIGUSR1.
 */
static bool
take_go_on(void)
{
	const struct timespec at_once = { 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	return sigtimedwait(&set, NULL, &at_once) == SIGUSR2;
}

static void
rest(void)
{
	if (rest_asked() != REST_NONE) {
		if (!take_go_on())
			return;
		go_on();
	}
	nb_quiet = nb_settled = 0;
	ask(REST_SETTLE);
	if (!wait_for(&nb_settled, nb_lcores))
		return;
	ask(REST_STILL);
	if (wait_for(&nb_still, nb_lcores))
		print_truth();
}

static void *
take_signals(void *arg)
{
	sigset_t set;
	int signal;

	(void)arg;
	signals(&set);
	while (sigwait(&set, &signal) == 0 && !__atomic_load_n(&ending, __ATOMIC_RELAXED)) {
		if (signal == SIGUSR1)
			rest();
		else
			go_on();
	}
	return NULL;
}

int
rest_start(unsigned int lcores, void (*print)(void))
{
	int rc;

	nb_lcores = lcores;
	print_truth = print;
	rc = pthread_create(&thread, NULL, take_signals, NULL);
	if (rc != 0)
		return -rc;
	pthread_setname_np(thread, "app-rest");
	started = true;
	return 0;
}

void
rest_end(void)
{
	if (!started)
		return;
	__atomic_store_n(&ending, true, __ATOMIC_RELAXED);
	pthread_kill(thread, SIGUSR2);
	pthread_join(thread, NULL);
	started = false;
}
