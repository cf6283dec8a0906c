// Op lists of configurations that differ in batch and length alone, without making each: what makes sweeps fast that predict.
//
// Lists of one network and one phase have the same ops, operands and steps; what differs are whole numbers in them: rows, pairs, keys, rows of tensors. Each is a + b x batch with
// a and b polynomials of degree 2 in the lengths of one residue class, up to the next break (models/totals_breaks.hpp), as the sums of the lists are. Six lists give all of
// their numbers (few forms, many places), two more, one of them far away, are made and compared before that is believed; where anything else differs each list is made.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/builder.hpp"

namespace fathom {

class ListLine {
 public:
  // build_in_place(network, scenario): without names, valid until the next call. `network_id` tells networks apart: the same id must mean the same network.
  const Workload& at(const Network& network, std::uint64_t network_id, const Scenario& scenario);
  // Whether the last list followed from others; for tests.
  bool followed() const { return followed_; }

 private:
  // at + rise t + bend t (t - 1) / 2 and the same per further sequence, modulo 2^128.
  using Form = std::array<u128, 6>;
  template <class T>
  struct Place {
    T* where = nullptr;
    std::size_t form = 0;
  };
  struct Class {
    std::int64_t residue = 0;
    std::vector<std::int64_t> breaks;
    int requests = 0;
    bool known = false, bent = false;
    std::int64_t first = 0;
    WorkloadBuilder list;
    const Workload* made = nullptr;
    std::vector<Form> forms;
    std::vector<Place<std::int64_t>> numbers;   // in `list`
    std::vector<Place<u128>> wide;
  };
  Class* class_of(const Scenario& scenario);
  bool count(Class& c, const Network& network, const Scenario& scenario) const;
  void move(Class& c, const Scenario& scenario);

  std::uint64_t id_ = 0;
  std::optional<Scenario> scenario_;   // of the network at hand, whatever its batch and length
  std::int64_t period_ = 0;
  std::vector<std::unique_ptr<Class>> classes_;
  std::vector<std::int64_t> breaks_;
  std::vector<u128> values_;           // by form
  WorkloadBuilder memory_;             // of lists that are made
  bool followed_ = false;
};

}  // namespace fathom
