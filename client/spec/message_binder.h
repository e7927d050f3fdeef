// Fills a protobuf message from a document::Node through reflection, strictly.
#ifndef KEVAL_CLIENT_SPEC_MESSAGE_BINDER_H_
#define KEVAL_CLIENT_SPEC_MESSAGE_BINDER_H_

#include <functional>
#include <string>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/document/node.h"

namespace keval::spec {

// Not thread-safe. Knows what spec messages are made of: scalars, enums, messages, lists of these, and maps from text
// to double. See spec.h for what each field type takes.
class MessageBinder {
 public:
  // Called when a message has been filled, for checks that need more than one field.
  using Check = std::function<absl::Status(const google::protobuf::Message& message, const document::Node& node,
                                           const std::string& path)>;

  MessageBinder(absl::string_view source, Check check) : source_(source), check_(std::move(check)) {}

  // `path` is "" for the root.
  absl::Status Bind(const document::Node& node, const std::string& path, google::protobuf::Message* message) const;

 private:
  using Field = google::protobuf::FieldDescriptor;
  absl::Status BindField(const document::Node& node, const std::string& path, const Field* field,
                         google::protobuf::Message* message) const;
  absl::Status BindMap(const document::Node& node, const std::string& path, const Field* field,
                       google::protobuf::Message* message) const;
  absl::Status BindValue(const document::Node& node, const std::string& path, const Field* field,
                         google::protobuf::Message* message) const;
  absl::Status BindEnum(const document::Node& node, const std::string& path, const Field* field,
                        google::protobuf::Message* message) const;
  absl::Status Refuse(const document::Node& node, const std::string& path, absl::string_view limit) const;

  const std::string source_;
  const Check check_;
};

}  // namespace keval::spec

#endif  // KEVAL_CLIENT_SPEC_MESSAGE_BINDER_H_
