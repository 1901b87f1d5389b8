/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The rights of this process after launch(), by the user and the namespaces of the app. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "launch.h"
#include "test.h"

#define USER 1234
#define OTHER 1235
#define STATUS_MAX 8192

static char dir[] = "/tmp/pmdscope-launch-XXXXXX";

static void
as_user(void)
{
	const gid_t groups[] = { 2345, 1236 };

	CHECK(setgroups(RTE_DIM(groups), groups) == 0 && setresgid(1237, 1237, 1237) == 0);
	CHECK(setresuid(USER, USER, USER) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
}

/* There, it has all capabilities. */
static void
in_user_namespace(void)
{
	as_user();
	CHECK(unshare(CLONE_NEWUSER) == 0);
}

/* A user with a capability, as by the service manager. */
static void
with_capability(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { .effective = 1 << CAP_DAC_OVERRIDE,
			.permitted = 1 << CAP_DAC_OVERRIDE } };

	CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
	as_user();
	CHECK(syscall(SYS_capset, &header, data) == 0);
}

static void
as_limited_root(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { .effective = 1 << CAP_NET_RAW,
			.permitted = 1 << CAP_NET_RAW | 1 << CAP_NET_ADMIN } };

	CHECK(syscall(SYS_capset, &header, data) == 0);
}

static void
as_root(void)
{
}

static pid_t
start_app(void (*become)(void))
{
	int ready[2];
	pid_t pid;
	char byte;

	CHECK(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		become();
		CHECK(write(ready[1], "", 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void
end_app(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void
read_status(pid_t pid, char status[STATUS_MAX])
{
	char path[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	CHECK(f != NULL);
	status[fread(status, 1, STATUS_MAX - 1, f)] = '\0';
	fclose(f);
}

/* A line of the status, without its name. */
static const char *
field(const char *status, const char *name, char line[256])
{
	const char *at = strstr(status, name);

	CHECK(at != NULL);
	at += strlen(name);
	snprintf(line, 256, "%.*s", (int)strcspn(at, "\n"), at);
	return line;
}

/* A file that only root may write to. */
static bool
may_write(const char *path)
{
	const int fd = open(path, O_WRONLY);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* What launch() says of an app, in a process that ends; its checks then see what is left to it. */
static void
launch_beside(pid_t app, void (*check)(pid_t, const struct failure *, int ret))
{
	char *argv[] = { NULL };
	struct options options = { .file_prefix = "p", .pid = app };
	struct failure failure = { 0 };
	const pid_t pid = fork();
	int status, ret;

	if (pid == 0) {
		alarm(20);
		CHECK(dup2(open("/dev/null", O_RDONLY), 100) == 100);
		CHECK(setenv("SECRET", "of root", 1) == 0);
		CHECK(setenv("RUNTIME_DIRECTORY", dir, 1) == 0);
		ret = launch(&options, argv, &failure);
		if (ret < 0)
			fprintf(stderr, "%s\n", failure.text);
		check(app, &failure, ret);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
}

/* The same ids as the app, the given capabilities, and nothing of this process. */
static void
check_rights(pid_t app, const struct failure *failure, int ret, const char *capabilities)
{
	static const char *const ids[] = { "\nUid:", "\nGid:", "\nGroups:" };
	static const char *const sets[] = { "\nCapPrm:\t", "\nCapEff:\t", "\nCapBnd:\t" };
	char ours[STATUS_MAX], theirs[STATUS_MAX], a[256], b[256], path[64];
	unsigned int i;

	CHECK(ret == 0 && failure->text[0] == '\0');
	read_status(getpid(), ours);
	read_status(app, theirs);
	for (i = 0; i < RTE_DIM(ids); i++)
		CHECK(strcmp(field(ours, ids[i], a), field(theirs, ids[i], b)) == 0);
	for (i = 0; i < RTE_DIM(sets); i++)
		CHECK(strcmp(field(ours, sets[i], a), capabilities) == 0);
	CHECK(strcmp(field(ours, "\nCapInh:\t", a), "0000000000000000") == 0);
	CHECK(strcmp(field(ours, "\nCapAmb:\t", a), "0000000000000000") == 0);
	CHECK(strcmp(field(ours, "\nNoNewPrivs:\t", a), "1") == 0);
	CHECK(prctl(PR_GET_DUMPABLE) == 0 && fcntl(100, F_GETFD) < 0);
	CHECK(environ[1] == NULL && strcmp(getenv("RUNTIME_DIRECTORY"), dir) == 0);
	snprintf(path, sizeof(path), "%s/of-root", dir);
	CHECK(may_write(path) == (geteuid() == 0));
}

static void
expect_user(pid_t app, const struct failure *failure, int ret)
{
	check_rights(app, failure, ret, "0000000000000000");
	CHECK(geteuid() == USER && setuid(0) < 0 && setgid(0) < 0);
}

static void
expect_limited_root(pid_t app, const struct failure *failure, int ret)
{
	check_rights(app, failure, ret, "0000000000002000");
}

/* For an app of root nothing changes. */
static void
expect_root(pid_t app, const struct failure *failure, int ret)
{
	char status[STATUS_MAX], capabilities[256];

	read_status(app, status);
	check_rights(app, failure, ret, field(status, "\nCapEff:\t", capabilities));
}

static void
expect_refusal(pid_t app, const struct failure *failure, int ret)
{
	(void)app;
	/* Not cut off. */
	CHECK(ret == -1 && failure->text[0] != '\0');
	CHECK(strlen(failure->text) < sizeof(failure->text) - 1);
}

static void
test_rights(void)
{
	const struct {
		void (*become)(void);
		uid_t owner;
		void (*expect)(pid_t, const struct failure *, int);
	} cases[] = {
		{ as_user, USER, expect_user },
		{ with_capability, USER, expect_user },
		{ as_user, 0, expect_refusal }, /* It may not enter its directory. */
		{ in_user_namespace, USER, expect_refusal },
		{ as_root, 0, expect_root },
		{ as_limited_root, 0, expect_limited_root },
		/* A process that another user's directory names, to get its rights. */
		{ as_root, USER, expect_refusal },
		{ as_user, OTHER, expect_refusal },
	};
	char path[64];
	unsigned int i;
	pid_t app;

	snprintf(path, sizeof(path), "%s/dpdk/p", dir);
	for (i = 0; i < RTE_DIM(cases); i++) {
		CHECK(chown(path, cases[i].owner, cases[i].owner) == 0);
		app = start_app(cases[i].become);
		launch_beside(app, cases[i].expect);
		end_app(app);
	}
}

/* Who may put another directory there. */
static void
test_places(void)
{
	static const struct {
		uid_t owner;
		mode_t above, itself;
		bool is_safe;
	} cases[] = {
		{ 0, 0755, 0700, true },
		{ USER, 0755, 0700, true },
		{ 0, 01777, 0700, true },
		{ OTHER, 0755, 0700, false },
		{ OTHER, 01777, 0700, false },
		{ 0, 0777, 0700, false },
		{ 0, 0775, 0700, false },
		{ 0, 0755, 01777, false },
		{ 0, 0755, 0770, false },
	};
	char above[64], itself[64], moved[64];
	const pid_t app = start_app(as_user);
	unsigned int i;

	snprintf(above, sizeof(above), "%s/dpdk", dir);
	snprintf(itself, sizeof(itself), "%s/dpdk/p", dir);
	snprintf(moved, sizeof(moved), "%s/dpdk/moved", dir);
	CHECK(chown(itself, USER, USER) == 0);
	for (i = 0; i < RTE_DIM(cases); i++) {
		CHECK(chown(above, cases[i].owner, 0) == 0 && chmod(above, cases[i].above) == 0);
		CHECK(chmod(itself, cases[i].itself) == 0);
		launch_beside(app, cases[i].is_safe ? expect_user : expect_refusal);
	}
	CHECK(chown(above, 0, 0) == 0 && chmod(above, 0755) == 0 && chmod(itself, 0700) == 0);
	CHECK(rename(itself, moved) == 0 && symlink("moved", itself) == 0);
	launch_beside(app, expect_refusal);
	CHECK(unlink(itself) == 0 && rename(moved, itself) == 0);
	end_app(app);
	launch_beside(app, expect_refusal);
}

int
main(void)
{
	char command[256];
	int failed;

	if (geteuid() != 0) {
		printf("SKIP: no rights to give up\n");
		return 0;
	}
	CHECK(mkdtemp(dir) != NULL);
	snprintf(command, sizeof(command),
			"chmod 755 %s && mkdir -p %s/dpdk/p && chmod 700 %s/dpdk/p && touch %s/of-root",
			dir, dir, dir, dir);
	CHECK(system(command) == 0);
	test_rights();
	test_places();
	snprintf(command, sizeof(command), "rm -r %s", dir);
	failed = system(command);
	return failed;
}
