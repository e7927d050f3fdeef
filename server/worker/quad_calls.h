// Quads of two prepared arms, and the random choices of a job.
#ifndef KEVAL_SERVER_WORKER_QUAD_CALLS_H_
#define KEVAL_SERVER_WORKER_QUAD_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/verdict/samples.h"
#include "server/round_collector.h"
#include "server/worker/arm_calls.h"
#include "server/worker/worker_crew.h"

namespace keval::worker {

// What a random choice of a job is for.
enum class Purpose : std::uint64_t {
  kStartOrder = 1,
  kQuadOrder,
  kInputs,
  kPilot,
  kProfile,
  kDiagnose,
  kPrepareOrder,
  kCpus
};

// A bijection of 64 bits in which every input bit reaches every output bit.
std::uint64_t Mix(std::uint64_t x);

// The random bits of (job, purpose, a, b): a rerun of a round draws the same ones.
std::uint64_t Draw(std::uint64_t seed, Purpose purpose, int a, int b);

// What the quads of one series need to know.
struct QuadPlan {
  std::string series;
  verdict::Role role = verdict::Role::kPrimary;
  int round = 0;
  int quads = 8;
  int timed = 5;
  int discarded = 2;
  std::uint64_t order_seed = 0;  // With the quad's number: ABBA or BAAB.
  Seat second = Seat::kCandidate;
  Work work;  // Made anew for each block where the arms are sequential.
};

// Appends the series' samples and blocks, block by block, so that a failure leaves what was measured. A turn for each
// quad. REQUIRES that both arms are prepared, unless `arms` are sequential: then a block's tensors are made before it
// and let go of after it. Errors: the crew's.
absl::Status CollectQuads(const server::JobArms& arms, const QuadPlan& plan, WorkerCrew* crew,
                          std::vector<verdict::Sample>* samples, std::vector<server::BlockRecord>* blocks);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_QUAD_CALLS_H_
