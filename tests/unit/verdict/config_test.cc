#include "core/verdict/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include "base/field_error.h"

namespace keval::verdict {
namespace {

TEST(ValidateConfig, TakesTheDefaults) { EXPECT_TRUE(ValidateConfig(Config()).ok()); }

struct Refusal {
  std::string name;
  std::function<void(Config*)> change;
  std::string field;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }
};

class ConfigRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(ConfigRefusal, NamesTheKey) {
  Config config;
  GetParam().change(&config);
  const absl::Status status = ValidateConfig(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, GetParam().field);
  EXPECT_NE(violation->limit, "");
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(All, ConfigRefusal,
                         testing::Values(Refusal{"no_look", [](Config* c) { c->looks.clear(); }, "looks"},
                                         Refusal{"look_of_one", [](Config* c) { c->looks[0] = 1; }, "looks[0]"},
                                         Refusal{"huge_look", [](Config* c) { c->looks[3] = 10001; }, "looks[3]"},
                                         Refusal{"same_look_twice", [](Config* c) { c->looks[1] = 6; }, "looks[1]"},
                                         Refusal{"levels_too_few", [](Config* c) { c->a_sup.pop_back(); }, "a_sup"},
                                         Refusal{"levels_too_many", [](Config* c) { c->a_eq.push_back(.01); }, "a_eq"},
                                         Refusal{"level_zero", [](Config* c) { c->a_ctl[2] = 0; }, "a_ctl[2]"},
                                         Refusal{"level_tiny", [](Config* c) { c->a_sup[0] = 1e-17; }, "a_sup[0]"},
                                         Refusal{"level_half", [](Config* c) { c->a_sup[0] = .5; }, "a_sup[0]"},
                                         Refusal{"level_nan", [](Config* c) { c->a_sup[0] = kNaN; }, "a_sup[0]"},
                                         Refusal{"delta_zero", [](Config* c) { c->delta["guard"] = 0; }, "delta.guard"},
                                         Refusal{"delta_one", [](Config* c) { c->delta["s1"] = 1; }, "delta.s1"},
                                         Refusal{"delta_nan", [](Config* c) { c->delta["s1"] = kNaN; }, "delta.s1"},
                                         Refusal{"consist", [](Config* c) { c->consist = 1.1; }, "consist"},
                                         Refusal{"floor", [](Config* c) { c->ctl_floor = -.1; }, "ctl_floor"},
                                         Refusal{"quads", [](Config* c) { c->thr_quads_max = kNaN; }, "thr_quads_max"},
                                         Refusal{"asymmetry", [](Config* c) { c->thr_asym_p = 2; }, "thr_asym_p"}),
                         [](const auto& refusal) { return refusal.param.name; });

}  // namespace
}  // namespace keval::verdict
