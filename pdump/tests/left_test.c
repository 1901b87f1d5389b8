/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Files of killed processes in the runtime directory: state files, sockets. */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <rte_version.h>

#include "app.h"
#include "state.h"
#include "test.h"

static char dir[] = "/tmp/pmdscope-pdump-XXXXXX";

static void
write_file(const char *name, const void *data, size_t len)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len);
	close(fd);
}

static bool
exists(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static struct app
this_app(void)
{
	struct app app = { .pid = getpid(), .start = app_process_stat(getpid(), APP_STAT_START) };

	snprintf(app.runtime_dir, sizeof(app.runtime_dir), "%s", dir);
	return app;
}

/* Create a state in a process that then dies. */
static void
die_with_state(const struct app *app)
{
	struct state_file file;
	struct failure failure;
	const pid_t pid = fork();

	if (pid == 0) {
		CHECK(state_create(&file, app, &failure) == 0);
		file.state->nb_taps = 1;
		file.state->taps[0].dir = PMDSCOPE_DIR_RX;
		strcpy(file.state->taps[0].device, "net_null0");
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
}

/* Its maker was killed, but not waited for yet: /proc still lists it. */
static void
test_draft_of_zombie(const struct app *app)
{
	struct state_file file;
	siginfo_t info;
	char name[64];
	pid_t pid;

	pid = fork();
	if (pid == 0)
		_exit(0);
	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	snprintf(name, sizeof(name), "pmdscope-pdump-new.%d", (int)pid);
	write_file(name, "", 0);
	CHECK(!state_find_left(&file, app));
	CHECK(!exists(name));
	waitpid(pid, NULL, 0);
}

static void *
end_later(void *ready)
{
	CHECK(write(*(int *)ready, "", 1) == 1);
	usleep(100000);
	_exit(0);
}

/* Its maker has no memory any more, but still has its files. */
static void
test_ending_owner(const struct app *app)
{
	struct state_file file;
	struct failure failure;
	pthread_t thread;
	int ready[2];
	pid_t pid;
	char byte;

	CHECK(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(state_create(&file, app, &failure) == 0);
		CHECK(pthread_create(&thread, NULL, end_later, &ready[1]) == 0);
		/* /proc shows the state of this thread for the process. */
		syscall(SYS_exit, 0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	WAIT_FOR(app_process_stat(pid, APP_STAT_VSIZE) == 0);
	CHECK(state_find_left(&file, app));
	state_remove(&file);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
}

/* The app's user can write what indexes arrays of this program. */
static void
test_hostile_state(const struct app *app)
{
	static const struct state_tap good = { .device = "net_null0", .dir = PMDSCOPE_DIR_RX };
	struct state_tap taps[] = { good, good, good, good, good };
	struct state state = { .nb_taps = STATE_MAX_TAPS + 1 };
	struct state_file file;
	unsigned int i;

	CHECK_U64(state_nb_taps(&state), STATE_MAX_TAPS);
	taps[1].port = RTE_MAX_ETHPORTS;
	taps[2].queue = UINT16_MAX;
	taps[3].dir = PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX;
	memset(taps[4].device, 'x', sizeof(taps[4].device));
	for (i = 0; i < RTE_DIM(taps); i++) {
		die_with_state(app);
		CHECK(state_find_left(&file, app));
		file.state->taps[0] = taps[i];
		state_close(&file);
		CHECK(state_find_left(&file, app) == (i == 0));
		if (i == 0)
			state_remove(&file);
	}
}

static void
test_state(void)
{
	struct app app = this_app(), other = app;
	struct state_file file, live;
	struct failure failure;
	uint8_t garbage[sizeof(struct state)];
	unsigned int i;

	CHECK(!state_find_left(&file, &app));
	CHECK(state_create(&live, &app, &failure) == 0);
	CHECK(!state_find_left(&file, &app)); /* Its owner lives. */

	die_with_state(&app);
	CHECK(state_find_left(&file, &app));
	CHECK_U64(file.state->nb_taps, 1);
	CHECK(strcmp(file.state->taps[0].device, "net_null0") == 0);
	state_close(&file);
	CHECK(state_find_other(&live, &app) == 0); /* None that continues. */
	CHECK(state_find_left(&file, &app));	   /* Not cleaned up yet. */
	CHECK(state_find_other(&file, &app) == getpid());
	state_remove(&file);
	CHECK(!state_find_left(&file, &app));

	/* Of an app that ended, whose pid another process has now. */
	other.start++;
	die_with_state(&other);
	CHECK(!state_find_left(&file, &app));
	CHECK(!state_find_left(&file, &other));

	/* Its maker was in another PID namespace. */
	other = app;
	other.pid = app.pid + 1;
	die_with_state(&other);
	CHECK(state_find_left(&file, &app));
	CHECK(file.state->app_pid == app.pid);
	state_remove(&file);

	/* One that was not completed. */
	write_file("pmdscope-pdump-new.2147483646", "", 0);
	CHECK(!state_find_left(&file, &app));
	CHECK(!exists("pmdscope-pdump-new.2147483646"));
	test_draft_of_zombie(&app);
	test_ending_owner(&app);

	test_hostile_state(&app);

	srand(3);
	for (i = 0; i < 100; i++) {
		memset(garbage, rand(), sizeof(garbage));
		write_file("pmdscope-pdump.1", garbage, (size_t)rand() % (sizeof(garbage) + 1));
		CHECK(!state_find_left(&file, &app));
		CHECK(!exists("pmdscope-pdump.1"));
	}
	state_remove(&live);
}

static void
test_sweep(void)
{
	struct app app = this_app();

	write_file("mp_socket_123_abc", "", 0);
	write_file("mp_socket_1234_abc", "", 0);
	write_file("fbarray_memseg-2048k-0-0_123", "", 0);
	write_file("fbarray_memseg-2048k-0-0_123_3f5a01", "", 0);
	write_file("fbarray_memseg-2048k-0-0_1123", "", 0);
	write_file("fbarray_memseg-2048k-0-0_1123_123abc", "", 0);
	write_file("fbarray_memzone", "", 0);
	app_sweep(&app, 123);
	CHECK(!exists("mp_socket_123_abc"));
	CHECK(!exists("fbarray_memseg-2048k-0-0_123"));
	CHECK(exists("mp_socket_1234_abc"));
	CHECK(!exists("fbarray_memseg-2048k-0-0_123_3f5a01"));
	CHECK(exists("fbarray_memseg-2048k-0-0_1123"));
	CHECK(exists("fbarray_memseg-2048k-0-0_1123_123abc"));
	CHECK(exists("fbarray_memzone"));
}

static int
bind_socket(const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", dir, name);
	CHECK(bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	return fd;
}

static int
lock_array(const char *name)
{
	char path[256];
	int fd;

	write_file(name, "", 0);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && flock(fd, LOCK_SH) == 0);
	return fd;
}

/* Processes of two PID namespaces may have the same id. */
static void
test_sweep_same_id(void)
{
	struct app app = this_app();
	char socket_name[64], array[64];
	int socket_fd, array_fd;

	socket_fd = bind_socket("mp_socket_123_live");
	array_fd = lock_array("fbarray_memseg-2048k-0-0_123_1");
	write_file("mp_socket_123_dead", "", 0);
	write_file("fbarray_memseg-2048k-0-1_123", "", 0);
	app_sweep(&app, 123);
	CHECK(exists("mp_socket_123_live"));
	CHECK(exists("fbarray_memseg-2048k-0-0_123_1"));
	CHECK(!exists("mp_socket_123_dead"));
	CHECK(!exists("fbarray_memseg-2048k-0-1_123"));
	close(socket_fd);
	close(array_fd);
	app_sweep(&app, 123);
	CHECK(!exists("mp_socket_123_live"));

	/* Of this process, only its own files. */
	snprintf(socket_name, sizeof(socket_name), "mp_socket_%d_abc", (int)getpid());
	snprintf(array, sizeof(array), "fbarray_memzone_%d", (int)getpid());
	socket_fd = bind_socket(socket_name);
	array_fd = lock_array(array);
	socket_name[strlen(socket_name) - 1] = 'x';
	write_file(socket_name, "", 0);
	app_leave(&app);
	CHECK(exists(socket_name));
	CHECK(!exists(array));
	socket_name[strlen(socket_name) - 1] = 'c';
	CHECK(!exists(socket_name));
	close(socket_fd);
	close(array_fd);
	app_sweep(&app, getpid());
}

static void
test_secondary(void)
{
	struct app app = this_app();
	int fd = bind_socket("mp_socket_77_abc");

	CHECK(app_find_secondary(&app, 0) == 77);
	CHECK(app_find_secondary(&app, 77) == 0);
	close(fd);
	CHECK(app_find_secondary(&app, 0) == 0); /* Dead: its socket refuses. */
	app_sweep(&app, 77);
}

/* A process that owns the configuration like an app, by a lock of that kind. */
static pid_t
start_owner(int set_lock)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8 };
	char path[256];
	int ready[2], fd;
	pid_t pid;
	char byte;

	CHECK(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		snprintf(path, sizeof(path), "%s/dpdk/p/config", dir);
		fd = open(path, O_RDWR);
		CHECK(fd >= 0 && fcntl(fd, set_lock, &lock) == 0);
		CHECK(write(ready[1], "", 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* An app of another release, one that has not started yet, another app, no app. */
static void
test_open(void)
{
	struct {
		uint32_t magic, version;
	} head = { RTE_MAGIC, RTE_VERSION_NUM(20, 11, 2, 99) };
	struct failure failure = { 0 };
	struct app app;
	char path[256];
	pid_t owner;

	setenv("RUNTIME_DIRECTORY", dir, 1);
	CHECK(app_open(&app, getpid(), "p", &failure) == -1);
	CHECK(strstr(failure.text, "file prefix") != NULL);
	snprintf(path, sizeof(path), "%s/dpdk", dir);
	mkdir(path, 0700);
	strcat(path, "/p");
	mkdir(path, 0700);
	CHECK(app_open(&app, getpid(), "p", &failure) == -1);
	CHECK(strstr(failure.text, "--in-memory") != NULL);
	write_file("dpdk/p/config", &head, sizeof(head));
	CHECK(app_open(&app, getpid(), "p", &failure) == -1);
	CHECK(strstr(failure.text, "has ended") != NULL);

	/* A lock that names no process. */
	owner = start_owner(F_OFD_SETLK);
	CHECK(app_open(&app, owner, "p", &failure) == -1);
	CHECK(strstr(failure.text, "is of process -1") != NULL);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);

	owner = start_owner(F_SETLK);
	CHECK(app_open(&app, getppid(), "p", &failure) == -1);
	CHECK(strstr(failure.text, "is of process") != NULL);
	CHECK(app_open(&app, owner, "p", &failure) == -1);
	CHECK(strstr(failure.text, "20.11.2") != NULL);
	/* An update of our release from here on. */
	head.version = RTE_VERSION ^ 3 << 8;
	head.magic = 0;
	write_file("dpdk/p/config", &head, sizeof(head));
	CHECK(app_open(&app, owner, "p", &failure) == -1 && failure.error == EAGAIN);
	head.magic = RTE_MAGIC;
	write_file("dpdk/p/config", &head, sizeof(head));
	CHECK(app_open(&app, owner, "p", &failure) == -1);
	CHECK(strstr(failure.text, "--no-huge") != NULL);
	write_file("dpdk/p/hugepage_info", "", 0);
	CHECK(app_open(&app, owner, "p", &failure) == 0 && app_alive(&app));
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	CHECK(!app_alive(&app));
	CHECK(app_open(&app, owner, "p", &failure) == -1 && failure.error == ESRCH);
}

int
main(void)
{
	char command[64];

	CHECK(mkdtemp(dir) != NULL);
	test_state();
	test_sweep();
	test_sweep_same_id();
	test_secondary();
	test_open();
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}
