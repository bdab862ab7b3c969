// Named places where a test makes something go wrong: a process killed, a wait that never ends, a byte
// flipped. Failpoints are armed by the environment variable LAYERCAST_FAILPOINTS:
//   [role:]name=action[@skip][,name=action...]     action: kill | stop | throw | corrupt
// `skip` lets so many passes go by first. An item with a role ("publisher", "rank1") is armed in that process alone.
// Each item fires once, and is logged as "failpoint NAME fired". docs/cli.md lists the names.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>

namespace layercast {

// Resource; thread-safe after construction. A default-constructed one is never armed, and a pass costs one branch.
class FailPoints {
 public:
  FailPoints() = default;
  // Throws kInvalidArgument on a malformed specification, and on a name that no failpoint has, whatever the role.
  explicit FailPoints(std::string_view specification, std::string_view role = {});
  static FailPoints FromEnvironment(std::string_view role = {});

  // A pass by the failpoint `name`. If it is armed, this kills or stops the process, throws kInternal, or returns true:
  // the caller then corrupts its data.
  bool Hit(std::string_view name);
  // While suspended, passes are neither counted nor disturbed. Must not be called while another thread may be in Hit.
  void Suspend(bool suspended) { suspended_ = suspended; }

 private:
  enum class Action { kKill, kStop, kThrow, kCorrupt };
  struct Armed {
    Action action;
    std::atomic<long> remaining;  // passes still to let go by; negative once fired
  };
  std::map<std::string, Armed, std::less<>> armed_;
  bool suspended_ = false;
};

}  // namespace layercast
