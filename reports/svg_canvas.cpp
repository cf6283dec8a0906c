#include "reports/svg_canvas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/part_looks.hpp"
#include "reports/utf8.hpp"

namespace fathom {

std::string xml_escape(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
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
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0xfffe || c == 0xffff) {
          append_utf8(out, 0xfffd);  // XML 1.0 has no way to write these
        } else {
          append_utf8(out, c);
        }
    }
  }
  return out;
}

std::string px(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text, double font_size) {
  return 0.56 * font_size * display_width(text);
}

std::string series_class(std::size_t series) {
  return fmt::format("c{}", series % 8);
}

std::string look_class(int look) { return look == kOtherLook ? "co" : fmt::format("c{}", look_colour(look)); }

// Okabe and Ito's palette without its yellow; the dark variants are lighter in the same order.
std::string svg_colours() {
  return R"(:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--grid:#dfe3e8;--soft:#f3f5f7;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b4568c;--c4:#c98a00;--c5:#56b4e9;--c6:#7a5c3e;--c7:#6b7280;--band:#8a94a0;--m0:#eceff2;--mf:#c3cad3}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ee;--dim:#9aa4b0;--grid:#2d333b;--soft:#1d2228;--c0:#4aa8e0;--c1:#f08a4b;--c2:#35c79a;--c3:#dd8fbd;--c4:#e6b33c;--c5:#9bd4f5;--c6:#c2a383;--c7:#a3abb6;--band:#76808c;--m0:#242a31;--mf:#48515c}}
)";
}

std::string svg_rules() {
  std::string rules =
      R"(.fp{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:12px}
.fp .t{fill:var(--fg)}.fp .d{fill:var(--dim)}.fp .h{fill:var(--fg);font-weight:600;font-size:14px}
.fp .bg{fill:var(--bg)}.fp .g{stroke:var(--grid);stroke-width:1}.fp .a{stroke:var(--dim);stroke-width:1}
.fp .ideal{stroke:var(--fg);stroke-width:1.2;stroke-dasharray:6 4;fill:none}.fp .band{fill:var(--band);fill-opacity:.18}
.fp .l{fill:none;stroke-width:2;stroke-linejoin:round}.fp .dash{stroke-dasharray:7 4}.fp .e{fill:none;stroke-width:1.2;stroke-opacity:.7}
.fp .m{stroke:var(--bg);stroke-width:.8}.fp .x{fill:none;stroke-width:2}.fp .seg{stroke:var(--bg);stroke-width:1.5}
.fp .f.co{fill:var(--mf)}.fp .ht{stroke:var(--bg);stroke-width:1.6;fill:none;pointer-events:none}
.fp .cut{stroke:var(--c1);stroke-width:2}.fp .on{fill:var(--c0)}.fp .off{fill:var(--m0)}.fp .full{fill:var(--mf)}
.fp .in{fill:var(--bg);font-weight:600}.fp .in.c1,.fp .in.c2,.fp .in.c4,.fp .in.c5{fill:#14171b}.fp .in.co{fill:var(--fg)}
.fp .halo{paint-order:stroke;stroke-width:6px;stroke-linejoin:round}
)";
  for (int i = 0; i < 8; ++i)
    rules +=
        fmt::format(".fp .l.c{0},.fp .e.c{0},.fp .x.c{0}{{stroke:var(--c{0})}}.fp .f.c{0}{{fill:var(--c{0})}}.fp .halo.c{0}{{stroke:var(--c{0})}}\n", i);
  return rules;
}

SvgCanvas::SvgCanvas(double width, double height, const std::string& title, const SvgOptions& options) : width_(width) {
  body_ = fmt::format(
      "<svg {}class=\"fp\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" aria-label=\"{}\">",
      options.standalone ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", px(width), px(height), px(width), px(height),
      xml_escape(title));
  body_ += "\n";
  if (options.standalone) {
    body_ += "<style>\n" + svg_colours() + svg_rules() + "</style>\n";
    rect(0, 0, width, height, "bg");
  }
}

void SvgCanvas::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", px(x1), px(y1), px(x2), px(y2),
                       classes);
}

namespace {

std::string closed(std::string_view element, std::string_view hover) {
  return hover.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", xml_escape(hover), element);
}

}  // namespace

void SvgCanvas::rect(double x, double y, double width, double height, std::string_view classes,
                     std::string_view hover) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"", px(x), px(y), px(width),
                       px(height), classes);
  body_ += closed("rect", hover);
}

void SvgCanvas::filled(double x, double y, double width, double height, int look, std::string_view classes, std::string_view hover) {
  rect(x, y, width, height, fmt::format("f {}{}{}", classes, classes.empty() ? "" : " ", look_class(look)), hover);
  if (!look_hatched(look)) return;
  // Diagonals, cut at the edges here: a pattern element would need a name that is its own on the whole page.
  constexpr double kApart = 6;
  std::string lines;
  for (double from = kApart / 2 - height; from < width; from += kApart) {
    const double left = std::max(from, 0.0), right = std::min(from + height, width);
    if (right > left) lines += fmt::format("M{} {}L{} {}", px(x + left), px(y + height - (left - from)), px(x + right), px(y + height - (right - from)));
  }
  if (!lines.empty()) path(lines, "ht");
}

void SvgCanvas::path(const std::string& d, std::string_view classes, std::string_view hover) {
  body_ += fmt::format("<path d=\"{}\" class=\"{}\"", d, classes) + closed("path", hover);
}

void SvgCanvas::text(double x, double y, std::string_view words, std::string_view anchor, std::string_view classes,
                     double rotate) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\"", px(x), px(y), anchor, classes);
  if (rotate != 0) body_ += fmt::format(" transform=\"rotate({} {} {})\"", px(rotate), px(x), px(y));
  body_ += ">" + xml_escape(words) + "</text>\n";
}

void SvgCanvas::title(double left, std::string_view words) {
  if (words.empty()) return;
  constexpr double kMargin = 10;
  const double need = text_width(words, 14) * 1.1, room = width_ - 2 * kMargin;  // bold is wider
  if (need <= room) {
    text(std::max(kMargin, std::min(left, kMargin + room - need)), 20, words, "start", "h");
    return;
  }
  body_ += fmt::format(
      "<text x=\"{}\" y=\"20\" text-anchor=\"start\" class=\"h\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>\n",
      px(kMargin), px(room), xml_escape(words));
}

void SvgCanvas::marker(double x, double y, std::size_t series, std::string_view hover) {
  const auto at = [&](double dx, double dy) { return px(x + dx) + " " + px(y + dy); };
  const std::string fill = "f m " + series_class(series), stroke = "x " + series_class(series);
  switch (series % 6) {
    case 0:
      body_ +=
          fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" class=\"{}\"", px(x), px(y), fill) + closed("circle", hover);
      break;
    case 1:
      path("M" + at(-3.6, -3.6) + "L" + at(3.6, -3.6) + "L" + at(3.6, 3.6) + "L" + at(-3.6, 3.6) + "Z", fill, hover);
      break;
    case 2:
      path("M" + at(0, -4.8) + "L" + at(4.4, 3.2) + "L" + at(-4.4, 3.2) + "Z", fill, hover);
      break;
    case 3:
      path("M" + at(0, -5) + "L" + at(5, 0) + "L" + at(0, 5) + "L" + at(-5, 0) + "Z", fill, hover);
      break;
    case 4:
      path("M" + at(-3.5, -3.5) + "L" + at(3.5, 3.5) + "M" + at(3.5, -3.5) + "L" + at(-3.5, 3.5), stroke, hover);
      break;
    default:
      path("M" + at(-4.5, 0) + "L" + at(4.5, 0) + "M" + at(0, -4.5) + "L" + at(0, 4.5), stroke, hover);
      break;
  }
}

std::string SvgCanvas::finish() {
  return std::move(body_) + "</svg>\n";
}

}  // namespace fathom
