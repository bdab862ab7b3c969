// Named places where a test makes something go wrong: a process killed, a wait that never ends, a byte
// flipped. Armed by the environment variable LAYERCAST_FAILPOINTS, read once by main:
//   [role:]name=action[@skip][,name=action...]     action: kill | stop | throw | corrupt
// `skip` lets that many passes go by first. With a role ("publisher", "rank1") only that process arms the item.
// Each fires once, logged as "failpoint NAME fired". docs/cli.md lists the names.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>

namespace layercast {

// Thread-safe after construction. A default-constructed one is never armed and costs one branch.
class FailPoints {
 public:
  FailPoints() = default;
  // Throws kInvalidArgument on a malformed specification.
  explicit FailPoints(std::string_view specification, std::string_view role = {});
  static FailPoints FromEnvironment(std::string_view role = {});

  // Kills or stops this process, or throws kInternal, if `name` is armed with that; true: corrupt the data.
  bool Hit(std::string_view name);
  // While suspended, passes are neither counted nor disturbed. Not while another thread may be in Hit.
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
