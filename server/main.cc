// kevald: the server.
#include "server/kevald_main.h"

int main(int argc, char** argv) { return keval::server::KevaldMain({argv + 1, argv + argc}); }
