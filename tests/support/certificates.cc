#include "tests/support/certificates.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/support/server_process.h"

namespace keval::test_support {

Authority::Authority(std::string folder, const std::string& name)
    : folder_(std::move(folder)),
      ca_(absl::StrCat(folder_, "/", name, ".pem")),
      ca_key_(absl::StrCat(folder_, "/", name, ".key")) {
  OpenSsl({"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", ca_key_});
  OpenSsl({"req", "-x509", "-new", "-key", ca_key_, "-subj", absl::StrCat("/CN=", name), "-days", "2", "-out", ca_});
}

// A key's file gets mode 0600.
void Authority::OpenSsl(const std::vector<std::string>& arguments) {
  if (!status_.ok()) return;
  const auto finished = RunToEnd("/usr/bin/openssl", arguments, folder_, absl::Seconds(60));
  if (!finished.ok()) {
    status_ = finished.status();
  } else if (finished->code != 0) {
    status_ = absl::InternalError(absl::StrCat("openssl ", arguments[0], ": ", finished->err));
  }
}

Certificate Authority::Issue(const std::string& name, const std::string& subject, const std::string& alternative_names,
                             int days) {
  const std::string path = absl::StrCat(folder_, "/", name);
  OpenSsl({"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path + ".key"});
  OpenSsl({"req", "-new", "-key", path + ".key", "-subj", absl::StrCat("/CN=", subject), "-out", path + ".csr"});
  std::ofstream extensions(path + ".ext");
  extensions << "basicConstraints=CA:FALSE\n";
  if (!alternative_names.empty()) extensions << "subjectAltName=" << alternative_names << "\n";
  extensions.close();
  OpenSsl({"x509", "-req", "-in", path + ".csr", "-CA", ca_, "-CAkey", ca_key_, "-CAcreateserial", "-days",
           absl::StrCat(days), "-extfile", path + ".ext", "-out", path + ".pem"});
  return {path + ".pem", path + ".key"};
}

}  // namespace keval::test_support
