/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include <rte_eal.h>
#include <rte_memory.h>

#include "control_files.h"
#include "locks.h"

/* The configuration, the memzones, and a list of segments each. */
#define FILES_MAX (2 + RTE_MAX_MEMSEG_LISTS)
#define CONFIG "config"
/* Time limit to find a moment in which the app holds no lock. */
#define COPY_MS 2000
#define COPY_PAUSE_NS 1000000L

enum mode {
	ORDINARY,  /* Not attached. */
	ATTACHING, /* Copies that are not updated. */
	COPIES,
};

struct control_file {
	void *addr;
	size_t len;
	int fd;
	bool is_config;
};

/* Identifies a version of a list of segments. */
struct list_state {
	void *base;
	size_t len;
	uint32_t version;
};

struct lists {
	unsigned int nb;
	struct list_state lists[RTE_MAX_MEMSEG_LISTS];
};

static struct {
	/* Held while mode or mappings change, and while a message of the app is handled. */
	pthread_mutex_t lock;
	enum mode mode;
	const struct app *app;
	struct control_file files[FILES_MAX];
	unsigned int nb;
	char held[LOCKS_NAME_MAX];
	bool changed;  /* The app has announced a change while we attached. */
	rte_mp_t sync; /* The EAL's action for a message of the app. */
} control = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Of the EAL: records in the app that it has another process, and can no longer forbid that. */
bool __rte_mp_enable(void);

void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset);
int __real_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, ...);
int __real_rte_mp_action_register(const char *name, rte_mp_t action);
int __wrap_rte_mp_action_register(const char *name, rte_mp_t action);

/* The last component of the path of an open file. */
static bool
find_name(int fd, char *path, size_t size, const char **name)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, size - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	*name = strrchr(path, '/');
	if (*name == NULL)
		return false;
	++*name;
	return true;
}

/* One of the app's files, not an array of this process. */
static bool
is_control_file(int fd, bool *is_config)
{
	char path[PATH_MAX], shared[2 * PATH_MAX];
	struct stat st, of_app;
	const char *name;

	if (!find_name(fd, path, sizeof(path), &name))
		return false;
	*is_config = strcmp(name, CONFIG) == 0;
	if (!*is_config && (strncmp(name, APP_ARRAY, strlen(APP_ARRAY)) != 0 ||
					   app_is_array_of(name, getpid())))
		return false;
	snprintf(shared, sizeof(shared), "%s/%s", control.app->runtime_dir, name);
	return fstat(fd, &st) == 0 && stat(shared, &of_app) == 0 && st.st_dev == of_app.st_dev &&
	       st.st_ino == of_app.st_ino;
}

static bool
copy(const struct control_file *file)
{
	size_t done = 0;
	ssize_t n = 1;

	while (n > 0 && done < file->len) {
		n = pread(file->fd, (char *)file->addr + done, file->len - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			done += (size_t)n;
	}
	/* The last page may extend beyond the file. */
	memset((char *)file->addr + done, 0, file->len - done);
	return n >= 0;
}

static bool
known_layout(const struct control_file *file)
{
	struct stat st;

	return file->len == sizeof(struct locks_config) && fstat(file->fd, &st) == 0 &&
	       locks_known_layout(file->addr, (uint64_t)st.st_size);
}

/* In a copy with a lock held, the EAL would wait for ever. */
static bool
copy_without_locks(const struct control_file *file)
{
	const struct timespec pause = { .tv_nsec = COPY_PAUSE_NS };
	uint32_t values[LOCKS_MAX];
	unsigned int ms;

	for (ms = 0; ms < COPY_MS; ms++) {
		if (!copy(file))
			return false;
		if (!known_layout(file))
			return true;
		if (locks_sample(file->addr, values) == 0) {
			locks_clear_copy(file->addr); /* Bits of waiting writers. */
			return true;
		}
		nanosleep(&pause, NULL);
	}
	locks_name_held(values, control.held);
	errno = EBUSY;
	return false;
}

/* Replaces a mapping of the file, with the same flags. */
static void *
map_copy(void *addr, size_t len, int flags, int fd, bool is_config)
{
	struct control_file *file = &control.files[control.nb];
	const int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (control.nb == FILES_MAX || kept < 0)
		return MAP_FAILED;
	addr = __real_mmap64(addr, len, PROT_READ | PROT_WRITE,
			(flags & ~MAP_TYPE) | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED) {
		close(kept);
		return MAP_FAILED;
	}
	*file = (struct control_file){ addr, len, kept, is_config };
	if (!(is_config ? copy_without_locks(file) : copy(file))) {
		close(kept);
		munmap(addr, len);
		return MAP_FAILED;
	}
	control.nb++;
	return addr;
}

void *
__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
	bool is_config;

	if (control.mode != ATTACHING || (flags & MAP_TYPE) != MAP_SHARED ||
			(prot & PROT_WRITE) == 0 || offset != 0 || !is_control_file(fd, &is_config))
		return __real_mmap64(addr, len, prot, flags, fd, offset);
	return map_copy(addr, len, flags, fd, is_config);
}

/*
 * The EAL creates hugepage files that it does not find. As we do not hold the app's locks, the
 * app may just have removed one; if it were created again, it would take a page that no process
 * frees.
 */
int
__wrap_open64(const char *path, int flags, ...)
{
	const char *name = strrchr(path, '/');
	mode_t mode = 0;
	va_list ap;

	if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (control.mode != ORDINARY && name != NULL && strstr(name, "map_") != NULL)
		flags &= ~O_CREAT;
	return __real_open64(path, flags, mode);
}

static void
copy_all(void)
{
	unsigned int i;

	for (i = 0; i < control.nb; i++) {
		copy(&control.files[i]);
		/* Whoever held them: in the copy no process would release them. */
		if (control.files[i].is_config && known_layout(&control.files[i]))
			locks_clear_copy(control.files[i].addr);
	}
}

/*
 * The app has changed its memory, and waits for the answer. It holds its locks meanwhile, so
 * nothing changes and a copy is consistent.
 */
static int
on_sync(const struct rte_mp_msg *msg, const void *peer)
{
	int ret;

	pthread_mutex_lock(&control.lock);
	if (control.mode == ATTACHING)
		control.changed = true;
	else if (control.mode == COPIES)
		copy_all();
	ret = control.sync(msg, peer);
	pthread_mutex_unlock(&control.lock);
	return ret;
}

int
__wrap_rte_mp_action_register(const char *name, rte_mp_t action)
{
	if (strcmp(name, "mp_malloc_sync") != 0 && strcmp(name, "mp_malloc_rollback") != 0)
		return __real_rte_mp_action_register(name, action);
	/* One function is used for both. */
	control.sync = action;
	return __real_rte_mp_action_register(name, on_sync);
}

void
control_files_begin_attach(const struct app *app)
{
	control.app = app;
	control.mode = ATTACHING;
}

const char *
control_files_held(void)
{
	return control.held[0] != '\0' ? control.held : NULL;
}

static int
add_list(const struct rte_memseg_list *msl, void *arg)
{
	struct lists *lists = arg;

	lists->lists[lists->nb++] = (struct list_state){
		.base = msl->base_va,
		.len = msl->len,
		.version = msl->version,
	};
	return 0;
}

/* Reads the copies. Every page that is added or removed changes the version of its list. */
static void
list_memory(struct lists *lists)
{
	memset(lists, 0, sizeof(*lists));
	rte_memseg_list_walk_thread_unsafe(add_list, lists);
}

int
control_files_end_attach(struct failure *failure)
{
	static struct lists before, now;
	bool same;

	/* For instance with a C library whose function is not called mmap64(). */
	if (control.nb == 0)
		return failure_set(failure, ENOTSUP,
				"this pmdscope-pdump has no copies of the app's locks: rebuild it");

	pthread_mutex_lock(&control.lock);
	list_memory(&before);
	copy_all();
	list_memory(&now);
	same = !control.changed && memcmp(&before, &now, sizeof(now)) == 0;
	control.mode = COPIES;
	pthread_mutex_unlock(&control.lock);
	if (same)
		return 0;
	return failure_set(failure, EAGAIN,
			"the app gets and gives back memory all the time; try again later");
}

void
control_files_refresh(void)
{
	pthread_mutex_lock(&control.lock);
	if (control.mode == COPIES)
		copy_all();
	pthread_mutex_unlock(&control.lock);
}

/* Map the app's configuration itself in place of the copy. */
static bool
share_config(const struct control_file *file)
{
	return __real_mmap64(file->addr, file->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			       file->fd, 0) != MAP_FAILED;
}

static void
unshare_config(const struct control_file *file)
{
	/* Without memory for a copy, this process must not continue. */
	if (__real_mmap64(file->addr, file->len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
}

int
control_files_announce(struct failure *failure)
{
	bool shared = true, enabled = true;
	unsigned int i;

	pthread_mutex_lock(&control.lock);
	for (i = 0; i < control.nb; i++) {
		if (!control.files[i].is_config)
			continue;
		shared = share_config(&control.files[i]);
		if (shared)
			enabled = __rte_mp_enable();
		unshare_config(&control.files[i]);
	}
	copy_all();
	pthread_mutex_unlock(&control.lock);
	if (!shared)
		return failure_set(failure, errno, "the app's memory cannot be mapped: %s",
				strerror(errno));
	if (!enabled)
		return failure_set(failure, EACCES,
				"the app forbids others to attach (rte_mp_disable())");
	return 0;
}
