// More threads for fill_weight while this lives: contents do not depend on how many there are. For backends whose ops run elsewhere than on the
// host's cores; on one that times the cores, one thread is the default.
#pragma once

namespace fathom {

class FillThreads {
 public:
  explicit FillThreads(int threads);  // at least 1
  ~FillThreads();
  FillThreads(const FillThreads&) = delete;
  FillThreads& operator=(const FillThreads&) = delete;

 private:
  int before_;
};

}  // namespace fathom
