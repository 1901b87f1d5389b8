/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef HUGEFILES_H
#define HUGEFILES_H

/*
 * DPDK does not remove its files in hugetlbfs, so their hugepages stay allocated. The apps remove
 * them at exit. (--huge-unlink=always would do so too, but then no secondary process could
 * attach.)
 */

#include <stddef.h>

struct hugefiles;

/* Note the mapped files of this process, named PREFIXmap_N. NULL if there are none. */
struct hugefiles *hugefiles_note(const char *prefix);

/* As hugefiles_note(), from a file with the format of /proc/self/maps. */
struct hugefiles *hugefiles_read(const char *maps, const char *prefix);

/* Remove the noted files, unless they were replaced. Returns their number; frees the notes. */
size_t hugefiles_remove(struct hugefiles *files);

#endif /* HUGEFILES_H */
