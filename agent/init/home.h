#ifndef TILTYARD_HOME_H
#define TILTYARD_HOME_H

/* Makes HOME /tmp in variables, which have room for one more, if the engine has found no better:
 * it sets / for a user without an entry in /etc/passwd, who can write nothing there. `given` has
 * what an agent hands over; a HOME in it stays as it is. */
void set_home(char **given, char **variables);

#endif
