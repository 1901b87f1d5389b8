/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* What a process keeps when it takes on the rights of an app, and what it gives up. */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "app_memory.h"
#include "private_root.h"
#include "process_memory.h"
#include "rights.h"
#include "test.h"

/* In the app: the parent of the processes under test. */
uint64_t of_app = 42;

static void
test_parse(void)
{
	struct rights r;
	char many[4096] = "Name:\tx\nCapEff:\t1\nUid:\t0\t7\t0\t0\nGid:\t0\t8\t0\t0\nGroups:\t";
	unsigned int i;

	CHECK(rights_parse("Name:\tUid:\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\n"
			   "Groups:\t9 10 \nNStgid:\t1\nCapEff:\t0000000000000021\n",
			&r));
	CHECK(r.uid == 2 && r.gid == 6 && r.nb_groups == 2);
	/* Capabilities of a user are not for other processes of that user. */
	CHECK(r.groups[0] == 9 && r.groups[1] == 10 && r.capabilities == 0);
	CHECK(rights_parse(
			"Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t \nCapEff:\t000000000000f001\n",
			&r));
	CHECK(r.uid == 0 && r.nb_groups == 0 && r.capabilities == 0xf001);
	for (i = 0; i < 200; i++)
		strcat(many, "1000 ");
	CHECK(rights_parse(many, &r) && r.uid == 7 && r.nb_groups == RIGHTS_GROUPS_MAX);
	CHECK(!rights_parse("", &r));
	CHECK(!rights_parse("Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t1\n", &r));
	CHECK(!rights_parse("Name:\tx\nCapEff:\t0\nUid:\t0\nGid:\t0\t0\t0\t0\nGroups:\t\n", &r));
	CHECK(!rights_parse("Name:\tx\nCapEff:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n", &r));
}

/* Runs in a process that ends afterwards. */
static void
in_child(void (*test)(void))
{
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		alarm(10);
		test();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
}

/* Files opened before can be read afterwards, and no others. */
static void
give_up_rights(void)
{
	static const struct app_symbol symbols[] = { { "of_app", sizeof(of_app) } };
	const struct rights nobody = {
		.uid = 65534, .gid = 65534, .groups = { 65533 }, .nb_groups = 1
	};
	const pid_t app = getppid();
	struct failure failure = { 0 };
	struct mapping m;
	uint64_t value = 0;
	gid_t group;
	FILE *maps;
	int i;

	open_memory_of(app);
	app_memory_find(symbols, 1);
	CHECK(rights_become(&nobody, 1 << CAP_NET_RAW, &failure) == 0);
	CHECK(getuid() == 65534 && unshare(CLONE_NEWNS) < 0);
	/* What was to be used for a while, and no more. */
	CHECK(socket(AF_PACKET, SOCK_RAW, 0) < 0 && rights_use(UINT64_MAX));
	CHECK(socket(AF_PACKET, SOCK_RAW, 0) >= 0 && unshare(CLONE_NEWNS) < 0);
	CHECK(rights_settle(&nobody, &failure) == 0 && rights_use(UINT64_MAX));
	CHECK(socket(AF_PACKET, SOCK_RAW, 0) < 0 && prctl(PR_GET_DUMPABLE) == 0);
	CHECK(getuid() == 65534 && geteuid() == 65534 && getegid() == 65534);
	CHECK(getgroups(1, &group) == 1 && group == 65533);
	CHECK(prctl(PR_CAPBSET_READ, 21UL) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	CHECK(setuid(0) < 0 && unshare(CLONE_NEWNS) < 0);

	CHECK(app_memory_symbol("of_app", sizeof(of_app)) == (uintptr_t)&of_app);
	CHECK(app_memory_symbol("the_test", 8) == 0);
	of_app = 7; /* Ours, not that of the app. */
	CHECK(app_memory_read((uintptr_t)&of_app, &value, sizeof(value)) && value == 42);
	CHECK(!app_memory_read(16, &value, sizeof(value)));
	for (i = 0; i < 2; i++) {
		maps = app_memory_maps();
		CHECK(maps != NULL && app_memory_next(maps, &m) && m.start != 0);
		fclose(maps);
	}
}

/* An app of root may have few capabilities. */
static void
stay_root(void)
{
	const struct rights root = { .capabilities = 1 << CAP_NET_RAW };
	struct failure failure = { 0 };

	CHECK(rights_become(&root, 0, &failure) == 0 && rights_settle(&root, &failure) == 0);
	CHECK(socket(AF_PACKET, SOCK_RAW, 0) >= 0);
	CHECK(geteuid() == 0 && chroot("/") < 0 && unshare(CLONE_NEWNS) < 0);
}

static char dir[] = "/tmp/pmdscope-enter-XXXXXX";

/* A link in the app's root that leads out of it cannot be followed. */
static void
change_root(void)
{
	static struct private_root private, whole;
	struct failure failure = { 0 };
	char path[128];
	int root;

	CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	root = open(dir, O_PATH | O_DIRECTORY);
	snprintf(path, sizeof(path), "%s/link", dir);
	CHECK(symlink("/etc", path) == 0);
	CHECK(private_root_add(&private, root, "/none", &failure) < 0);
	CHECK(strstr(failure.text, "/none") != NULL);
	CHECK(private_root_add(&private, root, "/link", &failure) < 0 && private.nb == 0);
	CHECK(private_root_add(&private, root, "/var/run/dpdk/rte", &failure) == 0);
	CHECK(private_root_add_proc(&private, root, &failure) < 0);
	CHECK(private_root_add_proc(&whole, open("/", O_PATH), &failure) == 0);
	private.dirs[1] = whole.dirs[0];
	private.nb = 2;
	CHECK(private_root_copy(&private, &failure) == 0);
	CHECK(private_root_switch(&private, &failure) == 0);

	CHECK(access("/var/run/dpdk/rte/config", F_OK) == 0 && access("/etc", F_OK) < 0);
	CHECK(access("/tmp", F_OK) < 0 && access("/proc/self/stat", R_OK) == 0);
	CHECK(access("/sys/devices/system/cpu", R_OK) == 0);
	CHECK(open("/var/run/dpdk/rte/new", O_CREAT | O_WRONLY, 0600) >= 0);
	CHECK(mkdir("/new", 0700) < 0 && errno == EROFS);
	CHECK(open("/proc/sys/kernel/core_pattern", O_WRONLY) < 0 && errno == EROFS);
}

static void
test_private_root(void)
{
	char command[256];

	CHECK(mkdtemp(dir) != NULL);
	snprintf(command, sizeof(command),
			"mkdir -p %s/var/run/dpdk/rte && touch %s/var/run/dpdk/rte/config", dir,
			dir);
	CHECK(system(command) == 0);
	in_child(change_root);
	/* The file created in there exists here. */
	snprintf(command, sizeof(command),
			"test -e %s/var/run/dpdk/rte/new; e=$?; rm -r %s; exit $e", dir, dir);
	CHECK(system(command) == 0);
}

int
main(void)
{
	test_parse();
	if (unshare(CLONE_NEWNS) < 0) {
		printf("SKIP: no rights to give up\n");
		return 0;
	}
	in_child(give_up_rights);
	in_child(stay_root);
	test_private_root();
	return 0;
}
