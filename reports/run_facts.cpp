#include "reports/run_facts.hpp"

#include <algorithm>
#include <array>

#include "reports/format.hpp"

namespace fathom {
namespace {

enum class Shown { kPlain, kCores, kMegahertz, kWatts, kCelsius };

struct Words {
  std::string_view key;
  std::string_view label;
  Unit unit = Unit::kNone;   // of a number
  Shown shown = Shown::kPlain;
};

constexpr std::array kWords = {
    Words{"cpu", "processor"},
    Words{"cores", "cores", Unit::kCount},
    Words{"threads", "threads", Unit::kCount},
    Words{"memory_bytes", "memory", Unit::kBytes},
    Words{"cpu_l2_bytes", "L2 cache of a core", Unit::kBytes},
    Words{"cpu_l3_bytes", "last cache", Unit::kBytes},
    Words{"system", "system"},
    Words{"compiler", "compiler"},
    Words{"backend", "backend"},
    Words{"predictor", "predictor"},
    Words{"gpu", "GPU"},
    Words{"gpu_uuid", "GPU by its UUID"},
    Words{"gpu_ecc", "error correction of GPU memory"},
    Words{"gpu_l2_bytes", "L2 cache of the GPU", Unit::kBytes},
    Words{"gpu_clock_hz", "clock of the GPU", Unit::kNone, Shown::kMegahertz},
    Words{"gpu_memory_clock_hz", "clock of GPU memory", Unit::kNone, Shown::kMegahertz},
    Words{"gpu_power_watts", "power of the GPU", Unit::kNone, Shown::kWatts},
    Words{"gpu_temperature_c", "temperature of the GPU", Unit::kNone, Shown::kCelsius},
    Words{"gpu_throttle_reasons", "reasons for a slower clock (bits)"},
    Words{"cuda_driver", "CUDA driver"},
    Words{"cuda_runtime", "CUDA runtime"},
    Words{"cublaslt", "cuBLASLt"},
    Words{"chip", "chip"},
    Words{"flops_per_math_op", "FLOP per counted tensor operation", Unit::kCount},
    Words{"stopped_by", "measuring ended by"},
    Words{"seconds_spent", "time spent measuring", Unit::kSeconds},
    Words{"foreign_cpu", "used by other processes", Unit::kNone, Shown::kCores},
    Words{"steal", "taken by the host (steal)", Unit::kNone, Shown::kCores},
};

// Keys made of a name: "reference_exp_s".
struct Pattern {
  std::string_view before, after, label;
  Unit unit;
};
constexpr std::array kPatterns = {
    Pattern{"reference_", "_s", "reference kernel", Unit::kSeconds},
    Pattern{"ceiling_", "_flops_per_s", "ceiling by probe", Unit::kFlopRate},
    Pattern{"noise_", "", "A/A noise of reference kernel", Unit::kPercent},
};

std::string in_words(std::string_view key) {
  std::string text(key);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

Cell measured(const Cell& value, Shown shown) {
  switch (shown) {
    case Shown::kPlain: return value;
    case Shown::kCores: return Cell::text(significant(value.value(), 4) + " cores");
    case Shown::kMegahertz: return Cell::text(significant(value.value() / 1e6, 4) + " MHz");
    case Shown::kWatts: return Cell::text(significant(value.value(), 4) + " W");
    case Shown::kCelsius: return Cell::text(significant(value.value(), 3) + " °C");
  }
  return value;
}

}  // namespace

KeyValues::Item run_fact(const std::string& key, const Cell& value) {
  if (const auto known = std::find_if(kWords.begin(), kWords.end(), [&](const Words& each) { return each.key == key; }); known != kWords.end())
    return {"", std::string(known->label), value.is_number() ? measured(value, known->shown) : value, value.is_number() ? known->unit : Unit::kText, ""};
  for (const Pattern& pattern : kPatterns) {
    if (!key.starts_with(pattern.before) || !key.ends_with(pattern.after) || key.size() <= pattern.before.size() + pattern.after.size()) continue;
    const std::string name = key.substr(pattern.before.size(), key.size() - pattern.before.size() - pattern.after.size());
    return {"", std::string(pattern.label) + " " + in_words(name), value, value.is_number() ? pattern.unit : Unit::kText, ""};
  }
  return {"", in_words(key), value, value.is_number() ? Unit::kNone : Unit::kText, ""};
}

}  // namespace fathom
