/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "output.h"

int
output_open(struct output *output, const char *option, const char *path)
{
	*output = (struct output){ .option = option, .path = path };
	output->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (output->fd >= 0)
		return 0;
	fprintf(stderr, "%s: --%s %s: %s\n", program_invocation_short_name, option, path,
			strerror(errno));
	return -errno;
}

static int
write_all(int fd, const char *text, size_t size)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = write(fd, text + done, size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

void
output_write(struct output *output, const char *text, size_t size)
{
	const int rc = write_all(output->fd, text, size);

	if (rc == 0) {
		output->end += (off_t)size;
		return;
	}
	if (output->missing++ == 0)
		fprintf(stderr,
				"%s: --%s %s: %s; the run goes on, lines that cannot be written "
				"are left out\n",
				program_invocation_short_name, output->option, output->path,
				strerror(-rc));
	/* An incomplete line would make the file invalid. A pipe cannot be truncated. */
	if (ftruncate(output->fd, output->end) == 0)
		lseek(output->fd, output->end, SEEK_SET);
}

int
output_close(struct output *output)
{
	if (output->fd < 0)
		return 0;
	close(output->fd);
	output->fd = -1;
	if (output->missing == 0)
		return 0;
	fprintf(stderr, "%s: --%s %s: %" PRIu64 " lines are missing\n",
			program_invocation_short_name, output->option, output->path,
			output->missing);
	return -EIO;
}
