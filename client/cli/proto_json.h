// Protos as the JSON that scripts read: proto field names, integers as numbers with all digits, enum values short and
// in lower case ("bfloat16"), bytes in hexadecimal, non-finite numbers as "nan", "inf", "-inf".
#ifndef KEVAL_CLIENT_CLI_PROTO_JSON_H_
#define KEVAL_CLIENT_CLI_PROTO_JSON_H_

#include <string>

#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

namespace keval::cli {

// Scalars are always there; messages, and members of a oneof, only where they are set.
nlohmann::ordered_json ProtoToJson(const google::protobuf::Message& message);

// "bfloat16" for DATA_TYPE_BFLOAT16, "QUEUED" for QUEUED: what follows the type's prefix, if the name has it. The
// digits of a number that this client doesn't know: a newer server's.
std::string EnumText(const google::protobuf::EnumDescriptor* type, int number);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_PROTO_JSON_H_
