// Drawings as SVG text: the few shapes that a chart needs, and the scales that put values on them.
#ifndef KEVAL_CLIENT_REPORT_SVG_H_
#define KEVAL_CLIENT_REPORT_SVG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace keval::report {

// `text` made printable and safe between tags and in quoted attributes of HTML and XML.
std::string Markup(absl::string_view text);

// Values of [low, high] to places along a line. Thread-compatible.
class Scale {
 public:
  // `low` ≤ `high`, both finite; where they are equal the scale is widened about them.
  Scale(double low, double high, double from, double to);

  double At(double value) const { return from_ + (value - low_) / (high_ - low_) * (to_ - from_); }
  bool Holds(double value) const { return value >= low_ && value <= high_; }
  double low() const { return low_; }
  double high() const { return high_; }

  // Round values inside, `wanted` or a few more or less, and how many digits behind the point tell them apart.
  struct Ticks {
    std::vector<double> values;
    int digits = 0;
  };
  Ticks TicksFor(int wanted) const;

 private:
  double low_;
  double high_;
  double from_;
  double to_;
};

// One drawing, kSvgWidth wide, drawn from the top down in the text's own colour, so that it fits a dark page and needs
// no colour to be read. Widths and sizes are those of a small screen; a page scales the whole. Not thread-safe.
inline constexpr double kSvgWidth = 420;

class Svg {
 public:
  enum class Stroke : std::uint8_t { kSolid, kThick, kFaint, kDashed };
  enum class Anchor : std::uint8_t { kStart, kMiddle, kEnd };
  enum class Marker : std::uint8_t { kSquare, kDisc, kRing, kDiamond };

  void Line(double x1, double y1, double x2, double y2, Stroke stroke);
  void Path(const std::vector<std::pair<double, double>>& points);
  // A filled area in a faint tone of the text's colour.
  void Band(double x, double y, double width, double height);
  void Mark(Marker marker, double x, double y);
  // A triangle at the end of a line that goes on outside; `right` or left.
  void Arrow(double x, double y, bool right);
  // `size`: of the letters, in the drawing's units; a text too long for the drawing ends in "…".
  void Text(double x, double y, absl::string_view text, Anchor anchor = Anchor::kStart, double size = 11);

  // The whole element, with a title and a description for those who can't see it.
  std::string Finish(absl::string_view title, absl::string_view description, double height) const;

 private:
  std::string body_;
};

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_SVG_H_
