// CheckContract without its transport: rows of the correctness contract, measured in a worker process.
#ifndef KEVAL_SERVER_CONTRACT_HANDLER_H_
#define KEVAL_SERVER_CONTRACT_HANDLER_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/call_context.h"
#include "server/device_table.h"
#include "server/round_collector.h"

namespace keval::server {

// Thread-safe; owns nothing it is given, all of which must outlive it.
class ContractHandler {
 public:
  using CollectorFactory = std::function<std::unique_ptr<RoundCollector>()>;

  ContractHandler(const DeviceTable* devices, const std::vector<linear_logp::VariantDescription>* variants,
                  CollectorFactory collectors)
      : devices_(devices), variants_(variants), collectors_(std::move(collectors)) {}

  // Sends each row as it is measured. INVALID_ARGUMENT (field "base", "candidate" or "device"); FAILED_PRECONDITION
  // (device); RESOURCE_EXHAUSTED with a retry delay while as many checks run as may at once; UNAVAILABLE naming the arm
  // when a worker dies. `send` returns false when the stream has broken: CANCELLED.
  absl::Status Check(const CallContext& call, const v1::CheckContractRequest& request,
                     absl::FunctionRef<bool(const v1::ContractRow&)> send);

 private:
  const DeviceTable* const devices_;
  const std::vector<linear_logp::VariantDescription>* const variants_;
  const CollectorFactory collectors_;
  Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_CONTRACT_HANDLER_H_
