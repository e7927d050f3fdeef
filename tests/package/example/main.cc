// Computes one gradient on the server named by the first argument, and checks it against what is known by hand: with
// two equal words, p is one half.
#include <keval/client.h>
#include <keval/status.h>

#include <cmath>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: example SERVER\n";
    return 2;
  }
  const auto client = keval::Client::Connect(argv[1]);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  const std::vector<float> hidden = {1, 2};
  const std::vector<float> weight = {3, 4, 3, 4};
  const std::vector<std::int64_t> targets = {1};
  const float upstream = 2;
  keval::GradientParams params;
  params.hidden = keval::TensorView{keval::DType::kFloat32, {1, 2}, {}, hidden.data()};
  params.weight = keval::TensorView{keval::DType::kFloat32, {2, 2}, {}, weight.data()};
  params.targets = keval::TensorView{keval::DType::kInt64, {1}, {}, targets.data()};
  params.grad_logp = keval::TensorView{keval::DType::kFloat32, {1}, {0}, &upstream};
  const auto result = client->Gradient(params);
  if (!result.ok()) {
    std::cerr << result.status() << "\n";
    if (const auto violation = keval::GetFieldViolation(result.status())) std::cerr << violation->field << "\n";
    return 1;
  }
  // logp = ln(1/2); dz = 2 * (1/2) for the target and -1 for the other; grad_weight = dz * hidden.
  const bool right = std::abs(result->logp.At(0) + std::log(2.0)) < 1e-6 &&
                     std::abs(result->grad_weight->At(0) + 1) < 1e-6 && std::abs(result->grad_weight->At(3) - 2) < 1e-6;
  std::cout << "logp " << result->logp.At(0) << (right ? "" : " is wrong") << "\n";
  return right ? 0 : 1;
}
