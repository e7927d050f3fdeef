// Values as a pure function of (seed, index), the same on host and device and in every process: both arms, and base's
// copy, see the same bits without exchanging them.
#ifndef KEVAL_CORE_MEASURE_COUNTER_GENERATOR_H_
#define KEVAL_CORE_MEASURE_COUNTER_GENERATOR_H_

#include <cstdint>

#ifdef __CUDACC__
#define KEVAL_HOST_DEVICE __host__ __device__
#else
#define KEVAL_HOST_DEVICE
#endif

namespace keval::measure {

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;  // 2^64 / the golden ratio, odd.

// A bijection of 64 bits in which every input bit reaches every output bit (the finaliser of SplitMix64).
KEVAL_HOST_DEVICE constexpr std::uint64_t MixBits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

KEVAL_HOST_DEVICE constexpr std::uint64_t CounterBits(std::uint64_t seed, std::uint64_t index) {
  return MixBits(seed + (index + 1) * kGoldenGamma);
}

// A seed of its own for each purpose that shares `seed`.
constexpr std::uint64_t SubSeed(std::uint64_t seed, std::uint64_t purpose) {
  return MixBits(MixBits(seed) ^ (purpose * kGoldenGamma));
}

// Nearly normal with standard deviation `unit_scale` x 65536 / sqrt(3): the sum of four 16-bit uniforms. Integers and
// one rounding, so host and device agree to the last bit; never beyond 3.5 standard deviations.
KEVAL_HOST_DEVICE constexpr float NearlyNormal(std::uint64_t bits, float unit_scale) {
  const int sum = static_cast<int>(bits & 0xffff) + static_cast<int>((bits >> 16) & 0xffff) +
                  static_cast<int>((bits >> 32) & 0xffff) + static_cast<int>(bits >> 48);
  return static_cast<float>(sum - 131070) * unit_scale;
}

// NearlyNormal's `unit_scale` for a standard deviation.
constexpr float UnitScale(double standard_deviation) {
  return static_cast<float>(standard_deviation * 1.7320508075688772 / 65536.0);
}

// One word's part of a digest; the digest is their sum modulo 2^64, so the order of adding does not matter.
KEVAL_HOST_DEVICE constexpr std::uint64_t DigestWord(std::uint64_t word, std::uint64_t index) {
  return MixBits(word ^ MixBits((index + 1) * kGoldenGamma));
}

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_COUNTER_GENERATOR_H_
