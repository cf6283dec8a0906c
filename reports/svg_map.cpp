// The routing map: blocks upwards, tokens to the right, one cell per pair (or per group of tokens when there are many).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "reports/format.hpp"
#include "reports/routing_grid.hpp"
#include "reports/svg_canvas.hpp"
#include "reports/utf8.hpp"

namespace fathom {

std::string render_svg(const RoutingMap& map, const SvgOptions& options) {
  check_plot(map);
  const RoutingMap::Frame& frame = map.frames.at(options.frame);
  const double width = options.width;
  double label = 0;
  for (const std::string& block : map.blocks) label = std::max(label, text_width(block, 12));
  const double left = std::min(label, width * 0.3) + 34, right = width - 58;
  const RoutingGrid grid = bucket(frame, static_cast<std::size_t>((right - left) / 3));
  const std::size_t cells = grid.shares[0].size(), blocks = map.blocks.size();
  const double cell = std::min((right - left) / static_cast<double>(cells), 34.0);
  const double row = std::clamp(cell, 16.0, 26.0);
  const bool named = !map.tokens.empty() && grid.tokens_per_cell == 1 && cell >= 13;
  // Bytes and single letters stand upright, words along their column.
  const bool upright = named && std::all_of(map.tokens.begin(), map.tokens.end(), [](const std::string& token) { return display_width(printable(token)) <= 1; });
  double token_room = upright ? 8 : 0;
  if (named && !upright) {
    for (const std::string& token : map.tokens) token_room = std::max(token_room, text_width(printable(token), 12));
    token_room = std::min(token_room, 90.0);
  }
  const bool generated = map.prompt > 0 && map.prompt < frame.states[0].size();
  const double top = (map.title.empty() ? 8 : 32) + (frame.label.empty() ? 0 : 16) + (generated ? 18 : 0);
  const double bottom = top + row * static_cast<double>(blocks);
  const double axis = bottom + (named ? token_room + 14 : 18);
  const double height = axis + 46 + (width < 500 ? 18 : 0);

  SvgCanvas canvas(width, height, map.title, options);
  canvas.title(left, map.title);
  if (!frame.label.empty()) canvas.text(left, map.title.empty() ? 14 : 40, frame.label, "start", "d");
  for (std::size_t b = 0; b < blocks; ++b) {
    const double y = bottom - row * static_cast<double>(b + 1);
    canvas.text(left - 6, y + row / 2 + 4,
                clip_middle(printable(map.blocks[b]), static_cast<int>((left - 38) / 6.7) + 1), "end");
    canvas.text(left + cell * static_cast<double>(cells) + 6, y + row / 2 + 4,
                grid.full[b] ? "full" : format_value(grid.participation[b], Unit::kPercent), "start", "d");
    const auto x_of = [&](std::size_t c) { return left + cell * static_cast<double>(c); };
    if (grid.full[b] || grid.tokens_per_cell > 1) {
      // The row's ground, then runs of equal shade.
      canvas.rect(left, y + 0.5, cell * static_cast<double>(cells), row - 1, grid.full[b] ? "full" : "off",
                  grid.full[b] ? map.blocks[b] + ": not routed, every token passes" : "");
      if (grid.full[b]) continue;
      for (std::size_t c = 0; c < cells; ++c) {
        if (grid.shares[b][c] <= 0) continue;
        const double tall = (row - 1) * grid.shares[b][c];  // height shows the share: readable without colour
        const std::size_t first = c * grid.tokens_per_cell;
        canvas.rect(x_of(c), y + row - 0.5 - tall, cell, tall, "on",
                    fmt::format("{}, tokens {} to {}: {}", map.blocks[b], first,
                                std::min(first + grid.tokens_per_cell, frame.states[b].size()) - 1,
                                format_value(grid.shares[b][c], Unit::kPercent)));
      }
      continue;
    }
    for (std::size_t c = 0; c < cells; ++c) {
      const RoutingMap::State state = frame.states[b][c];
      const char* style = state == RoutingMap::State::kSkipped ? "off"
                          : state == RoutingMap::State::kFull  ? "full"
                                                               : "on";
      std::string hover = fmt::format("{}, token {}", map.blocks[b], c);
      if (!map.tokens.empty()) hover += " \"" + printable(map.tokens[c]) + "\"";
      hover += state == RoutingMap::State::kSkipped ? ": skipped" : ": processed";
      if (!frame.weights.empty() && std::isfinite(frame.weights[b][c]))
        hover += fmt::format(", router {}", significant(frame.weights[b][c], 3));
      const double pad = cell > 6 ? 0.75 : 0.25;
      canvas.rect(x_of(c) + pad, y + pad, cell - 2 * pad, row - 2 * pad, style, hover);
    }
  }
  if (generated) {
    const double at = left + cell * static_cast<double>(map.prompt) / static_cast<double>(grid.tokens_per_cell);
    const std::string words = "generated \u2192";
    canvas.line(at, top - 14, at, bottom + 4, "cut");
    // What is left of the line is the prompt: said where there is room for both.
    canvas.text(std::min(at + 5, width - text_width(words, 12) - 4), top - 5, words, "start", "d");
    if (at - left > text_width("prompt", 12) + 8) canvas.text(at - 5, top - 5, "prompt", "end", "d");
  }
  if (named) {
    for (std::size_t c = 0; c < cells; ++c) {
      const int fits = static_cast<int>(token_room / 6.7) + 1;
      const double middle = left + cell * (static_cast<double>(c) + 0.5);
      if (upright)
        canvas.text(middle, bottom + 14, printable(map.tokens[c]), "middle");
      else
        canvas.text(middle + 4, bottom + 8, clip_middle(printable(map.tokens[c]), fits), "end", "t", -90);
    }
  } else {
    const std::size_t tokens = frame.states[0].size();
    const double span = cell * static_cast<double>(cells);
    canvas.text(left, bottom + 14, "0", "start");
    canvas.text(left + span, bottom + 14, fmt::format("{}", tokens - 1), "end");
  }
  canvas.text(left, axis + 12,
              grid.tokens_per_cell == 1
                  ? "token"
                  : fmt::format("token ({} per cell; height: share processed)", grid.tokens_per_cell),
              "start", "d");
  double x = left, y = axis + 34;
  const std::pair<const char*, const char*> keys[] = {{"on", "processed"}, {"off", "skipped"}, {"full", "full block"}};
  for (const auto& [style, name] : keys) {
    if (std::string_view(style) == "full" && std::find(grid.full.begin(), grid.full.end(), true) == grid.full.end()) continue;
    const double need = 20 + text_width(name, 12) + 14;
    if (x > left && x + need > width - 4) {
      x = left;
      y += 18;
    }
    canvas.rect(x, y - 10, 12, 12, style);
    canvas.text(x + 18, y, name, "start");
    x += need;
  }
  return canvas.finish();
}

}  // namespace fathom
