#include <cstdint>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "client/document/document.h"
#include "client/document/node_builder.h"

namespace keval::document {
namespace {

using Json = nlohmann::json;

// The line of the last character that the parser took but one: it may have read one ahead to find a number's end.
struct LineCounter {
  int newlines = 0;
  bool last_is_newline = false;
  void Take(char c) {
    newlines += last_is_newline ? 1 : 0;
    last_is_newline = c == '\n';
  }
  int line() const { return newlines + 1; }
};

// Input iterator that tells the counter what was taken.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, LineCounter* counter) : at_(at), counter_(counter) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    counter_->Take(*at_++);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  LineCounter* counter_;
};

class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(NodeBuilder* builder, const LineCounter* counter) : builder_(builder), counter_(counter) {}

  bool null() override { return Scalar(Kind::kNull, ""); }
  bool boolean(bool value) override { return Scalar(Kind::kBoolean, value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return Scalar(Kind::kNumber, absl::StrCat(value)); }
  bool number_unsigned(std::uint64_t value) override { return Scalar(Kind::kNumber, absl::StrCat(value)); }
  bool number_float(double, const std::string& text) override { return Scalar(Kind::kNumber, text); }
  bool string(std::string& value) override { return Scalar(Kind::kString, value); }
  bool binary(Json::binary_t&) override { return false; }  // Never comes from text.
  bool start_object(std::size_t) override { return builder_->Begin(Kind::kMap, counter_->line()); }
  bool key(std::string& value) override { return builder_->Key(value, counter_->line()); }
  bool end_object() override { return builder_->End(); }
  bool start_array(std::size_t) override { return builder_->Begin(Kind::kList, counter_->line()); }
  bool end_array() override { return builder_->End(); }
  bool parse_error(std::size_t, const std::string& last_token, const Json::exception&) override {
    return builder_->Fail(counter_->line(), absl::StrCat("what ends with ", last_token), "valid JSON");
  }

 private:
  bool Scalar(Kind kind, std::string text) { return builder_->Scalar(kind, std::move(text), counter_->line()); }

  NodeBuilder* const builder_;
  const LineCounter* const counter_;
};

}  // namespace

absl::StatusOr<Node> ParseJson(absl::string_view text, absl::string_view source, const Limits& limits) {
  NodeBuilder builder(source, limits);
  LineCounter counter;
  Handler handler(&builder, &counter);
  const CountingIterator first(text.data(), &counter);
  const CountingIterator last(text.data() + text.size(), &counter);
  // Never throws: the handler's parse_error returns false. A number out of a double's range arrives there too.
  const bool parsed = Json::sax_parse(first, last, &handler);
  if (!builder.status().ok()) return builder.status();
  if (!parsed) return ErrorAt(source, counter.line(), "", "the text", "valid JSON");
  return builder.TakeRoot();
}

}  // namespace keval::document
