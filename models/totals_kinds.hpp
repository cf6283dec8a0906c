// Totals of networks that are made of the same kinds of layers: in other numbers, or routed with another share of the tokens.
//
// A list is its ends (embedding, head, loss, their gradients) and, for every layer, what its kind of layer costs: sums over layers are numbers of layers times the
// sums of one. One network of one layer and one of two give a kind. In a routed kind the slots C of a sequence decide: its sums are polynomials of degree 2 in C > 0, found at three of them. Where rows are
// random the declared sums do not know the share; the expectation is worked out again, op by op, in the order of the op list, so that it is the same to the last bit.
// What this does not hold for (shared weights, adapters or frozen parts in training, prediction modules, fusions) is counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/builder.hpp"
#include "models/totals_sums.hpp"

namespace fathom {

class KindMemo {
 public:
  // The totals, if they follow from others; nullptr: they have to be counted. Networks of one family differ in nothing but their layers, and the capacity, slots and
  // rounding of their routes; scenarios may differ in the participation.
  const ListTotals* totals(std::uint64_t family, const Network& network, const Scenario& scenario, bool expectations);

 private:
  enum class Form : std::uint8_t {
    kOnce,   // this very kind, or one with as many slots
    kSlots,  // any number of slots above 0
    kShare,  // any share above 0 and below 1
  };
  struct Part {
    BlockConfig config;
    Form form = Form::kOnce;
    std::int64_t slots = -1;      // kOnce, ranked
    Fraction share{1, 1};         // of `block`, where rows are random
    Parabolas<kSums> sums;        // at: kOnce, kShare; in C - 1: kSlots
    Sums here{};                  // kSlots: at `slots`
    bool affine = true;
    BlockExpectation block;
    ExpectedCost expected;        // of one layer
  };
  // What a scenario makes of a route.
  struct Routing {
    bool ranked = false;
    std::int64_t slots = -1;
    Fraction share{1, 1};
  };

  bool applies(const Network& network) const;
  Routing routing(const BlockConfig& kind) const;
  Part* part(const Network& network, const BlockConfig& kind);
  bool polynomial(const BlockConfig& kind, const Routing& routing) const;
  bool matches(Part& part, const BlockConfig& kind, const Routing& routing) const;
  bool make(const Network& network, const BlockConfig& kind, const Routing& routing);
  // The sums of one layer of `kind`, and what its expectation is made of; sets ends_. False where there is no such thing.
  bool one_layer(const Network& network, const Scenario& scenario, const BlockConfig& kind, Sums& sums, bool& affine, BlockExpectation& into);
  static void set_slots(Part& part, std::int64_t slots);
  void set_share(Part& part, const Fraction& share) const;
  static ExpectedCost expectation(const BlockExpectation& block);

  std::uint64_t family_ = ~std::uint64_t{0};
  Scenario scenario_;
  bool expectations_ = false, refused_ = false;
  int requests_ = 0;
  std::vector<Part> parts_;
  std::optional<Sums> ends_;
  bool ends_affine_ = true;
  BlockExpectation first_, last_;   // embedding and head
  std::vector<std::int64_t> counts_;
  std::vector<int> order_;
  ListTotals current_;
};

}  // namespace fathom
