#include "server/build_info.h"

#include "build_commit.h"  // Written by each build.

namespace keval::server {

v1::BuildInfo MakeBuildInfo() {
  v1::BuildInfo build;
  build.set_version(KEVAL_VERSION);
  build.set_commit(KEVAL_COMMIT);
  build.set_build_type(KEVAL_BUILD_TYPE);
  build.set_compiler(KEVAL_COMPILER);
  return build;
}

}  // namespace keval::server
