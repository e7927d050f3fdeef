// Between gRPC's slices and wire/frame.h.
#ifndef KEVAL_WIRE_SLICES_H_
#define KEVAL_WIRE_SLICES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "wire/frame.h"

namespace keval::wire {

// The message of `fields` (an encoding) and `payload`, in at most two slices: one small, and one over the payload's own
// memory, whose owner it holds until gRPC has let go of it.
grpc::ByteBuffer EncodeMessage(absl::string_view fields, const Payload& payload);

// As ParseFrame; `slices` keeps the memory that `data` points into. Empties `buffer`.
absl::Status ParseMessage(grpc::ByteBuffer* buffer, std::vector<grpc::Slice>* slices, FrameData* data,
                          std::string* fields);

}  // namespace keval::wire

#endif  // KEVAL_WIRE_SLICES_H_
