// ServerInfoService without its transport.
#ifndef KEVAL_SERVER_SERVER_INFO_HANDLER_H_
#define KEVAL_SERVER_SERVER_INFO_HANDLER_H_

#include <atomic>
#include <functional>

#include "keval/v1/server_info.pb.h"
#include "server/byte_budget.h"
#include "server/device_table.h"
#include "server/free_memory.h"
#include "server/serving_state.h"

namespace keval::server {

// Thread-safe; does not own what it is given, all of which must outlive it.
class ServerInfoHandler {
 public:
  // `fixed`: everything that stays as it is; the rest is asked for each time. `fill_rest` fills what the jobs and the
  // tensor store know: running_jobs, queued_jobs, tensor_store.
  ServerInfoHandler(v1::ServerInfo fixed, const DeviceTable* devices, const ServingState* state,
                    const ByteBudget* request_bytes, std::function<void(v1::ServerInfo*)> fill_rest);

  v1::ServerInfo Get();

  // Known only once the listener has its port.
  void SetBulkPort(int port) { bulk_port_ = port; }

 private:
  const v1::ServerInfo fixed_;
  const DeviceTable* const devices_;
  const ServingState* const state_;
  const ByteBudget* const request_bytes_;
  const std::function<void(v1::ServerInfo*)> fill_rest_;
  FreeMemory free_memory_;
  std::atomic<int> bulk_port_{0};
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_SERVER_INFO_HANDLER_H_
