/* Executes a program as execvp of the GNU C library does, which `docker run --init` uses. */
#ifndef TILTYARD_EXECUTE_H
#define TILTYARD_EXECUTE_H

#include "reaper.h"

/* Executes the program that `arguments[0]` names; returns only if that is not possible, with the
 * reason. `arguments[-1]` can be written to: a script without `#!` is run by a shell. */
struct refusal execute(char **arguments, char **environment);

#endif
