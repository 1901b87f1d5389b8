/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "state.h"

#define MAGIC 0x53444d50U /* "PMDS" */
#define PREFIX "pmdscope-pdump."
#define DRAFT_PREFIX "pmdscope-pdump-new."
#define PARKED_PREFIX "pmdscope-pdump-parked."
/* Of a path, so that a name fits behind it. */
#define DIR_MAX (PATH_MAX - NAME_MAX - 2)
/* How long a worker may take to end. */
#define ENDING_LIMIT_MS 2000
#define ENDING_PAUSE_NS 1000000L

static bool
map(struct state_file *file)
{
	void *addr = mmap(NULL, sizeof(*file->state), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
			0);

	file->state = addr != MAP_FAILED ? addr : NULL;
	return file->state != NULL;
}

static bool
create(struct state_file *file, const char *draft, const struct app *app)
{
	const pid_t pid = getpid();

	unlink(draft);
	file->fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file->fd < 0)
		return false;
	if (flock(file->fd, LOCK_EX | LOCK_NB) < 0 ||
			posix_fallocate(file->fd, 0, sizeof(*file->state)) != 0 || !map(file))
		return false;
	file->state->magic = MAGIC;
	file->state->size = sizeof(*file->state);
	file->state->app_pid = app->pid;
	file->state->app_start = app->start;
	file->state->watchdog = (int32_t)pid;
	/*
	 * It gets its name after it is locked, as an unlocked file counts as left by a dead
	 * process.
	 */
	return rename(draft, file->path) == 0;
}

int
state_create(struct state_file *file, const struct app *app, struct failure *failure)
{
	char draft[sizeof(file->path)];

	snprintf(draft, sizeof(draft), "%.*s/" DRAFT_PREFIX "%d", DIR_MAX, app->runtime_dir,
			(int)getpid());
	snprintf(file->path, sizeof(file->path), "%.*s/" PREFIX "%d", DIR_MAX, app->runtime_dir,
			(int)getpid());
	file->state = NULL;
	if (create(file, draft, app))
		return 0;
	complain("%s: %s", draft, strerror(errno));
	unlink(draft);
	if (file->fd >= 0)
		state_close(file);
	return failure_set(failure, EIO, "the app's user cannot write to its runtime directory");
}

static bool
all_taps_valid(const struct state *state)
{
	unsigned int i;

	for (i = 0; i < state_nb_taps(state); i++)
		if (!state_tap_valid(&state->taps[i]))
			return false;
	return true;
}

/* Written by this program, for this app, whose id may differ in the namespace of the writer. */
static bool
is_valid(const struct state_file *file, const struct app *app)
{
	const struct state *s = file->state;

	return s->magic == MAGIC && s->size == sizeof(*s) && s->app_start == app->start &&
	       s->nb_taps <= STATE_MAX_TAPS && s->first_port < RTE_MAX_ETHPORTS &&
	       all_taps_valid(s);
}

/*
 * A worker without its watchdog ends. That takes a moment, also after a kill: first its memory is
 * freed, then sockets and locks one by one. So a process that comes in between waits for the lock.
 * Otherwise the file would count as that of a live capture, and its changes would stay in the app
 * until the capture after this one.
 */
static bool
lock_left(const struct state_file *file)
{
	const struct timespec pause = { .tv_nsec = ENDING_PAUSE_NS };
	unsigned int ms;

	for (ms = 0; flock(file->fd, LOCK_EX | LOCK_NB) < 0; ms++) {
		if (file->state == NULL || ms == ENDING_LIMIT_MS ||
				app_process_stat(file->state->watchdog, APP_STAT_VSIZE) != 0)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* False if there is none; the state is NULL if it cannot be one of ours. */
static bool
open_state(struct state_file *file)
{
	struct stat st;

	file->state = NULL;
	file->fd = open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (file->fd < 0)
		return false;
	if (fstat(file->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == sizeof(*file->state))
		map(file);
	return true;
}

static bool
open_left(struct state_file *file, const struct app *app)
{
	struct stat st;

	if (!open_state(file))
		return false;
	if (!lock_left(file) || fstat(file->fd, &st) < 0 ||
			st.st_nlink == 0) { /* Its owner has just removed it. */
		state_close(file);
		return false;
	}
	if (file->state != NULL && is_valid(file, app)) {
		file->state->watchdog = (int32_t)getpid();
		file->state->app_pid = app->pid;
		return true;
	}
	state_remove(file);
	return false;
}

/* A file whose maker died before the file got its final name. */
static bool
is_dead_draft(const char *name)
{
	int pid;

	return sscanf(name, DRAFT_PREFIX "%d", &pid) == 1 && app_process_ended(pid);
}

bool
state_find_left(struct state_file *file, const struct app *app)
{
	DIR *dir = opendir(app->runtime_dir);
	const struct dirent *entry;
	bool found = false;

	while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
		if (is_dead_draft(entry->d_name))
			unlinkat(dirfd(dir), entry->d_name, 0);
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(file->path, sizeof(file->path), "%.*s/%s", DIR_MAX, app->runtime_dir,
				entry->d_name);
		found = open_left(file, app);
	}
	if (dir != NULL)
		closedir(dir);
	return found;
}

/* The process that has locked a file; 0 if none has. */
static pid_t
find_owner(int dir, const char *name)
{
	struct state state = { 0 };
	pid_t owner = 0;
	int fd;

	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 &&
			pread(fd, &state, offsetof(struct state, taps), 0) ==
					(ssize_t)offsetof(struct state, taps))
		owner = state.worker != 0 ? state.worker : state.watchdog;
	close(fd);
	return owner;
}

pid_t
state_find_other(const struct state_file *ours, const struct app *app)
{
	const char *our_name = strrchr(ours->path, '/') + 1;
	DIR *dir = opendir(app->runtime_dir);
	const struct dirent *entry;
	pid_t owner = 0;

	while (dir != NULL && owner == 0 && (entry = readdir(dir)) != NULL)
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
				strcmp(entry->d_name, our_name) != 0)
			owner = find_owner(dirfd(dir), entry->d_name);
	if (dir != NULL)
		closedir(dir);
	return owner;
}

static void
parked_path(char path[PATH_MAX], const struct app *app, unsigned int slot)
{
	snprintf(path, PATH_MAX, "%.*s/" PARKED_PREFIX "%u", DIR_MAX, app->runtime_dir, slot);
}

bool
state_park(const char *path, const struct app *app)
{
	char parked[PATH_MAX];
	unsigned int slot;

	for (slot = 0; slot < STATE_MAX_PARKED; slot++) {
		parked_path(parked, app, slot);
		if (renameat2(AT_FDCWD, path, AT_FDCWD, parked, RENAME_NOREPLACE) == 0)
			return true;
		if (errno != EEXIST) {
			complain("%s: %s", parked, strerror(errno));
			return false;
		}
	}
	complain("%u earlier captures have lost ports as well", STATE_MAX_PARKED);
	return false;
}

unsigned int
state_open_parked(struct state_file files[STATE_MAX_PARKED], const struct app *app)
{
	unsigned int slot, nb = 0;

	for (slot = 0; slot < STATE_MAX_PARKED; slot++) {
		parked_path(files[nb].path, app, slot);
		if (!open_state(&files[nb]))
			continue;
		if (files[nb].state != NULL && is_valid(&files[nb], app))
			nb++;
		else
			state_remove(&files[nb]);
	}
	return nb;
}

bool
state_parked_full(const struct app *app)
{
	char path[PATH_MAX];
	unsigned int slot;

	for (slot = 0; slot < STATE_MAX_PARKED; slot++) {
		parked_path(path, app, slot);
		if (access(path, F_OK) < 0)
			return false;
	}
	return true;
}

void
state_close(struct state_file *file)
{
	if (file->state != NULL)
		munmap(file->state, sizeof(*file->state));
	close(file->fd);
	file->state = NULL;
}

void
state_remove(struct state_file *file)
{
	unlink(file->path);
	state_close(file);
}
