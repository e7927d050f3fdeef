// What this binary was built from.
#ifndef KEVAL_SERVER_BUILD_INFO_H_
#define KEVAL_SERVER_BUILD_INFO_H_

#include "keval/v1/server_info.pb.h"

namespace keval::server {

// Version, commit, build type and compiler; `cuda` and `torch_version` are core's to tell.
v1::BuildInfo MakeBuildInfo();

}  // namespace keval::server

#endif  // KEVAL_SERVER_BUILD_INFO_H_
