#include "core/verdict/config.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::verdict {
namespace {

constexpr int kMaxLook = 10000;

absl::Status CheckLooks(const std::vector<int>& looks) {
  if (looks.empty()) return InvalidField("looks", "[]", "a list of at least one number of rounds");
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const std::string field = absl::StrCat("looks[", i, "]");
    if (looks[i] < 2 || looks[i] > kMaxLook) {
      return InvalidField(field, absl::StrCat(looks[i]), absl::StrCat("in [2, ", kMaxLook, "]"));
    }
    if (i > 0 && looks[i] <= looks[i - 1]) {
      return InvalidField(field, absl::StrCat(looks[i]), absl::StrCat("greater than the look before, ", looks[i - 1]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLevels(absl::string_view field, const std::vector<double>& levels, std::size_t looks) {
  if (levels.size() != looks) {
    return InvalidField(field, absl::StrCat(levels.size(), " levels"),
                        absl::StrCat("one level for each of the ", looks, " looks"));
  }
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (!(levels[i] >= kMinLevel && levels[i] < 0.5)) {
      return InvalidField(absl::StrCat(field, "[", i, "]"), DoubleText(levels[i]),
                          absl::StrCat("in [", DoubleText(kMinLevel), ", 0.5)"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShare(absl::string_view field, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return InvalidField(field, DoubleText(value), "in [0, 1]");
}

}  // namespace

absl::Status ValidateConfig(const Config& config) {
  if (absl::Status status = CheckLooks(config.looks); !status.ok()) return status;
  const std::size_t looks = config.looks.size();
  if (absl::Status status = CheckLevels("a_sup", config.a_sup, looks); !status.ok()) return status;
  if (absl::Status status = CheckLevels("a_eq", config.a_eq, looks); !status.ok()) return status;
  if (absl::Status status = CheckLevels("a_ctl", config.a_ctl, looks); !status.ok()) return status;
  for (const auto& [name, delta] : config.delta) {
    if (!(delta > 0 && delta < 1)) {
      return InvalidField(absl::StrCat("delta.", PrintableText(name)), DoubleText(delta), "in (0, 1)");
    }
  }
  if (absl::Status status = CheckShare("consist", config.consist); !status.ok()) return status;
  if (absl::Status status = CheckShare("ctl_floor", config.ctl_floor); !status.ok()) return status;
  if (absl::Status status = CheckShare("thr_quads_max", config.thr_quads_max); !status.ok()) return status;
  return CheckShare("thr_asym_p", config.thr_asym_p);
}

}  // namespace keval::verdict
