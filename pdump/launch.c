/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* All that this program does with more rights than the app has, except to enter its namespaces. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/syscall.h>

#include "app.h"
#include "app_memory.h"
#include "callbacks.h"
#include "enter.h"
#include "launch.h"
#include "ops_table.h"
#include "rights.h"
#include "runtime_dir.h"
#include "sealed_program.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* Without close_range(). More than pmdscope or a shell has. */
#define FDS_MAX 65536U

/*
 * Close all inherited descriptors. Standard output is a file of the host, whose mode root could
 * still change, and nothing is written to it.
 */
static void
close_others(unsigned int fd)
{
	unsigned int other;

	dup2(STDERR_FILENO, STDOUT_FILENO);
	for (other = STDERR_FILENO + 1; other < fd; other++)
		close((int)other);
	other = fd > STDERR_FILENO ? fd + 1 : STDERR_FILENO + 1;
	if (syscall(SYS_close_range, other, ~0U, 0) == 0)
		return;
	for (; other < FDS_MAX; other++)
		close((int)other);
}

/* The environment of root may contain secrets. */
static void
wipe_environment(void)
{
	char **variable;

	for (variable = environ; variable != NULL && *variable != NULL; variable++)
		explicit_bzero(*variable, strlen(*variable));
	clearenv();
}

/* Descriptors first: a process that gains rights after that is not opened with them. */
static int
open_app(struct target *app, pid_t pid, struct failure *failure)
{
	char path[32];
	int proc;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return failure_set(failure, ESRCH, "there is no process %d", (int)pid);
	app->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	app->root = openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	app->mountinfo = openat(proc, "mountinfo", O_RDONLY | O_CLOEXEC);
	if (app->root < 0 || app->mountinfo < 0 || !app_memory_open(proc, app->root))
		return failure_set(failure, errno,
				"cannot look into process %d: %s; run as root, with CAP_SYS_PTRACE",
				(int)pid, strerror(errno));
	/* It has not ended, so all of these are of the same process. */
	return target_describe(app, proc, failure);
}

int
launch(struct options *options, char **argv, struct failure *failure)
{
	const struct app_symbol symbols[] = { ops_table_symbol, callbacks_symbol };
	static struct target app;
	char base[PATH_MAX];

	close_others((unsigned int)options->fd);
	if (open_app(&app, options->pid, failure) < 0)
		return -1;
	if (app.is_apart && run_sealed(argv, failure) < 0)
		return -1;
	snprintf(base, sizeof(base), "%s", app_runtime_base());
	wipe_environment();
	if (rights_become(&app.rights, app.is_apart ? ENTER_CAPABILITIES : 0, failure) < 0)
		return -1;
	/* From here on, nothing is opened that the app may not open. */
	if (app.is_apart && enter(&app, base, options->file_prefix, failure) < 0)
		return -1;
	if (rights_settle(&app.rights, failure) < 0)
		return -1;
	if (app.has_other_pids && enter_pids(&app, options, failure) < 0)
		return -1;
	close(app.mountinfo);
	close(app.pidfd);
	/* Only now is it certain that the process is the app. */
	if (runtime_dir_choose(base, options->file_prefix, failure) < 0)
		return -1;
	app_memory_find(symbols, RTE_DIM(symbols));
	return 0;
}
