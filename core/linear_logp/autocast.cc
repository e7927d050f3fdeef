#include "core/linear_logp/autocast.h"

#include <ATen/autocast_mode.h>

namespace keval::linear_logp {

bool AutocastEnabled(c10::DeviceType device_type) { return at::autocast::is_autocast_enabled(device_type); }

AutocastScope::AutocastScope(c10::DeviceType device_type, Autocast autocast)
    : device_type_(device_type),
      previous_enabled_(at::autocast::is_autocast_enabled(device_type)),
      previous_dtype_(at::autocast::get_autocast_dtype(device_type)),
      previous_cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_cache_enabled(false);
  if (autocast != Autocast::kNone) {
    at::autocast::set_autocast_dtype(device_type_, autocast == Autocast::kBFloat16 ? at::kBFloat16 : at::kHalf);
  }
  at::autocast::set_autocast_enabled(device_type_, autocast != Autocast::kNone);
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_type_, previous_enabled_);
  at::autocast::set_autocast_dtype(device_type_, previous_dtype_);
  at::autocast::set_autocast_cache_enabled(previous_cache_enabled_);
}

}  // namespace keval::linear_logp
