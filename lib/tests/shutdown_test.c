/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The library at critical moments of the process's end. One argument: the moment. */

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include <rte_errno.h>
#include <rte_mempool.h>
#include <rte_telemetry.h>

#include "pmdscope.h"
#include "shutdown.h"
#include "state.h"
#include "test.h"

static const struct pmdscope_conf conf = {
	.sample_ms = 10,
	.leak_walk_ms = 50,
	.leak_mode = PMDSCOPE_LEAK_ALWAYS,
};

static void
start(void)
{
	CHECK(rte_pktmbuf_pool_create("pool", 4095, 0, 0, 256, 0) != NULL);
	CHECK(pmdscope_shutdown_intercepts());
	CHECK(pmdscope_init(&conf) == 0);
}

/* A line of the status of the thread with this name. */
static uint64_t
thread_status(const char *name, const char *field)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	char path[300], line[128];
	uint64_t value = UINT64_MAX;
	bool found;
	FILE *f;

	CHECK(tasks != NULL);
	while ((task = readdir(tasks)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		f = fopen(path, "r");
		found = false;
		while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
			if (strncmp(line, "Name:\t", 6) == 0)
				found = strncmp(line + 6, name, strlen(name)) == 0 &&
					line[6 + strlen(name)] == '\n';
			if (found && strncmp(line, field, strlen(field)) == 0)
				value = strtoull(line + strlen(field) + 1, NULL, 16);
		}
		if (f != NULL)
			fclose(f);
	}
	closedir(tasks);
	return value;
}

/* The app's handlers run on the app's threads; a fault is handled by the thread that causes it. */
static void
test_signals(void)
{
	sigset_t mine;
	uint64_t blocked;
	int signo;

	start();
	blocked = thread_status("pmdscope", "SigBlk:");
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	for (signo = 1; signo < 32; signo++) {
		const bool fault = signo == SIGSEGV || signo == SIGBUS || signo == SIGFPE ||
				   signo == SIGILL || signo == SIGTRAP || signo == SIGABRT ||
				   signo == SIGSYS;

		if (signo != SIGKILL && signo != SIGSTOP)
			CHECK_U64(blocked >> (signo - 1) & 1, !fault);
		CHECK(!sigismember(&mine, signo));
	}
	CHECK(rte_eal_cleanup() == 0);
}

/*
 * Telemetry keeps running after a fini, the library can start again, and the cleanup finds nothing
 * to do.
 */
static void
test_again(void)
{
	start();
	pmdscope_fini();
	pmdscope_fini();
	CHECK(tel_ask("/pmdscope", "") == NULL);
	CHECK(tel_ask("/info", "") != NULL);
	CHECK(pmdscope_init(&conf) == 0);
	CHECK(tel_ask("/pmdscope", "") != NULL);
	pmdscope_fini();
	CHECK(rte_eal_cleanup() == 0);
	CHECK(pmdscope_init(&conf) == -ESHUTDOWN);
	pmdscope_fini();
}

/*
 * A forked child neither waits for threads that it does not have nor disables its parent's
 * telemetry.
 */
static void
test_fork(void)
{
	pid_t child;
	int status;

	start();
	CHECK(tel_ask("/info", "") != NULL);
	/* The lock may be held at the moment of a fork. */
	pthread_mutex_lock(&pmdscope_state.lock);
	child = fork();
	if (child == 0) {
		pmdscope_fini();
		CHECK(pmdscope_control_stop(0));
		test_dir[0] = '\0'; /* It belongs to the parent. */
		exit(7);
	}
	pthread_mutex_unlock(&pmdscope_state.lock);
	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK(tel_ask("/pmdscope", "") != NULL);
	CHECK(rte_eal_cleanup() == 0);
}

/* A signal handler interrupts the holder of the state lock, while a request waits. */
static void
test_lock_held(void)
{
	const int fd = (start(), tel_connect());

	pthread_mutex_lock(&pmdscope_state.lock);
	CHECK(write(fd, "/pmdscope", 9) == 9);
	rte_delay_us_sleep(50000);
	CHECK(rte_eal_cleanup() == 0);
	pthread_mutex_unlock(&pmdscope_state.lock);
	/* The control thread has the lock now, and finds that it must not continue. */
	rte_delay_us_sleep(50000);
}

static bool asked, release;

static int
answer_late(const char *cmd __rte_unused, const char *params __rte_unused, struct rte_tel_data *d)
{
	__atomic_store_n(&asked, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&release, __ATOMIC_ACQUIRE))
		rte_delay_us_sleep(1000);
	rte_tel_data_string(d, "late");
	return 0;
}

/* A request that does not end: the wait ends, and the EAL is kept. */
static void
test_stuck_request(void)
{
	int fd;

	CHECK(rte_telemetry_register_cmd("/late", answer_late, "answers late") == 0);
	start();
	fd = tel_connect();
	CHECK(write(fd, "/late", 5) == 5);
	WAIT_FOR(__atomic_load_n(&asked, __ATOMIC_ACQUIRE));
	CHECK(rte_eal_cleanup() == -1);
	CHECK(rte_errno == EBUSY);
	CHECK(rte_mempool_lookup("pool") != NULL);
	__atomic_store_n(&release, true, __ATOMIC_RELEASE);
	CHECK(rte_eal_cleanup() == 0);
}

static void
check_leak_mode(const char *value, bool armed)
{
	if (value != NULL)
		setenv("PMDSCOPE_LEAK_MODE", value, 1);
	CHECK(pmdscope_init(&(struct pmdscope_conf){
			      .sample_ms = 10,
			      .leak_mode = PMDSCOPE_LEAK_NEVER,
	      }) == 0);
	if (armed)
		WAIT_FOR(pmdscope_stamp_now() != 0);
	else
		rte_delay_us_sleep(100000);
	CHECK((pmdscope_stamp_now() != 0) == armed);
	pmdscope_fini();
}

static void
test_environment(void)
{
	CHECK(rte_pktmbuf_pool_create("pool", 4095, 0, 0, 256, 0) != NULL);
	check_leak_mode(NULL, false);
	check_leak_mode("always", true);
	check_leak_mode("sometimes", false);
	check_leak_mode("", false);
}

static int
parse(struct pmdscope_conf *parsed, char **argv)
{
	int argc = 0, left;

	while (argv[argc] != NULL)
		argc++;
	left = pmdscope_parse_args(argc, argv, parsed);
	CHECK(left < 0 || (left <= argc && argv[left] == NULL));
	return left;
}

#define ARGS(...) \
	(char *[]) \
	{ \
		(char *)(uintptr_t) "app", __VA_ARGS__, NULL \
	}
#define ARG(text) ((char[]){ text })

static void
test_args(void)
{
	struct pmdscope_conf parsed = { .stall_us = 5 };
	char **argv;

	argv = ARGS(ARG("-l"), ARG("0"), ARG("--pmdscope=leak_mode=always,sample_ms=50"), ARG("-m"),
			ARG("64"), ARG("--pmdscope"), ARG("leak_walk_ms=70"), ARG("--pmdscoped"),
			ARG("--"), ARG("--pmdscope=x=y"));
	CHECK(parse(&parsed, argv) == 8);
	CHECK(strcmp(argv[4], "64") == 0 && strcmp(argv[5], "--pmdscoped") == 0);
	CHECK(strcmp(argv[6], "--") == 0 && strcmp(argv[7], "--pmdscope=x=y") == 0);
	CHECK(parsed.leak_mode == PMDSCOPE_LEAK_ALWAYS);
	CHECK_U64(parsed.sample_ms, 50);
	CHECK_U64(parsed.leak_walk_ms, 70);
	CHECK_U64(parsed.stall_us, 5);
	CHECK_U64(parsed.flags, 0);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=queue_counters=on_demand"))) == 1);
	CHECK_U64(parsed.flags, PMDSCOPE_F_COUNT_ON_DEMAND);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=queue_counters=always"))) == 1);
	CHECK_U64(parsed.flags, 0);

	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=queue_counters=never"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=sample_ms=60,leak_mode=sometimes"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=sample_ms=0"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=sample_ms=-1"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=sample_ms=4294967296"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=sample_ms=5x"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=sample_ms"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope=tee_group=x"))) == -EINVAL);
	CHECK(parse(&parsed, ARGS(ARG("--pmdscope"))) == -EINVAL);
	CHECK_U64(parsed.sample_ms, 50);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "again", test_again },
	{ "args", test_args },
	{ "environment", test_environment },
	{ "fork", test_fork },
	{ "lock_held", test_lock_held },
	{ "signals", test_signals },
	{ "stuck_request", test_stuck_request },
};

int
main(int argc, char **argv)
{
	unsigned int i;

	CHECK(argc == 2);
	test_eal("0");
	for (i = 0; i < RTE_DIM(tests); i++)
		if (strcmp(tests[i].name, argv[1]) == 0) {
			tests[i].run();
			return 0;
		}
	return 2;
}
