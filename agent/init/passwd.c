#include "passwd.h"

enum { USER_FIELD = 2 }; /* name:password:user:group:description:home:shell */

static void end_field(struct passwd_search *search)
{
	if (search->field == USER_FIELD && search->has_digits && !search->is_other &&
	    search->number == search->user)
		search->is_found = true;
	search->field++;
}

static void end_line(struct passwd_search *search)
{
	end_field(search);
	search->field = 0;
	search->number = 0;
	search->has_digits = false;
	search->is_other = false;
}

static void add_digit(struct passwd_search *search, char digit)
{
	search->has_digits = true;
	search->number = search->number * 10 + (uint64_t)(digit - '0');
	if (search->number > UINT32_MAX) {
		search->number = 0;
		search->is_other = true;
	}
}

void search_passwd(struct passwd_search *search, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		char byte = bytes[i];
		if (byte == '\n')
			end_line(search);
		else if (byte == ':')
			end_field(search);
		else if (search->field == USER_FIELD && byte >= '0' && byte <= '9')
			add_digit(search, byte);
		else if (search->field == USER_FIELD)
			search->is_other = true;
	}
}

bool end_search(struct passwd_search *search)
{
	end_line(search);
	return search->is_found;
}
