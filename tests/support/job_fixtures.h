// A server's facts and a small spec, for tests of the benchmark service.
#ifndef KEVAL_TESTS_SUPPORT_JOB_FIXTURES_H_
#define KEVAL_TESTS_SUPPORT_JOB_FIXTURES_H_

#include "server/job_spec.h"

namespace keval::testing {

// "cpu" and "cuda:0" (compute capability 9.0, 64 GiB), the three variants, at most 16 series and 8 queued jobs.
inline server::SpecContext TestContext() {
  server::SpecContext context;
  context.limits.set_max_series(16);
  context.limits.set_max_job_device_seconds(3600);
  context.limits.set_max_queued_jobs(8);
  auto* cpu = &context.devices.emplace_back();
  cpu->set_name("cpu");
  cpu->set_model("Test CPU");
  cpu->set_memory_bytes(std::int64_t{8} << 30);
  cpu->set_runs_benchmarks(true);
  auto* gpu = &context.devices.emplace_back();
  gpu->set_name("cuda:0");
  gpu->set_model("Test GPU");
  gpu->set_uuid("GPU-00000000-0000-0000-0000-000000000000");  // As fake_nvml.cc has it.
  gpu->set_compute_capability("9.0");
  gpu->set_memory_bytes(std::int64_t{64} << 30);
  gpu->set_runs_benchmarks(true);
  for (const char* name : {"portable_matmul_add", "portable_addmm", "materialized"}) {
    context.variants.emplace_back().set_name(name);
  }
  return context;
}

inline v1::Shape TestShape(std::int64_t n, std::int64_t d, std::int64_t v, bool bias = true) {
  v1::Shape shape;
  shape.set_num_tokens(n);
  shape.set_hidden_size(d);
  shape.set_vocab_size(v);
  shape.set_bias(bias);
  return shape;
}

// One primary and one guard; looks 6 and 10; the control is the primary's.
inline v1::BenchmarkSpec TestSpec() {
  v1::BenchmarkSpec spec;
  spec.set_display_name("test job");
  *spec.add_primaries() = TestShape(64, 8, 100);
  *spec.add_guards() = TestShape(32, 8, 200, false);
  spec.mutable_procedure()->add_looks(6);
  spec.mutable_procedure()->add_looks(10);
  spec.mutable_procedure()->set_quads(6);
  spec.mutable_procedure()->set_timed_repetitions(3);
  return spec;
}

}  // namespace keval::testing

#endif  // KEVAL_TESTS_SUPPORT_JOB_FIXTURES_H_
