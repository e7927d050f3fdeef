// What kevald is as its own clock guard, without the rest of it.
#include "server/clock_guard.h"

int main(int argc, char** argv) { return argc == 5 ? keval::server::GuardClock(argv[2], argv[3], argv[4]) : 2; }
