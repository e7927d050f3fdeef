#include "server/server_info_handler.h"

#include <utility>

namespace keval::server {

ServerInfoHandler::ServerInfoHandler(v1::ServerInfo fixed, const DeviceTable* devices, const ServingState* state,
                                     const ByteBudget* request_bytes, std::function<void(v1::ServerInfo*)> fill_rest)
    : fixed_(std::move(fixed)),
      devices_(devices),
      state_(state),
      request_bytes_(request_bytes),
      fill_rest_(std::move(fill_rest)) {}

v1::ServerInfo ServerInfoHandler::Get() {
  v1::ServerInfo info = fixed_;
  info.set_draining(state_->draining());
  info.set_bulk_port(bulk_port_);
  std::int64_t queued = 0;
  for (const ServedDevice& device : devices_->devices()) {
    v1::DeviceInfo* entry = nullptr;
    for (v1::DeviceInfo& candidate : *info.mutable_devices()) {
      if (candidate.name() == device.name) entry = &candidate;
    }
    if (device.executor == nullptr) {
      if (entry != nullptr) entry->clear_free_bytes();  // The server asks no device that it doesn't compute on.
      continue;
    }
    queued += device.executor->queued();
    if (entry == nullptr) continue;
    entry->set_healthy(device.executor->healthy());
    entry->set_free_bytes(free_memory_.Bytes(device.name, device.executor, entry->free_bytes()));
  }
  info.mutable_queue()->set_queued_requests(queued);
  info.mutable_queue()->set_queued_bytes(request_bytes_->used());
  if (fill_rest_) fill_rest_(&info);
  return info;
}

}  // namespace keval::server
