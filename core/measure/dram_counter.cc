#include "core/measure/dram_counter.h"

#ifdef KEVAL_CUDA
#include <cuda_runtime_api.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/cuda_status.h"
#endif

namespace keval::measure {
#ifdef KEVAL_CUDA
namespace {

// NVIDIA's names: bytes that went over the memory's pins, all its channels together.
std::array<const char*, 2> metrics = {"dram__bytes_read.sum", "dram__bytes_write.sum"};

absl::Status Told(CUptiResult result, absl::string_view what) {
  if (result == CUPTI_SUCCESS) {
    return absl::OkStatus();
  }
  if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
      result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES) {
    return absl::UnavailableError("the driver keeps the hardware counters for administrators");
  }
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  return absl::UnavailableError(
      absl::StrCat("CUPTI gives no hardware counters: ", what, ": ", text == nullptr ? "unknown error" : text));
}

// A parameter block of CUPTI: zero but for its size.
template <typename Params>
Params Block(std::size_t size) {
  Params params{};
  params.structSize = size;
  return params;
}

absl::StatusOr<CUcontext> CurrentContext() {
  // By way of the runtime, so that nothing links the driver, which the machine that builds lacks.
  constexpr unsigned kSince = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (absl::Status status = linear_logp::CudaStatus(
          cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, kSince, cudaEnableDefault, &found),
          "find the driver's cuCtxGetCurrent");
      !status.ok()) {
    return status;
  }
  CUcontext context = nullptr;
  if (function == nullptr || reinterpret_cast<CUresult (*)(CUcontext*)>(function)(&context) != CUDA_SUCCESS ||
      context == nullptr) {
    return absl::UnavailableError("the device has no current context");
  }
  return context;
}

// One profiling session of one context. Whatever was begun ends with the object.
class RangeProfiler {
 public:
  RangeProfiler() = default;
  ~RangeProfiler() {
    if (object_ != nullptr) {
      auto disable = Block<CUpti_RangeProfiler_Disable_Params>(CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
      disable.pRangeProfilerObject = object_;
      cuptiRangeProfilerDisable(&disable);
    }
    if (host_ != nullptr) {
      auto end = Block<CUpti_Profiler_Host_Deinitialize_Params>(CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
      end.pHostObject = host_;
      cuptiProfilerHostDeinitialize(&end);
    }
    if (initialised_) {
      auto end = Block<CUpti_Profiler_DeInitialize_Params>(CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE);
      cuptiProfilerDeInitialize(&end);
    }
  }
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  absl::Status Open(int device, CUcontext context);
  // `call` runs once a pass, between `before` and the end of what it queued.
  absl::Status Collect(const std::function<absl::Status()>& before, const std::function<absl::Status()>& call);
  absl::StatusOr<DramBytes> Evaluate();

 private:
  absl::Status OpenHost(int device, CUcontext context);
  absl::Status MakeImages();

  bool initialised_ = false;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<std::uint8_t> availability_;
  std::vector<std::uint8_t> config_;
  std::vector<std::uint8_t> counters_;
};

absl::Status RangeProfiler::Open(int device, CUcontext context) {
  auto begin = Block<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
  if (absl::Status status = Told(cuptiProfilerInitialize(&begin), "start"); !status.ok()) {
    return status;
  }
  initialised_ = true;
  if (absl::Status status = OpenHost(device, context); !status.ok()) {
    return status;
  }
  auto enable = Block<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
  enable.ctx = context;
  if (absl::Status status = Told(cuptiRangeProfilerEnable(&enable), "enable"); !status.ok()) {
    return status;
  }
  object_ = enable.pRangeProfilerObject;
  return MakeImages();
}

absl::Status RangeProfiler::OpenHost(int device, CUcontext context) {
  auto chip = Block<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  chip.deviceIndex = static_cast<std::size_t>(device);
  if (absl::Status status = Told(cuptiDeviceGetChipName(&chip), "name of the chip"); !status.ok()) {
    return status;
  }
  auto available =
      Block<CUpti_Profiler_GetCounterAvailability_Params>(CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
  available.ctx = context;
  CUptiResult result = cuptiProfilerGetCounterAvailability(&available);
  if (result == CUPTI_SUCCESS) {
    availability_.resize(available.counterAvailabilityImageSize);
    available.pCounterAvailabilityImage = availability_.data();
    result = cuptiProfilerGetCounterAvailability(&available);
  }
  if (absl::Status status = Told(result, "which counters there are"); !status.ok()) {
    return status;
  }
  auto host = Block<CUpti_Profiler_Host_Initialize_Params>(CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  host.pChipName = chip.pChipName;
  host.pCounterAvailabilityImage = availability_.data();
  if (absl::Status status = Told(cuptiProfilerHostInitialize(&host), "description of the chip"); !status.ok()) {
    return status;
  }
  host_ = host.pHostObject;
  auto add =
      Block<CUpti_Profiler_Host_ConfigAddMetrics_Params>(CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  add.pHostObject = host_;
  add.ppMetricNames = metrics.data();
  add.numMetrics = metrics.size();
  return Told(cuptiProfilerHostConfigAddMetrics(&add), "DRAM counters");
}

absl::Status RangeProfiler::MakeImages() {
  auto config_size =
      Block<CUpti_Profiler_Host_GetConfigImageSize_Params>(CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  config_size.pHostObject = host_;
  if (absl::Status status = Told(cuptiProfilerHostGetConfigImageSize(&config_size), "configuration"); !status.ok()) {
    return status;
  }
  config_.resize(config_size.configImageSize);
  auto config = Block<CUpti_Profiler_Host_GetConfigImage_Params>(CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  config.pHostObject = host_;
  config.configImageSize = config_.size();
  config.pConfigImage = config_.data();
  if (absl::Status status = Told(cuptiProfilerHostGetConfigImage(&config), "configuration"); !status.ok()) {
    return status;
  }
  auto size =
      Block<CUpti_RangeProfiler_GetCounterDataSize_Params>(CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
  size.pRangeProfilerObject = object_;
  size.pMetricNames = metrics.data();
  size.numMetrics = metrics.size();
  size.maxNumOfRanges = 1;
  size.maxNumRangeTreeNodes = 1;
  if (absl::Status status = Told(cuptiRangeProfilerGetCounterDataSize(&size), "size of the counters"); !status.ok()) {
    return status;
  }
  counters_.resize(size.counterDataSize);
  auto image = Block<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(
      CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  image.pRangeProfilerObject = object_;
  image.counterDataSize = counters_.size();
  image.pCounterData = counters_.data();
  if (absl::Status status = Told(cuptiRangeProfilerCounterDataImageInitialize(&image), "counters"); !status.ok()) {
    return status;
  }
  auto set = Block<CUpti_RangeProfiler_SetConfig_Params>(CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
  set.pRangeProfilerObject = object_;
  set.configSize = config_.size();
  set.pConfig = config_.data();
  set.counterDataImageSize = counters_.size();
  set.pCounterDataImage = counters_.data();
  set.range = CUPTI_UserRange;
  set.replayMode = CUPTI_UserReplay;
  set.maxRangesPerPass = 1;
  set.numNestingLevels = 1;
  set.minNestingLevel = 1;
  set.targetNestingLevel = 1;
  return Told(cuptiRangeProfilerSetConfig(&set), "configuration");
}

absl::Status RangeProfiler::Collect(const std::function<absl::Status()>& before,
                                    const std::function<absl::Status()>& call) {
  constexpr int kMostPasses = 16;
  auto start = Block<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
  auto push = Block<CUpti_RangeProfiler_PushRange_Params>(CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
  auto pop = Block<CUpti_RangeProfiler_PopRange_Params>(CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
  auto stop = Block<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
  start.pRangeProfilerObject = push.pRangeProfilerObject = pop.pRangeProfilerObject = stop.pRangeProfilerObject =
      object_;
  push.pRangeName = "call";
  for (int pass = 0; pass < kMostPasses; ++pass) {
    absl::Status status = before();
    if (status.ok()) {
      status = Told(cuptiRangeProfilerStart(&start), "start of a pass");
    }
    if (status.ok()) {
      status = Told(cuptiRangeProfilerPushRange(&push), "begin of the call");
    }
    if (status.ok()) {
      status = call();
    }
    if (status.ok()) {
      status = Told(cuptiRangeProfilerPopRange(&pop), "end of the call");
    }
    if (status.ok()) {
      status = Told(cuptiRangeProfilerStop(&stop), "end of a pass");
    }
    if (!status.ok()) {
      return status;
    }
    if (stop.isAllPassSubmitted != 0) {
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError(absl::StrCat("the counters want more than ", kMostPasses, " passes"));
}

absl::StatusOr<DramBytes> RangeProfiler::Evaluate() {
  auto decode = Block<CUpti_RangeProfiler_DecodeData_Params>(CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
  decode.pRangeProfilerObject = object_;
  if (absl::Status status = Told(cuptiRangeProfilerDecodeData(&decode), "reading"); !status.ok()) {
    return status;
  }
  std::array<double, 2> values = {NAN, NAN};
  auto evaluate =
      Block<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
  evaluate.pHostObject = host_;
  evaluate.pCounterDataImage = counters_.data();
  evaluate.counterDataImageSize = counters_.size();
  evaluate.ppMetricNames = metrics.data();
  evaluate.numMetrics = metrics.size();
  evaluate.pMetricValues = values.data();
  if (absl::Status status = Told(cuptiProfilerHostEvaluateToGpuValues(&evaluate), "values"); !status.ok()) {
    return status;
  }
  if (!std::isfinite(values[0]) || !std::isfinite(values[1]) || values[0] < 0 || values[1] < 0) {
    return absl::UnavailableError("the counters gave no value");
  }
  return DramBytes{std::llround(values[0]), std::llround(values[1])};
}

}  // namespace
#endif  // KEVAL_CUDA

absl::StatusOr<DramBytes> CountDramBytes(const DeviceSession& session, const std::function<absl::Status()>& call) {
#ifdef KEVAL_CUDA
  if (session.device().cuda) {
    const absl::StatusOr<CUcontext> context = CurrentContext();
    if (!context.ok()) {
      return context.status();
    }
    RangeProfiler profiler;
    absl::Status status = profiler.Open(session.device().index, *context);
    if (status.ok()) {
      status = profiler.Collect(
          [&session] {
            absl::Status flushed = session.flush().Run();
            return flushed.ok() ? session.Synchronize() : flushed;
          },
          [&session, &call] {
            absl::Status called = call();
            return called.ok() ? session.Synchronize() : called;
          });
    }
    if (!status.ok()) {
      return status;
    }
    return profiler.Evaluate();
  }
#endif
  static_cast<void>(session);
  static_cast<void>(call);
  return absl::UnavailableError("a CPU's memory traffic is not counted");
}

}  // namespace keval::measure
