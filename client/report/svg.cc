#include "client/report/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::report {
namespace {

// A place in the drawing.
std::string P(double value) { return FixedText(value, 1); }

const char* Look(Svg::Stroke stroke) {
  switch (stroke) {
    case Svg::Stroke::kThick:
      return "stroke-width=\"2.5\"";
    case Svg::Stroke::kFaint:
      return "stroke-width=\"0.6\" stroke-opacity=\"0.45\"";
    case Svg::Stroke::kDashed:
      return "stroke-width=\"1\" stroke-dasharray=\"4 3\" stroke-opacity=\"0.8\"";
    case Svg::Stroke::kSolid:
      break;
  }
  return "stroke-width=\"1\"";
}

// Not before the first byte of a character.
std::size_t CharacterBoundary(absl::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

}  // namespace

std::string Markup(absl::string_view text) {
  std::string out;
  for (const char c : PrintableText(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Scale::Scale(double low, double high, double from, double to) : low_(low), high_(high), from_(from), to_(to) {
  if (high_ - low_ <= 1e-12 * std::max(std::abs(low_), std::abs(high_))) {
    const double half = std::max(0.5, 0.01 * std::abs(low_));
    low_ -= half;
    high_ += half;
  }
}

Scale::Ticks Scale::TicksFor(int wanted) const {
  const double rough = (high_ - low_) / std::max(1, wanted);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  Ticks ticks;
  ticks.digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  const double first = std::ceil(low_ / step - 1e-9);
  for (int i = 0; i < 100; ++i) {
    const double value = (first + i) * step;
    if (value > high_ + 1e-9 * step) break;
    ticks.values.push_back(value == 0 ? 0 : value);  // Never -0.
  }
  return ticks;
}

void Svg::Line(double x1, double y1, double x2, double y2, Stroke stroke) {
  absl::StrAppend(&body_, "<line x1=\"", P(x1), "\" y1=\"", P(y1), "\" x2=\"", P(x2));
  absl::StrAppend(&body_, "\" y2=\"", P(y2), "\" stroke=\"currentColor\" ", Look(stroke), "/>\n");
}

void Svg::Path(const std::vector<std::pair<double, double>>& points) {
  if (points.empty()) return;
  body_ += "<polyline fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.2\" points=\"";
  for (const auto& [x, y] : points) absl::StrAppend(&body_, P(x), ",", P(y), " ");
  body_.back() = '"';
  body_ += "/>\n";
}

void Svg::Band(double x, double y, double width, double height) {
  absl::StrAppend(&body_, "<rect x=\"", P(x), "\" y=\"", P(y), "\" width=\"", P(width));
  absl::StrAppend(&body_, "\" height=\"", P(height), "\" fill=\"currentColor\" fill-opacity=\"0.13\"/>\n");
}

void Svg::Mark(Marker marker, double x, double y) {
  constexpr double kHalf = 4;
  switch (marker) {
    case Marker::kSquare:
      absl::StrAppend(&body_, "<rect x=\"", P(x - kHalf), "\" y=\"", P(y - kHalf),
                      "\" width=\"8\" height=\"8\" fill=\"currentColor\"/>\n");
      return;
    case Marker::kDisc:
      absl::StrAppend(&body_, "<circle cx=\"", P(x), "\" cy=\"", P(y), "\" r=\"3.5\" fill=\"currentColor\"/>\n");
      return;
    case Marker::kRing:
      absl::StrAppend(&body_, "<circle cx=\"", P(x), "\" cy=\"", P(y),
                      "\" r=\"3.2\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.4\"/>\n");
      return;
    case Marker::kDiamond:
      absl::StrAppend(&body_, "<path d=\"M", P(x), " ", P(y - 5), "l5 5l-5 5l-5 -5z\" fill=\"none\" ",
                      "stroke=\"currentColor\" stroke-width=\"1.4\"/>\n");
      return;
  }
}

void Svg::Arrow(double x, double y, bool right) {
  absl::StrAppend(&body_, "<path d=\"M", P(x), " ", P(y), right ? "l-6 -4v8z" : "l6 -4v8z",
                  "\" fill=\"currentColor\"/>\n");
}

void Svg::Text(double x, double y, absl::string_view text, Anchor anchor, double size) {
  constexpr double kLetterWidth = 0.56;  // Of the size, on average in a sans-serif face.
  const double room = anchor == Anchor::kStart ? kSvgWidth - x : anchor == Anchor::kEnd ? x : kSvgWidth;
  const auto fits = static_cast<std::size_t>(std::max(1.0, room / (kLetterWidth * size)));
  const std::string shown =
      text.size() <= fits ? std::string(text) : absl::StrCat(text.substr(0, CharacterBoundary(text, fits - 1)), "…");
  const char* const side = anchor == Anchor::kStart ? "start" : anchor == Anchor::kEnd ? "end" : "middle";
  absl::StrAppend(&body_, "<text x=\"", P(x), "\" y=\"", P(y), "\" font-size=\"", P(size));
  absl::StrAppend(&body_, "\" text-anchor=\"", side, "\">", Markup(shown), "</text>\n");
}

std::string Svg::Finish(absl::string_view title, absl::string_view description, double height) const {
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 ", P(kSvgWidth), " ",
                      P(height), "\" font-family=\"system-ui, sans-serif\" fill=\"currentColor\">\n<title>",
                      Markup(title), "</title>\n<desc>", Markup(description), "</desc>\n") +
         body_ + "</svg>\n";
}

}  // namespace keval::report
