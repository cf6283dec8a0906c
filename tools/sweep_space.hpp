// The configurations of a sweep as a numbered space: axes, row number -> configuration, without a list of rows.
//
// Rows are counted in a fixed order (models outermost, batch innermost), so that row n is the same configuration in every run: that is what
// makes parallel output deterministic and a resumed sweep checkable. Memory depends on the axes, never on the number of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/network.hpp"
#include "models/overrides.hpp"
#include "models/scenario.hpp"
#include "reports/cell.hpp"
#include "tools/cli.hpp"

namespace fathom {

struct SweepModelFlags {
  std::vector<std::string> models;
  std::vector<std::string> set;                         // KEY=VALUES over keys of the model's INI form
  std::string mod_every, capacity, slots, rounding, gate;  // lists; capacity "none": as the model is
};

struct SweepColumn {
  std::string key;
  Unit unit = Unit::kText;
  bool number = false;  // written bare in JSON
};

// One configuration, and what is kept between neighbouring rows.
struct SweepPoint {
  std::uint64_t row = 0;
  const Network* network = nullptr;   // nullptr: `error` says why there is none
  std::uint64_t network_index = ~std::uint64_t{0};
  Scenario scenario;
  std::string error;                  // of the network
  // Networks that differ in one size alone, in even steps, are one line (models/totals_line.hpp); no line: kNoLine.
  static constexpr std::uint64_t kNoLine = ~std::uint64_t{0};
  std::uint64_t line = kNoLine;
  std::int64_t line_at = 0;
  std::size_t line_variant = 0;       // which of the configurations between two steps of the line
  // Networks that differ in their layers, or in the share of tokens that their routes take, are one family (models/totals_kinds.hpp); none: kNoLine.
  std::uint64_t family = kNoLine;
  std::size_t family_variant = 0;     // which of a network's configurations, whatever the participation
  std::vector<std::string> keys;      // texts of the key columns; empty where a column does not apply
  Network storage, unrouted;          // memory of `network`
};

class SweepSpace {
 public:
  // Throws Error(kInput / kUsage) for what cannot be read at all: unknown models, keys, words, ranges.
  SweepSpace(const SweepModelFlags& models, const ScenarioFlags& scenario, bool gpu);

  std::uint64_t rows() const { return rows_; }
  const std::vector<SweepColumn>& columns() const { return columns_; }  // key columns, in order
  bool has_phase(Phase phase) const;
  bool routed() const;  // may rows be random: some network is routed, or is made so
  const std::vector<std::string>& notes() const { return notes_; }

  // Sets `point` to that row; cheap when the row before it was set last.
  void at(std::uint64_t row, SweepPoint& point) const;

 private:
  enum class Slot { kDtype, kKvDtype, kGradDtype, kLogits, kRouting, kParticipation, kRecompute, kMla, kFusion, kWeightDtype, kKvPage, kMicro, kLength, kPast, kContext, kTokens, kBatch };
  struct Axis {
    Slot slot = Slot::kBatch;
    int column = -1;                    // of its text; -1: not shown
    bool given = false;
    std::vector<std::int64_t> values;
    std::vector<Fraction> fractions;    // of kParticipation
    std::vector<std::string> texts;
    std::size_t size() const { return texts.size(); }
  };
  struct PhasePart {
    Phase phase = Phase::kPrefill;
    std::uint64_t rows = 1;
    std::vector<bool> used;             // by axis
  };
  struct SetValue {
    IniValue value;
    std::int64_t times = 0, over = 1;   // times > 0: width * times / over
  };
  struct ModelAxis {                    // one of --mod-every, --capacity, --slots, --rounding, --gate
    int column = -1;
    std::vector<std::string> values;    // "" = not given
    std::vector<std::string> texts;
  };

  void add_models(const SweepModelFlags& flags);
  void add_set(const std::string& text, std::vector<std::string>& keys);
  void add_scenario(const ScenarioFlags& flags);
  Axis& add_axis(Slot slot, const char* column, const std::string& text, bool always, Unit unit);
  int add_column(const std::string& key, Unit unit, bool number);
  bool applies(const Axis& axis, Phase phase) const;
  void find_line();
  void find_family();
  std::uint64_t family_of(std::uint64_t network) const;
  void set_network(std::uint64_t index, SweepPoint& point) const;
  void set_value(const Axis& axis, std::size_t at, SweepPoint& point) const;
  std::int64_t default_length(const Network& network) const;

  bool gpu_ = false;
  std::uint64_t rows_ = 0, networks_ = 1, rows_per_network_ = 0;
  std::uint64_t line_size_ = 0;              // networks of one line; 0: there are none
  std::uint64_t line_inner_ = 1;             // networks between two of its steps
  bool families_ = false;
  std::vector<SweepColumn> columns_;
  std::vector<Network> models_;
  std::vector<NetworkOverrides> overrides_;  // none or one
  std::vector<std::vector<SetValue>> set_values_;
  std::vector<int> set_columns_;
  ModelAxis every_, capacity_, slots_, rounding_, gate_;
  bool twin_ = false;
  std::vector<Axis> axes_;
  std::vector<PhasePart> phases_;
  int phase_column_ = -1;
  Scenario base_;
  std::vector<std::string> notes_;
};

// "0.1:0.5:0.1" and lists of exact fractions, "none" kept as a word.
std::vector<std::string> fraction_list(const std::string& text, std::string_view flag);

}  // namespace fathom
