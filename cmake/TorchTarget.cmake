# LibTorch as imported targets over the PyTorch wheel's libraries, without find_package(Torch): that one needs nvcc,
# overwrites CMAKE_CUDA_* and leaks the wheel's own protobuf and fmt headers to whoever links it.
#
#   keval::torch   headers, libc10, libtorch_cpu; with KEVAL_CUDA also libc10_cuda and libtorch_cuda
#
# Link it PRIVATE, and only from core/ and the tests of core/: its headers must never reach a file that includes gRPC's.
file(GLOB KEVAL_SITE_PACKAGES "${KEVAL_VENV}/lib/python3*/site-packages")
list(GET KEVAL_SITE_PACKAGES 0 KEVAL_SITE_PACKAGES)
set(KEVAL_TORCH_DIR "${KEVAL_SITE_PACKAGES}/torch")
if(NOT EXISTS "${KEVAL_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No PyTorch wheel under KEVAL_VENV=${KEVAL_VENV}: run scripts/bootstrap")
endif()
file(READ "${KEVAL_TORCH_DIR}/version.py" KEVAL_TORCH_VERSION_PY)
string(REGEX MATCH "__version__ = '([0-9.]+)" _ "${KEVAL_TORCH_VERSION_PY}")
set(KEVAL_TORCH_VERSION "${CMAKE_MATCH_1}")
if(NOT KEVAL_TORCH_VERSION VERSION_EQUAL "2.11.0")
  message(WARNING "keval is tested with PyTorch 2.11.0; found ${KEVAL_TORCH_VERSION}")
endif()

foreach(lib c10 torch_cpu)
  add_library(keval_torch_${lib} SHARED IMPORTED GLOBAL)
  set_target_properties(keval_torch_${lib} PROPERTIES
    IMPORTED_LOCATION "${KEVAL_TORCH_DIR}/lib/lib${lib}.so" IMPORTED_NO_SONAME OFF)
endforeach()
add_library(keval_torch INTERFACE)
add_library(keval::torch ALIAS keval_torch)
# SYSTEM: warnings in the wheel's headers are not ours to mend.
target_include_directories(keval_torch SYSTEM INTERFACE
  "${KEVAL_TORCH_DIR}/include" "${KEVAL_TORCH_DIR}/include/torch/csrc/api/include")
# NDEBUG: without it at::RecordFunction has a member more than the wheel's libraries, built with it, know of.
target_compile_definitions(keval_torch INTERFACE AT_PER_OPERATOR_HEADERS NDEBUG)
# The wheel's libraries name CUDA libraries that a CPU build neither has nor needs.
target_link_libraries(keval_torch INTERFACE keval_torch_torch_cpu keval_torch_c10)
target_link_options(keval_torch INTERFACE "LINKER:--allow-shlib-undefined")
if(KEVAL_CUDA)
  # --no-as-needed: nothing names libtorch_cuda's symbols, yet loading it is what registers the CUDA kernels.
  set(_lib "${KEVAL_TORCH_DIR}/lib")
  target_link_libraries(keval_torch INTERFACE
    "-Wl,--push-state,--no-as-needed,${_lib}/libtorch_cuda.so,${_lib}/libc10_cuda.so,--pop-state" CUDA::cudart)
  target_include_directories(keval_torch SYSTEM INTERFACE "${CUDAToolkit_INCLUDE_DIRS}")
  target_compile_definitions(keval_torch INTERFACE KEVAL_CUDA=1)
endif()
