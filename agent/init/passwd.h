/* Whether a user has an entry in /etc/passwd, which is read in pieces.
 *
 * Pure: no system calls, no globals. Begins as {.user = number}.
 */
#ifndef TILTYARD_PASSWD_H
#define TILTYARD_PASSWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct passwd_search {
	uint32_t user;
	uint32_t field;  /* Of the line that is being read */
	uint64_t number; /* In the field of the user's number, as far as it has been read */
	bool has_digits;
	bool is_other;   /* That field is no number, or a larger one than any user has */
	bool is_found;
};

/* Reads the next bytes of the file. */
void search_passwd(struct passwd_search *search, const char *bytes, size_t size);

/* Ends the last line, which may lack its newline; returns whether the user has an entry. */
bool end_search(struct passwd_search *search);

#endif
