// The variants that this build knows, and those that a test adds.
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "base/mutex.h"
#include "core/linear_logp/builtin_variants.h"
#include "core/linear_logp/variant.h"

namespace keval::linear_logp {
namespace {

// Thread-safe. Lives as long as the process, so that a variant found may be kept.
class Registry {
 public:
  static Registry& Get() {
    static Registry registry;
    return registry;
  }

  void Add(std::unique_ptr<Variant> variant) {
    const MutexLock lock(&mutex_);
    variants_.push_back(std::move(variant));
  }

  void Remove(absl::string_view name) {
    const MutexLock lock(&mutex_);
    variants_.erase(std::remove_if(variants_.begin(), variants_.end(),
                                   [name](const auto& variant) { return variant->Describe().name == name; }),
                    variants_.end());
  }

  std::vector<const Variant*> All() {
    const MutexLock lock(&mutex_);
    std::vector<const Variant*> all;
    for (const auto& variant : variants_) all.push_back(variant.get());
    return all;
  }

 private:
  Registry() {
    variants_.push_back(MakePortableMatmulAdd());
    variants_.push_back(MakePortableAddmm());
    variants_.push_back(MakeMaterialized());
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<Variant>> variants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

ChunkResult Variant::Chunk(const VariantInputs& /*chunk*/, const Options& /*options*/, Want /*want*/,
                           GradientTables* /*tables*/, Dispatch* /*dispatch*/) const {
  TORCH_CHECK(false, Describe().name, " takes all tokens at once");
}

std::vector<const Variant*> AllVariants() { return Registry::Get().All(); }

absl::StatusOr<const Variant*> FindVariant(absl::string_view name) {
  std::vector<std::string> known;
  for (const Variant* variant : AllVariants()) {
    std::string candidate = variant->Describe().name;
    if (candidate == name) return variant;
    known.push_back(std::move(candidate));
  }
  return InvalidField("variant", name, "one of " + absl::StrJoin(known, ", "));
}

std::vector<VariantDescription> DescribeVariants() {
  std::vector<VariantDescription> descriptions;
  for (const Variant* variant : AllVariants()) descriptions.push_back(variant->Describe());
  return descriptions;
}

ScopedVariantForTest::ScopedVariantForTest(std::unique_ptr<Variant> variant) : name_(variant->Describe().name) {
  Registry::Get().Add(std::move(variant));
}

ScopedVariantForTest::~ScopedVariantForTest() { Registry::Get().Remove(name_); }

}  // namespace keval::linear_logp
