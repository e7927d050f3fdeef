# find_package(keval) defines keval::client. The versions are those that keval was built with, from the same packages.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl)
find_dependency(OpenSSL)
find_dependency(Protobuf)
find_dependency(gRPC)
include("${CMAKE_CURRENT_LIST_DIR}/keval.cmake")
