#include "handover.h"

static const char MAGIC[8] = {'T', 'Y', 'S', 'T', 'A', 'R', 'T', '1'};

/* CRC-32 as of zlib; `crc` is that of the bytes before, 0 at the beginning. */
static uint32_t checksum(uint32_t crc, const char *bytes, size_t size)
{
	crc = ~crc;
	for (size_t i = 0; i < size; i++) {
		crc ^= (unsigned char)bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static uint32_t number(const char *bytes)
{
	uint32_t value = 0;
	for (int i = 3; i >= 0; i--)
		value = value << 8 | (unsigned char)bytes[i];
	return value;
}

bool parse_header(const char *bytes, struct header *header)
{
	for (size_t i = 0; i < sizeof(MAGIC); i++)
		if (bytes[i] != MAGIC[i])
			return false;
	uint32_t mode = number(bytes + 8);
	header->in_place = mode == 1;
	header->arguments = number(bytes + 12);
	header->variables = number(bytes + 16);
	header->bytes = number(bytes + 20);
	header->crc_of_counts = checksum(0, bytes + 8, 16);
	header->crc = number(bytes + 24);
	return mode <= 1 && header->arguments >= 1 && header->arguments <= MAX_STRINGS &&
	       header->variables <= MAX_STRINGS && header->bytes <= MAX_BYTES;
}

/* Points `list` to `count` strings and ends it with NULL; returns what follows the strings, or NULL
 * if they do not end before `end`. */
static char *split(char *next, const char *end, char **list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		list[i] = next;
		while (next < end && *next)
			next++;
		if (next == end)
			return NULL;
		next++;
	}
	list[count] = NULL;
	return next;
}

/* The length of the name of NAME=value, or of all of it without a sign. */
static size_t name_length(const char *entry)
{
	size_t length = 0;
	while (entry[length] && entry[length] != '=')
		length++;
	return length;
}

static bool is_variable(const char *entry)
{
	size_t length = name_length(entry);
	return length > 0 && entry[length] == '=';
}

bool parse_strings(const struct header *header, char *strings, char **arguments, char **variables)
{
	if (checksum(header->crc_of_counts, strings, header->bytes) != header->crc)
		return false;
	const char *end = strings + header->bytes;
	char *next = split(strings, end, arguments, header->arguments);
	if (next)
		next = split(next, end, variables, header->variables);
	if (next != end)
		return false;
	for (uint32_t i = 0; i < header->variables; i++)
		if (!is_variable(variables[i]))
			return false;
	return true;
}

static bool is_same_name(const char *one, const char *other)
{
	size_t length = name_length(one);
	for (size_t i = 0; i < length; i++)
		if (one[i] != other[i])
			return false;
	return other[length] == '=';
}

char *find_variable(char **variables, const char *entry)
{
	while (*variables && !is_same_name(entry, *variables))
		variables++;
	return *variables;
}

void merge_variables(char **own, char **given, char **merged)
{
	for (; *own; own++)
		if (!find_variable(given, *own))
			*merged++ = *own;
	while (*given)
		*merged++ = *given++;
	*merged = NULL;
}
