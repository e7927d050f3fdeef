// The whole of the kevald program; the tests' server with planted variants runs it too.
#ifndef KEVAL_SERVER_KEVALD_MAIN_H_
#define KEVAL_SERVER_KEVALD_MAIN_H_

#include <string>
#include <vector>

namespace keval::server {

// A process around server/kevald.h, until a signal drains it. `arguments`: without the program's name. Returns an exit
// code: 0 drained; 1 could not start, or a device was lost; 2 usage.
int KevaldMain(const std::vector<std::string>& arguments);

}  // namespace keval::server

#endif  // KEVAL_SERVER_KEVALD_MAIN_H_
