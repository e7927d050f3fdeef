#include "server/grpc/grpc_log.h"

#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include "base/text.h"

namespace keval::server {

void RouteGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("grpc: {}", PrintableText(line->message, 1024)); });
}

}  // namespace keval::server
