/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* A client that follows "next" sees every row once, and no reply reaches a limit of DPDK. */

#include <rte_bitops.h>
#include <rte_telemetry.h>

#include "page.h"
#include "test.h"

#define NB_ROWS 300
#define BUCKETS 24

enum { COL_ID, COL_NAME, COL_SIGNED, COL_HIST, COL_LIST_ROW, COL_LIST_VALUE };

static const struct pmdscope_column columns[] = {
	{ "id", PMDSCOPE_COLUMN_U64, 1 },
	{ "name", PMDSCOPE_COLUMN_STR, 1 },
	{ "signed", PMDSCOPE_COLUMN_INT, 1 },
	{ "hist", PMDSCOPE_COLUMN_U64, BUCKETS },
	{ "list_row", PMDSCOPE_COLUMN_LIST, 1 },
	{ "list_value", PMDSCOPE_COLUMN_LIST, 1 },
};

/* Sizes of the rows relative to the limits; changed between the runs. */
static unsigned int nb_rows, list_length, name_length;
static uint64_t big;
static char fill_char;

static unsigned int
count(void)
{
	return nb_rows;
}

static void
fill(unsigned int i, struct pmdscope_row *row)
{
	char name[512];
	unsigned int k;

	memset(name, fill_char, name_length);
	name[name_length] = '\0';
	pmdscope_row_u64(row, COL_ID, 0, i);
	pmdscope_row_str(row, COL_NAME, name);
	pmdscope_row_int(row, COL_SIGNED, -(int)i);
	for (k = 0; k < BUCKETS; k++)
		pmdscope_row_u64(row, COL_HIST, k, big - k);
	for (k = 0; k < list_length; k++) {
		pmdscope_row_list(row, COL_LIST_ROW, pmdscope_row_index(row));
		pmdscope_row_list(row, COL_LIST_VALUE, i);
	}
}

static const struct pmdscope_table fake = {
	.name = "fake",
	.help = "A table for this test",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = count,
	.fill = fill,
};

static const struct pmdscope_table optional = {
	.name = "optional",
	.help = "Another one, with columns that a page may lack",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.optional = RTE_BIT32(COL_ID) | RTE_BIT32(COL_HIST),
	.count = count,
	.fill = fill,
};

static int
handle(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	return pmdscope_page_render(&fake, params, d);
}

static int
handle_optional(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	return pmdscope_page_render(&optional, params, d);
}

static void
check_page(const char *page, unsigned int offset, unsigned int n)
{
	unsigned int i, k;

	CHECK_U64(tel_u64(page, "schema"), 1);
	CHECK_U64(tel_u64(page, "offset"), offset);
	CHECK_U64(tel_u64(page, "total"), nb_rows);
	CHECK_U64(tel_u64(page, "hist_buckets"), BUCKETS);
	CHECK(n * BUCKETS <= 512);
	CHECK_U64(json_len(json_get(page, "name")), n);
	CHECK_U64(json_len(json_get(page, "signed")), n);
	CHECK_U64(json_len(json_get(page, "hist")), n * BUCKETS);
	CHECK_U64(json_len(json_get(page, "list_row")), n * list_length);
	CHECK_U64(json_len(json_get(page, "list_value")), n * list_length);
	for (i = 0; i < n; i++) {
		CHECK_U64(tel_cell(page, "id", i), offset + i);
		CHECK_U64(tel_cell(page, "signed", i), (uint64_t) - (int64_t)(offset + i));
		for (k = 0; k < BUCKETS; k++)
			CHECK_U64(tel_cell(page, "hist", i * BUCKETS + k), big - k);
		for (k = 0; k < list_length; k++) {
			CHECK_U64(tel_cell(page, "list_row", i * list_length + k), i);
			CHECK_U64(tel_cell(page, "list_value", i * list_length + k), offset + i);
		}
	}
}

/* Returns the number of pages. */
static unsigned int
walk(unsigned int rows, unsigned int list, unsigned int name, char c, uint64_t value)
{
	unsigned int offset = 0, pages = 0;
	bool more;

	nb_rows = rows;
	list_length = list;
	name_length = name;
	fill_char = c;
	big = value;
	do {
		char params[16];
		const char *page;
		unsigned int n;

		snprintf(params, sizeof(params), "%u", offset);
		page = tel_ask("/pmdscope/fake", params);
		CHECK(page != NULL);
		n = json_len(json_get(page, "id"));
		check_page(page, offset, n);
		more = json_get(page, "next") != NULL;
		CHECK(!more || n > 0);
		offset += n;
		if (more)
			CHECK_U64(tel_u64(page, "next"), offset);
		pages++;
	} while (more);
	CHECK_U64(offset, rows);
	return pages;
}

static void
test_pages(void)
{
	CHECK_U64(walk(0, 0, 0, 'x', 99), 1);
	/* 512 array entries: 21 rows of 24 buckets. */
	CHECK_U64(walk(21, 0, 4, 'x', 99), 1);
	CHECK_U64(walk(22, 0, 4, 'x', 99), 2);
	/* 512 entries of a list, and a row that fills a page by itself. */
	CHECK_U64(walk(6, 256, 4, 'x', 99), 3);
	CHECK_U64(walk(5, 512, 4, 'x', 99), 5);
	/* 16,384 bytes, at every size of a row; escapes, and bytes that DPDK cannot print. */
	walk(NB_ROWS, 0, 4, 'x', UINT64_MAX);
	walk(NB_ROWS, 3, 127, '"', UINT64_MAX);
	walk(NB_ROWS, 3, 300, '\\', UINT64_MAX);
	walk(NB_ROWS, 0, 127, '\n', UINT64_MAX);
	walk(NB_ROWS, 0, 127, (char)0xc3, UINT64_MAX);
	for (name_length = 0; name_length < 128; name_length++)
		walk(40, 2, name_length, 'x', UINT64_MAX >> (name_length / 2));
}

static void
test_optional_columns(void)
{
	const char *page;

	list_length = 0;
	name_length = 1;
	big = BUCKETS - 1;
	nb_rows = 1;
	page = tel_ask("/pmdscope/optional", "");
	CHECK(json_get(page, "id") == NULL && json_len(json_get(page, "name")) == 1);
	CHECK_U64(json_len(json_get(page, "hist")), BUCKETS);
	CHECK(json_len(json_get(tel_ask("/pmdscope/fake", ""), "id")) == 1);
	nb_rows = 2;
	page = tel_ask("/pmdscope/optional", "");
	CHECK_U64(tel_cell(page, "id", 0), 0);
	CHECK_U64(tel_cell(page, "id", 1), 1);
	nb_rows = 0;
	page = tel_ask("/pmdscope/optional", "");
	CHECK(json_get(page, "id") == NULL && json_get(page, "hist") == NULL);
}

static void
test_bad_offsets(void)
{
	static const char *const bad[] = {
		"x",
		"-1",
		"+1",
		" 1",
		"1 ",
		"0x1",
		"1,2",
		"1.5",
		"10",
		"99",
		"4294967296",
		"18446744073709551616",
		"000000000000000000000000000001",
	};
	unsigned int i;

	nb_rows = 10;
	list_length = 0;
	name_length = 1;
	for (i = 0; i < RTE_DIM(bad); i++)
		CHECK(tel_ask("/pmdscope/fake", bad[i]) == NULL);
	CHECK(tel_ask("/pmdscope/fake", "9") != NULL);
	CHECK(tel_ask("/pmdscope/fake", "") != NULL);
}

int
main(void)
{
	test_eal("0@0");
	CHECK(rte_telemetry_register_cmd("/pmdscope/fake", handle, fake.help) == 0);
	CHECK(rte_telemetry_register_cmd("/pmdscope/optional", handle_optional, optional.help) ==
			0);
	test_pages();
	test_optional_columns();
	test_bad_offsets();
	rte_eal_cleanup();
	return 0;
}
