/* What an agent hands over: arguments and environment of the program that a container runs.
 *
 * Pure: no system calls, no globals. Little-endian, as agent/init/messages.py writes it:
 *
 *     8  magic "TYSTART1"
 *     4  mode: 0 = as a child, 1 = in place of the first process
 *     4  number of arguments, 1 to MAX_STRINGS
 *     4  number of variables, 0 to MAX_STRINGS
 *     4  bytes of all strings, at most MAX_BYTES
 *     4  CRC-32, as of zlib, of the 16 bytes before and of the strings
 *        the strings, each ended by NUL: arguments, then variables as NAME=value
 */
#ifndef TILTYARD_HANDOVER_H
#define TILTYARD_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HEADER_BYTES = 28,
	MAX_STRINGS = 16384,
	MAX_BYTES = 2 * 1024 * 1024,
};

struct header {
	bool in_place;
	uint32_t arguments;
	uint32_t variables;
	uint32_t bytes;
	uint32_t crc_of_counts; /* With which that of the strings begins */
	uint32_t crc;
};

/* Reads the HEADER_BYTES of a header; false if they are not one. */
bool parse_header(const char *bytes, struct header *header);

/* Points `arguments` and `variables` to the strings, which have `header->bytes` bytes; each list
 * has room for its number and a NULL. False if the strings are not those of the header. */
bool parse_strings(const struct header *header, char *strings, char **arguments, char **variables);

/* Fills `merged`, which has room for both lists and a NULL, with the variables of `own` whose names
 * are not in `given`, and with those of `given`. NULL ends each list. */
void merge_variables(char **own, char **given, char **merged);

/* The variable with the name of `entry`, a NAME or NAME=value; NULL if there is none. */
char *find_variable(char **variables, const char *entry);

#endif
