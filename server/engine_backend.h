// GradientBackend over linear_logp::Engine: the one place where the server meets LibTorch's library.
#ifndef KEVAL_SERVER_ENGINE_BACKEND_H_
#define KEVAL_SERVER_ENGINE_BACKEND_H_

#include "core/linear_logp/engine.h"
#include "server/gradient_backend.h"

namespace keval::server {

// `cpu_threads`: intra-op threads on a CPU, 0 for LibTorch's default. The factory's errors are Engine::Create's.
BackendFactory EngineBackendFactory(linear_logp::Device device, int cpu_threads);

}  // namespace keval::server

#endif  // KEVAL_SERVER_ENGINE_BACKEND_H_
