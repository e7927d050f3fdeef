// Certificates for tests, made with the openssl program.
#ifndef KEVAL_TESTS_SUPPORT_CERTIFICATES_H_
#define KEVAL_TESTS_SUPPORT_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace keval::test_support {

// Files that belong together.
struct Certificate {
  std::string cert;
  std::string key;
};

// An authority of its own, with its files in `folder`. Owner: one test.
class Authority {
 public:
  Authority(std::string folder, const std::string& name);

  const std::string& ca() const { return ca_; }  // The path of its certificate.

  // NAME.pem and NAME.key, replaced where they exist. `subject` is the common name; `alternative_names` as openssl
  // writes them ("DNS:localhost,IP:127.0.0.1"), empty: none; `days` may be negative for one that has expired.
  Certificate Issue(const std::string& name, const std::string& subject, const std::string& alternative_names,
                    int days = 2);

  // What openssl first failed at.
  const absl::Status& status() const { return status_; }

 private:
  void OpenSsl(const std::vector<std::string>& arguments);

  const std::string folder_;
  const std::string ca_;
  const std::string ca_key_;
  absl::Status status_;
};

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_SUPPORT_CERTIFICATES_H_
