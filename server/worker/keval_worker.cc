// keval-worker: one arm of one round, in a process of its own.
#include "server/worker/worker_main.h"

int main(int argc, char** argv) { return keval::worker::WorkerMain(argc, argv); }
