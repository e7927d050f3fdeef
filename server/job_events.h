// What watchers of a job are told of its rounds and looks.
#ifndef KEVAL_SERVER_JOB_EVENTS_H_
#define KEVAL_SERVER_JOB_EVENTS_H_

#include <vector>

#include "core/verdict/config.h"
#include "core/verdict/look.h"
#include "core/verdict/samples.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::server {

// `next_look`: rounds at the next one, 0 where the job ends here; `rounds_needed` as in the message.
v1::JobEvent LookEvent(const verdict::Look& look, int next_look, int rounds_needed);

// Adds to `done` when the next look of `config` is, and the intervals over the first `rounds` rounds at that look's
// levels. `samples` are all of them; where they can't be judged nothing is added.
void AddRunning(const std::vector<verdict::Sample>& samples, verdict::Config config, int rounds, v1::RoundDone* done);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_EVENTS_H_
