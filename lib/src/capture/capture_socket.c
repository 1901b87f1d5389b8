/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <rte_eal.h>

#include "log.h"
#include "capture.h"
#include "capture_socket.h"

#define SOCKET_NAME "pmdscope.sock"
/* Apps that may share a file-prefix, as with --in-memory. */
#define SOCKETS_MAX 128
#define BACKLOG 16
#define LOCK_TRIES 100
#define NO_GROUP ((gid_t)-1)

static char socket_path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
static struct stat socket_stat;
static gid_t socket_group = NO_GROUP;

const char *
pmdscope_capture_socket_path(void)
{
	return socket_path;
}

static gid_t
find_group(const char *name)
{
	struct group entry, *found = NULL;
	char buf[16384];
	int ret;

	if (name == NULL)
		return NO_GROUP;
	ret = getgrnam_r(name, &entry, buf, sizeof(buf), &found);
	if (found != NULL)
		return entry.gr_gid;
	PMDSCOPE_LOG(ERR, "tee_group \"%s\": %s; only this user and root may capture", name,
			ret != 0 ? strerror(ret) : "no such group");
	return NO_GROUP;
}

/*
 * Apps of one file-prefix look for a free name one after the other. Closing the descriptor releases
 * the lock. The EAL locks the directory in the same way, and briefly.
 */
static int
lock_directory(const char *dir)
{
	const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned int i;

	if (fd < 0)
		return -errno;
	for (i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return fd;
		usleep(1000);
	}
	close(fd);
	return -EWOULDBLOCK;
}

/* No process listens on an existing socket file. */
static bool
is_stale(const struct sockaddr_un *addr)
{
	struct stat st;
	bool stale;
	int fd;

	if (lstat(addr->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	stale = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 &&
		errno == ECONNREFUSED;
	close(fd);
	return stale;
}

/* Bind to the first free name; files of dead apps are replaced. */
static int
bind_free_name(int fd, const char *dir)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char suffix[16] = "";
	unsigned int i;
	int len;

	for (i = 0; i < SOCKETS_MAX; i++) {
		if (i > 0)
			snprintf(suffix, sizeof(suffix), ":%u", i);
		len = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" SOCKET_NAME "%s", dir,
				suffix);
		if (len < 0 || (size_t)len >= sizeof(addr.sun_path))
			return -ENAMETOOLONG;
		if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0)
			break;
		if (errno != EADDRINUSE)
			return -errno;
		if (!is_stale(&addr))
			continue;
		if (unlink(addr.sun_path) < 0 && errno != ENOENT)
			return -errno;
		if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0)
			break;
		return -errno;
	}
	if (i == SOCKETS_MAX)
		return -EADDRINUSE;
	memcpy(socket_path, addr.sun_path, sizeof(socket_path));
	return stat(socket_path, &socket_stat) < 0 ? -errno : 0;
}

/* The EAL's directories are open to its own user only; a group cannot reach a socket in them. */
static void
warn_unreachable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 || (st.st_mode & S_IXOTH) != 0)
		return;
	if (st.st_gid == socket_group && (st.st_mode & S_IXGRP) != 0)
		return;
	PMDSCOPE_LOG(WARNING,
			"tee_group cannot reach the capture socket; "
			"run: chgrp %u %s && chmod g+x %s",
			(unsigned int)socket_group, path, path);
}

/* Nobody can connect before listen(), so the order leaves no gap. */
static int
set_access(const char *dir)
{
	char parent[PATH_MAX];
	char *slash;

	if (chmod(socket_path, S_IRUSR | S_IWUSR) < 0)
		return -errno;
	if (socket_group == NO_GROUP)
		return 0;
	if (chown(socket_path, (uid_t)-1, socket_group) < 0 ||
			chmod(socket_path, S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) < 0) {
		PMDSCOPE_LOG(ERR,
				"%s: cannot give it to tee_group: %s; "
				"only this user and root may capture",
				socket_path, strerror(errno));
		socket_group = NO_GROUP;
		return 0;
	}
	snprintf(parent, sizeof(parent), "%s", dir);
	slash = strrchr(parent, '/');
	if (slash != NULL && slash != parent) {
		*slash = '\0';
		warn_unreachable(parent);
	}
	warn_unreachable(dir);
	return 0;
}

int
pmdscope_capture_socket_open(const char *group)
{
	const char *dir = rte_eal_get_runtime_dir();
	int fd, lock, ret;

	socket_group = find_group(group);
	lock = lock_directory(dir);
	if (lock < 0) {
		PMDSCOPE_LOG(ERR, "%s: cannot lock the runtime directory: %s; no captures", dir,
				strerror(-lock));
		return lock;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ret = fd < 0 ? -errno : bind_free_name(fd, dir);
	if (ret == 0)
		ret = set_access(dir);
	if (ret == 0 && listen(fd, BACKLOG) < 0)
		ret = -errno;
	close(lock);
	if (ret == 0)
		return fd;
	PMDSCOPE_LOG(ERR, "%s/" SOCKET_NAME ": %s; no captures", dir, strerror(-ret));
	if (fd >= 0)
		pmdscope_capture_socket_close(fd);
	return ret;
}

void
pmdscope_capture_socket_close(int fd)
{
	struct stat st;

	close(fd);
	if (socket_path[0] != '\0' && lstat(socket_path, &st) == 0 &&
			st.st_dev == socket_stat.st_dev && st.st_ino == socket_stat.st_ino)
		unlink(socket_path);
	socket_path[0] = '\0';
}

/* Supplementary groups as reported by the kernel, without a name service that could block. */
static bool
in_group(int fd, gid_t group)
{
	gid_t few[64], *groups = few;
	socklen_t len = sizeof(few);
	bool found = false;
	unsigned int i;
	int ret;

	ret = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len);
	if (ret < 0 && errno == ERANGE) {
		groups = malloc(len);
		if (groups == NULL)
			return false;
		ret = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len);
	}
	for (i = 0; ret == 0 && i < len / sizeof(*groups); i++)
		found |= groups[i] == group;
	if (groups != few)
		free(groups);
	return found;
}

bool
pmdscope_capture_socket_allows(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	*pid = 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	*pid = peer.pid;
	if (peer.uid == 0 || peer.uid == geteuid())
		return true;
	return socket_group != NO_GROUP && (peer.gid == socket_group || in_group(fd, socket_group));
}

static int
send_message(int fd, struct pmdscope_tee_message *message, const char *text, void *control,
		size_t len)
{
	struct iovec iov = { .iov_base = message, .iov_len = sizeof(*message) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = len,
	};

	message->magic = PMDSCOPE_TEE_MAGIC;
	message->version = PMDSCOPE_RING_VERSION;
	snprintf(message->text, sizeof(message->text), "%s", text);
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int
pmdscope_capture_send(int fd, uint16_t kind, uint32_t value, const char *text)
{
	struct pmdscope_tee_message message = { .kind = kind, .value = value };

	return send_message(fd, &message, text, NULL, 0);
}

int
pmdscope_capture_send_refusal(int fd, int error, uint32_t ring_size, const char *text)
{
	struct pmdscope_tee_message message = {
		.kind = PMDSCOPE_TEE_REFUSE,
		.value = (uint32_t)error,
		.ring_size = ring_size,
	};

	return send_message(fd, &message, text, NULL, 0);
}

int
pmdscope_capture_send_ring(int fd, unsigned int lcore, struct pmdscope_capture_ring *ring)
{
	const int fds[2] = { ring->data_fd, ring->tail_fd };
	union {
		char buf[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} control = { 0 };
	struct pmdscope_tee_message message = { .kind = PMDSCOPE_TEE_RING, .value = lcore };
	struct cmsghdr *cmsg = &control.align;
	int ret;

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
	ret = send_message(fd, &message, "", control.buf, sizeof(control.buf));
	if (ret == 0)
		pmdscope_capture_ring_close_data(ring);
	return ret;
}
