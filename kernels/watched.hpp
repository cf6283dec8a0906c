// Passes that can be watched while their ops are queued: profilers set their marks there, and the device never waits between two ops.
#pragma once

namespace fathom {

// Told before and after every op's calls are queued (correlation ids, ranges).
class PassWatcher {
 public:
  virtual ~PassWatcher() = default;
  virtual void begin_op(int instance) = 0;
  virtual void end_op(int instance) = 0;
  // Around the launch of a captured graph, whose ops were watched while it was captured.
  virtual void begin_launch() {}
  virtual void end_launch() {}
};

// What an Execution also is where its passes can be watched.
class WatchedExecution {
 public:
  virtual ~WatchedExecution() = default;
  // The same as run().
  virtual void run_watched(PassWatcher& watcher) = 0;
};

}  // namespace fathom
