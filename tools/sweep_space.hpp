// The configurations of a sweep as a numbered space: axes, row number -> configuration, without a list of rows.
//
// Rows are counted in a fixed order (machines outermost, then models; batch innermost), so that row n is the same configuration in every run: that is what
// makes parallel output deterministic and a resumed sweep checkable. Memory is that of the axes as they were written (a range is three numbers), never of the number of
// values or rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/network.hpp"
#include "models/overrides.hpp"
#include "models/scenario.hpp"
#include "reports/cell.hpp"
#include "tools/cli.hpp"
#include "tools/ranges.hpp"

namespace fathom {

struct SweepModelFlags {
  std::vector<std::string> models;
  std::vector<std::string> set;                         // KEY=VALUES over keys of the model's INI form
  std::string mod_every, capacity, slots, rounding, gate;  // lists; capacity "none": as the model is
  bool strict = false;                                  // config.json: an unknown key is an error
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
  std::string_view convention;        // "": none
  std::size_t machine = 0;            // index of the machines
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
  // `conventions`: names joined by commas, an axis; "": none. `machines`: names of what the rows are timed on, the outermost axis; none: the rows are counted.
  // `gpu`: its default type.
  SweepSpace(const SweepModelFlags& models, const ScenarioFlags& scenario, bool gpu, const std::string& conventions = "", std::vector<std::string> machines = {});

  std::uint64_t rows() const { return rows_; }
  const std::vector<SweepColumn>& columns() const { return columns_; }  // key columns, in order
  bool has_phase(Phase phase) const;
  bool routed() const;  // may rows be random: some network is routed, or is made so
  const std::vector<std::string>& notes() const { return notes_; }

  // Sets `point` to that row; cheap when the row before it was set last.
  void at(std::uint64_t row, SweepPoint& point) const;

 private:
  enum class Slot { kDtype, kKvDtype, kGradDtype, kLogits, kRouting, kParticipation, kRecompute, kMla, kFusion, kWeightDtype, kConvention, kKvPage, kMicro, kLength, kPast, kContext, kTokens, kBatch };
  // Words with what they mean, numbers, or fractions.
  struct Axis {
    Slot slot = Slot::kBatch;
    int column = -1;                    // of its text; -1: not shown
    bool given = false;
    std::vector<std::string> texts;
    std::vector<std::int64_t> words;    // by text
    std::optional<NumberList> numbers;
    std::optional<FractionList> fractions;
    std::uint64_t size() const { return numbers ? numbers->size() : fractions ? fractions->size() : texts.size(); }
    void text(std::uint64_t at, std::string& out) const;
  };
  struct PhasePart {
    Phase phase = Phase::kPrefill;
    std::uint64_t rows = 1;
    std::vector<bool> used;             // by axis
  };
  // The values of one --set: words, relations to the width and ranges, in the order written.
  struct SetAxis {
    struct Item {
      IniValue value;                   // as written
      std::int64_t times = 0, over = 1; // times > 0: width * times / over
      std::optional<NumberList> range;
      std::uint64_t before = 0;         // values of the items in front of it
    };
    std::vector<Item> items;
    std::uint64_t size = 0;
    int column = -1;
    void add(Item item);
    const Item& item(std::uint64_t at) const;
    // The value itself; of a relation its text.
    std::string text(std::uint64_t at) const;
  };
  struct ModelAxis {                    // one of --mod-every, --capacity, --slots, --rounding, --gate
    int column = -1;                    // -1: not given
    std::vector<std::string> words{""};
    std::optional<NumberList> numbers;
    std::optional<FractionList> fractions;
    std::uint64_t size() const { return numbers ? numbers->size() : fractions ? fractions->size() : words.size(); }
  };

  void add_models(const SweepModelFlags& flags);
  void add_set(const std::string& text, std::vector<std::string>& keys);
  void add_scenario(const ScenarioFlags& flags, const std::string& conventions);
  Axis& add_axis(Slot slot, const char* column, const std::string& text, bool always, Unit unit);
  int add_column(const std::string& key, Unit unit, bool number);
  bool applies(const Axis& axis, Phase phase) const;
  static bool even(const SetAxis& axis);
  void find_line();
  void find_family();
  std::uint64_t family_of(std::uint64_t network) const;
  void set_network(std::uint64_t index, SweepPoint& point) const;
  void set_value(const Axis& axis, std::uint64_t at, SweepPoint& point) const;
  std::int64_t default_length(const Network& network) const;

  bool gpu_ = false;
  std::uint64_t rows_ = 0, networks_ = 1, rows_per_network_ = 0;
  std::vector<std::string> machines_;
  int machine_column_ = -1;
  std::uint64_t line_size_ = 0;              // networks of one line; 0: there are none
  std::uint64_t line_inner_ = 1;             // networks between two of its steps
  bool families_ = false;
  std::vector<SweepColumn> columns_;
  std::vector<Network> models_;
  std::vector<NetworkOverrides> overrides_;  // none or one
  std::vector<SetAxis> sets_;
  ModelAxis every_, capacity_, slots_, rounding_, gate_;
  bool twin_ = false;
  std::vector<Axis> axes_;
  std::vector<PhasePart> phases_;
  int phase_column_ = -1;
  Scenario base_;
  std::vector<std::string> notes_;
};

}  // namespace fathom
