#include "bench/this_program.h"

#include <filesystem>
#include <system_error>

namespace keval::bench {

std::string BesideThisProgram(const std::string& name) {
  std::error_code ignored;  // Then the name alone, relative to the working directory.
  return std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename(name).string();
}

}  // namespace keval::bench
