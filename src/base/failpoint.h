// Named places where a test makes something go wrong: a process killed, a wait that never ends, a byte
// flipped. Armed by the environment variable LAYERCAST_FAILPOINTS, read once by main:
//   name=action[@skip][,name=action...]     action: kill | stop | throw | corrupt
// `skip` lets that many passes go by first. Each firing is logged as "failpoint NAME fired".
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
  explicit FailPoints(std::string_view specification);
  static FailPoints FromEnvironment();

  // Kills or stops this process, or throws kInternal, if `name` is armed with that; true: corrupt the data.
  bool Hit(std::string_view name);

 private:
  enum class Action { kKill, kStop, kThrow, kCorrupt };
  struct Armed {
    Action action;
    std::atomic<long> remaining;  // passes still to let go by; negative once fired
  };
  std::map<std::string, Armed, std::less<>> armed_;
};

}  // namespace layercast
