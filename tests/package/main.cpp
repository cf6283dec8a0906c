// fathom's calculator as a library: what routing every second layer of GPT-2 at capacity 1/8 saves.
#include <iostream>

#include "models/builder.hpp"
#include "models/registry.hpp"

int main() {
  const fathom::Network dense = fathom::load_network("gpt2-124m");
  fathom::Route route;
  route.capacity = fathom::parse_fraction("1/8");
  const fathom::Network routed = fathom::with_routes(dense, 2, route);
  fathom::Scenario scenario;
  scenario.length = 1024;
  for (const fathom::Network& network : {dense, routed})
    std::cout << network.name << ": " << fathom::count_totals(network, scenario).total.flops.str() << " FLOP\n";
}
