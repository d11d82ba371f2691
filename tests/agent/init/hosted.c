/* The pure parts of tiltyard-init with a C library, for sanitizers:
 *
 *     hosted parse <hand-over     shows its strings, or that it is refused
 *     hosted passwd USER <passwd  shows whether the user has an entry, read in pieces of any size
 *     hosted decide               shows each decision about signals, statuses and errors
 *     hosted fuzz SEED COUNT      parses COUNT random and changed hand-overs, and checks the results
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handover.h"
#include "passwd.h"
#include "reaper.h"

#define CHECK(fact) \
	do \
		if (!(fact)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #fact); \
			abort(); \
		} \
	while (0)

/* Each list has room for just what the header says, so that sanitizers see any step beyond. */
struct parsed {
	struct header header;
	char *strings;
	char **arguments;
	char **variables;
};

static bool parse(const char *data, size_t size, struct parsed *parsed)
{
	*parsed = (struct parsed){0};
	if (size < HEADER_BYTES || !parse_header(data, &parsed->header))
		return false;
	if (size < HEADER_BYTES + (size_t)parsed->header.bytes)
		return false;
	parsed->strings = malloc(parsed->header.bytes);
	parsed->arguments = malloc((parsed->header.arguments + 1) * sizeof(char *));
	parsed->variables = malloc((parsed->header.variables + 1) * sizeof(char *));
	memcpy(parsed->strings, data + HEADER_BYTES, parsed->header.bytes);
	return parse_strings(
		&parsed->header, parsed->strings, parsed->arguments, parsed->variables);
}

static void forget(struct parsed *parsed)
{
	free(parsed->strings);
	free(parsed->arguments);
	free(parsed->variables);
}

static int show_parsed(void)
{
	static char data[HEADER_BYTES + MAX_BYTES + 1];
	struct parsed parsed;
	size_t size = fread(data, 1, sizeof(data), stdin);
	bool is_accepted = parse(data, size, &parsed);
	if (is_accepted) {
		printf("%s\n", parsed.header.in_place ? "in place" : "as a child");
		for (char **argument = parsed.arguments; *argument; argument++)
			printf("argument %s\n", *argument);
		for (char **variable = parsed.variables; *variable; variable++)
			printf("variable %s\n", *variable);
	} else {
		printf("refused\n");
	}
	forget(&parsed);
	return 0;
}

static int show_entry(uint32_t user)
{
	static char data[4096];
	size_t size = fread(data, 1, sizeof(data), stdin);
	bool is_found = false;
	for (size_t piece = 1; piece <= size + 1; piece++) {
		struct passwd_search search = {.user = user};
		for (size_t first = 0; first < size; first += piece)
			search_passwd(&search, data + first, size - first < piece ? size - first : piece);
		bool is_found_now = end_search(&search);
		CHECK(piece == 1 || is_found_now == is_found);
		is_found = is_found_now;
	}
	printf("%s\n", is_found ? "found" : "none");
	return 0;
}

static int show_decisions(void)
{
	char line[LINE_BYTES];
	for (int signal = 1; signal <= 64; signal++)
		printf("signal %d %d %d\n", signal, is_forwarded(signal), ends_wait(signal));
	for (uint32_t status = 0; status < 0x10000; status++)
		if ((status & 0xff) == 0 || (status < 0x100 && (status & 0x7f) != 0 && (status & 0x7f) != 0x7f))
			printf("status %u %d\n", status, exit_code(status));
	for (int error = 1; error < 134; error++)
		for (int facts = 0; facts < 4; facts++) {
			struct refusal refusal = refuse(error, facts & 1, facts & 2);
			size_t length = describe_refusal(line, refusal);
			printf("error %d %d %.*s", facts, exit_code_of(refusal), (int)length, line);
		}
	size_t length = describe_end(line, UINT32_MAX, UINT64_MAX, (struct limits){true, true});
	CHECK(length <= LINE_BYTES);
	printf("longest %.*s", (int)length, line);
	length = describe_end(line, 0, 0, (struct limits){false, false});
	printf("shortest %.*s", (int)length, line);
	return 0;
}

/* --- random hand-overs -------------------------------------------------------------------- */

enum { LARGEST = 4096 };

static uint64_t state;

/* xorshift64* */
static uint32_t random_below(uint32_t bound)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 0x2545f4914f6cdd1du) >> 32) % bound;
}

static void put_number(char *data, uint32_t number)
{
	for (int i = 0; i < 4; i++)
		data[i] = (char)(number >> 8 * i);
}

static uint32_t get_number(const char *data)
{
	uint32_t number = 0;
	for (int i = 3; i >= 0; i--)
		number = number << 8 | (unsigned char)data[i];
	return number;
}

/* CRC-32 of its definition, a bit at a time, and not of the code that is tested. */
static uint32_t crc_of(const char *data, size_t size)
{
	uint32_t crc = 0xffffffff;
	for (size_t bit = 0; bit < 8 * size; bit++) {
		uint32_t incoming = (unsigned char)data[bit / 8] >> bit % 8 & 1;
		crc = crc >> 1 ^ ((crc & 1) != incoming ? 0xedb88320 : 0);
	}
	return ~crc;
}

static size_t put_string(char *data, size_t size, bool is_variable)
{
	uint32_t length = random_below(12);
	if (is_variable) {
		data[size++] = (char)('A' + random_below(4));
		data[size++] = '=';
	}
	for (uint32_t i = 0; i < length; i++)
		data[size++] = (char)(1 + random_below(random_below(4) ? 128 : 255));
	data[size++] = '\0';
	return size;
}

static size_t random_handover(char *data)
{
	uint32_t arguments = 1 + random_below(6);
	uint32_t variables = random_below(6);
	size_t size = HEADER_BYTES;
	for (uint32_t i = 0; i < arguments + variables; i++)
		size = put_string(data, size, i >= arguments);
	memcpy(data, "TYSTART1", 8);
	put_number(data + 8, random_below(2));
	put_number(data + 12, arguments);
	put_number(data + 16, variables);
	put_number(data + 20, (uint32_t)(size - HEADER_BYTES));
	return size;
}

/* Changes counts, lengths or bytes, some of them to values at the bounds. */
static size_t change(char *data, size_t size)
{
	static const uint32_t BOUNDS[] = {
		0, 1, 2, 255, MAX_STRINGS - 1, MAX_STRINGS, MAX_STRINGS + 1, MAX_BYTES,
		MAX_BYTES + 1, 0x7fffffff, 0x80000000, 0xffffffff,
	};
	char *number = data + 8 + 4 * random_below(4);
	switch (random_below(6)) {
	case 0:
		put_number(number, BOUNDS[random_below(sizeof(BOUNDS) / sizeof(*BOUNDS))]);
		return size;
	case 1:
		put_number(number, get_number(number) + random_below(5) - 2);
		return size;
	case 2:
		data[random_below((uint32_t)size)] ^= (char)(1 << random_below(8));
		return size;
	case 3:
		data[HEADER_BYTES + random_below((uint32_t)(size - HEADER_BYTES))] = '\0';
		return size;
	case 4:
		return random_below((uint32_t)size);
	default:
		put_number(data + 20, get_number(data + 20) + 1);
		data[size] = (char)random_below(3);
		return size + 1;
	}
}

static void check_accepted(const char *data, const struct parsed *parsed)
{
	const struct header *header = &parsed->header;
	size_t place = 0;
	for (uint32_t i = 0; i < header->arguments; i++) {
		CHECK(parsed->arguments[i] == parsed->strings + place);
		place += strlen(parsed->arguments[i]) + 1;
	}
	for (uint32_t i = 0; i < header->variables; i++) {
		CHECK(parsed->variables[i] == parsed->strings + place);
		CHECK(strchr(parsed->variables[i], '=') > parsed->variables[i]);
		place += strlen(parsed->variables[i]) + 1;
	}
	CHECK(place == header->bytes);
	CHECK(memcmp(parsed->strings, data + HEADER_BYTES, place) == 0);
	CHECK(!parsed->arguments[header->arguments]);
	CHECK(!parsed->variables[header->variables]);
}

static bool has_name(char **variables, const char *entry)
{
	size_t length = strcspn(entry, "=");
	for (; *variables; variables++)
		if (strncmp(*variables, entry, length) == 0 && (*variables)[length] == '=')
			return true;
	return false;
}

static void check_merged(const struct parsed *parsed)
{
	char *own[] = {"A=own", "AB=own", "B", "=", "", "C=", NULL};
	size_t own_count = sizeof(own) / sizeof(*own) - 1;
	size_t given = parsed->header.variables;
	char **merged = malloc((own_count + given + 1) * sizeof(char *));
	char **next = merged;
	merge_variables(own, parsed->variables, merged);
	for (size_t i = 0; i < own_count; i++)
		if (!has_name(parsed->variables, own[i]))
			CHECK(*next++ == own[i]);
	for (size_t i = 0; i < given; i++) {
		CHECK(*next++ == parsed->variables[i]);
		CHECK(find_variable(merged, parsed->variables[i]));
	}
	CHECK(!*next);
	free(merged);
}

static int fuzz(uint64_t seed, long count)
{
	long accepted = 0;
	state = seed | 1;
	for (long i = 0; i < count; i++) {
		char data[LARGEST];
		struct parsed parsed;
		size_t size = random_handover(data);
		uint32_t changes = random_below(4);
		bool is_checked = random_below(8);
		for (uint32_t change_number = 0; change_number < changes; change_number++)
			if (size > HEADER_BYTES)
				size = change(data, size);
		/* With a wrong checksum little of the parser is reached. */
		char checked[LARGEST];
		put_number(data + 24, random_below(UINT32_MAX));
		if (size >= HEADER_BYTES && is_checked) {
			memcpy(checked, data + 8, 16);
			memcpy(checked + 16, data + HEADER_BYTES, size - HEADER_BYTES);
			put_number(data + 24, crc_of(checked, size - 12));
		}
		/* A copy of just that size, so that sanitizers see reads beyond. */
		char *exact = malloc(size ? size : 1);
		memcpy(exact, data, size);
		if (parse(exact, size, &parsed)) {
			accepted++;
			check_accepted(exact, &parsed);
			check_merged(&parsed);
		} else {
			CHECK(changes > 0 || !is_checked);
		}
		forget(&parsed);
		free(exact);
	}
	printf("%ld of %ld accepted\n", accepted, count);
	return 0;
}

int main(int count, char **arguments)
{
	if (count == 2 && strcmp(arguments[1], "parse") == 0)
		return show_parsed();
	if (count == 3 && strcmp(arguments[1], "passwd") == 0)
		return show_entry((uint32_t)strtoul(arguments[2], NULL, 10));
	if (count == 2 && strcmp(arguments[1], "decide") == 0)
		return show_decisions();
	if (count == 4 && strcmp(arguments[1], "fuzz") == 0)
		return fuzz(strtoull(arguments[2], NULL, 10), atol(arguments[3]));
	return 2;
}
