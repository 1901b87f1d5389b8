/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/sendfile.h>

#include "sealed_program.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define COPY_BYTES (1U << 20)

static int
copy_program(int memory)
{
	const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	do {
		n = program < 0 ? -1 : sendfile(memory, program, NULL, COPY_BYTES);
	} while (n > 0);
	if (program >= 0)
		close(program);
	return n < 0 ? -1 : fcntl(memory, F_ADD_SEALS, SEALS);
}

int
run_sealed(char **argv, struct failure *failure)
{
	const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const bool is_copy = program >= 0 && fcntl(program, F_GET_SEALS) == SEALS;
	int memory;

	if (program >= 0)
		close(program);
	if (is_copy)
		return 0;
	memory = memfd_create("pmdscope-pdump", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory >= 0 && copy_program(memory) == 0)
		fexecve(memory, argv, environ);
	return failure_set(failure, errno, "cannot run from memory: %s", strerror(errno));
}
