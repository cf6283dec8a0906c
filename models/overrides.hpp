// A network with some keys of its INI form changed: what a sweep over widths, depths or expert counts varies.
//
// Any key of the format may be named ("width", "heads", "mlp", "norm", "moe.experts"); `layers` repeats the period of the
// layer kinds; `first_dense` and `every` move experts or routes to other layers (models/layer_rules.hpp). Keys that describe layers one by one are refused with the
// reason. Keys are resolved once, so that applying values to many networks looks up nothing and reuses memory.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/ini.hpp"
#include "models/network.hpp"

namespace fathom {

class NetworkOverrides {
 public:
  // `keys` as in an INI file, with or without their section ("experts", "moe.experts"). Throws Error(kInput) with the nearest name.
  explicit NetworkOverrides(std::vector<std::string> keys);

  const std::vector<std::string>& keys() const { return keys_; }

  // Sets `out` to `base` with values[i] for keys()[i], everything derived from them (such as a head size that is width / heads) filled in
  // anew, and validates it. A block key changes every block that has such a part (attention, MLP, experts, route); it is an error when none has.
  // An `every` without its section is that of the experts or of the routes, whichever the network has.
  // Throws Error(kInput) as validate() and the readers of values do.
  void apply(const Network& base, std::span<const IniValue> values, Network& out) const;

 private:
  struct Target {
    enum class Table { kLayers, kNetwork, kBlock, kMla, kMoe, kRoute, kLora, kMoeEvery, kFirstDense, kRouteEvery, kEvery } table = Table::kNetwork;
    std::size_t row = 0;
  };
  // Experts and routes where the keys say, in a network with everything else set.
  void place(std::span<const IniValue> values, Network& out) const;

  std::vector<std::string> keys_;
  std::vector<Target> targets_;
};

// Repeats the layers of `base` to `count` of them: the shortest prefix and period that describe its kinds go on ("3 dense, then experts" stays that).
// Throws Error(kInput) for shared weight sets, or where no period is seen (the pattern never repeats) and the model has more than one kind.
void repeat_layers(const Network& base, std::int64_t count, Network& out);

}  // namespace fathom
