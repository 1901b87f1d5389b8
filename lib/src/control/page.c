/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bitops.h>
#include <rte_common.h>
#include <rte_string_fns.h>
#include <rte_version.h>

#include "page.h"

#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
#define TEL_U64 RTE_TEL_UINT_VAL
#define tel_array_u64 rte_tel_data_add_array_uint
#define dict_u64 rte_tel_data_add_dict_uint
#else
#define TEL_U64 RTE_TEL_U64_VAL
#define tel_array_u64 rte_tel_data_add_array_u64
#define dict_u64 rte_tel_data_add_dict_u64
#endif

/*
 * DPDK's limits, which it applies silently: bytes of a reply, entries of an array, bytes of a
 * string.
 */
#define REPLY_MAX 16384
#define ARRAY_MAX 512
#define STRING_MAX 128
/*
 * Longest decimal u64, and the bytes of a dict field in addition to name and value: "": and a
 * comma.
 */
#define DIGITS_MAX 20
#define FIELD_COST 4

struct list {
	unsigned int nb;
	uint64_t values[PMDSCOPE_PAGE_LIST_VALUES];
};

struct pmdscope_row {
	const struct pmdscope_table *table;
	unsigned int index;
	/* Index of a column's first content in the array of its type. */
	unsigned int at[PMDSCOPE_PAGE_COLUMNS];
	uint64_t values[PMDSCOPE_PAGE_VALUES];
	char strings[PMDSCOPE_PAGE_STRINGS][STRING_MAX];
	struct list lists[PMDSCOPE_PAGE_LISTS];
};

/*
 * One container per column. DPDK turns them into JSON on the same thread after the handler has
 * returned, and each is 64 KiB, so each thread keeps its own.
 */
struct containers {
	struct rte_tel_data *of[PMDSCOPE_PAGE_COLUMNS];
};

/* A page being built; entries counts the contents of its columns so far. */
struct page {
	const struct pmdscope_table *table;
	struct containers *containers;
	size_t bytes;
	/* U64 columns with a value other than 0, as a bit mask. */
	uint32_t nonzero;
	unsigned int entries[PMDSCOPE_PAGE_COLUMNS];
};

static uint64_t generation;
static pthread_key_t containers_key;
static pthread_once_t containers_once = PTHREAD_ONCE_INIT;
static int containers_status;

void
pmdscope_rows_changed(void)
{
	generation++;
}

uint64_t
pmdscope_generation(void)
{
	return generation;
}

void
pmdscope_dict_u64(struct rte_tel_data *d, const char *name, uint64_t value)
{
	dict_u64(d, name, value);
}

static void
containers_free(void *arg)
{
	struct containers *c = arg;
	unsigned int i;

	for (i = 0; i < RTE_DIM(c->of); i++)
		if (c->of[i] != NULL)
			rte_tel_data_free(c->of[i]);
	free(c);
}

static void
containers_key_create(void)
{
	containers_status = pthread_key_create(&containers_key, containers_free);
}

/* The calling thread's containers, at least nb of them; NULL without memory. */
static struct containers *
containers_get(unsigned int nb)
{
	struct containers *c;
	unsigned int i;

	pthread_once(&containers_once, containers_key_create);
	if (containers_status != 0)
		return NULL;
	c = pthread_getspecific(containers_key);
	if (c == NULL) {
		c = calloc(1, sizeof(*c));
		if (c == NULL || pthread_setspecific(containers_key, c) != 0) {
			free(c);
			return NULL;
		}
	}
	for (i = 0; i < nb; i++) {
		if (c->of[i] == NULL)
			c->of[i] = rte_tel_data_alloc();
		if (c->of[i] == NULL)
			return NULL;
	}
	return c;
}

static void
row_reset(struct pmdscope_row *row, const struct pmdscope_table *table, unsigned int index)
{
	unsigned int c, nb_values = 0, nb_strings = 0, nb_lists = 0;

	row->table = table;
	row->index = index;
	for (c = 0; c < table->nb_columns; c++) {
		switch (table->columns[c].type) {
		case PMDSCOPE_COLUMN_U64:
		case PMDSCOPE_COLUMN_INT:
			row->at[c] = nb_values;
			nb_values += table->columns[c].width;
			break;
		case PMDSCOPE_COLUMN_STR:
			row->at[c] = nb_strings;
			row->strings[nb_strings++][0] = '\0';
			break;
		case PMDSCOPE_COLUMN_LIST:
			row->at[c] = nb_lists;
			row->lists[nb_lists++].nb = 0;
			break;
		}
	}
	memset(row->values, 0, nb_values * sizeof(row->values[0]));
}

void
pmdscope_row_u64(struct pmdscope_row *row, unsigned int column, unsigned int i, uint64_t value)
{
	row->values[row->at[column] + i] = value;
}

void
pmdscope_row_int(struct pmdscope_row *row, unsigned int column, int value)
{
	row->values[row->at[column]] = (uint64_t)value;
}

void
pmdscope_row_str(struct pmdscope_row *row, unsigned int column, const char *value)
{
	pmdscope_text(row->strings[row->at[column]], value);
}

void
pmdscope_row_list(struct pmdscope_row *row, unsigned int column, uint64_t value)
{
	struct list *list = &row->lists[row->at[column]];

	if (list->nb < RTE_DIM(list->values))
		list->values[list->nb++] = value;
}

unsigned int
pmdscope_row_index(const struct pmdscope_row *row)
{
	return row->index;
}

/* DPDK escapes only quotes and backslashes reliably, and those only since 22.11. */
static bool
is_safe(char c)
{
	if (c < 0x20 || c == 0x7f)
		return false;
#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
	if (c == '"' || c == '\\')
		return false;
#endif
	return true;
}

void
pmdscope_text(char text[PMDSCOPE_TEXT_MAX], const char *value)
{
	char *c;

	RTE_BUILD_BUG_ON(PMDSCOPE_TEXT_MAX != STRING_MAX);
	strlcpy(text, value, PMDSCOPE_TEXT_MAX);
	for (c = text; *c != '\0'; c++)
		if (!is_safe(*c))
			*c = '?';
}

/* Bytes of a value in an array, with its comma. */
static size_t
u64_cost(uint64_t value)
{
	size_t n = 2;

	while (value >= 10) {
		value /= 10;
		n++;
	}
	return n;
}

static size_t
int_cost(int value)
{
	return value < 0 ? 1 + u64_cost((uint64_t) - (int64_t)value) : u64_cost((uint64_t)value);
}

static size_t
u64s_cost(const uint64_t *values, unsigned int nb)
{
	size_t n = 0;
	unsigned int i;

	for (i = 0; i < nb; i++)
		n += u64_cost(values[i]);
	return n;
}

static size_t
string_cost(const char *s)
{
	size_t n = 3;

	for (; *s != '\0'; s++)
		n += *s == '"' || *s == '\\' ? 2 : 1;
	return n;
}

/* Bytes of a page without rows. */
static size_t
frame_cost(const struct pmdscope_table *table)
{
	static const char *const fields[] = { "schema", "generation", "offset", "total", "next" };
	size_t n = strlen("{\"/pmdscope/\":{}}") + strlen(table->name);
	unsigned int i;

	for (i = 0; i < RTE_DIM(fields); i++)
		n += strlen(fields[i]) + FIELD_COST + DIGITS_MAX;
	for (i = 0; i < table->nb_columns; i++) {
		const struct pmdscope_column *column = &table->columns[i];

		n += strlen(column->name) + FIELD_COST + strlen("[]");
		if (column->width > 1)
			n += strlen(column->name) + strlen("_buckets") + FIELD_COST + DIGITS_MAX;
	}
	return n;
}

/* Bytes and entries that column c of a row adds to its page. */
static size_t
column_cost(const struct pmdscope_row *row, unsigned int c, unsigned int *entries)
{
	const struct pmdscope_column *column = &row->table->columns[c];
	const unsigned int at = row->at[c];

	*entries = column->width;
	switch (column->type) {
	case PMDSCOPE_COLUMN_U64:
		return u64s_cost(&row->values[at], column->width);
	case PMDSCOPE_COLUMN_INT:
		return int_cost((int)row->values[at]);
	case PMDSCOPE_COLUMN_STR:
		return string_cost(row->strings[at]);
	case PMDSCOPE_COLUMN_LIST:
		*entries = row->lists[at].nb;
		return u64s_cost(row->lists[at].values, row->lists[at].nb);
	}
	return 0;
}

/* Account for a row; false when the page has no room for it. */
static bool
page_admit(struct page *page, const struct pmdscope_row *row)
{
	const unsigned int nb = page->table->nb_columns;
	unsigned int entries[PMDSCOPE_PAGE_COLUMNS];
	size_t bytes = page->bytes;
	unsigned int c;

	for (c = 0; c < nb; c++) {
		bytes += column_cost(row, c, &entries[c]);
		if (bytes >= REPLY_MAX || page->entries[c] + entries[c] > ARRAY_MAX)
			return false;
	}
	page->bytes = bytes;
	for (c = 0; c < nb; c++)
		page->entries[c] += entries[c];
	return true;
}

/* True if one of the values is not 0. */
static bool
add_u64s(struct rte_tel_data *d, const uint64_t *values, unsigned int nb)
{
	uint64_t any = 0;
	unsigned int i;

	for (i = 0; i < nb; i++) {
		tel_array_u64(d, values[i]);
		any |= values[i];
	}
	return any != 0;
}

static void
page_append(struct page *page, const struct pmdscope_row *row)
{
	unsigned int c;

	for (c = 0; c < page->table->nb_columns; c++) {
		const struct pmdscope_column *column = &page->table->columns[c];
		struct rte_tel_data *d = page->containers->of[c];
		const unsigned int at = row->at[c];

		switch (column->type) {
		case PMDSCOPE_COLUMN_U64:
			if (add_u64s(d, &row->values[at], column->width))
				page->nonzero |= RTE_BIT32(c);
			break;
		case PMDSCOPE_COLUMN_INT:
			rte_tel_data_add_array_int(d, (int)row->values[at]);
			break;
		case PMDSCOPE_COLUMN_STR:
			rte_tel_data_add_array_string(d, row->strings[at]);
			break;
		case PMDSCOPE_COLUMN_LIST:
			add_u64s(d, row->lists[at].values, row->lists[at].nb);
			break;
		}
	}
}

static enum rte_tel_value_type
value_type(enum pmdscope_column_type type)
{
	switch (type) {
	case PMDSCOPE_COLUMN_INT:
		return RTE_TEL_INT_VAL;
	case PMDSCOPE_COLUMN_STR:
		return RTE_TEL_STRING_VAL;
	default:
		return TEL_U64;
	}
}

static int
page_start(struct page *page, const struct pmdscope_table *table)
{
	unsigned int c;

	*page = (struct page){
		.table = table,
		.containers = containers_get(table->nb_columns),
		.bytes = frame_cost(table),
	};
	if (page->containers == NULL)
		return -ENOMEM;
	for (c = 0; c < table->nb_columns; c++)
		rte_tel_data_start_array(
				page->containers->of[c], value_type(table->columns[c].type));
	return 0;
}

static void
page_finish(const struct page *page, struct rte_tel_data *d)
{
	char name[STRING_MAX];
	unsigned int c;

	for (c = 0; c < page->table->nb_columns; c++) {
		const struct pmdscope_column *column = &page->table->columns[c];

		if ((page->table->optional & ~page->nonzero & RTE_BIT32(c)) != 0)
			continue;
		rte_tel_data_add_dict_container(d, column->name, page->containers->of[c], 1);
		if (column->width > 1) {
			snprintf(name, sizeof(name), "%s_buckets", column->name);
			pmdscope_dict_u64(d, name, column->width);
		}
	}
}

/* Up to 9 digits; no parameter means 0. */
static int
parse_offset(const char *params, unsigned int *offset)
{
	unsigned int n = 0;
	size_t i;

	if (params == NULL)
		params = "";
	for (i = 0; params[i] != '\0'; i++) {
		if (params[i] < '0' || params[i] > '9' || i >= 9)
			return -EINVAL;
		n = n * 10 + (unsigned int)(params[i] - '0');
	}
	*offset = n;
	return 0;
}

int
pmdscope_page_render(const struct pmdscope_table *table, const char *params, struct rte_tel_data *d)
{
	static struct pmdscope_row row; /* 17 KiB, too large for the stack; under the state lock */
	const unsigned int total = table->count();
	unsigned int offset, i;
	struct page page;
	int ret;

	ret = parse_offset(params, &offset);
	if (ret != 0)
		return ret;
	if (offset != 0 && offset >= total)
		return -EINVAL;
	ret = page_start(&page, table);
	if (ret != 0)
		return ret;

	for (i = offset; i < total; i++) {
		row_reset(&row, table, i - offset);
		table->fill(i, &row);
		if (!page_admit(&page, &row))
			break;
		page_append(&page, &row);
	}

	rte_tel_data_start_dict(d);
	pmdscope_dict_u64(d, "schema", PMDSCOPE_SCHEMA);
	pmdscope_dict_u64(d, "generation", generation);
	pmdscope_dict_u64(d, "offset", offset);
	pmdscope_dict_u64(d, "total", total);
	if (i < total)
		pmdscope_dict_u64(d, "next", i);
	page_finish(&page, d);
	return 0;
}
