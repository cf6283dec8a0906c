#include "lib/gpu/nelder_mead.hpp"

#include <algorithm>
#include <cmath>

namespace fathom::gpu {

SimplexResult nelder_mead(const std::function<double(const std::vector<double>&)>& objective, std::vector<double> start,
                          const std::vector<double>& step, int max_evaluations) {
  const std::size_t n = start.size();
  struct Vertex {
    std::vector<double> x;
    double f;
  };
  int used = 0;
  auto evaluate = [&](const std::vector<double>& x) {
    ++used;
    return objective(x);
  };
  auto make_simplex = [&](const std::vector<double>& origin, double f0, double scale) {
    std::vector<Vertex> simplex{{origin, f0}};
    for (std::size_t i = 0; i < n; ++i) {
      auto x = origin;
      x[i] += step[i] * scale;
      simplex.push_back({x, evaluate(x)});
    }
    return simplex;
  };
  auto by_value = [](const Vertex& a, const Vertex& b) { return a.f < b.f; };
  double scale = 1;
  auto simplex = make_simplex(start, evaluate(start), scale);
  while (used < max_evaluations) {
    std::stable_sort(simplex.begin(), simplex.end(), by_value);
    if (simplex.back().f - simplex.front().f < 1e-7) {  // collapsed: restart with a smaller, mirrored simplex
      scale *= -0.5;
      if (std::abs(scale) < 0.05) break;
      simplex = make_simplex(simplex.front().x, simplex.front().f, scale);
      continue;
    }
    std::vector<double> centre(n, 0.0);
    for (std::size_t v = 0; v < n; ++v)
      for (std::size_t i = 0; i < n; ++i) centre[i] += simplex[v].x[i] / static_cast<double>(n);
    auto along = [&](double factor) {
      std::vector<double> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = centre[i] + factor * (simplex[n].x[i] - centre[i]);
      return x;
    };
    auto reflected = along(-1);
    const double fr = evaluate(reflected);
    if (fr < simplex[0].f) {
      auto expanded = along(-2);
      const double fe = evaluate(expanded);
      simplex[n] = fe < fr ? Vertex{expanded, fe} : Vertex{reflected, fr};
    } else if (fr < simplex[n - 1].f) {
      simplex[n] = {reflected, fr};
    } else {
      const bool outside = fr < simplex[n].f;
      auto contracted = along(outside ? -0.5 : 0.5);
      const double fc = evaluate(contracted);
      if (fc < std::min(fr, simplex[n].f)) {
        simplex[n] = {contracted, fc};
      } else {
        for (std::size_t v = 1; v <= n; ++v) {
          for (std::size_t i = 0; i < n; ++i) simplex[v].x[i] = simplex[0].x[i] + 0.5 * (simplex[v].x[i] - simplex[0].x[i]);
          simplex[v].f = evaluate(simplex[v].x);
        }
      }
    }
  }
  const auto best = std::min_element(simplex.begin(), simplex.end(), by_value);
  return {best->x, best->f, used};
}

}  // namespace fathom::gpu
