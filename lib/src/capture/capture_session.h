/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_SESSION_H
#define PMDSCOPE_CAPTURE_SESSION_H

/* A capture on the control thread: its rings, its lease and its end. */

#include <stddef.h>
#include <stdint.h>

#include "capture_instance.h"

/* Bytes of a human-readable text, with its NUL. */
#define PMDSCOPE_CAPTURE_TEXT sizeof(((struct pmdscope_tee_message *)NULL)->text)

/*
 * Arm a capture with a ring for every lcore that polls; all rings together take at most max_bytes.
 * 0, with a remark in text when the rings are smaller than requested; or a negative errno with the
 * reason in text. With -ENOMEM, *fits is the largest ring size for which there is memory, or 0.
 */
int pmdscope_capture_session_open(struct pmdscope_capture_spec *spec, uint64_t max_bytes,
		struct pmdscope_capture **capture, uint32_t *fits, char *text, size_t size);

/*
 * The consumer has mapped the ring of this lcore. 0, or a negative errno that the capture has to
 * end with.
 */
int pmdscope_capture_session_mapped(struct pmdscope_capture *capture, uint32_t lcore);

/*
 * Refresh the anchors and give rings to lcores that began to poll. 0, or the positive errno that
 * the capture has to end with and the reason in why.
 */
int pmdscope_capture_session_tick(
		struct pmdscope_capture *capture, uint64_t now_ms, char *why, size_t size);

#endif /* PMDSCOPE_CAPTURE_SESSION_H */
