/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Files of killed processes in the runtime directory: state files, locks, sockets. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <rte_version.h>

#include "app.h"
#include "locks.h"
#include "state.h"
#include "test.h"

static char dir[] = "/tmp/pmdscope-pdump-XXXXXX";

static bool fstat_fails;

int __real_fstat64(int fd, struct stat64 *st);
int __wrap_fstat64(int fd, struct stat64 *st);

int
__wrap_fstat64(int fd, struct stat64 *st)
{
	if (!fstat_fails)
		return __real_fstat64(fd, st);
	errno = EOVERFLOW;
	return -1;
}

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

/* Make a state in a process that then dies. */
static void
die_with_state(const struct app *app)
{
	struct state_file file;
	struct failure failure;
	const pid_t pid = fork();

	if (pid == 0) {
		CHECK(state_create(&file, app, &failure) == 0);
		file.state->nb_taps = 1;
		strcpy(file.state->taps[0].device, "net_null0");
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
}

/* Its maker was killed, and nobody has waited for it yet: /proc still lists it. */
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

/* Its maker has no memory any more, but still its files. */
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
		/* What /proc says of a process, it says of this thread. */
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
	CHECK(state_find_other(&live, &app) == 0); /* None that goes on. */
	CHECK(state_find_left(&file, &app));	   /* Nobody has cleaned up. */
	CHECK(state_find_other(&file, &app) == getpid());
	state_remove(&file);
	CHECK(!state_find_left(&file, &app));

	/* Of an app that ended, whose pid another has now. */
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

	/* One that was not finished. */
	write_file("pmdscope-pdump-new.2147483646", "", 0);
	CHECK(!state_find_left(&file, &app));
	CHECK(!exists("pmdscope-pdump-new.2147483646"));
	test_draft_of_zombie(&app);
	test_ending_owner(&app);

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

	/* Of this process, what it has itself. */
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

static struct locks_config *
make_config(void)
{
	struct locks_config *config;
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/config", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && ftruncate(fd, sizeof(*config)) == 0);
	config = mmap(NULL, sizeof(*config), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(config != MAP_FAILED);
	close(fd);
	config->magic = RTE_MAGIC;
	config->version = RTE_VERSION;
	config->mem_cfg_addr = (uintptr_t)config;
	snprintf(config->memzones.name, sizeof(config->memzones.name), "memzone");
	config->memzones.elt_sz = sizeof(struct rte_memzone);
	snprintf(config->heaps[0].name, sizeof(config->heaps[0].name), "socket_0");
	return config;
}

static void
test_layout(struct locks_config *config)
{
	CHECK(locks_known_layout(config, sizeof(*config)));
	CHECK(!locks_known_layout(config, sizeof(*config) + 64));
	/* An update of the release, and another release. */
	config->version ^= 3 << 8;
	CHECK(locks_known_layout(config, sizeof(*config)));
	config->version ^= 3 << 8 | 1 << 16;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->version ^= 1 << 16;
	config->legacy_mem = 7;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->legacy_mem = 0;
	config->mem_cfg_addr++;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->mem_cfg_addr--;
	/* Where something else is in its place, or of another size. */
	config->memzones.elt_sz++;
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->memzones.elt_sz--;
	config->memzones.name[0] = 'x';
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->memzones.name[0] = 'm';
	config->heaps[0].name[0] = '\0';
	CHECK(!locks_known_layout(config, sizeof(*config)));
	config->heaps[0].name[0] = 's';
	CHECK(locks_known_layout(config, sizeof(*config)));
}

static void
test_releases(void)
{
	CHECK(locks_tested_release(RTE_VERSION_NUM(22, 11, 0, 99)));
	CHECK(locks_tested_release(RTE_VERSION_NUM(22, 11, 11, 99)));
	CHECK(locks_tested_release(RTE_VERSION_NUM(23, 11, 7, 99)));
	CHECK(locks_tested_release(RTE_VERSION_NUM(25, 11, 2, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(20, 11, 9, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(22, 7, 0, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(23, 3, 0, 99)));
	CHECK(!locks_tested_release(RTE_VERSION_NUM(26, 3, 0, 99)));
}

static void
test_names(void)
{
	uint32_t values[LOCKS_MAX] = { 0 };
	char name[LOCKS_NAME_MAX];

	values[LOCKS_MAX - 1] = 1;
	locks_name_held(values, name);
	CHECK(strcmp(name, "malloc_heaps[31].lock") == 0);
	values[5 + 3] = 1;
	locks_name_held(values, name);
	CHECK(strcmp(name, "memsegs[3].memseg_arr.rwlock") == 0);
	values[1] = 1;
	locks_name_held(values, name);
	CHECK(strcmp(name, "mlock") == 0);
}

static void
test_forbidden(struct locks_config *config)
{
	struct app app = this_app();
	char name[LOCKS_NAME_MAX];

	CHECK(!locks_attach_forbidden(&app));
	config->mp_status = 1;
	CHECK(locks_attach_forbidden(&app));
	/* What is not known of the file is not guessed. */
	fstat_fails = true;
	CHECK(!locks_attach_forbidden(&app));
	CHECK(locks_wait(&app, 50, name) == LOCKS_UNKNOWN);
	fstat_fails = false;
	config->mp_status = 2;
	CHECK(!locks_attach_forbidden(&app));
}

/* A lock that is held stays held, whoever had it. */
static void
test_held(struct locks_config *config)
{
	struct app app = this_app();
	char name[LOCKS_NAME_MAX];
	uint32_t values[LOCKS_MAX];
	struct locks_config *before = malloc(sizeof(*before));

	CHECK_U64(locks_sample(config, values), 0);
	CHECK(locks_wait(&app, 50, name) == LOCKS_FREE);

	/* A reader with a writer behind it, a writer, an owner of a heap. */
	config->memory_hotplug_lock.cnt = RTE_RWLOCK_READ | RTE_RWLOCK_WAIT;
	config->memsegs[3].memseg_arr.rwlock.cnt = RTE_RWLOCK_WRITE;
	config->heaps[RTE_MAX_HEAPS - 1].lock.locked = 1;
	CHECK_U64(locks_sample(config, values), 3);
	memcpy(before, config, sizeof(*before));
	CHECK(locks_wait(&app, 50, name) == LOCKS_HELD);
	CHECK(strcmp(name, "memory_hotplug_lock") == 0);
	CHECK(memcmp(before, config, sizeof(*before)) == 0);
	free(before);

	/* A copy is one's own. */
	locks_clear_copy(config);
	CHECK_U64(locks_sample(config, values), 0);
}

/* A lock that is taken and let go of is waited for. */
static void
test_busy(struct locks_config *config)
{
	const struct timespec pause_ns = { .tv_nsec = 20000000 };
	struct app app = this_app();
	char name[LOCKS_NAME_MAX];
	uint32_t values[LOCKS_MAX];
	pid_t pid;
	int i;

	config->mlock.cnt = RTE_RWLOCK_WRITE;
	pid = fork();
	if (pid == 0) {
		nanosleep(&pause_ns, NULL);
		rte_rwlock_write_unlock(&config->mlock);
		rte_rwlock_read_lock(&config->mlock);
		for (i = 0; i < 3000; i++)
			nanosleep(&pause_ns, NULL);
		_exit(0);
	}
	CHECK(locks_wait(&app, 2000, name) == LOCKS_FREE);
	WAIT_FOR(config->mlock.cnt == RTE_RWLOCK_READ);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_U64(locks_sample(config, values), 1);
	/* Of a layout that is not known nothing is known, nor of one that the app has elsewhere. */
	config->mlock.cnt = RTE_RWLOCK_WRITE;
	config->mem_cfg_addr += 4096;
	CHECK(locks_wait(&app, 50, name) == LOCKS_UNKNOWN);
	config->mem_cfg_addr -= 4096;
	config->magic++;
	CHECK(locks_wait(&app, 50, name) == LOCKS_UNKNOWN);
	CHECK_U64(config->mlock.cnt, RTE_RWLOCK_WRITE);
}

/* A process that owns the configuration as an app does. */
static pid_t
start_owner(void)
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
		CHECK(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
		CHECK(write(ready[1], "", 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* An app of another release, one that has not started yet, another one, none at all. */
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

	owner = start_owner();
	CHECK(app_open(&app, getppid(), "p", &failure) == -1);
	CHECK(strstr(failure.text, "is of process") != NULL);
	CHECK(app_open(&app, owner, "p", &failure) == -1);
	CHECK(strstr(failure.text, "20.11.2") != NULL);
	/* An update of our release, from here on. */
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
	struct locks_config *config;

	CHECK(mkdtemp(dir) != NULL);
	test_state();
	test_sweep();
	test_sweep_same_id();
	test_secondary();
	test_releases();
	test_names();
	if (locks_tested_release(RTE_VERSION)) {
		config = make_config();
		test_layout(config);
		test_forbidden(config);
		test_held(config);
		test_busy(config);
	} else {
		printf("SKIP: locks of %s are not known\n", rte_version());
	}
	test_open();
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}
