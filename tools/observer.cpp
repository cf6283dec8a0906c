#include "tools/observer.hpp"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace fathom {
namespace {

struct CpuTimes {
  double busy = 0;   // user + nice + system + irq of all processes, seconds x ticks
  double steal = 0;
  double total = 0;
  double own = 0;    // of this process, ticks
};

CpuTimes read_times() {
  CpuTimes times;
  std::ifstream stat("/proc/stat");
  std::string name;
  stat >> name;
  std::vector<double> fields;
  std::string line;
  std::getline(stat, line);
  std::istringstream in(line);
  for (double value; in >> value;) fields.push_back(value);
  for (size_t i = 0; i < fields.size() && i < 8; ++i) {
    times.total += fields[i];
    if (i == 7)
      times.steal = fields[i];
    else if (i != 3 && i != 4)
      times.busy += fields[i];
  }
  std::ifstream self("/proc/self/stat");
  std::getline(self, line);
  const size_t after = line.rfind(')');  // the name may hold spaces
  if (after != std::string::npos) {
    std::istringstream rest(line.substr(after + 2));
    std::string word;
    for (int i = 3; rest >> word; ++i)
      if (i == 14 || i == 15) times.own += std::stod(word);
  }
  return times;
}

class ProcObserver : public MachineObserver {
 public:
  ProcObserver() : last_(read_times()) {}
  std::map<std::string, double> observe() override {
    const CpuTimes now = read_times();
    const double total = now.total - last_.total;
    std::map<std::string, double> figures;
    if (total > 0) {
      // In cores: /proc/stat sums over all of them, so a share of the total times the number of cores.
      cores_ = cores_ > 0 ? cores_ : count_cores();
      figures["foreign_cpu"] = std::max(0.0, (now.busy - last_.busy) - (now.own - last_.own)) / total * cores_;
      figures["steal"] = (now.steal - last_.steal) / total * cores_;
    }
    last_ = now;
    return figures;
  }

 private:
  static double count_cores() {
    std::ifstream stat("/proc/stat");
    double cores = 0;
    for (std::string line; std::getline(stat, line);) cores += line.rfind("cpu", 0) == 0 && line.size() > 3 && line[3] != ' ';
    return std::max(1.0, cores);
  }
  CpuTimes last_;
  double cores_ = 0;
};

}  // namespace

std::unique_ptr<MachineObserver> make_observer(const std::string& backend) {
  if (backend == "fake") return nullptr;
  return std::make_unique<ProcObserver>();
}

}  // namespace fathom
