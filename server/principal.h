// Who is calling. Tensors and jobs belong to a principal; nobody else sees them.
#ifndef KEVAL_SERVER_PRINCIPAL_H_
#define KEVAL_SERVER_PRINCIPAL_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace keval::server {

// What a transport knows of a caller.
struct Caller {
  std::string peer;                                  // E.g. "ipv4:127.0.0.1:51234".
  std::multimap<std::string, std::string> metadata;  // As sent: not trusted.
  // In a client certificate that was verified: its first URI, e-mail or DNS name, in this order of kinds, else its
  // common name; empty where there is none.
  std::string certificate_name;
};

// Thread-safe; asked once for every call.
class PrincipalSource {
 public:
  virtual ~PrincipalSource() = default;
  // The principal's name. UNAUTHENTICATED or PERMISSION_DENIED where the caller shows nothing acceptable.
  virtual absl::StatusOr<std::string> Identify(const Caller& caller) const = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_PRINCIPAL_H_
