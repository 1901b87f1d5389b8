/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* A SIGTERM reaches the child whenever it comes. */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sigterm.h"
#include "test.h"

/* A child that exits with 0 on request, and with 1 after 5 seconds. */
static pid_t
start_child(void)
{
	const pid_t pid = fork();
	unsigned int i;

	if (pid != 0)
		return pid;
	for (i = 0; i < 500 && !sigterm_received(); i++)
		usleep(10000);
	_exit(sigterm_received() ? 0 : 1);
}

static int
wait_for(pid_t pid)
{
	int status = -1;

	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs in a separate process, as a request is never forgotten. */
static void
try(bool known_before)
{
	const pid_t parent = fork();
	pid_t child;

	if (parent == 0) {
		child = start_child();
		if (known_before)
			sigterm_forward_to(child);
		raise(SIGTERM);
		CHECK(sigterm_received());
		sigterm_forward_to(child);
		_exit(wait_for(child));
	}
	CHECK(wait_for(parent) == 0);
}

int
main(void)
{
	pid_t late;

	sigterm_watch();
	CHECK(!sigterm_received());
	try(true);
	try(false);
	/* A child that is forked later gets the request too. */
	raise(SIGTERM);
	late = start_child();
	CHECK(wait_for(late) == 0);
	return 0;
}
